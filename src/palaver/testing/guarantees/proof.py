"""Verifying."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from palaver.audit.verifier import Verifier
from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import components_of
from palaver.core.conversation_details import DETAIL_FIELDS
from palaver.core.turn_draft import STORED_FIELDS
from palaver.errors import VerificationFailed
from palaver.ports.queries import Record
from palaver.testing.fakes import FakeClock
from palaver.testing.kit import Database, guarantee, refused


async def busy_talk(talk: Conversation) -> None:
    """Make a conversation with every kind of event."""
    file = await talk.attach(b"bytes", filename="a.txt")
    first = await talk.append("user", "first", attachments=[file], idempotency_key="x", metadata={"a": 1})
    await talk.append("assistant", "", tool_calls=[{"id": "c", "name": "look", "arguments": {}}])
    await talk.append("tool", "", tool_results=[{"id": "c", "content": [1, 2]}])
    last = await talk.append("assistant", ["one", {"type": "reasoning", "text": "two"}], tokens={"prompt": 1})
    edit = await talk.append("assistant", "edit", replaces=last)
    await talk.append("user", "other beginning", replaces=first, discard_after=True)
    await talk.switch(edit)
    async with talk.stream("assistant", flush=0) as out:
        await out.write("streamed")
    cut = await talk.append_open("assistant")
    await talk.append_chunk(cut, 0, "cut")
    await talk.append_abort(cut)
    await talk.forget(await talk.append("user", "forget this", idempotency_key="y"))
    await talk.update(title="title", participants=["ada"], ttl=1_000)
    await talk.attach(b"no turn took it")


async def rows(talk: Conversation) -> list[Record]:
    return [record async for page in talk.records() for record in page]


@guarantee
async def everything_that_happens_verifies(db: Database) -> None:
    """After appends, edits, branches, streams, aborts, removals and updates, the log and the rows agree."""
    async with db.open() as store:
        talk = await store.conversation("k")
        await busy_talk(talk)
        verified = await talk.verify()
        assert verified.events == len(await talk.audit())
        assert verified.turns == (await talk.refresh()).next_seq
        assert verified.attachments == 3, "the file, its copy in the edited message, and the one that no turn took"
        assert verified.tip == (await talk.audit())[-1].hash
        await talk.reset()
        await talk.append("user", "again")
        await talk.verify()
    async with db.open() as store:
        await (await store.conversation("k")).verify()


@guarantee
async def an_open_stream_verifies(db: Database) -> None:
    """A conversation verifies while a turn is being streamed, and while the clock goes back."""
    clock = FakeClock()
    async with db.open(clock=clock) as store:
        talk = await store.conversation("k")
        turn = await talk.append_open("assistant")
        await talk.append_chunk(turn, 0, "Grüße 🙂")
        clock.advance(-3_600)
        await talk.append_chunk(turn, 1, "!")
        await talk.verify()


@guarantee
async def every_stored_text_is_vouched_for(db: Database) -> None:
    """Changing any text, number or hash of any event or turn, or of the conversation's own fields, is found."""
    async with db.open() as store:
        talk = await store.conversation("k", title="t", metadata={"a": 1})
        await talk.append("user", "hello", metadata={"m": 1}, idempotency_key="x", actor="ada")
        await talk.append("assistant", "hi", tool_calls=[{"id": "c", "name": "n"}], model="m", tokens={"prompt": 1})
        await talk.append("assistant", "hey", replaces=(await talk.history())[-1])
        records = await rows(talk)
    _verify(records)
    for index, record in enumerate(records):
        for name in SIGNED[record.kind]:
            if (value := record.row[name]) is not None:
                changed = replace(record, row={**record.row, name: _other(value)})
                _must_fail([*records[:index], changed, *records[index + 1 :]], f"{record.kind}.{name}")


# The columns that travel and that the log vouches for. An engine may have more, for itself.
SIGNED = {
    "conversation": (
        *DETAIL_FIELDS, "preview", "turn_count", "token_count", "next_seq", "next_n", "tip_position", "tip_slot",
        "tip_hash", "salt", "content_hash", "created", "updated", "expires_at",
    ),
    "event": ("n", "kind", "turn", "actor", "at", "payload", "content_hash", "hash"),
    "turn": (*STORED_FIELDS, "seq", "position", "parent", "slot", "active", "superseded_by", "status", "content_hash"),
}  # fmt: skip


@guarantee
async def every_row_is_counted(db: Database) -> None:
    """A missing row, a row too many and two rows of one kind in the wrong order are found."""
    async with db.open() as store:
        talk = await store.conversation("k")
        for number in range(3):
            await talk.append("user", str(number))
        records = await rows(talk)
    for index in range(1, len(records)):
        _must_fail(records[:index] + records[index + 1 :], f"without {records[index].kind}")
        _must_fail(records[: index + 1] + records[index:], f"with {records[index].kind} twice")
    for index, (one, other) in enumerate(pairwise(records)):
        if one.kind == other.kind:
            _must_fail([*records[:index], other, one, *records[index + 2 :]], f"{one.kind} in the wrong place")


def _verify(records: list[Record]) -> None:
    verifier = Verifier()
    verifier.feed(records)
    verifier.finish()


def _must_fail(records: list[Record], what: str) -> None:
    try:
        _verify(records)
    except (VerificationFailed, KeyError, TypeError, ValueError, AttributeError):
        return  # a row that cannot even be read is not overlooked either
    raise AssertionError(f"{what}: the change was not found")


def _other(value: object) -> object:
    if isinstance(value, str):
        return value + "x"
    return value + b"x" if isinstance(value, bytes) else int(value) + 1  # type: ignore[call-overload]


@guarantee
async def changed_files_are_found(db: Database) -> None:
    """When the bytes of an attachment are not what was stored, or not there, verify says which one."""
    async with db.open() as store:
        talk = await store.conversation("k")
        file = await talk.attach(b"original")
        await talk.append("user", "see file", attachments=[file])
        await talk.verify()
        await components_of(store).blobs.put(file.path, b"0riginal")
        async with refused(VerificationFailed, row=f"attachment {file.id}"):
            await talk.verify()
        await components_of(store).blobs.delete(file.path)
        async with refused(VerificationFailed, row=f"attachment {file.id}"):
            await talk.verify()
