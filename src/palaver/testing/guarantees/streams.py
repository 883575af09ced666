"""Turns that are durable while they are written."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import engine_of
from palaver.conversations.turn_writer import TurnWriter
from palaver.core.validation import MAX_CONTENT
from palaver.errors import IdempotencyConflict, InvalidInput, StreamSealed, TooLarge
from palaver.model import TokenUsage, ToolCall, Turn
from palaver.testing.fakes import FakeClock
from palaver.testing.kit import Database, eventually, guarantee, refused

LEASE = 30.0


async def kinds(talk: Conversation) -> list[str]:
    return [event.kind for event in await talk.audit()]


@guarantee
async def a_stream_becomes_a_turn(db: Database) -> None:
    """Leaving the block commits the turn, with its whole text and the fields that are known only at the end."""
    async with db.open() as store:
        talk = await store.conversation("k")
        async with talk.stream("assistant", actor="bot", metadata={"a": 1}) as out:
            await out.write("You can ")
            await out.write("eat rice.")
            out.finish(tokens={"prompt": 9, "completion": 5}, model="m", adapter="x", finish_reason="stop")
            out.finish(sources=[{"url": "u"}], tool_calls=[ToolCall("c1", "look", {})])
        [turn] = await talk.history()
        assert turn == out.turn
        assert (turn.text, turn.status, turn.actor, turn.metadata) == ("You can eat rice.", "complete", "bot", {"a": 1})
        assert (turn.tokens, turn.model, turn.adapter, turn.finish_reason) == (TokenUsage(9, 5), "m", "x", "stop")
        assert (turn.tool_calls, turn.sources) == ((ToolCall("c1", "look", {}),), ({"url": "u"},))
        assert (await talk.refresh()).token_count == turn.token_count > 0
        await talk.verify()


@guarantee
async def a_stream_is_readable_while_it_is_written(db: Database) -> None:
    """Other readers see the flushed text in a pending turn that already has its position."""
    async with db.open() as one, db.open() as two:
        talk, reader = await one.conversation("k"), await two.conversation("k")
        async with talk.stream("assistant", flush=0) as out:
            await out.write("so far")
            await _seen(reader, "chunk")
            [turn] = await reader.history()
            assert (turn.text, turn.status, turn.active) == ("so far", "pending", True)
            assert (await talk.append("user", "meanwhile")).position == turn.position + 1
            await reader.verify()
        assert [turn.text for turn in await reader.history()] == ["so far", "meanwhile"]


async def _seen(talk: Conversation, kind: str) -> None:
    async for event in talk.subscribe():
        if event.kind == kind:
            return


@guarantee
async def pieces_are_stored_in_batches(db: Database) -> None:
    """Pieces that come within one flush interval are stored together."""
    async with db.open() as store:
        talk = await store.conversation("k")
        async with talk.stream("assistant", flush=0.01) as out:
            for _ in range(500):
                await out.write("word ")
            await _seen(talk, "chunk")
        chunks = await talk.audit(kinds=["chunk"])
        assert [event.payload for event in chunks] == [{"from": 0, "to": 2_500}]
        assert (await talk.history())[0].text == "word " * 500


@guarantee
async def flush_at_the_end_writes_one_row(db: Database) -> None:
    """With flush="end" nothing is stored before the end, and then one turn with one event."""
    async with db.open() as store:
        talk = await store.conversation("k")
        async with talk.stream("assistant", flush="end") as out:
            await out.write("all at ")
            assert await talk.history() == []
            await out.write("once")
            out.finish(model="m", finish_reason="stop")
        [turn] = await talk.history()
        assert (turn.text, turn.model, turn.finish_reason, turn.status) == ("all at once", "m", "stop", "complete")
        assert await kinds(talk) == ["create", "append"]


@guarantee
async def an_exception_aborts_the_stream(db: Database) -> None:
    """An exception in the block seals the turn as aborted, out of the active branch, with its text kept."""
    async with db.open() as store:
        talk = await store.conversation("k")
        for flush in (0, 60, "end"):
            async with refused(ZeroDivisionError), talk.stream("assistant", flush=flush) as out:
                await out.write("half a sen")
                raise ZeroDivisionError
            assert out.turn is not None
            await _is_cut(talk, out.turn, "half a sen")
        await talk.verify()


@guarantee
async def a_cancellation_leaves_no_stream_pending(db: Database) -> None:
    """Cancellation while a stream begins or ends leaves it sealed, with all of its text."""
    async with db.open() as store:
        for steps in range(16):
            talk = await store.conversation(f"begins {steps}")
            await _cancelled(_streamed(talk, "hello ", asyncio.Event()), steps)
            assert all(turn.status != "pending" for turn in await talk.history(include_superseded=True))
        for steps in range(16):
            talk, leaving = await store.conversation(f"ends {steps}"), asyncio.Event()
            await _cancelled(_streamed(talk, "hello world", leaving), steps, leaving)
            [turn] = await talk.history(include_superseded=True)
            assert (turn.text, turn.status != "pending") == ("hello world", True)
            await talk.verify()


async def _streamed(talk: Conversation, text: str, leaving: asyncio.Event) -> None:
    async with talk.stream("assistant", flush=0) as out:
        await out.write(text[:6])
        await _seen(talk, "chunk")
        await out.write(text[6:])
        leaving.set()


async def _cancelled(work: Coroutine[Any, Any, None], steps: int, since: asyncio.Event | None = None) -> None:
    """Iterations of the event loop to wait, from the beginning or from an event."""
    task = asyncio.create_task(work)
    if since is not None:
        await since.wait()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def _is_cut(talk: Conversation, turn: Turn, text: str) -> None:
    found = await talk.turn(turn)
    assert (found.status, found.active, found.superseded_by, found.text) == ("aborted", False, found.id, text)
    assert await talk.history() == []
    assert (await talk.refresh()).turn_count == 0


@guarantee
async def a_stream_that_grows_too_large_is_aborted(db: Database) -> None:
    """The write that goes over the limit gets TooLarge, and the turn is sealed as aborted with all that fits."""
    pieces = ["ü" * 500_000] * 4 + ["x" * 999_999]  # bytes: one less than the limit
    async with db.open() as store:
        talk = await store.conversation("k")
        for flush in (0, 60, "end"):
            async with refused(TooLarge, field="content", limit=MAX_CONTENT), talk.stream(flush=flush) as out:
                for piece in pieces:
                    await out.write(piece)
                if flush == 0:
                    await _seen(talk, "chunk")
                await out.write("üü")
            assert out.turn is not None
            await _is_cut(talk, out.turn, "".join(pieces))
        await talk.verify()


@guarantee
async def a_stream_that_grew_too_large_is_not_committed(db: Database) -> None:
    """A writer that continues after TooLarge gets it again, and no turn with a hole is stored as complete."""
    async with db.open() as store:
        talk = await store.conversation("k")
        for flush in (60, "end"):
            async with refused(TooLarge, field="content"), talk.stream(flush=flush) as out:
                async with refused(TooLarge, field="content", size=MAX_CONTENT + 1):
                    await out.write("x" * (MAX_CONTENT + 1))
                async with refused(TooLarge, field="content"):
                    await out.write("y")
            assert out.turn is not None
            await _is_cut(talk, out.turn, "x" * MAX_CONTENT)


@guarantee
async def a_cancellation_aborts_the_stream(db: Database) -> None:
    """A task that is cancelled while it streams leaves an aborted turn with its text."""
    async with db.open() as store:
        talk = await store.conversation("k")
        started = asyncio.Event()

        async def answer() -> None:
            async with talk.stream("assistant") as out:
                await out.write("half")
                started.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(answer())
        await started.wait()
        task.cancel()
        async with refused(asyncio.CancelledError):
            await task
        [turn] = await talk.history(include_superseded=True)
        await _is_cut(talk, turn, "half")


@guarantee
async def a_stopped_stream_is_complete(db: Database) -> None:
    """If a user stops an answer, the text so far is committed, with the reason."""
    async with db.open() as store:
        talk = await store.conversation("k")
        turn = await talk.append_open("assistant")
        await talk.append_chunk(turn, 0, "That is eno")
        done = await talk.append_commit(turn, finish_reason="stopped")
        assert (done.text, done.status, done.finish_reason) == ("That is eno", "complete", "stopped")
        assert await talk.history() == [done]


# ---- writers that die ----------------------------------------------------------------------------------------------


@guarantee
async def a_dead_writers_stream_is_sealed(db: Database) -> None:
    """A stream whose writer died is sealed as aborted, with its text, when a store is opened after the lease."""
    clock = FakeClock()
    async with db.open(clock=clock, stream_lease=LEASE) as store:
        talk = await store.conversation("k")
        turn = await talk.append_open("assistant")
        await talk.append_chunk(turn, 0, "I was about to")
    clock.advance(LEASE + 1)
    async with db.open(clock=clock) as store:
        talk = await store.conversation("k")
        await _is_cut(talk, turn, "I was about to")
        assert await kinds(talk) == ["create", "open", "chunk", "abort"]
        await talk.verify()


@guarantee
async def a_living_writers_stream_is_left_alone(db: Database) -> None:
    """Before the lease is over, a stream stays open, even for a writer from another store."""
    clock = FakeClock()
    async with db.open(clock=clock, stream_lease=LEASE) as store:
        talk = await store.conversation("k")
        turn = await talk.append_open("assistant")
        await talk.append_chunk(turn, 0, "one ")
    clock.advance(LEASE - 1)
    async with db.open(clock=clock, stream_lease=LEASE) as store:
        talk = await store.conversation("k")
        await store.settle()
        assert await talk.append_chunk(turn.id, 1, "two") == 2
        assert (await talk.append_commit(turn.id)).text == "one two"


@guarantee
async def a_sign_of_life_extends_the_lease(db: Database) -> None:
    """A chunk or a renewal extends the lease from that moment; silence ends it."""
    clock = FakeClock()
    async with db.open(clock=clock, stream_lease=LEASE) as store:
        talk = await store.conversation("k")
        turn = await talk.append_open("assistant")
        clock.advance(LEASE * 0.8)
        await talk.append_chunk(turn, 0, "x")
        clock.advance(LEASE * 0.8)
        await talk.append_renew(turn)
        clock.advance(LEASE * 0.8)
        await store.settle()
        assert (await talk.turn(turn)).status == "pending"
        clock.advance(LEASE * 0.3)
        await store.settle()
        assert (await talk.turn(turn)).status == "aborted"


@guarantee
async def a_silent_model_keeps_its_lease(db: Database) -> None:
    """A writer in its block renews the lease although nothing is written."""
    clock, lease = FakeClock(), 0.15
    async with db.open(clock=clock, stream_lease=lease) as store:
        talk = await store.conversation("k")
        async with talk.stream("assistant") as out:
            for _ in range(4):
                before = await engine_of(store).next_lease_end()
                assert before is not None
                clock.advance(lease / 2)

                async def renewed(before: object = before) -> bool:
                    return await engine_of(store).next_lease_end() != before

                await eventually(renewed)
            await out.write("at last")
        assert [turn.text for turn in await talk.history()] == ["at last"]


@guarantee
async def late_writes_find_the_stream_sealed(db: Database) -> None:
    """After a stream was sealed, a late chunk, renewal or commit gets StreamSealed and changes nothing."""
    async with db.open() as store:
        talk = await store.conversation("k")
        cut = await talk.append_open("assistant")
        await talk.append_chunk(cut, 0, "cut")
        await talk.append_abort(cut)
        done = await talk.append_open("assistant")
        await talk.append_commit(done)
        before = await talk.audit()
        for turn, status in ((cut, "aborted"), (done, "complete")):
            async with refused(StreamSealed, turn=turn.id, status=status):
                await talk.append_chunk(turn, 1, "late")
            async with refused(StreamSealed, turn=turn.id, status=status):
                await talk.append_renew(turn)
        async with refused(StreamSealed, turn=cut.id):
            await talk.append_commit(cut)
        async with refused(StreamSealed, turn=done.id):
            await talk.append_abort(done)
        assert await talk.audit() == before
        assert (await talk.turn(cut)).text == "cut"


@guarantee
async def a_writer_takes_nothing_after_its_block(db: Database) -> None:
    """Writing after the block raises StreamSealed, however the block ended, and changes nothing."""
    async with db.open() as store:
        talk = await store.conversation("k")
        for flush in (0, 60, "end"):
            async with talk.stream("assistant", flush=flush) as done:
                await done.write("done")
            await _is_sealed(talk, done, "complete")
            async with refused(KeyError), talk.stream("assistant", flush=flush) as cut:
                await cut.write("cut")
                raise KeyError
            await _is_sealed(talk, cut, "aborted")
        assert [turn.text for turn in await talk.history()] == ["done"] * 3


async def _is_sealed(talk: Conversation, out: TurnWriter, status: str) -> None:
    assert out.turn is not None
    before = await talk.audit()
    async with refused(StreamSealed, turn=out.turn.id, status=status):
        await out.write("late")
    async with refused(StreamSealed, turn=out.turn.id, status=status):
        out.finish(model="late")
    assert await talk.audit() == before


@guarantee
async def a_writer_writes_one_turn_in_one_block(db: Database) -> None:
    """A writer refuses text before its block, and a second block."""
    async with db.open() as store:
        talk = await store.conversation("k")
        for flush in (60, "end"):
            out = talk.stream("assistant", flush=flush)
            async with refused(InvalidInput, field="stream"):
                await out.write("early")
            async with out:
                await out.write("in time")
                async with refused(InvalidInput, field="stream"):
                    await out.__aenter__()
            async with refused(InvalidInput, field="stream"):
                await out.__aenter__()
        assert [turn.text for turn in await talk.history(include_superseded=True)] == ["in time"] * 2


@guarantee
async def a_writer_that_was_taken_for_dead_is_told(db: Database) -> None:
    """A writer whose stream was sealed by others gets StreamSealed, and its text up to then is kept."""
    clock = FakeClock()
    async with db.open(clock=clock, stream_lease=LEASE) as store:
        talk = await store.conversation("k")
        async with refused(StreamSealed), talk.stream("assistant", flush=0) as out:
            await out.write("before")
            await _seen(talk, "chunk")
            clock.advance(LEASE + 1)
            await store.settle()
            await out.write("after")
        assert out.turn is not None
        await _is_cut(talk, out.turn, "before")


# ---- the low-level verbs -------------------------------------------------------------------------------------------


@guarantee
async def a_repeated_chunk_changes_nothing(db: Database) -> None:
    """Chunks are numbered; repeating a stored number changes nothing, and returns the next number."""
    async with db.open() as store:
        talk = await store.conversation("k")
        turn = await talk.append_open("assistant")
        assert await talk.append_chunk(turn, 0, "a") == 1
        assert await talk.append_chunk(turn, 1, "b") == 2
        assert await talk.append_chunk(turn, 0, "a") == 2
        assert await talk.append_chunk(turn, 1, "something else") == 2
        assert (await talk.turn(turn)).text == "ab"
        assert len(await talk.audit(kinds=["chunk"])) == 2


@guarantee
async def racing_chunks_are_stored_once(db: Database) -> None:
    """The same chunk from several senders at once is stored once."""
    async with db.open() as one, db.open() as two:
        talks = [await one.conversation("k"), await two.conversation("k")]
        turn = await talks[0].append_open("assistant")
        assert set(await asyncio.gather(*(talks[n % 2].append_chunk(turn, 0, "x") for n in range(8)))) == {1}
        assert (await talks[1].append_commit(turn)).text == "x"


@guarantee
async def a_missing_chunk_is_noticed(db: Database) -> None:
    """A chunk whose predecessor has not arrived is refused."""
    async with db.open() as store:
        talk = await store.conversation("k")
        turn = await talk.append_open("assistant")
        await talk.append_chunk(turn, 0, "a")
        async with refused(InvalidInput, field="n"):
            await talk.append_chunk(turn, 2, "c")
        assert (await talk.turn(turn)).text == "a"


@guarantee
async def chunk_events_say_which_part(db: Database) -> None:
    """A chunk event names the span of characters, so that a reader can slice the turn."""
    text = "Grüße 🙂 an alle"
    async with db.open() as store:
        talk = await store.conversation("k")
        turn = await talk.append_open("assistant")
        for number, piece in enumerate((text[:7], text[7:])):
            await talk.append_chunk(turn, number, piece)
        spans = [(event.payload["from"], event.payload["to"]) for event in await talk.audit(kinds=["chunk"])]
        assert spans == [(0, 7), (7, len(text))]
        assert (await talk.append_commit(turn)).text == text


@guarantee
async def ending_twice_is_ending_once(db: Database) -> None:
    """A commit or an abort that is sent again returns the turn as it is."""
    async with db.open() as store:
        talk = await store.conversation("k")
        done, cut = await talk.append_open("assistant"), await talk.append_open("assistant")
        assert await talk.append_commit(done, model="m") == await talk.append_commit(done, model="m")
        assert await talk.append_abort(cut) == await talk.append_abort(cut)
        assert await kinds(talk) == ["create", "open", "open", "commit", "abort"]


@guarantee
async def opening_can_be_retried(db: Database) -> None:
    """Opening a stream again with its idempotency key returns the open stream to the same actor."""
    async with db.open() as store:
        talk = await store.conversation("k")
        first = await talk.append_open("assistant", idempotency_key="x")
        assert (await talk.append_open("assistant", idempotency_key="x")).id == first.id
        for role, actor in (("user", None), ("assistant", "bob")):
            async with refused(IdempotencyConflict, turn=first.id):
                await talk.append_open(role, actor=actor, idempotency_key="x")  # type: ignore[arg-type]
        assert len(await talk.history()) == 1


@guarantee
async def a_cut_answer_is_retried_in_its_place(db: Database) -> None:
    """A new answer can replace an aborted one, at its place, and the aborted one then says so."""
    async with db.open() as store:
        talk = await store.conversation("k")
        await talk.append("user", "question")
        cut = await talk.append_open("assistant")
        await talk.append_abort(cut)
        async with talk.stream("assistant", replaces=cut) as out:
            await out.write("answer")
        assert [turn.text for turn in await talk.history()] == ["question", "answer"]
        assert out.turn is not None
        assert (out.turn.position, (await talk.turn(cut)).superseded_by) == (cut.position, out.turn.id)


@guarantee
async def a_regeneration_can_be_streamed(db: Database) -> None:
    """A stream can replace a turn; when it is aborted, the place stays empty until a retry or a switch."""
    async with db.open() as store:
        talk = await store.conversation("k")
        old = await talk.append("assistant", "old")
        async with refused(KeyError), talk.stream("assistant", replaces=old, discard_after=True) as out:
            await out.write("new")
            raise KeyError
        assert await talk.history() == []
        await talk.switch(old)
        assert [turn.text for turn in await talk.history()] == ["old"]
        await talk.verify()


@guarantee
async def an_edit_cuts_a_stream_that_it_discards(db: Database) -> None:
    """Editing a turn and discarding what followed aborts the answer that is being streamed."""
    async with db.open() as store:
        talk = await store.conversation("k")
        question = await talk.append("user", "question")
        answer = await talk.append_open("assistant")
        await talk.append_chunk(answer, 0, "Well")
        await talk.append("user", "better question", replaces=question, discard_after=True)
        async with refused(StreamSealed, status="aborted"):
            await talk.append_chunk(answer, 1, ", late")
        assert [turn.text for turn in await talk.history()] == ["better question"]
        await talk.verify()


@guarantee
async def streams_that_have_expired_are_in_nobodys_way(db: Database) -> None:
    """Dead streams in expired conversations do not keep other streams from being sealed."""
    clock = FakeClock()
    async with db.open(clock=clock, worker=False) as store:
        old, talk = await store.conversation("old", ttl=60), await store.conversation("k")
        for _ in range(101):
            await old.append_open("assistant")
        turn = await talk.append_open("assistant")
        clock.advance(3_600)
        await engine_of(store).abort_expired_streams()
        assert (await talk.turn(turn)).status == "aborted"
