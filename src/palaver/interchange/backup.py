"""Backups: a folder with the database, its attachments and a manifest.

    backup/
      backup.json              the manifest: what was copied, when, and the hash of the database
      palaver.db               an SQLite file like any other; or palaver.dump, from pg_dump
      palaver.db-files/        the attachments, under the paths that the database stores

A backup gets its name only when it is complete. A restored database replaces the old one only after it was verified.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qsl, quote, unquote, urlencode

import palaver
from palaver.audit.erasure import read_tombstones
from palaver.audit.seals import check_seals
from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import engine_of, eraser_of
from palaver.conversations.opener import open as open_store
from palaver.conversations.store import Store
from palaver.engines.sqlite.leftovers import private_folder
from palaver.errors import AttachmentNotFound, EngineUnavailable, InvalidInput, PalaverError, VerificationFailed
from palaver.model import Scope
from palaver.ports.queries import Erasure

MANIFEST, DATABASE, DUMP, FILES = "backup.json", "palaver.db", "palaver.dump", "palaver.db-files"
FORMAT = 1
TRIES = 5  # to copy a database and all its files while files are being deleted
PAGE = 1_000
Advance = Callable[[int], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """The manifest of a backup. `missing` are attachments that the database refers to and that were not found."""

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
    """Copy an SQLite database and the attachments in a folder, during writes. Copied bytes are passed to `advance`."""
    if not source.exists():
        raise InvalidInput("db", f"there is no database {source}")
    return await asyncio.to_thread(_back_up_file, source, files, target, advance)


def _back_up_file(source: Path, files: Path | None, target: Path, advance: Advance) -> Backup:
    from palaver.engines.sqlite.backup import attachment_paths, copy_database, schema_of

    with _new_folder(target) as part:
        copy, before = part / DATABASE, None
        for _ in range(TRIES):
            copy.unlink(missing_ok=True)
            copy_database(source, copy, advance)
            named = attachment_paths(copy) if files is not None else set()
            missing = named - {name for name in named if _copy_attachment(files, part / FILES, name, advance)}
            # A file that was forgotten during the copy is not in the next copy; a lost file is missing from each.
            if not missing or missing == before:
                break
            before = missing
        _drop_others(part / FILES, named)
        return _write_manifest(part, copy, "sqlite", schema_of(copy), sorted(missing))


async def back_up_server(url: str, files: Path | None, target: Path, advance: Advance) -> Backup:
    """Run pg_dump on a Postgres database, then copy the folder of its attachments."""
    program = shutil.which("pg_dump")
    if program is None:
        command = f"pg_dump --format=custom --file={DUMP} --dbname=…"
        raise InvalidInput("db", f"is a Postgres database, and there is no pg_dump here: run `{command}` elsewhere")
    return await asyncio.to_thread(_back_up_server, program, url, files, target, advance)


def _back_up_server(program: str, url: str, files: Path | None, target: Path, advance: Advance) -> Backup:
    with _new_folder(target) as part:
        dump = part / DUMP
        _run_dump(program, url, dump)
        advance(dump.stat().st_size)
        for name in _names(files) if files is not None else ():
            _copy_attachment(files, part / FILES, name, advance)
        return _write_manifest(part, dump, "postgres", None, [])


def _run_dump(program: str, url: str, dump: Path) -> None:
    """Run pg_dump. The password goes into the environment: arguments of a process are visible to others."""
    address, secrets = _address_for_dump(url)
    command = [program, "--format=custom", "--no-password", f"--file={dump}", f"--dbname={address}"]
    done = subprocess.run(command, env={**os.environ, **secrets}, capture_output=True, text=True)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["?"]
        why = " ".join(said[:2] if "version mismatch" in said[0] else said[:1])  # the second line has the versions
        raise EngineUnavailable(f"pg_dump failed: {why}. {_advice(said[0])}")


def _address_for_dump(url: str) -> tuple[str, dict[str, str]]:
    """Return the URL with the parameters that pg_dump knows, without the password, and variables of its environment."""
    from palaver.engines.postgres.address import DRIVER, split_url

    parts = split_url(url)
    given = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "sslpassword" in given:
        raise InvalidInput("url", "pg_dump gets sslpassword only from a service file: write it there, and add service=")
    query = {name: one for name, one in given.items() if name in (*DRIVER, "options")}
    database = query.pop("database", None)
    if database is not None and not parts.path.strip("/"):  # pg_dump's name for it
        query.setdefault("dbname", database)
    variables = {"password": "PGPASSWORD", "servicefile": "PGSERVICEFILE"}
    secrets = {variable: query.pop(name) for name, variable in variables.items() if name in query}
    if parts.password is not None:
        secrets["PGPASSWORD"] = unquote(parts.password)
    user, at, hosts = parts.netloc.rpartition("@")
    rest = urlencode(query, quote_via=quote, safe="")
    # Not by urlunsplit, which omits the // of an address without a host.
    address = f"postgresql://{user.partition(':')[0]}{at}{hosts}{parts.path}"
    return f"{address}?{rest}" if rest else address, secrets


def _advice(problem: str) -> str:
    if "version mismatch" in problem:
        return "Put a pg_dump that is as new as the server, or newer, first in PATH"
    if "connection to server" in problem:
        return "Check the address, the user and the password of --db"
    return "It needs the address of an administrator: a superuser, or a role with BYPASSRLS and pg_read_all_data"


@contextmanager
def _new_folder(target: Path) -> Iterator[Path]:
    """Yield a private folder that is renamed to `target` when the block succeeds, and deleted when it fails."""
    if target.exists():
        raise InvalidInput("target", f"{target} already exists: name a new folder")
    with private_folder(target) as part:
        yield part
        _sync(part)
        part.rename(target)


def _write_manifest(part: Path, database: Path, engine: str, schema: int | None, missing: list[str]) -> Backup:
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


def _copy_attachment(folder: Path | None, target: Path, name: str, advance: Advance) -> bool:
    """Copy one attachment, unless an earlier try did. False when it is missing."""
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
    """Delete copies of files that were forgotten while the backup was made."""
    for name in _names(folder):
        if name not in named:
            (folder / name).unlink()


def _sync(folder: Path, *, deep: bool = True) -> None:
    """Sync a folder and its contents: a name is durable only when its folder is synced."""
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
    """The result of a restore."""

    conversations: int
    turns: int
    aside: Path | None  # where the previous database was moved
    problems: list[str]  # conversations that did not verify
    erased: int = 0  # persons who were erased after the backup was made, and again now
    aside_files: Path | None = None  # where the previous folder of attachments was moved


def read_backup(folder: Path) -> Backup:
    """Read the manifest of a backup, and check that its database is unchanged."""
    try:
        said = json.loads((folder / MANIFEST).read_text())
        found = Backup(**said)
    except (OSError, ValueError, TypeError):
        raise InvalidInput("backup", f"{folder} is not a backup: it has no readable {MANIFEST}") from None
    if found.format != FORMAT:
        raise InvalidInput("backup", f"has format {found.format}, but this version supports {FORMAT}: upgrade Palaver")
    database = folder / (DATABASE if found.engine == "sqlite" else DUMP)
    if not database.is_file() or _sha256(database) != found.sha256:
        raise InvalidInput("backup", f"{database} has changed since the backup was made")
    return found


async def restore_file(
    backup: Path,
    target: Path,
    files: Path,
    *,
    force: bool,
    anyway: bool,
    key: bytes | None,
    advance: Advance,
    erasures: Iterable[str] = (),
) -> Restored:
    """Verify a backup of an SQLite database, and restore it.

    `force` moves an existing database aside; `anyway` restores a backup that does not verify. Persons are erased again
    who were erased in the database that is there, or are in the lines `erasures`.
    """
    found = await asyncio.to_thread(read_backup, backup)
    if found.engine != "sqlite":
        raise InvalidInput(
            "backup", "is a backup of Postgres: use pg_restore, then `palaver verify` (docs/how-to/backups.md)"
        )
    there = [one for one in (target, files, *_journals(target)) if one.exists()]
    if there and not force:
        raise InvalidInput("db", f"{there[0]} already exists: --force moves it aside")
    with private_folder(target) as part:
        await asyncio.to_thread(_copy_backup, backup, part)
        conversations, turns, problems = await _verify_all(part, key, advance)
        erased = await _erase_again(part, await asyncio.to_thread(_erased_since, target, erasures))
        await asyncio.to_thread(_sync, part)
        if problems and not anyway:
            raise problems[0]
        aside, aside_files = await asyncio.to_thread(_install, part, target, files)
        return Restored(
            conversations=conversations,
            turns=turns,
            aside=aside,
            problems=[str(one) for one in problems],
            erased=erased,
            aside_files=aside_files,
        )


def _copy_backup(backup: Path, part: Path) -> None:
    shutil.copyfile(backup / DATABASE, part / DATABASE)
    if (backup / FILES).is_dir():
        shutil.copytree(backup / FILES, part / FILES)


async def _verify_all(part: Path, key: bytes | None, advance: Advance) -> tuple[int, int, list[PalaverError]]:
    """Verify every conversation of every tenant. Returns how many, with how many turns, and the failures."""
    from palaver.engines.sqlite.backup import merge_wal

    conversations, turns = 0, 0
    problems: list[PalaverError] = []
    url = f"sqlite:///{quote(str(part / DATABASE))}"
    async with open_store(url, files=part / FILES, embedder="none", worker=False) as store:
        for tenant in await engine_of(store).tenants():
            async for talk in _all_conversations(store.scoped(Scope.of(tenant, None))):
                conversations += 1
                try:
                    turns += (await talk.verify()).turns
                    if key is not None:
                        await check_seals(engine_of(store), key, Scope.of(tenant, None), talk.id)
                except (VerificationFailed, AttachmentNotFound) as problem:
                    problems.append(problem)
                advance(1)
    await asyncio.to_thread(merge_wal, part / DATABASE)
    return conversations, turns, problems


def _erased_since(target: Path, lines: Iterable[str]) -> dict[str, list[Erasure]]:
    """Return by tenant who must not come back: those of the database that is replaced, and those of some lines."""
    from palaver.engines.sqlite.backup import erasures_of

    found = erasures_of(target) if target.exists() else {}
    for tenant, erasure in read_tombstones(lines):
        found.setdefault(tenant, []).append(erasure)
    return found


async def _erase_again(part: Path, erasures: Mapping[str, Sequence[Erasure]]) -> int:
    """Erase persons from a copy of a backup, before it is put into its place. Returns how many were found."""
    from palaver.engines.sqlite.backup import merge_wal

    if not erasures:
        return 0
    url, found = f"sqlite:///{quote(str(part / DATABASE))}", 0
    async with open_store(url, files=part / FILES, embedder="none", worker=False) as store:
        for tenant, persons in erasures.items():
            finished = [one for one in persons if one.at]
            found += await eraser_of(store.scoped(Scope.of(tenant, None))).apply_erasures(finished)
    await asyncio.to_thread(merge_wal, part / DATABASE)
    return found


async def _all_conversations(store: Store) -> AsyncIterator[Conversation]:
    cursor = None
    while True:
        page = await store.conversations(kind=None, limit=PAGE, cursor=cursor)
        for info in page.items:
            yield await store.get(info.id)
        if (cursor := page.cursor) is None:
            return


def _install(part: Path, target: Path, files: Path) -> tuple[Path | None, Path | None]:
    """Move the files, then the database, which would not verify without them. Returns where the old ones are now."""
    from palaver.engines.sqlite.backup import merge_wal

    if target.exists():
        merge_wal(target)
    aside = target.with_name(f"{target.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}")
    moved_files = _move(files, aside.with_name(aside.name + "-files"))
    if (part / FILES).exists():
        (part / FILES).rename(files)
    pairs = zip([*_journals(target), target], [*_journals(aside), aside], strict=True)
    moved = [_move(one, other) for one, other in pairs]
    (part / DATABASE).rename(target)
    _sync(target.parent, deep=False)
    return next(filter(None, reversed(moved)), None), moved_files


def _journals(database: Path) -> list[Path]:
    """Return the journal files of a database. One left behind would be replayed into the next database of that name."""
    return [database.with_name(database.name + end) for end in ("-wal", "-shm", "-journal")]


def _move(place: Path, aside: Path) -> Path | None:
    return place.rename(aside) if place.exists() else None
