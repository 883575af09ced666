"""Routes of turns: append, read, edit, forget, branches, search."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import Query, Request
from starlette.responses import Response

from palaver.conversations.conversation import Conversation
from palaver.core.filters import read_where
from palaver.core.rights import actor_of_edit
from palaver.core.turn_options import TurnInput
from palaver.errors import AppendConflict, InvalidInput
from palaver.model import Attachment, Turn
from palaver.server import wire
from palaver.server.attachment_copies import copy_attachment
from palaver.server.dependencies import (
    ConversationDep,
    IdempotencyKey,
    IfMatch,
    IfNoneMatch,
    Reply,
    StoreDep,
    TurnId,
    conflict_error,
    page_path,
    reply_items,
    reply_matches,
    reply_with_etag,
    resolve_expected_seq,
    sent_fields,
)
from palaver.server.rest import schemas

Cursor = Annotated[str | None, Query(max_length=512, min_length=1)]
Names = Annotated[list[schemas.Name] | None, Query(min_length=1, max_length=100)]
Roles = Annotated[list[schemas.Role] | None, Query(min_length=1)]
Limit = Annotated[int, Query(ge=1, le=1_000, description="Maximum number of turns.")]
INTERRUPTED = 10  # latest turns among which interrupted answers are searched


async def find_attachments(
    talk: Conversation, ids: list[str] | None, replaced: str | None = None
) -> tuple[Attachment, ...]:
    """Look up attachments by id. Files of the turn that is replaced are copied, because a file belongs to one turn."""
    found = [await talk.attachment(id) for id in ids or ()]
    return tuple([await copy_attachment(talk, one) if replaced and one.turn == replaced else one for one in found])


async def _draft_fields(
    talk: Conversation, body: schemas.TurnFields, *without: str, replaced: str | None = None
) -> dict[str, Any]:
    fields = sent_fields(body, *without)
    if "attachments" in fields:
        fields["attachments"] = await find_attachments(talk, fields["attachments"], replaced)
    return {name: value for name, value in fields.items() if value is not None}


async def append_turn(
    talk: ConversationDep, body: schemas.NewTurn, idempotency_key: IdempotencyKey = None, if_match: IfMatch = None
) -> Response:
    """Append one turn. It is on disk when the response arrives."""
    fields = await _draft_fields(talk, body, "expected_seq", replaced=body.replaces)
    if idempotency_key is not None:
        fields["idempotency_key"] = idempotency_key
    role, content = fields.pop("role"), fields.pop("content", "")
    try:
        turn = await talk.append(
            role, content, expected_seq=resolve_expected_seq(if_match, body.expected_seq), **fields
        )
    except AppendConflict as conflict:
        raise conflict_error(if_match, conflict) from None
    return Reply(wire.turn(turn), 201, {"Location": f"/api/conversations/{talk.id}/turns/{turn.id}"})


async def append_turns(talk: ConversationDep, body: schemas.NewTurns, if_match: IfMatch = None) -> Response:
    """Append up to 1,000 turns in one transaction: all of them or none."""
    batch = cast("list[TurnInput]", [await _draft_fields(talk, one) for one in body.turns])
    try:
        turns = await talk.append_many(batch, expected_seq=resolve_expected_seq(if_match, body.expected_seq))
    except AppendConflict as conflict:
        raise conflict_error(if_match, conflict) from None
    return Reply({"items": wire.turns(turns)}, 201)


async def list_turns(
    request: Request,
    talk: ConversationDep,
    limit: Limit = 50,
    before: Annotated[Cursor, Query(description="The id of a turn: only turns before it.")] = None,
    after: Annotated[Cursor, Query(description="The id of a turn: only turns after it.")] = None,
    since: Annotated[schemas.Moment | None, Query(description="Only turns from this time on.")] = None,
    until: Annotated[schemas.Moment | None, Query(description="Only turns before this time.")] = None,
    include_superseded: Annotated[bool, Query(description="Include turns that are not in the active branch.")] = False,
    include_summaries: Annotated[bool, Query(description="Include the summaries of the turns.")] = False,
    participant: Annotated[Names, Query(description="Only turns of this actor. May be repeated.")] = None,
    role: Annotated[Roles, Query(description="Only turns with this role. May be repeated.")] = None,
    where: schemas.WhereText = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """List the latest turns of the active branch, oldest first. `older` and `newer` are paths of further pages.

    If the last answer was interrupted, it follows the other turns, with the status `aborted`. It is listed until the
    conversation continues.
    """
    found = await talk.history(
        limit + 1,
        before=before,
        after=after,
        since=since,
        until=until,
        include_superseded=include_superseded,
        include_summaries=include_summaries,
        participants=participant,
        roles=role,
        where=read_where(where),
    )
    turns = [one for one in found if isinstance(one, Turn)]
    more = len(turns) > limit
    if more:
        surplus = turns[-1] if after is not None else turns[0]
        place = found.index(surplus)
        # Summaries before the surplus turn stay: they are of what came before this page.
        found = found[:place] if after is not None else [*found[:place], *found[place + 1 :]]
        turns.remove(surplus)
    older = page_path(request, before=turns[0].id, after=None) if turns and (more or after) else None
    newer = page_path(request, after=turns[-1].id, before=None) if turns and ((more and after) or before) else None
    if more and after is None:
        older = page_path(request, before=turns[0].id)
    filtered = any(one is not None for one in (until, participant, role, where))
    is_newest = newer is None and not filtered and not include_superseded
    if is_newest:
        found = [*found, *await _interrupted_answers(talk, turns)]
    body = {
        "items": [wire.turn(one) if isinstance(one, Turn) else wire.plain(one) for one in found],
        "older": older,
        "newer": newer,
        "last_event": talk.info.last_event,
    }
    return reply_with_etag(body, talk.info, if_none_match, {"older": older, "newer": newer})


async def get_turn(talk: ConversationDep, turn: TurnId) -> Response:
    """Get one turn in its current state."""
    return Reply(wire.turn(await talk.turn(turn)))


async def forget_turn(talk: ConversationDep, turn: TurnId) -> Response:
    """Delete a turn permanently, with its files and its entries in indexes, summaries, facts and requests."""
    await talk.forget(turn)
    return Response(status_code=204)


async def edit_turn(
    store: StoreDep,
    talk: ConversationDep,
    turn: TurnId,
    body: schemas.EditedTurn,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Replace a turn with a new version. The old version is kept, and can be made active again."""
    old = await talk.turn(turn)
    fields = {"actor": actor_of_edit(store.scope, old), **await _draft_fields(talk, body, replaced=old.id)}
    if idempotency_key is not None:
        fields["idempotency_key"] = idempotency_key
    content, discard_after = fields.pop("content", ""), fields.pop("discard_after", True)
    new = await talk.append(old.role, content, replaces=old, discard_after=discard_after, **fields)
    return Reply(wire.turn(new), 201, {"Location": f"/api/conversations/{talk.id}/turns/{new.id}"})


async def switch_branch(talk: ConversationDep, turn: TurnId) -> Response:
    """Make the branch of this turn active."""
    await talk.switch(turn)
    return Reply(wire.conversation(await talk.refresh()))


async def list_branches(
    talk: ConversationDep, turn: Annotated[Cursor, Query(description="The id of a turn: only its position.")] = None
) -> Response:
    """List the positions that have more than one version: all of them, or that of one turn."""
    return reply_items([wire.branch(one) for one in await talk.branches(turn)])


async def search_turns(
    talk: ConversationDep,
    q: Annotated[str, Query(max_length=1_000, description="The words to search for.")],
    limit: Annotated[int, Query(ge=1, le=100, description="Maximum number of turns.")] = 10,
    where: schemas.WhereText = None,
) -> Response:
    """Find the turns that contain any of the words in `q`, the best match first."""
    return await reply_matches(await talk.search(q, limit, where=read_where(where)), wire.match)


def find_question(turns: list[Turn], answer: Turn) -> Turn:
    """Find the user turn that an answer belongs to."""
    asked = answer.metadata.get("answers")
    for turn in reversed(turns):
        if turn.role == "user" and (turn.id == asked or asked is None):
            return turn
    raise InvalidInput("turn", "is not an answer to a user turn in the active branch")


async def _interrupted_answers(talk: Conversation, turns: list[Turn]) -> list[Turn]:
    """Return what people read of answers that were interrupted after the last turn of the active branch."""
    last = turns[-1] if turns else None
    if last is None or last.role == "assistant" or talk.info.next_seq <= last.seq + 1:
        return []
    latest = await talk.history(INTERRUPTED, include_superseded=True)
    return [one for one in latest if one.seq > last.seq and one.status == "aborted" and one.text]
