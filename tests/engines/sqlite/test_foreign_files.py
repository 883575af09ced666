"""Files that are damaged, newer, read-only, foreign, or on a full disk: a clear error, nothing half-written."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import palaver
from palaver import Conversation
from palaver.conversations.internals import engine_of

NOBODY = 65_534


async def open_and_append(url: str) -> None:
    async with palaver.open(url) as store:
        await (await store.conversation("k")).append("user", "hello")


async def make(path: Path, turns: int = 50) -> None:
    async with palaver.open(f"sqlite:///{path}?synchronous=NORMAL") as store:
        talk = await store.conversation("k")
        await talk.append_many([{"role": "user", "content": f"text {n} " * 40} for n in range(turns)])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


# ---- not ours ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [b"just a note\n", b"x" * 5_000, b"SQLite format 2\0" + b"\0" * 5_000, b"SQLite format 3\0", b"\0" * 4_096],
    ids=["short text", "long text", "an old format", "a cut header", "zeros"],
)
async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "note.txt"
    path.write_bytes(data)
    with pytest.raises((palaver.NotADatabase, palaver.DatabaseCorrupt)):
        await open_and_append(f"sqlite:///{path}")
    assert contents(tmp_path) == {"note.txt": data}


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("application", [0, 0x0F055112])
async def test_another_programs_database_is_refused_and_left_alone(
    tmp_path: Path, journal: str, application: int
) -> None:
    path = tmp_path / "theirs.db"
    db = apsw.Connection(str(path))
    db.execute(f"PRAGMA journal_mode = {journal}").fetchall()
    db.execute(f"PRAGMA application_id = {application}")
    db.execute("CREATE TABLE theirs (x); INSERT INTO theirs VALUES ('precious')")
    db.close()
    before = path.read_bytes()
    with pytest.raises(palaver.NotADatabase, match="another program"):
        await open_and_append(f"sqlite:///{path}")
    assert path.read_bytes() == before
    assert not (tmp_path / "theirs.db-files").exists()


async def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    (tmp_path / "new.db").touch()
    await open_and_append(f"sqlite:///{tmp_path}/new.db")


async def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(palaver.NotADatabase):
        await open_and_append(f"sqlite:///{tmp_path}")
    assert list(tmp_path.iterdir()) == []


async def test_a_missing_folder_is_named_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(palaver.EngineUnavailable, match="nowhere"):
        await open_and_append(f"sqlite:///{tmp_path}/nowhere/chat.db")
    assert list(tmp_path.iterdir()) == []


# ---- newer ---------------------------------------------------------------------------------------------------------


async def test_a_newer_schema_is_refused_with_both_numbers_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "new.db"
    await make(path, turns=1)
    db = apsw.Connection(str(path))
    (known,) = db.execute("PRAGMA user_version").fetchall()[0]
    db.execute("PRAGMA user_version = 999")
    db.close()
    before = path.read_bytes()
    with pytest.raises(palaver.DatabaseTooNew) as problem:
        await open_and_append(f"sqlite:///{path}")
    assert (problem.value.found, problem.value.known) == (999, known)
    assert path.read_bytes() == before


# ---- damaged -------------------------------------------------------------------------------------------------------


@pytest.mark.costly
async def test_a_damaged_file_is_called_so(tmp_path: Path) -> None:
    """Wherever the damage is met: at opening, reading, writing or verifying."""
    path = tmp_path / "c.db"
    await make(path, turns=400)
    whole = path.read_bytes()
    rubbish = bytes(range(256)) * 16
    for start in range(0, len(whole), 4_096 * 7):
        path.write_bytes(whole[:start] + rubbish + whole[start + 4_096 :])
        await meets_damage(path)
    path.write_bytes(whole[: len(whole) // 2 // 4_096 * 4_096])
    assert await meets_damage(path), "half of the file is missing"


async def meets_damage(path: Path) -> bool:
    """Use everything once. Only our own errors may come out of it."""
    try:
        async with palaver.open(f"sqlite:///{path}?synchronous=NORMAL") as store:
            talk = await store.conversation("k")
            await talk.history(1_000, include_superseded=True)
            await talk.search("text")
            await talk.append("user", "more")
            await talk.verify()
            return False
    except (palaver.DatabaseCorrupt, palaver.NotADatabase, palaver.VerificationFailed, palaver.EngineError):
        return True


async def test_errors_say_nothing_of_what_the_file_holds(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    await make(path)
    data = bytearray(path.read_bytes())
    data[8_192:] = b"secretword" * ((len(data) - 8_192) // 10)
    path.write_bytes(data)
    with pytest.raises(palaver.EngineError) as problem:
        await open_and_append(f"sqlite:///{path}")
    assert "secretword" not in str(problem.value)


# ---- read-only -----------------------------------------------------------------------------------------------------

READ_ONLY = """
import asyncio, os, sys, palaver
async def attempt(url):
    async with palaver.open(url) as store:
        await (await store.conversation("k")).append("user", "hello")
asyncio.run(attempt("memory:"))
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
try:
    asyncio.run(attempt(sys.argv[1]))
    print("written")
except palaver.PalaverError as problem:
    print(type(problem).__name__)
"""


def as_nobody(url: str) -> str:
    """Open this as an unprivileged process. Returns its output."""
    command = [sys.executable, "-c", READ_ONLY, url, str(NOBODY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if "Permission denied" in done.stderr and "palaver" in done.stderr.rsplit("Error", 1)[-1]:
        pytest.skip("an unprivileged process may not even read the package here")
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that other users can get to; pytest keeps its own to itself."""
    with tempfile.TemporaryDirectory(prefix="palaver-reachable-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_a_folder_that_cannot_be_written_is_called_so(reachable: Path) -> None:
    folder = reachable / "locked"
    folder.mkdir()
    folder.chmod(0o555)
    assert as_nobody(f"sqlite:///{folder}/new.db") == "DatabaseReadOnly"
    assert list(folder.iterdir()) == []
    folder.chmod(0o755)


@pytest.mark.parametrize("modes", [(0o555, 0o444), (0o777, 0o444), (0o555, 0o666)], ids=["both", "file", "folder"])
async def test_a_file_that_cannot_be_written_is_called_so_and_left_alone(
    reachable: Path, modes: tuple[int, int]
) -> None:
    folder = reachable / "locked"
    folder.mkdir()
    path = folder / "c.db"
    await make(path)
    before = path.read_bytes()
    path.chmod(modes[1])
    folder.chmod(modes[0])
    assert as_nobody(f"sqlite:///{path}") == "DatabaseReadOnly"
    folder.chmod(0o755)
    assert path.read_bytes() == before
    path.chmod(0o644)
    await open_and_append(f"sqlite:///{path}")


# ---- full ----------------------------------------------------------------------------------------------------------


async def fill(talk: Conversation, acknowledged: list[str]) -> Exception:
    """Append until the disk is full, four at a time. Returns the first error."""
    for n in range(1_000):
        texts = [f"{n}.{part} " + "x" * 20_000 for part in range(4)]
        results = await asyncio.gather(*(talk.append("user", text) for text in texts), return_exceptions=True)
        acknowledged += [turn.id for turn in results if isinstance(turn, palaver.Turn)]
        if problems := [result for result in results if isinstance(result, Exception)]:
            return problems[0]
    raise AssertionError("the disk never filled")


async def test_a_full_disk_is_called_so_and_the_store_goes_on_when_there_is_space(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 3_000_000)
    async with asyncio.timeout(60), palaver.open(f"sqlite:///{small_disk}/c.db", worker=False) as store:
        talk = await store.conversation("k")
        acknowledged: list[str] = []
        assert isinstance(await fill(talk, acknowledged), palaver.DatabaseFull)
        assert [turn.id for turn in await talk.history(1_000)] == acknowledged, "all that was acknowledged, no more"
        await talk.verify()
        with pytest.raises(palaver.EngineError):
            await talk.append("user", "y" * 200_000)
        with pytest.raises(palaver.EngineError):
            await talk.append_many([{"role": "user", "content": "y" * 20_000}] * 10)
        ballast.unlink()
        acknowledged.append((await talk.append("user", "y" * 200_000)).id)
        assert [turn.id for turn in await talk.history(1_000)] == acknowledged
        await talk.verify()
    async with palaver.open(f"sqlite:///{small_disk}/c.db", worker=False) as store:
        assert (await (await store.conversation("k")).verify()).turns == len(acknowledged)


async def test_forgetting_on_a_full_disk_says_how_far_it_came_and_can_be_finished(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 3_000_000)
    async with asyncio.timeout(60), palaver.open(f"sqlite:///{small_disk}/c.db", worker=False) as store:
        talk = await store.conversation("k")
        acknowledged: list[str] = []
        await fill(talk, acknowledged)
        outcomes = []
        for id in acknowledged[:20]:
            try:
                await talk.forget(id)
            except (palaver.DatabaseFull, palaver.ScrubPending) as problem:
                outcomes.append(type(problem))
        ballast.unlink()
        for id in acknowledged[:20]:
            await talk.forget(id)
        await store.settle()
        await talk.append("user", "still here")
        await talk.verify()


async def test_a_disk_that_is_full_from_the_start_leaves_no_half_made_database(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space"):
        ballast.write_bytes(b"x" * 16_000_000)
    with pytest.raises(palaver.EngineError):
        await open_and_append(f"sqlite:///{small_disk}/c.db")
    ballast.unlink()
    await open_and_append(f"sqlite:///{small_disk}/c.db")


async def test_a_file_that_may_not_grow_is_a_clear_error_and_nothing_is_half_written(
    tmp_path: Path, file_limit: Callable[[int | None], None]
) -> None:
    async with asyncio.timeout(60), palaver.open(f"sqlite:///{tmp_path}/c.db", worker=False) as store:
        talk = await store.conversation("k")
        file_limit(2_000_000)
        acknowledged: list[str] = []
        problem = await fill(talk, acknowledged)
        assert isinstance(problem, palaver.EngineError)
        assert [turn.id for turn in await talk.history(1_000)] == acknowledged
        await talk.verify()
        file_limit(None)
        acknowledged.append((await talk.append("user", "y" * 200_000)).id)
        assert [turn.id for turn in await talk.history(1_000)] == acknowledged
        await talk.verify()


@pytest.mark.costly
async def test_bytes_that_could_not_be_scrubbed_for_want_of_space_are_pending_and_not_the_end(
    tmp_path: Path, file_limit: Callable[[int | None], None]
) -> None:
    """The rows are deleted in the WAL, and then the file has no room to take them over."""
    path = tmp_path / "c.db"
    await make(path, turns=1_000)
    async with asyncio.timeout(60), palaver.open(f"sqlite:///{path}", worker=False) as store:
        talk = await store.conversation("k")
        secret = await talk.append("user", "zqbcdfghjklmnp " + "x" * 300_000)
        file_limit(path.stat().st_size)
        with pytest.raises(palaver.ScrubPending):
            await talk.forget(secret)
        assert (await store.stats()).storage["scrub_pending"]
        file_limit(None)
        await store.settle()
        assert not any(b"zqbcdfghjklmnp" in data for data in contents(tmp_path).values())
        await talk.append("user", "still here")
        await talk.verify()


NO_ADDRESSES = [
    "sqlite:///:memory:",
    "sqlite:///%3Amemory%3A",
    "sqlite:///./:memory:",
    "sqlite:///a%00b.db",
    "sqlite:///a\0b.db",
    "sqlite:chat.db",  # the first letter would be lost
    "sqlite:/chat.db",
    "sqlite://chat.db",
    "sqlite:///a#1.db",  # the file would be "a", and that of "a#2.db" as well
    "sqlite:///a.db?busy_timeout=99999999999",
    "sqlite:///a.db?busy_timeout=²",
    5,
    None,
]


@pytest.mark.parametrize("url", NO_ADDRESSES)
async def test_an_address_that_cannot_be_one_is_refused_by_name(
    url: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(palaver.InvalidInput) as caught:
        async with palaver.open(url):
            pass
    assert caught.value.field == "url"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("options", [{"retention_minutes": -1}, {"retention_minutes": "x"}, {"scope": 5}])
async def test_a_store_is_not_opened_with_what_it_cannot_mean(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(palaver.InvalidInput) as caught:
        async with palaver.open(f"sqlite:///{tmp_path}/a.db", sweep_every=60, **options):
            pass
    assert caught.value.field == next(iter(options))


async def test_a_program_that_goes_to_another_folder_keeps_its_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(tmp_path)
    async with palaver.open("sqlite:///chat.db", embedder=None, worker=False) as store:
        talk = await store.conversation("k")
        monkeypatch.chdir(elsewhere)
        file = await talk.attach(b"hello", filename="a.txt")
        await talk.append("user", "hello", attachments=[file])
        assert await talk.read_attachment(file) == b"hello"
        assert (await store.stats()).turns == 1
        await talk.verify()
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("pace", [0.0, 1.0], ids=["at once", "by the thread"])
@pytest.mark.parametrize("by", ["nothing", "another file"])
async def test_nothing_is_acknowledged_that_goes_into_a_file_that_is_gone(tmp_path: Path, by: str, pace: float) -> None:
    path = tmp_path / "a.db"
    async with palaver.open(f"sqlite:///{path}", embedder=None, worker=False) as store:
        talk = await store.conversation("k")
        await talk.append("user", "before")
        path.unlink()
        if by == "another file":
            path.write_bytes(b"")
        engine_of(store).writer.average_seconds = pace  # type: ignore[attr-defined]
        with pytest.raises(palaver.EngineUnavailable, match="open the store again"):
            await talk.append("user", "after")
        if by == "nothing":
            with pytest.raises(palaver.EngineUnavailable):
                await store.stats()
