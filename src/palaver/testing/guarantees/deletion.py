"""Permanent deletion."""

from __future__ import annotations

from typing import Any

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.errors import ConversationGone, ConversationNotFound, InvalidInput, TurnGone
from palaver.testing.fakes import FakeClock
from palaver.testing.guarantees.proof import busy_talk, rows
from palaver.testing.kit import Database, guarantee, refused


@guarantee
async def a_forgotten_turn_is_gone(db: Database) -> None:
    """A forgotten turn is in no history, search, branch or record; only the fact that it existed is left."""
    async with db.open() as store:
        talk = await store.conversation("k")
        kept = await talk.append("user", "rice")
        turn = await talk.append("user", "zanzibar", metadata={"m": "zanzibar"}, idempotency_key="zanzibar")
        edit = await talk.append("user", "zanzibar edit", replaces=turn)
        await talk.forget(turn)
        await talk.forget(edit.id)
        assert await talk.history() == await talk.history(include_superseded=True) == [kept]
        assert await talk.search("zanzibar") == []
        assert await store.search("zanzibar") == []
        assert await talk.branches() == []
        assert "zanzibar" not in repr(await rows(talk))
        async with refused(TurnGone, turn=turn.id):
            await talk.turn(turn)
        await talk.verify()


@guarantee
async def a_tombstone_marks_the_place(db: Database) -> None:
    """Forgetting writes one event per turn; forgetting again writes none."""
    async with db.open(user="ada") as store:
        talk = await store.conversation("k")
        turn = await talk.append("user", "x")
        await talk.forget(turn)
        await talk.forget(turn)
        [event] = await talk.audit(kinds=["forget"])
        assert (event.turn, event.actor) == (turn.id, "ada")
        assert (await talk.append("user", "y")).seq == 1


@guarantee
async def a_retry_cannot_restore_a_forgotten_turn(db: Database) -> None:
    """The idempotency key of a forgotten turn stays used: a retry is refused and stores nothing."""
    async with db.open() as store:
        talk = await store.conversation("k")
        turn = await talk.append("user", "pay", idempotency_key="order-1")
        opened = await talk.append_open("assistant", idempotency_key="order-2")
        await talk.forget(turn)
        await talk.forget(opened)
        async with refused(TurnGone, turn=turn.id):
            await talk.append("user", "pay", idempotency_key="order-1")
        async with refused(TurnGone, turn=opened.id):
            await talk.append_open("assistant", idempotency_key="order-2")
        await talk.reset()
        async with refused(TurnGone):
            await talk.append("user", "other", idempotency_key="order-1")
        assert await talk.history() == []


@guarantee
async def a_forgotten_turn_takes_no_more_writes(db: Database) -> None:
    """A forgotten turn cannot be replaced, switched to, or written to by its stream."""
    async with db.open() as store:
        talk = await store.conversation("k")
        turn = await talk.append_open("assistant")
        await talk.append_chunk(turn, 0, "half")
        await talk.forget(turn)
        before = await talk.audit()
        for late in (
            talk.append_chunk(turn, 1, "late"),
            talk.append_renew(turn),
            talk.append_commit(turn),
            talk.append_abort(turn),
            talk.switch(turn),
            talk.append("assistant", "x", replaces=turn),
        ):
            async with refused(TurnGone, turn=turn.id):
                await late
        assert await talk.audit() == before


@guarantee
async def forgetting_a_call_forgets_its_results(db: Database) -> None:
    """Forgetting a tool call forgets its results, and no others."""
    async with db.open() as store:
        talk = await store.conversation("k")
        call = await talk.append("assistant", "", tool_calls=[_call("a"), _call("b")])
        await talk.append("tool", "", tool_results=[{"id": "a", "content": "1"}])
        await talk.append("tool", "", tool_results=[{"id": "b", "content": "2"}])
        again = await talk.append("assistant", "", tool_calls=[_call("a")])
        result = await talk.append("tool", "", tool_results=[{"id": "a", "content": "3"}])
        await talk.forget(call)
        assert await talk.history() == [again, result]
        assert len(await talk.audit(kinds=["forget"])) == 3


def _call(id: str) -> dict[str, object]:
    return {"id": id, "name": "look", "arguments": {}}


@guarantee
async def a_forgotten_conversation_is_gone(db: Database) -> None:
    """Only the log of a forgotten conversation is left: every method raises ConversationGone for its id."""
    async with db.open() as store:
        talk = await store.conversation("k", title="zanzibar")
        turn = await talk.append("user", "zanzibar")
        pending = await talk.append_open("assistant")
        await talk.forget()
        for late in (
            store.get(talk.id),
            talk.refresh(),
            talk.history(),
            talk.turn(turn),
            talk.append("user", "late"),
            talk.append_many([{"role": "user", "content": "late"}]),
            talk.append_open("assistant"),
            talk.append_chunk(pending, 0, "late"),
            talk.append_renew(pending),
            talk.append_commit(pending),
            talk.append_abort(pending),
            talk.attach(b"late"),
            talk.branches(),
            talk.switch(turn),
            talk.search("zanzibar"),
            talk.rename("late"),
            talk.forget(turn),
            talk.forget(),
            talk.reset(),
            talk.verify(),
        ):
            async with refused(ConversationGone, conversation=talk.id):
                await late
        await _nothing_is_left(store)


async def _nothing_is_left(store: Store) -> None:
    assert (await store.conversations()).items == ()
    assert await store.search("zanzibar") == []
    stats = await store.stats()
    assert (stats.conversations, stats.turns, stats.attachments) == (0, 0, 0)


@guarantee
async def the_log_outlives_the_conversation(db: Database) -> None:
    """The log of a forgotten conversation can be read, ends with the tombstone, and holds nothing that was said."""
    async with db.open(user="ada") as store:
        talk = await store.conversation("k", title="zanzibar")
        await talk.append("user", "zanzibar")
        await talk.forget()
        log = await store.audit(talk.id)
        assert [event.kind for event in log] == ["create", "append", "forget"]
        assert (log[-1].turn, log[-1].actor) == (None, "ada")
        assert "zanzibar" not in repr(log)


@guarantee
async def a_key_can_start_anew(db: Database) -> None:
    """Asking for the key of a forgotten conversation starts a new one, with another id and an empty history."""
    async with db.open() as store:
        old = await store.conversation("k", title="old")
        await old.append("user", "x", idempotency_key="x")
        await old.forget()
        new = await store.conversation("k")
        assert new.id != old.id
        assert (await new.append("user", "y", idempotency_key="x")).seq == 0
        assert new.info.title is None


@guarantee
async def a_reset_keeps_the_conversation(db: Database) -> None:
    """A reset forgets every turn and file and keeps the conversation; numbers continue."""
    async with db.open() as store:
        talk = await store.conversation("k", title="title", metadata={"a": 1})
        await busy_talk(talk)
        before = await talk.refresh()
        await talk.reset()
        info = await talk.refresh()
        assert (info.title, info.turn_count, info.token_count, info.preview) == ("title", 0, 0, None)
        assert await talk.history(include_superseded=True) == []
        assert (await store.stats()).attachments == 0
        new = await talk.append("user", "again")
        assert (new.seq, new.position, new.parent) == (before.next_seq, 0, None)
        await talk.verify()


@guarantee
async def forgetting_none_is_a_mistake(db: Database) -> None:
    """forget(None) is refused and deletes nothing; only forget() deletes the conversation."""
    async with db.open() as store:
        talk = await store.conversation("k")
        turn = await talk.append("user", "x")
        mistakes: tuple[Any, ...] = (None, 0, True, [])
        for mistake in mistakes:
            async with refused(InvalidInput, field="turn"):
                await talk.forget(mistake)
        assert await talk.history() == [turn]


@guarantee
async def the_view_closes_up_after_a_removal(db: Database) -> None:
    """After a turn is forgotten, the others keep their order, and the next turn follows the last that is left."""
    async with db.open() as store:
        talk = await store.conversation("k")
        turns = [await talk.append("user", text) for text in "abc"]
        await talk.forget(turns[0])
        await talk.forget(turns[2])
        assert (await talk.refresh()).preview == "b"
        after = await talk.append("user", "d")
        assert [turn.text for turn in await talk.history()] == ["b", "d"]
        assert after.parent == turns[1].slot
        await talk.verify()


# ---- time to live --------------------------------------------------------------------------------------------------


@guarantee
async def a_conversation_expires(db: Database) -> None:
    """A conversation is gone when its time to live since its last use is over, before and after the sweep."""
    clock = FakeClock()
    async with db.open(clock=clock) as store:
        talk, other = await store.conversation("k", ttl=60), await store.conversation("other")
        await talk.append("user", "zanzibar")
        clock.advance(59)
        await talk.append("user", "still used")
        clock.advance(59)
        assert await store.expire() == []
        clock.advance(2)
        await _is_over(store, talk, [other.id])
        assert await store.expire() == [talk.id]
        await _is_over(store, talk, [other.id])
        assert [event.kind for event in await store.audit(talk.id)] == ["create", "append", "append", "expire"]
        assert await store.expire() == []


async def _is_over(store: Store, talk: Conversation, others: list[str]) -> None:
    for late in (store.get(talk.id), talk.history(), talk.append("user", "late"), talk.verify()):
        async with refused(ConversationGone, conversation=talk.id):
            await late
    assert [info.id for info in (await store.conversations()).items] == others
    assert await store.search("zanzibar") == []
    assert (await store.stats()).conversations == len(others)


@guarantee
async def an_expired_key_starts_anew(db: Database) -> None:
    """Asking for the key of an expired conversation starts a new one, even before the sweep."""
    clock = FakeClock()
    async with db.open(clock=clock) as store:
        old = await store.conversation("k", ttl=60)
        await old.append("user", "old")
        clock.advance(61)
        new = await store.conversation("k")
        assert new.id != old.id
        assert await new.history() == []
        assert (await store.audit(old.id))[-1].kind == "expire"


@guarantee
async def a_time_to_live_can_be_changed(db: Database) -> None:
    """A time to live can be given and taken away later, and counts from then."""
    clock = FakeClock()
    async with db.open(clock=clock) as store:
        one, two = await store.conversation("one", ttl=60), await store.conversation("two")
        clock.advance(50)
        await one.update(ttl=None)
        await two.update(ttl=60)
        clock.advance(59)
        assert await store.expire() == []
        clock.advance(2)
        assert await store.expire() == [two.id]
        assert (await one.refresh()).expires_at is None


@guarantee
async def nobody_is_told_of_another_tenants_end(db: Database) -> None:
    """Another tenant cannot find out that a forgotten conversation ever existed."""
    async with db.open(tenant="acme") as acme, db.open(tenant="rival") as rival:
        talk = await acme.conversation("k")
        await talk.forget()
        async with refused(ConversationNotFound):
            await rival.get(talk.id)
        async with refused(ConversationNotFound):
            await rival.audit(talk.id)
