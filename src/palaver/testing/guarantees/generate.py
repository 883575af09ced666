"""Answers, and the record of what was sent for them."""

from __future__ import annotations

from typing import Any

from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import engine_of, services_of
from palaver.conversations.store import Store
from palaver.errors import ConversationNotFound, ModelUnavailable, PermissionDenied
from palaver.model import READ, Scope, ToolCall, Turn
from palaver.ports.answer_places import PlaceRequest
from palaver.ports.models import CounterBound
from palaver.testing.fakes import FakeClock, ScriptedModel
from palaver.testing.kit import Database, guarantee, refused


def answering(*script: Any) -> dict[str, Any]:
    """Options for a store whose model follows a script."""
    return {"model": "m", "models": {"m": ScriptedModel(script)}, "user": "ada", "worker": False}


@guarantee
async def an_answer_is_stored_once_for_its_key(db: Database) -> None:
    """A message and its answer are stored; the same idempotency key returns it without a model call."""
    async with db.open(**answering("Rice.")) as store:
        first = await store.generate("k", "Food?", idempotency_key="1")
        assert await store.generate("k", "Food?", idempotency_key="1") == first
        talk = await store.conversation("k")
        assert [turn.text for turn in await talk.history()] == ["Food?", "Rice."]
        await talk.verify()


@guarantee
async def tool_rounds_are_turns(db: Database) -> None:
    """Calls and results are turns of their own, each result right behind its call."""

    def look(word: str) -> str:
        """Look."""
        return f"{word} found"

    script = ["I look.", ToolCall("c1", "look", {"word": "rice"})]
    async with db.open(**answering(script, "Done.")) as store:
        talk = await store.conversation("k")
        await talk.generate("Look.", tools=[look])
        turns: list[Turn] = await talk.history()
        assert [turn.role for turn in turns] == ["user", "assistant", "tool", "assistant"]
        assert turns[2].tool_results[0].content == "rice found"
        await talk.verify()


@guarantee
async def an_answer_that_fails_leaves_the_message(db: Database) -> None:
    """When the model fails, the message stays, the failure is on record, and the thread can be answered again."""
    async with db.open(**answering(ModelUnavailable("m", "is down"), "Rice."), generate={"retries": 0}) as store:
        talk = await store.conversation("k")
        async with refused(ModelUnavailable):
            await talk.generate("Food?")
        assert [turn.text for turn in await talk.history()] == ["Food?"]
        assert (await talk.generate()).text == "Rice."
        failed, answered = await talk.requests()
        assert failed.response is not None
        assert failed.response["error"]["type"] == "ModelUnavailable"
        assert answered.response is not None
        assert answered.response["error"] is None


@guarantee
async def what_was_sent_is_on_record_and_goes_with_the_words(db: Database) -> None:
    """Every model call is recorded; forgetting a turn deletes the bodies that may contain it, and reset all."""
    async with db.open(**answering("One.", "Two.", "Three.")) as store:
        talk = await store.conversation("k")
        for text in ("apple", "zanzibar", "pear"):
            await talk.generate(text, semantic_recall=False)
        requests = await talk.requests()
        assert "zanzibar" in repr(requests[1].body)
        assert [one.turn for one in requests] == [turn.id for turn in await talk.history(roles=["assistant"])]
        assert await talk.requests(1, before=requests[1]) == requests[:1]
        assert await talk.requests(turn=requests[1].turn or "") == requests[1:2]
        await talk.forget((await talk.history())[2])
        assert [one.body is not None for one in await talk.requests()] == [True, False, False]
        await talk.reset()
        assert await talk.requests() == []


@guarantee
async def a_quotation_goes_with_its_turn(db: Database) -> None:
    """A body that quotes a turn of another conversation loses its words when that turn is forgotten."""
    async with db.open(**answering("One.", "Two.")) as store:
        other = await store.conversation("other")
        turn = await other.append("user", "The word is zanzibar.")
        talk = await store.conversation("k")
        await talk.generate("What is the word?", recall_scope="owner")
        assert "zanzibar" in repr(await talk.requests())
        await other.forget(turn)
        assert "zanzibar" not in repr(await talk.requests())


@guarantee
async def a_quotation_goes_whoever_forgets(db: Database) -> None:
    """This also holds if the caller cannot see the conversation that quotes the turn; the rest of that stays."""
    async with db.open(**answering("One.", "Two.")) as store:
        shared = await store.conversation("shared", participants=["bob"])
        turn = await shared.append("user", "The word is zanzibar.")
        bobs = store.scoped(Scope(store.scope.tenant, "bob"))
        talk = await bobs.conversation("k")
        for word in ("nothing", "the word"):
            await talk.generate(f"What is {word}?", recall_scope="tenant" if word == "the word" else "conversation")
        assert "zanzibar" in repr((await talk.requests())[1].body)
        async with refused(ConversationNotFound):
            await store.get(talk.id)
        await shared.forget(turn)
        assert [one.body is not None for one in await talk.requests()] == [True, False]


@guarantee
async def requests_are_for_the_owner(db: Database) -> None:
    """Participants see the thread but not the requests to models; strangers see nothing."""
    async with db.open(**answering("One.")) as store:
        talk = await store.conversation("k", participants=["bob"])
        await talk.generate("Food?")
        bob = await store.scoped(Scope.of(store.scope.tenant, "bob")).get(talk.id)
        async with refused(PermissionDenied):
            await bob.requests()
        async with refused(ConversationNotFound):
            await store.scoped(Scope.of(store.scope.tenant, "eve")).requests(talk.id)


@guarantee
async def what_is_learned_of_a_counter_is_kept_per_tenant(db: Database) -> None:
    """The bound of a model's counter is stored and replaced, and other tenants do not see it."""
    async with db.open() as store:
        for ratio, samples in ((1.25, 1), (1.5, 2)):
            bound = CounterBound(model="m", ratio=ratio, samples=samples)
            await engine_of(store).put_counter_bound(store.scope, bound)
            assert await engine_of(store).counter_bound(store.scope, "m") == bound
        other = store.scoped(Scope.of("another", None))
        assert await engine_of(other).counter_bound(other.scope, "m") is None


@guarantee
async def a_title_of_a_job_gives_way(db: Database) -> None:
    """A generated title never replaces one that was set by hand, and goes when a turn is forgotten."""
    async with db.open(**answering("Rice.", "Food in Asia", "Rice.")) as store:
        talk = await store.conversation("k")
        await talk.generate("What do people eat?")
        await store.settle()
        assert (await talk.refresh()).title == "Food in Asia"
        await talk.forget((await talk.history())[0])
        assert (await talk.refresh()).title is None
        mine = await store.conversation("mine", title="Mine")
        await mine.generate("What do people eat?")
        await store.settle()
        assert (await mine.refresh()).title == "Mine"
        await talk.verify()


# ---- simultaneous questions ----------------------------------------------------------------------------------------

LEASE = 30_000_000  # microseconds


async def _take(store: Store, talk: Conversation, place: str, question: int | None = None, alone: bool = False) -> int:
    wanted = PlaceRequest(id=place, question=question, alone=alone)
    return await engine_of(store).take_answer_place(store.scope, talk.id, wanted, LEASE)


@guarantee
async def answers_have_the_order_of_their_questions(db: Database) -> None:
    """A place that was taken before its question was stored counts until it is known where that question stands."""
    async with db.open() as one, db.open() as two:
        talk, other = await one.conversation("k"), await two.conversation("k")
        assert await _take(one, talk, "a") == 0
        await _take(two, other, "b")
        second = await other.append("user", "Asked by b.")
        assert await _take(two, other, "b", second.seq) == 1
        third = await talk.append("user", "Asked by a.")
        assert await _take(one, talk, "a", third.seq) == 1
        assert await _take(two, other, "b", second.seq) == 0
        assert await _take(one, talk, "a", third.seq) == 1
        await engine_of(two).leave_answer_place(two.scope, other.id, "b")
        assert await _take(one, talk, "a", third.seq) == 0


@guarantee
async def an_answer_alone_takes_no_place_behind_others(db: Database) -> None:
    """A place that must be alone is refused while another one is taken, and taken once that one is left."""
    async with db.open() as store:
        talk = await store.conversation("k")
        assert await _take(store, talk, "a", alone=True) == 0
        assert await _take(store, talk, "b", alone=True) == 1
        assert await _take(store, talk, "a", 0, alone=True) == 0
        await engine_of(store).leave_answer_place(store.scope, talk.id, "a")
        assert await _take(store, talk, "b", alone=True) == 0


@guarantee
async def a_place_is_free_when_its_lease_has_ended(db: Database) -> None:
    """A process that died keeps nobody waiting for longer than the lease."""
    clock = FakeClock()
    async with db.open(clock=clock) as store:
        talk = await store.conversation("k")
        assert await _take(store, talk, "gone", 0) == 0
        assert await _take(store, talk, "next", 1) == 1
        clock.advance(20)
        assert await _take(store, talk, "next", 1) == 1
        clock.advance(20)
        assert await _take(store, talk, "next", 1) == 0


@guarantee
async def places_are_for_those_who_may_write(db: Database) -> None:
    """A scope that may only read takes no place, and a stranger learns nothing of the conversation."""
    async with db.open(user="ada") as store:
        talk = await store.conversation("k", participants=["bob"])
        reader = store.scoped(Scope(store.scope.tenant, "bob", frozenset({READ})))
        async with refused(PermissionDenied):
            await services_of(await reader.get(talk.id)).answers.reserve()
        async with refused(ConversationNotFound):
            await _take(store.scoped(Scope.of(store.scope.tenant, "eve")), talk, "a")
