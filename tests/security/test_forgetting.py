"""Forgotten text is gone: from every row, index and file, and from every byte of them, while the store is open."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import apsw
import pytest

import palaver
from palaver import Conversation, Scope, Store, Turn
from palaver.conversations.internals import conversation_of, engine_of, services_of
from palaver.testing.fakes import HashEmbedder
from tests.files.samples import docx

pytestmark = pytest.mark.costly

CONSONANTS = "bcdfghjklmnpqrstvwxz"


def marker(rng: random.Random) -> str:
    """One lower-case word that no stemmer changes, and that is nowhere else."""
    return "zq" + "".join(rng.choice(CONSONANTS) for _ in range(12))


def prose(rng: random.Random, words: int) -> str:
    """Filler from a small vocabulary, so that index pages are shared and full."""
    return " ".join("w" + "".join(rng.choices("bcdfghjk", k=rng.randint(1, 4))) for _ in range(words))


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/chat.db?synchronous=NORMAL"


def traces(folder: Path, words: list[str]) -> list[str]:
    """Which of these words are in a byte, or in the name, of a file below the folder."""
    found = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes() + str(path.relative_to(folder)).encode()
        found += [f"{word} in {path.name}" for word in words if word.encode() in data]
    return found


def check_index(folder: Path) -> None:
    """FTS5 finds its own tables in order."""
    db = apsw.Connection(f"{folder}/chat.db")
    db.set_busy_timeout(10_000)
    db.execute("INSERT INTO text_index (text_index) VALUES ('integrity-check')")
    db.close()


async def populate(store: Store, rng: random.Random, conversations: int = 12, turns: int = 2_400) -> list[Conversation]:
    talks = [await store.conversation(f"other/{n}", title=prose(rng, 4)) for n in range(conversations)]
    for _ in range(turns // (conversations * 20)):
        for talk in talks:
            await talk.append_many([{"role": "user", "content": prose(rng, rng.randint(2, 80))} for _ in range(20)])
    return talks


# ---- one marker, everywhere that a turn can hold it ----------------------------------------------------------------


async def say_it_everywhere(talk: Conversation, word: str) -> list[Turn]:
    """The word in every field of turns that can hold it, and in the text index."""
    file = await talk.attach(f"bytes with {word}".encode(), filename=f"{word}.txt")
    data = "data:text/plain;base64," + b64encode(word.encode()).decode()
    picture, other = await talk.attach(data), await talk.attach(data)
    turns = [
        await talk.append("user", f"so {word} was said", attachments=[file], idempotency_key=f"key-{word}"),
        await talk.append("user", [{"type": "text", "text": word}, {"type": "image", "attachment": picture.id}]),
        await talk.append("user", "look", attachments=[other], metadata={word: [word]}),
        await talk.append("assistant", "", tool_calls=[{"id": f"c-{word}", "name": "look", "arguments": {"q": word}}]),
        await talk.append("tool", "", tool_results=[{"id": f"c-{word}", "content": {"found": word}}]),
        await talk.append(
            "assistant", f"Naïve — {word}, né", sources=[{"title": word}], model=word, finish_reason=word
        ),
    ]
    turns.append(await stream(talk, [f"{word} ", "and more, ", f"{word} again"], ending="commit"))
    turns.append(await stream(talk, [f"{word} ", f"cut {word}"], ending="abort"))
    turns.append(await stream(talk, [f"{word} pending"], ending="none"))
    turns.append(await talk.append("user", f"second thoughts: {word}", replaces=turns[0]))
    assert await talk.search(word)
    return turns


async def stream(talk: Conversation, pieces: list[str], *, ending: str) -> Turn:
    turn = await talk.append_open("assistant")
    for n, piece in enumerate(pieces):
        await talk.append_chunk(turn, n, piece)
    if ending == "commit":
        return await talk.append_commit(turn)
    return await talk.append_abort(turn) if ending == "abort" else turn


@pytest.mark.parametrize("way", ["forget turns", "forget", "reset", "expire"])
async def test_no_byte_of_what_was_forgotten_remains_while_the_store_is_open(tmp_path: Path, way: str) -> None:
    rng = random.Random(way)
    word, title = marker(rng), marker(rng)
    clock = MovableClock()
    async with palaver.open(url(tmp_path), tenant="acme", clock=clock) as store:
        await populate(store, rng)
        named = {} if way in ("forget turns", "reset") else {"title": f"About {title}", "metadata": {"m": title}}
        talk = await store.conversation(title if named else "victim", ttl=60, **named)
        turns = await say_it_everywhere(talk, word)
        assert traces(tmp_path, [word]), "the test must be able to see it"

        if way == "forget turns":
            for turn in turns:
                await talk.forget(turn)
        elif way == "forget":
            await talk.forget()
        elif way == "reset":
            await talk.reset()
        else:
            clock.seconds += 61
            assert talk.id in await store.expire()

        assert traces(tmp_path, [word, title]) == []
        assert await store.search(word) == []
        check_index(tmp_path)
        if way in ("forget turns", "reset"):
            await talk.verify()


class MovableClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(1_800_000_000 + self.seconds, UTC)


REPLACEMENTS = {
    "rename": ({"title": "About WORD"}, lambda talk: talk.rename("another title")),
    "update": ({"metadata": {"said": "WORD"}}, lambda talk: talk.update(metadata={"said": "nothing"})),
    "workspace": ({"workspace": "WORD"}, lambda talk: talk.update(workspace="another")),
    "drop_note": ({}, lambda talk: talk.drop_note("goals", 0)),
    "correct": ({}, lambda talk: talk.correct("goals", 0, "something else")),
}


@pytest.mark.parametrize("verb", REPLACEMENTS)
async def test_no_byte_of_what_was_replaced_remains_while_the_store_is_open(tmp_path: Path, verb: str) -> None:
    rng = random.Random(verb)
    word, (fields, replace) = marker(rng), REPLACEMENTS[verb]
    async with palaver.open(url(tmp_path), tenant="acme") as store:
        await populate(store, rng, conversations=4, turns=320)
        talk = await store.conversation("k", **json.loads(json.dumps(fields).replace("WORD", word)))
        if not fields:
            await talk.remember("goals", f"to say {word}")
        await talk.append("user", "hello")
        assert traces(tmp_path, [word])
        await replace(talk)
        assert traces(tmp_path, [word]) == []
        await talk.verify()


async def test_bytes_are_gone_also_after_titles_and_metadata_were_rewritten_many_times(tmp_path: Path) -> None:
    rng = random.Random(5)
    async with palaver.open(url(tmp_path)) as store:
        talks = await populate(store, rng, conversations=30, turns=600)
        words = []
        for n in range(240):
            word = marker(rng)
            words.append(word)
            fields = {
                "title": f"{word} {prose(rng, n % 60)}",
                "metadata": {"m": word + prose(rng, rng.randint(1, 400))},
            }
            await rng.choice(talks).update(**fields)
        for talk in talks:
            await talk.forget()
        assert traces(tmp_path, words) == []


# ---- what SQLite would leave behind --------------------------------------------------------------------------------


async def busy_round(talks: list[Conversation], rng: random.Random) -> list[tuple[Conversation, Turn, str]]:
    """Rows of many sizes that come and grow side by side, so that pages split and cells move between them."""

    async def writer(seed: int) -> list[tuple[Conversation, Turn, str]]:
        own, said = random.Random(seed), []
        for _ in range(12):
            talk, word = own.choice(talks), marker(own)
            kind = own.choice(["words", "key", "metadata", "stream", "foreign"])
            if kind == "stream":
                pieces = [f"{prose(own, own.randint(1, 12))} {word} " for _ in range(own.randint(2, 25))]
                turn = await stream(talk, pieces, ending=own.choice(["commit", "commit", "abort", "none"]))
            elif kind == "key":
                turn = await talk.append("user", "hi", idempotency_key=f"{word}{prose(own, own.randint(0, 30))}{word}")
            elif kind == "metadata":
                turn = await talk.append("user", "hi", metadata={"a": word, "z": prose(own, own.randint(0, 99)) + word})
            else:
                accent = "é " if kind == "foreign" else ""
                text = f"{accent}{prose(own, own.randint(0, 30))} {word} {prose(own, own.randint(1, 90))}"
                turn = await talk.append("user", text)
            said.append((talk, turn, word))
        return said

    seeds = [rng.getrandbits(32) for _ in range(16)]
    return [one for said in await asyncio.gather(*map(writer, seeds)) for one in said]


async def test_no_copy_stays_behind_in_pages_that_cells_have_moved_away_from(tmp_path: Path) -> None:
    """`secure_delete` wipes a cell where it is. Copies remain where it was before a B-tree was rebalanced."""
    rng = random.Random(11)
    async with palaver.open(url(tmp_path)) as store:
        talks = [await store.conversation(marker(rng), title=prose(rng, 3)) for _ in range(40)]
        kept: list[tuple[Conversation, Turn, str]] = []
        gone: list[str] = []
        for _ in range(8):
            kept += await busy_round(talks, rng)
            rng.shuffle(kept)
            half = len(kept) // 3
            await asyncio.gather(*(talk.forget(turn) for talk, turn, _ in kept[:half]))
            gone += [word for _, _, word in kept[:half]]
            kept = kept[half:]
            assert traces(tmp_path, gone) == []
        check_index(tmp_path)
        for talk, turn, word in kept[:50]:
            assert word in repr(await talk.turn(turn))
        for talk in talks:
            await talk.verify()


async def test_pages_in_memory_do_not_bring_old_bytes_back(tmp_path: Path) -> None:
    """A page that was cached before the scrub is written again by the next append: here, and in a second store."""
    rng = random.Random(12)
    async with palaver.open(url(tmp_path)) as store, palaver.open(url(tmp_path)) as second:
        talks = [await store.conversation(f"k{n}") for n in range(40)]
        theirs = [await second.get(talk.id) for talk in talks]
        said = [one for _ in range(4) for one in await busy_round([*talks, *theirs], rng)]
        rng.shuffle(said)
        gone, kept = said[:400], said[400:]
        await forget_all(store, gone)
        words = [word for _, _, word in gone]
        assert traces(tmp_path, words) == []
        await busy_round(theirs, rng)
        await busy_round(talks, rng)
        assert traces(tmp_path, words) == []
        await forget_all(store, kept[:50])
        assert traces(tmp_path, words + [word for _, _, word in kept[:50]]) == []


async def forget_all(store: Store, said: list[tuple[Conversation, Turn, str]]) -> None:
    """The other store may be reading at that moment; then the scrub is pending, and settling finishes it."""
    results = await asyncio.gather(*(talk.forget(turn) for talk, turn, _ in said), return_exceptions=True)
    assert {type(result) for result in results} <= {type(None), palaver.ScrubPending}
    await store.settle()


async def test_the_text_index_keeps_no_signpost_made_of_a_forgotten_word(tmp_path: Path) -> None:
    """FTS5 remembers the beginning of each leaf's first term; words that share one need nearly all of it."""
    rng = random.Random(13)
    async with palaver.open(url(tmp_path), worker=False) as store:  # another reader may keep old bytes in the WAL
        talk = await store.conversation("k")
        words = ["zqwrtpsdfg" + "".join(end) for end in product(CONSONANTS, repeat=3)][:6_000]
        rng.shuffle(words)
        said: list[tuple[str, Turn]] = []
        for start in range(0, len(words), 500):
            some = words[start : start + 500]
            said += zip(some, await talk.append_many([{"role": "user", "content": w} for w in some]), strict=True)
            assert await talk.search(some[0])
        rng.shuffle(said)
        gone, kept = said[:3_000], said[3_000:]
        for start in range(0, len(gone), 250):
            await asyncio.gather(*(talk.forget(turn) for _, turn in gone[start : start + 250]))
        assert traces(tmp_path, [word for word, _ in gone]) == []
        check_index(tmp_path)
        for word, turn in kept[:300]:
            assert [match.turn.id for match in await talk.search(word)] == [turn.id]
        for word, _ in gone[:100]:
            assert await talk.search(word) == []


# ---- late writes ---------------------------------------------------------------------------------------------------


async def test_a_late_write_resurrects_nothing_of_a_deleted_conversation(tmp_path: Path) -> None:
    word = marker(random.Random(21))
    async with palaver.open(url(tmp_path)) as store:
        talk = await store.conversation("k")
        pending = await talk.append_open("assistant")
        await talk.append_chunk(pending, 0, word)
        file = await talk.attach(word.encode(), filename="a.txt")
        await talk.forget()
        late = [
            lambda: talk.append("user", word),
            lambda: talk.append_many([{"role": "user", "content": word}]),
            lambda: talk.append_open("assistant"),
            lambda: talk.append_chunk(pending, 1, word),
            lambda: talk.append_commit(pending),
            lambda: talk.append_abort(pending),
            lambda: talk.append_renew(pending),
            lambda: talk.attach(word.encode(), filename=f"{word}.txt"),
            lambda: talk.append("user", "x", attachments=[file]),
            lambda: talk.rename(word),
            lambda: talk.switch(pending),
            lambda: talk.reset(),
            lambda: talk.forget(pending),
            lambda: talk.forget(),
        ]
        for write in late:
            with pytest.raises(palaver.ConversationGone):
                await write()
        assert traces(tmp_path, [word]) == []
        assert (await store.stats()).conversations == 0
        assert [event.kind for event in await store.audit(talk.id)][-1] == "forget"
        again = await store.conversation("k")
        assert again.id != talk.id
        assert await again.history() == []


async def test_a_stream_that_is_open_when_its_conversation_goes_fails_and_leaves_nothing(tmp_path: Path) -> None:
    word = marker(random.Random(22))
    async with palaver.open(url(tmp_path)) as store:
        talk = await store.conversation("k")
        with pytest.raises(palaver.ConversationGone):
            await forget_while_streaming(talk, word)
        assert traces(tmp_path, [word]) == []


async def forget_while_streaming(talk: Conversation, word: str) -> None:
    async with talk.stream("assistant", flush=0) as out:
        await out.write(word)
        await talk.forget()
        await out.write(word)


async def test_a_late_chunk_to_a_forgotten_or_sealed_turn_fails(tmp_path: Path) -> None:
    word = marker(random.Random(23))
    async with palaver.open(url(tmp_path)) as store:
        talk = await store.conversation("k")
        forgotten = await stream(talk, [word], ending="none")
        sealed = await stream(talk, ["text"], ending="abort")
        await talk.forget(forgotten)
        for late in (
            lambda: talk.append_chunk(forgotten, 1, word),
            lambda: talk.append_commit(forgotten),
            lambda: talk.append_abort(forgotten),
            lambda: talk.append_renew(forgotten),
            lambda: talk.append("assistant", word, replaces=forgotten),
            lambda: talk.switch(forgotten),
            lambda: talk.turn(forgotten),
        ):
            with pytest.raises(palaver.TurnGone):
                await late()
        for late in (lambda: talk.append_chunk(sealed, 1, word), lambda: talk.append_renew(sealed)):
            with pytest.raises(palaver.StreamSealed):
                await late()
        assert traces(tmp_path, [word]) == []
        await talk.verify()


@pytest.mark.parametrize("way", ["turn", "reset"])
async def test_a_retry_with_the_key_of_a_forgotten_turn_cannot_restore_it(tmp_path: Path, way: str) -> None:
    word = marker(random.Random(24))
    async with palaver.open(url(tmp_path)) as store:
        talk = await store.conversation("k")
        turn = await talk.append("user", word, idempotency_key=f"key {word}")
        await (talk.forget(turn) if way == "turn" else talk.reset())
        for retry in (
            lambda: talk.append("user", word, idempotency_key=f"key {word}"),
            lambda: talk.append("user", "other words", idempotency_key=f"key {word}"),
            lambda: talk.append_open("user", idempotency_key=f"key {word}"),
            lambda: talk.append_many([{"role": "user", "content": word, "idempotency_key": f"key {word}"}]),
        ):
            with pytest.raises(palaver.TurnGone):
                await retry()
        assert traces(tmp_path, [word]) == []
        assert await talk.history(include_superseded=True) == []


async def test_sequence_numbers_go_on_after_a_reset(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path)) as store:
        talk = await store.conversation("k")
        await talk.append_many([{"role": "user", "content": "a"}] * 3)
        await talk.reset()
        assert (await talk.append("user", "b")).seq == 3
        await talk.verify()


async def test_forgetting_none_is_refused_and_forgets_nothing(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path)) as store:
        talk = await store.conversation("k")
        turn = await talk.append("user", "stay")
        for mistake in (None, 0, 3, b"", [turn]):
            with pytest.raises(palaver.InvalidInput):
                await talk.forget(mistake)  # type: ignore[arg-type]
        assert [one.id for one in await talk.history()] == [turn.id]


async def test_forgetting_twice_is_no_error(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path)) as store:
        talk = await store.conversation("k")
        turn = await talk.append("user", "x")
        await talk.forget(turn)
        events = len(await talk.audit())
        await talk.forget(turn)
        assert len(await talk.audit()) == events


# ---- tool calls ----------------------------------------------------------------------------------------------------


async def test_forgetting_a_tool_call_forgets_its_results_and_no_others(tmp_path: Path) -> None:
    rng = random.Random(31)
    first, second, unrelated = marker(rng), marker(rng), marker(rng)
    async with palaver.open(url(tmp_path)) as store:
        talk = await store.conversation("k")
        await talk.append("tool", "", tool_results=[{"id": "c1", "content": "from before"}])
        call = await talk.append("assistant", "", tool_calls=[{"id": "c1", "name": "f"}, {"id": "c2", "name": "f"}])
        one = await talk.append("tool", "", tool_results=[{"id": "c1", "content": first}])
        other = await talk.append("tool", "", tool_results=[{"id": "x", "content": unrelated}])
        both = await talk.append("tool", first, tool_results=[{"id": "c2", "content": first}])
        again = await talk.append("assistant", "", tool_calls=[{"id": "c1", "name": "f", "arguments": {"q": second}}])
        reused = await talk.append("tool", "", tool_results=[{"id": "c1", "content": second}])
        await talk.forget(call)
        kept = {turn.id for turn in await talk.history(include_superseded=True)}
        assert {call.id, one.id, both.id}.isdisjoint(kept)
        assert {other.id, again.id, reused.id} <= kept
        assert traces(tmp_path, [first]) == []
        assert {"c1", "x"} == {result.id for turn in await talk.history() for result in turn.tool_results}
        await talk.verify()


# ---- readers that hold on, crashes in between ----------------------------------------------------------------------

READER = """
import sys, apsw
db = apsw.Connection(sys.argv[1])
db.execute("BEGIN").fetchall()
db.execute("SELECT count(*) FROM turns").fetchall()
print("reading", flush=True)
sys.stdin.readline()
db.execute("ROLLBACK")
print("done", flush=True)
sys.stdin.readline()
"""


async def test_a_reader_in_another_process_makes_it_pending_and_settle_finishes_it(tmp_path: Path) -> None:
    word = marker(random.Random(41))
    async with palaver.open(url(tmp_path)) as store:
        talk = await store.conversation("k")
        turn = await talk.append("user", word)
        async with other_reader(f"{tmp_path}/chat.db") as let_go:
            with pytest.raises(palaver.ScrubPending):
                await talk.forget(turn)
            assert await talk.history() == [], "the rows are gone at once"
            assert (await store.stats()).storage["scrub_pending"]
            await let_go()
            await store.settle()
            assert traces(tmp_path, [word]) == []
            assert not (await store.stats()).storage["scrub_pending"]


@asynccontextmanager
async def other_reader(path: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Another process in the middle of a read, until it is released."""
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", READER, path, **pipes)
    assert process.stdin is not None
    assert process.stdout is not None
    assert await process.stdout.readline() == b"reading\n"

    async def let_go() -> None:
        process.stdin.write(b"\n")
        assert await process.stdout.readline() == b"done\n"

    yield let_go
    await process.communicate(b"\n")


async def test_a_pending_scrub_is_finished_when_the_file_is_opened_next(tmp_path: Path) -> None:
    word = marker(random.Random(42))
    reader = apsw.Connection(f"{tmp_path}/chat.db")
    async with palaver.open(url(tmp_path)) as store:
        talk = await store.conversation("k")
        turn = await talk.append("user", word)
        reader.execute("BEGIN").fetchall()
        reader.execute("SELECT count(*) FROM turns").fetchall()
        with pytest.raises(palaver.ScrubPending):
            await talk.forget(turn)
    assert traces(tmp_path, [word]), "the reader still needs it"
    reader.execute("ROLLBACK")
    async with palaver.open(url(tmp_path)) as store:
        await store.settle()
        assert traces(tmp_path, [word]) == []
    reader.close()


async def test_files_of_a_deletion_that_crashed_halfway_are_removed_at_the_next_start(tmp_path: Path) -> None:
    word = marker(random.Random(43))
    async with palaver.open(url(tmp_path)) as store:
        talk = await store.conversation("k")
        file = await talk.attach(word.encode(), filename="a.txt")
        turn = await talk.append("user", "look", attachments=[file])
        path = (await talk.attachment(file)).path
        blob = tmp_path / "chat.db-files" / path
        await talk.forget(turn)
        assert not blob.exists()
    # As it is after a crash between the commit and the removal of the file:
    blob.parent.mkdir(parents=True, exist_ok=True)
    blob.write_bytes(word.encode())
    db = apsw.Connection(f"{tmp_path}/chat.db")
    db.set_busy_timeout(10_000)
    db.execute("INSERT INTO doomed_blobs (path) VALUES (?)", (path,))
    db.close()
    async with palaver.open(url(tmp_path)) as store:
        assert not blob.exists()
        assert (await store.stats()).storage["files_to_delete"] == 0


async def test_a_file_that_could_not_be_attached_is_not_kept(tmp_path: Path) -> None:
    word = marker(random.Random(44))
    async with palaver.open(url(tmp_path), tenant="acme", user="ada") as store:
        talk = await store.conversation("k")
        stranger = conversation_of(store.scoped(Scope("other", "eve")), talk.info)
        with pytest.raises(palaver.ConversationNotFound):
            await stranger.attach(word.encode(), filename="a.txt")
        assert traces(tmp_path, [word]) == []


async def test_a_file_attached_and_never_used_goes_with_the_conversation(tmp_path: Path) -> None:
    rng = random.Random(45)
    word, other = marker(rng), marker(rng)
    async with palaver.open(url(tmp_path)) as store:
        talk = await store.conversation("k")
        await talk.attach(word.encode(), filename=f"{word}.txt")
        await talk.reset()
        assert traces(tmp_path, [word]) == []
        await talk.attach(other.encode(), filename=f"{other}.txt")
        await talk.forget()
        assert traces(tmp_path, [other]) == []


async def test_a_refused_import_leaves_no_files(tmp_path: Path) -> None:
    word = marker(random.Random(46))
    async with palaver.open(url(tmp_path)) as store:
        talk = await store.conversation("k")
        file = await talk.attach(word.encode(), filename="a.txt")
        await talk.append("user", "look", attachments=[file])
        async with aclosing(talk.records()) as pages:
            records = [record async for page in pages for record in page]
        before = sorted(tmp_path.rglob("*.txt"))
        assert await store.restore(records, {file.id: word.encode()}) is None
        assert sorted(tmp_path.rglob("*.txt")) == before
        assert await talk.read_attachment(file) == word.encode()
        await talk.forget()
        with pytest.raises(palaver.PalaverError):
            await store.restore(records, {file.id: word.encode()})
        assert traces(tmp_path, [word]) == []


# ---- what files say ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["forget the turn", "forget", "reset"])
async def test_no_byte_of_what_a_file_said_remains(tmp_path: Path, way: str) -> None:
    """Its words are in rows, in the index and as vectors by then; in the file itself they are packed."""
    rng = random.Random(way)
    word, kept = marker(rng), marker(rng)
    async with palaver.open(url(tmp_path), tenant="acme", embedder=HashEmbedder()) as store:
        await populate(store, rng, turns=480)
        talk, other = await store.conversation("victim"), await store.conversation("other/0")
        stays = await other.attach(kept.encode(), filename="kept.txt")
        await other.append("user", "this stays", attachments=[stays])
        files = [await talk.attach(letter(word, rng), filename="a.docx") for _ in range(2)]
        turn = await talk.append("user", "here", attachments=files)
        await store.settle()
        assert (await talk.recall(word, k=1))[0].quote, "the test must be able to find it"
        assert traces(tmp_path, [word]), "and to see it"
        if way == "forget the turn":
            await talk.forget(turn)
        else:
            await (talk.forget() if way == "forget" else talk.reset())
        assert traces(tmp_path, [word]) == []
        assert await store.search(word) == []
        assert (await other.recall(kept, k=1))[0].quote, "nobody else's words went"
        check_index(tmp_path)


def letter(word: str, rng: random.Random) -> bytes:
    lines = [prose(rng, 30) for _ in range(60)]
    lines.insert(30, f"so {word} was written")
    return docx("<w:document>" + "".join(f"<w:p><w:t>{line}.</w:t></w:p>" for line in lines) + "</w:document>")


async def unredacted(text: str) -> str:
    return text


async def test_a_file_that_is_forgotten_while_it_is_read_is_not_remembered(tmp_path: Path) -> None:
    rng = random.Random(7)
    word = marker(rng)
    async with palaver.open(url(tmp_path), tenant="acme", worker=False) as store:
        talk = await store.conversation("victim")
        turn = await talk.append("user", "here", attachments=[await talk.attach(letter(word, rng), filename="a.docx")])
        (file,) = await engine_of(store).unread_files(store.scope, talk.id, 10)
        text = await services_of(talk).attachments.files.words(store.scope, talk.id, file, unredacted)
        assert word in text.text
        await talk.forget(turn)
        assert not await engine_of(store).put_file_text(store.scope, talk.id, text)
        assert traces(tmp_path, [word]) == []
