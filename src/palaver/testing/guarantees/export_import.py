"""Taking conversations from one database to another."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import engine_of
from palaver.conversations.store import Store
from palaver.errors import AlreadyImported, InvalidInput, PalaverError, PermissionDenied
from palaver.interchange.jsonl import export_lines, import_dump, read_dumps
from palaver.interchange.replication.run import replicate
from palaver.model import Tip
from palaver.ports.queries import Adoption
from palaver.testing.guarantees.attachments import MemoryBlobs
from palaver.testing.guarantees.proof import busy_talk, rows
from palaver.testing.kit import Database, guarantee, refused


@asynccontextmanager
async def exported(db: Database, *, worker: bool = True) -> AsyncIterator[tuple[Store, Conversation, list[str]]]:
    """A busy conversation of one tenant, its export, and another tenant's store to bring it to.

    Without `worker`, no file is read in the background, which the log would show.
    """
    async with db.open(tenant="from", worker=worker) as source, db.open(tenant="to", worker=worker) as target:
        talk = await source.conversation("k", title="Zanzibar", participants=["ada"], metadata={"ü": 1})
        await busy_talk(talk)
        for text in ("I live in Berlin.", "I live in Rome now."):
            await talk.append("user", text)
            await talk.extract_facts()
        await talk.remember("goals", "ship by friday", by="ada")
        yield target, talk, [line async for line in export_lines(talk)]


async def bring(store: Store, lines: list[str]) -> Conversation | None:
    [dump] = read_dumps(lines)
    return await import_dump(store, dump)


@guarantee
async def nothing_is_lost_on_the_way(db: Database) -> None:
    """An imported conversation is the exported one, row by row, and verifies."""
    async with exported(db, worker=False) as (target, talk, lines):
        copy = await bring(target, lines)
        assert copy is not None
        assert await copy.verify() == await talk.verify()
        assert [_portable(one.row) for one in await rows(copy)] == [_portable(one.row) for one in await rows(talk)]
        assert [line async for line in export_lines(copy)] == lines
        assert await copy.history() == await talk.history()


def _portable(row: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in row.items() if name not in ("tenant", "path")}


@guarantee
async def an_import_lives_on(db: Database) -> None:
    """An imported conversation is found by key and by word, has its files and branches, and can be written to."""
    async with exported(db) as (target, talk, lines):
        await bring(target, lines)
        copy = await target.conversation("k")
        assert copy.id == talk.id
        assert [found.conversation.id for found in await target.search("streamed")] == [talk.id]
        file = next(turn for turn in await copy.history() if turn.attachments).attachments[0]
        assert await copy.read_attachment(file) == b"bytes"
        assert await copy.branches() == await talk.branches()
        first = (await copy.history())[0]
        assert (await copy.append("user", "first", attachments=[file], idempotency_key="x", metadata={"a": 1})) == first
        assert (await copy.append("user", "next")).seq == (await talk.refresh()).next_seq
        await copy.verify()


@guarantee
async def what_was_noted_and_learnt_comes_along(db: Database) -> None:
    """People's notes and facts are in an export, including facts that no longer hold."""
    async with exported(db) as (target, talk, lines):
        [goal] = (await talk.working_memory()).goals
        known = await talk.facts(include_invalidated=True)
        assert (goal.text, goal.by) == ("ship by friday", "ada")
        assert [(fact.object, fact.invalidated_at is None) for fact in known] == [("Berlin", False), ("Rome", True)]
        copy = await bring(target, lines)
        assert copy is not None
        assert await copy.working_memory() == await talk.working_memory()
        assert await copy.facts(include_invalidated=True) == known
        assert await copy.facts() == await talk.facts()
        assert [hit.fact for hit in await copy.recall("Where do I live? Rome?") if hit.fact]
        await target.settle()
        await copy.remember("goals", "and rest")
        assert [note.text for note in (await copy.working_memory()).goals] == ["ship by friday", "and rest"]
        source = next(fact.source_turn for fact in known if fact.object == "Rome")
        assert source is not None
        await copy.forget(source)
        assert [fact.object for fact in await copy.facts()] == ["Berlin"]
        await copy.verify()


@guarantee
async def what_was_dropped_stays_dropped(db: Database) -> None:
    """A removed note or fact does not come back when the import is summarised."""
    async with db.open(tenant="from") as source, db.open(tenant="to") as target:
        talk = await source.conversation("k", settings={"facts": True})
        for text in ("My goal is to ship the ark. I live in Berlin.", "Tell me more.", "And more."):
            await talk.append("user", text)
        await talk.compact(keep_tokens=0)
        assert len((await talk.working_memory()).goals) == 1
        await talk.drop_note("goals", 0)
        [fact] = await talk.facts()
        await talk.forget_fact(fact)
        copy = await bring(target, [line async for line in export_lines(talk)])
        assert copy is not None
        assert await copy.compact(keep_tokens=0) > 0
        assert (await copy.working_memory()).goals == ()
        assert await copy.facts() == []


@guarantee
async def an_export_without_memory_is_taken(db: Database) -> None:
    """A file from before notes and facts were carried can be imported."""
    async with exported(db) as (target, talk, lines):
        old = [line for line in lines[:-1] if json.loads(line)["kind"] not in ("working_memory", "fact")]
        rows_ = sum(json.loads(line)["kind"] != "file" for line in old)
        old.append(json.dumps({"kind": "end", "row": {"format": "palaver/1", "rows": rows_}}))
        copy = await bring(target, old)
        assert copy is not None
        assert await copy.history() == await talk.history()
        assert (await copy.working_memory()).goals == ()
        await copy.verify()


@guarantee
async def importing_again_changes_nothing(db: Database) -> None:
    """A conversation that exists already is left alone, and no file is kept twice."""
    blobs = MemoryBlobs()
    async with exported(db, worker=False) as (_, _, lines), db.open(tenant="to", blobs=blobs, worker=False) as target:
        copy = await bring(target, lines)
        assert copy is not None
        before, files = await rows(copy), dict(blobs.files)
        assert await bring(target, lines) is None
        assert await rows(copy) == before
        assert blobs.files == files


@guarantee
async def an_import_does_not_overwrite(db: Database) -> None:
    """An import is refused when the conversation here has new turns, was deleted, or another one has its key."""
    async with exported(db) as (target, talk, lines):
        other = await target.conversation("k")
        async with refused(InvalidInput, field="key"):
            await bring(target, lines)
        await other.forget()
        copy = await bring(target, lines)
        assert copy is not None
        await copy.append("user", "more")
        async with refused(AlreadyImported, conversation=talk.id):
            await bring(target, lines)
        await copy.forget()
        async with refused(PalaverError):
            await bring(target, lines)
        assert (await target.conversations()).items == ()


@guarantee
async def a_changed_line_is_refused(db: Database) -> None:
    """An export in which any line was changed, removed, doubled or moved is refused, and nothing is stored."""
    async with exported(db) as (target, _, lines):
        for index, line in enumerate(lines):
            for changed in ([], [line, line], [_changed(line)]):
                await _refuses(target, [*lines[:index], *changed, *lines[index + 1 :]])
        await _refuses(target, [*lines[:2], lines[3], lines[2], *lines[4:]])
        await bring(target, lines)


def _changed(line: str) -> str:
    """Return the line with other words in it, or with other bytes."""
    data = json.loads(line)
    row = data["row"]
    names = ("content_hash", "hash", "sha256", "data", "rows", "memory", "object")
    name = next(name for name in names if row.get(name))
    row[name] = row[name] + 1 if isinstance(row[name], int) else ("B" if row[name][0] == "A" else "A") + row[name][1:]
    return json.dumps(data)


async def _refuses(target: Store, lines: list[str]) -> None:
    async with refused(PalaverError):
        assert await bring(target, lines) is None
        raise AssertionError("it was taken")
    assert (await target.stats()).conversations == 0
    assert (await target.stats()).attachments == 0


@guarantee
async def a_cut_file_is_noticed(db: Database) -> None:
    """An export that was cut short anywhere is refused."""
    async with exported(db) as (_, _, lines):
        for end in range(1, len(lines)):
            async with refused(InvalidInput, field="file"):
                list(read_dumps(lines[:end]))
        async with refused(InvalidInput, field=f"line {len(lines)}"):
            list(read_dumps([*lines[:-1], lines[-1][:-2]]))


@guarantee
async def an_open_stream_travels(db: Database) -> None:
    """A conversation that is exported in the middle of a stream can be imported; the stream is sealed there."""
    async with db.open(tenant="from") as source, db.open(tenant="to") as target:
        talk = await source.conversation("k")
        turn = await talk.append_open("assistant")
        await talk.append_chunk(turn, 0, "so far")
        copy = await bring(target, [line async for line in export_lines(talk)])
        assert copy is not None
        await target.settle()
        sealed = await copy.turn(turn)
        assert (sealed.status, sealed.text) == ("aborted", "so far")
        await copy.verify()


@guarantee
async def bringing_in_needs_the_right(db: Database) -> None:
    """Only a scope with the right `admin` can import."""
    async with exported(db) as (_, _, lines), db.open(tenant="to", user="ada") as ada:
        async with refused(PermissionDenied, right="admin"):
            await bring(ada, lines)
        assert (await ada.stats()).conversations == 0


@guarantee
async def a_stream_that_was_under_way_can_go_on_where_it_was_brought(db: Database) -> None:
    """Text written to an imported pending turn is added to its end, and verifies."""
    async with db.open(tenant="from") as source, db.open(tenant="to") as target:
        talk = await source.conversation("k")
        turn = await talk.append_open("assistant")
        await talk.append_chunk(turn, 0, "so far, ")
        copy = await bring(target, [line async for line in export_lines(talk)])
        assert copy is not None
        await copy.append_renew(turn)
        await copy.append_chunk(turn, 0, "so good")
        assert (await copy.append_commit(turn)).text == "so far, so good"
        await copy.verify()


@guarantee
async def two_stores_that_continued_become_the_same(db: Database) -> None:
    """Replication leaves one log in both stores: it holds the turns of both, and nothing that one of them deleted."""
    async with db.open(tenant="from", worker=False) as left, db.open(tenant="to", worker=False) as right:
        talk = await left.conversation("k")
        secret = await talk.append("user", "zanzibar", metadata={"n": 1})
        assert (await replicate(left, right)).counts == {"copied": 1}
        there = await right.get(talk.id)
        await talk.append("user", "from the left")
        await talk.forget(secret)
        await there.append("user", "from the right")
        assert (await replicate(left, right)).counts == {"merged": 1}
        for one in (talk, there):
            found = [turn.text for turn in await one.history(include_superseded=True)]
            assert found == ["from the right", "from the left"]
            assert await one.history(where={"metadata": {"n": 1}}) == []
            assert "zanzibar" not in repr(await rows(one))
        assert await talk.verify() == await there.verify()


@guarantee
async def a_copy_replaces_only_what_was_read(db: Database) -> None:
    """A copy takes the place of a conversation only while its last event is the expected one."""
    async with db.open(worker=False) as store:
        talk, engine = await store.conversation("k"), engine_of(store)
        await talk.append("user", "first")
        records = [record async for page in engine.records(store.scope, talk.id, True) for record in page]
        row = records[0].row
        expected = Tip(conversation=talk.id, n=row["next_n"] - 1, hash=row["tip_hash"].hex())
        kept = await talk.append("user", "second")
        assert not await engine.adopt(store.scope, Adoption(expected=expected, records=records, whole=True))
        assert (await talk.history())[-1] == kept
        await talk.verify()
