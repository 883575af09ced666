"""Backups: a folder with the database, the attachments that it names, and a page that says what is in it.

    backup/
      backup.json              what was copied, when, and the hash of the database
      palaver.db               an SQLite file like any other; or palaver.dump, from pg_dump
      palaver.db-files/        the attachments, under the paths that the database names

A backup appears under its name when it is whole. A restored one takes its place when it was verified.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from urllib.parse import quote, unquote, urlsplit

import palaver
from palaver.audit.seals import check_seals
from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import components_of
from palaver.conversations.opener import open as open_store
from palaver.conversations.store import Store
from palaver.errors import AttachmentNotFound, EngineUnavailable, InvalidInput, PalaverError, VerificationFailed
from palaver.model import Scope

MANIFEST, DATABASE, DUMP, FILES = "backup.json", "palaver.db", "palaver.dump", "palaver.db-files"
FORMAT = 1
TRIES = 5  # at one moment of the database whose files are all still there
PAGE = 1_000
Advance = Callable[[int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """What a backup holds. `missing` are attachments that the database names and that were not there."""

    at: str
    engine: str
    schema: int | None
    bytes: int
    sha256: str
    files: int = 0
    file_bytes: int = 0
    missing: list[str] = field(default_factory=list)
    palaver: str = palaver.__version__
    format: int = FORMAT


# ---- making one ----------------------------------------------------------------------------------------------------


async def back_up_file(source: Path, files: Path | None, target: Path, advance: Advance) -> Backup:
    """Copy an SQLite database, and the attachments in a folder, while others write. `advance` is told the bytes."""
    if not source.exists():
        raise InvalidInput("db", f"there is no database {source}")
    return await asyncio.to_thread(_back_up_file, source, files, target, advance)


def _back_up_file(source: Path, files: Path | None, target: Path, advance: Advance) -> Backup:
    from palaver.engines.sqlite.backup import attachment_paths, copy_database, schema_of

    with _appearing(target) as part:
        copy, before = part / DATABASE, None
        for _ in range(TRIES):
            copy.unlink(missing_ok=True)
            copy_database(source, copy, advance)
            named = attachment_paths(copy) if files is not None else set()
            missing = named - {name for name in named if _copied(files, part / FILES, name, advance)}
            # A file that was forgotten meanwhile is in no later moment; one that is simply lost is in each of them.
            if not missing or missing == before:
                break
            before = missing
        _drop_others(part / FILES, named)
        return _described(part, copy, "sqlite", schema_of(copy), sorted(missing))


async def back_up_server(url: str, files: Path | None, target: Path, advance: Advance) -> Backup:
    """Run pg_dump on a Postgres database, then copy the folder of its attachments."""
    program = shutil.which("pg_dump")
    if program is None:
        shown = f"pg_dump --format=custom --file={DUMP} --dbname=…"
        raise InvalidInput("db", f"is a Postgres database, and there is no pg_dump here: run `{shown}` where there is")
    return await asyncio.to_thread(_back_up_server, program, url, files, target, advance)


def _back_up_server(program: str, url: str, files: Path | None, target: Path, advance: Advance) -> Backup:
    with _appearing(target) as part:
        dump = part / DUMP
        _run_dump(program, url, dump)
        advance(dump.stat().st_size)
        for name in _names(files) if files is not None else ():
            _copied(files, part / FILES, name, advance)
        return _described(part, dump, "postgres", None, [])


def _run_dump(program: str, url: str, dump: Path) -> None:
    """The password goes by the environment: others see the arguments of a process."""
    parts = urlsplit(url)
    place = parts.netloc if parts.password is None else parts.netloc.replace(f":{parts.password}@", "@")
    secret = {} if parts.password is None else {"PGPASSWORD": unquote(parts.password)}
    command = [program, "--format=custom", "--no-password", f"--file={dump}"]
    address = f"--dbname={parts._replace(netloc=place).geturl()}"
    done = subprocess.run([*command, address], env={**os.environ, **secret}, capture_output=True, text=True)
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["?"])[0]
        raise EngineUnavailable(f"pg_dump, which needs an administrator's address, did not do it: {why}")


@contextmanager
def _appearing(target: Path) -> Iterator[Path]:
    """A folder that only its owner can read. It gets its name when it is whole, and is gone when it is not."""
    if target.exists():
        raise InvalidInput("target", f"{target} is there already: name a new folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield part
        _to_disk(part)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _described(part: Path, database: Path, engine: str, schema: int | None, missing: list[str]) -> Backup:
    sizes = [(part / FILES / name).stat().st_size for name in _names(part / FILES)]
    made = Backup(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        engine=engine,
        schema=schema,
        bytes=database.stat().st_size,
        sha256=_sha256(database),
        files=len(sizes),
        file_bytes=sum(sizes),
        missing=missing,
    )
    (part / MANIFEST).write_text(json.dumps(asdict(made), indent=2) + "\n")
    return made


# ---- attachments ---------------------------------------------------------------------------------------------------


def _names(folder: Path) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()]


def _copied(folder: Path | None, target: Path, name: str, advance: Advance) -> bool:
    """Copy one attachment, unless an earlier try has. False when it is not there."""
    path = PurePosixPath(name)
    if folder is None or path.is_absolute() or ".." in path.parts:
        return False
    place = target / path
    if place.exists():
        return True
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copyfile(folder / path, place)
    except FileNotFoundError:
        place.unlink(missing_ok=True)
        return False
    advance(place.stat().st_size)
    return True


def _drop_others(folder: Path, named: set[str]) -> None:
    """What was forgotten while the backup was made is in none."""
    for name in _names(folder):
        if name not in named:
            (folder / name).unlink()


def _to_disk(folder: Path, *, deep: bool = True) -> None:
    """A name is durable when the folder that holds it is."""
    for path in [*(folder.rglob("*") if deep else ()), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# ---- putting one back ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    conversations: int
    turns: int
    aside: Path | None  # where that is which was in the place before
    problems: list[str]  # of conversations that did not verify


def read_backup(folder: Path) -> Backup:
    """What a backup says of itself; the database in it is as it was."""
    try:
        said = json.loads((folder / MANIFEST).read_text())
        found = Backup(**said)
    except (OSError, ValueError, TypeError):
        raise InvalidInput("backup", f"{folder} is no backup: it has no {MANIFEST} that can be read") from None
    if found.format != FORMAT:
        raise InvalidInput("backup", f"has format {found.format}, and this version knows {FORMAT}: upgrade Palaver")
    database = folder / (DATABASE if found.engine == "sqlite" else DUMP)
    if not database.is_file() or _sha256(database) != found.sha256:
        raise InvalidInput("backup", f"{database} is not as it was when the backup was made")
    return found


async def restore_file(
    backup: Path, target: Path, files: Path, *, force: bool, anyway: bool, key: bytes | None, advance: Advance
) -> Restored:
    """Verify a backup of an SQLite database, and put it into its place.

    `force` moves aside what is there; `anyway` takes a backup that does not verify.
    """
    found = await asyncio.to_thread(read_backup, backup)
    if found.engine != "sqlite":
        raise InvalidInput("backup", "is one of Postgres: use pg_restore, then `palaver verify` (see docs/server.md)")
    there = [one for one in (target, files, *_beside(target)) if one.exists()]
    if there and not force:
        raise InvalidInput("db", f"{there[0]} is there already: --force moves it aside")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        await asyncio.to_thread(_fetch, backup, part)
        conversations, turns, problems = await _verified(part, key, advance)
        await asyncio.to_thread(_to_disk, part)
        if problems and not anyway:
            raise problems[0]
        aside = await asyncio.to_thread(_take_place, part, target, files)
        told = [str(one) for one in problems]
        return Restored(conversations=conversations, turns=turns, aside=aside, problems=told)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _fetch(backup: Path, part: Path) -> None:
    shutil.copyfile(backup / DATABASE, part / DATABASE)
    if (backup / FILES).is_dir():
        shutil.copytree(backup / FILES, part / FILES)


async def _verified(part: Path, key: bytes | None, advance: Advance) -> tuple[int, int, list[PalaverError]]:
    """Every conversation of every tenant: how many, with how many turns, and what is wrong."""
    from palaver.engines.sqlite.backup import merge_wal

    conversations, turns = 0, 0
    problems: list[PalaverError] = []
    url = f"sqlite:///{quote(str(part / DATABASE))}"
    async with open_store(url, files=part / FILES, embedder="none", worker=False) as store:
        for tenant in await components_of(store).engine.tenants():
            async for talk in _everything(store.scoped(Scope.of(tenant, None))):
                conversations += 1
                try:
                    turns += (await talk.verify()).turns
                    if key is not None:
                        await check_seals(components_of(store).engine, key, Scope.of(tenant, None), talk.id)
                except (VerificationFailed, AttachmentNotFound) as problem:
                    problems.append(problem)
                advance(1)
    await asyncio.to_thread(merge_wal, part / DATABASE)
    return conversations, turns, problems


async def _everything(store: Store) -> AsyncIterator[Conversation]:
    cursor = None
    while True:
        page = await store.conversations(limit=PAGE, cursor=cursor)
        for info in page.items:
            yield await store.get(info.id)
        if (cursor := page.cursor) is None:
            return


def _take_place(part: Path, target: Path, files: Path) -> Path | None:
    """The files first: a database without them would not verify. Answers where that is now which was there before."""
    from palaver.engines.sqlite.backup import merge_wal

    if target.exists():
        merge_wal(target)
    aside = target.with_name(f"{target.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")
    moved = [_moved(files, aside.with_name(aside.name + "-files"))]
    if (part / FILES).exists():
        (part / FILES).rename(files)
    pairs = zip([*_beside(target), target], [*_beside(aside), aside], strict=True)
    moved += [_moved(one, other) for one, other in pairs]
    (part / DATABASE).rename(target)
    _to_disk(target.parent, deep=False)
    return next(filter(None, reversed(moved)), None)


def _beside(database: Path) -> list[Path]:
    """What SQLite keeps beside a file. Left behind by a lost one, it would be played into whatever takes its place."""
    return [database.with_name(database.name + end) for end in ("-wal", "-shm", "-journal")]


def _moved(place: Path, aside: Path) -> Path | None:
    return place.rename(aside) if place.exists() else None
