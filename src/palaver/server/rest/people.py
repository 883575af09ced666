"""Routes of the memory of a person. `me` is the caller."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query
from starlette.responses import Response

from palaver.conversations.internals import components_of, counter_of
from palaver.conversations.subjects import MAX_ITEMS, Subject
from palaver.core.validation import MAX_NAME
from palaver.server import wire
from palaver.server.dependencies import ID, Reply, StoreDep, reply_items, sent_fields
from palaver.server.rest import schemas

ME = "me"


async def get_person(
    store: StoreDep, person: Annotated[str, Path(**ID, description="The id of a user. `me`: the caller.")]
) -> Subject:
    """Return the memory of the person of the path."""
    local = components_of(store).worker.person.default_person
    return store.person((store.scope.user or local or ME) if person == ME else person)


PersonDep = Annotated[Subject, Depends(get_person)]
ItemId = Annotated[str, Path(**ID, description="The id of the item.")]


async def get_person_profile(store: StoreDep, person: PersonDep) -> Response:
    """Get what is remembered about a person as a short text, with counts of the items."""
    profile = await person.profile()
    approved, proposed = await person.facts(), await person.proposals()
    return Reply(
        {
            "id": person.id,
            "profile": profile,
            "tokens": counter_of(store)(profile),
            "approved": len(approved),
            "proposed": len(proposed),
        }
    )


async def list_person_facts(
    person: PersonDep,
    kind: Annotated[
        str | None, Query(min_length=1, max_length=MAX_NAME, description="Only items of this kind.")
    ] = None,
    as_of: Annotated[schemas.Moment | None, Query(description="The items that were believed at this time.")] = None,
    include_ended: Annotated[bool, Query(description="Include items that no longer hold.")] = False,
    status: Annotated[Literal["approved", "proposed", "all"], Query(description="Status of the items.")] = "approved",
    limit: Annotated[int, Query(ge=0, le=MAX_ITEMS, description="Maximum number of items.")] = 1_000,
) -> Response:
    """List what is remembered about a person, newest first, with the source turns."""
    found = await person.facts(
        kind=kind, as_of=as_of, include_ended=include_ended, status=None if status == "all" else status, limit=limit
    )
    return reply_items([wire.item(one) for one in found])


async def remember_about_person(person: PersonDep, body: schemas.NewItem) -> Response:
    """Remember something about a person. Extractors do not change it."""
    options: dict[str, Any] = sent_fields(body)
    return Reply(wire.item(await person.remember(options.pop("text"), **options)), 201)


async def correct_person_fact(person: PersonDep, item: ItemId, body: schemas.CorrectedItem) -> Response:
    """Replace an item with a corrected one. Later statements in conversations do not override it."""
    options: dict[str, Any] = sent_fields(body)
    return Reply(wire.item(await person.correct(item, options.pop("text"), **options)))


async def approve_person_fact(person: PersonDep, item: ItemId) -> Response:
    """Approve a proposed item. From then on, prompts can contain it."""
    return Reply(wire.item(await person.approve(item)))


async def drop_person_fact(person: PersonDep, item: ItemId) -> Response:
    """Delete an item permanently."""
    await person.drop(item)
    return Response(status_code=204)


async def get_person_fact_history(person: PersonDep, item: ItemId) -> Response:
    """List the versions of an item, oldest first."""
    return reply_items([wire.item(one) for one in await person.fact_history(item)])


async def recall_for_person(person: PersonDep, body: schemas.PersonQuery) -> Response:
    """Find what matches a question best: remembered items, and turns of all conversations that the caller may see."""
    return reply_items([wire.hit(one) for one in await person.recall(body.query, k=body.k)])


async def export_person(person: PersonDep) -> Response:
    """Export everything that is remembered about a person, including ended and proposed items."""
    return Reply(await person.export())


async def forget_person(person: PersonDep) -> Response:
    """Delete everything that is remembered about a person, permanently. Conversations are kept."""
    await person.forget()
    return Response(status_code=204)


async def learn_about_person(person: PersonDep) -> Response:
    """Read the conversations that a person owns again, in the background."""
    return Reply({"conversations": await person.learn()}, 202)


async def set_person_consent(person: PersonDep, body: schemas.ConsentGiven) -> Response:
    """Record whether a person agrees to be remembered."""
    await person.consent(body.agreed)
    return Response(status_code=204)


async def verify_person(person: PersonDep) -> Response:
    """Verify every remembered item against the log of this memory."""
    verified = await person.verify()
    if verified is None:
        return Reply({"ok": True, "conversation": ""})
    return Reply({"ok": True, **wire.plain(verified)})


async def audit_person(
    person: PersonDep, after: Annotated[int, Query(ge=0, description="Only events after the one with this number.")] = 0
) -> Response:
    """List the log of a person's memory: who changed it, and when. The log has no content."""
    found = await person.audit(after=after)
    return Reply({"items": [wire.event(one) for one in found], "next": None})
