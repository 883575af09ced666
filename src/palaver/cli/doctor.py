"""Commands that keep house: verify, stats, migrate, doctor."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from palaver.audit.seals import check_seals, check_tip
from palaver.cli.app import Call, command
from palaver.cli.database import creating, existing, sqlite_path, to_verify
from palaver.cli.output import complain, counted, emit, note, say, size, table, wire
from palaver.cli.worker import embedder_name
from palaver.errors import (
    AttachmentNotFound,
    ConversationNotFound,
    InvalidInput,
    MissingExtra,
    PalaverError,
    VerificationFailed,
)
from palaver.model import Tip

if TYPE_CHECKING:
    from palaver.conversations.conversation import Conversation
    from palaver.conversations.store import Store

PANEL = "Keep house"

# What each extra is for, and the modules by which one sees that it is there.
EXTRAS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "server": ("the HTTP server", ("fastapi", "uvicorn", "jwt", "prometheus_client")),
    "local": ("recall by meaning, offline", ("onnxruntime", "tokenizers")),
    "postgres": ("databases on Postgres", ("asyncpg",)),
    "supabase": ("databases on Supabase", ("supabase",)),
    "openai": ("models with OpenAI's interface", ("openai",)),
    "anthropic": ("Anthropic's models", ("anthropic",)),
    "mcp": ("the MCP server", ("mcp",)),
    "otel": ("traces", ("opentelemetry",)),
}
SQLITE_FEATURES = ("FTS5", "RTREE", "SESSION", "DBSTAT_VTAB", "COLUMN_METADATA")


# ---- verify --------------------------------------------------------------------------------------------------------


@command("verify", PANEL)
async def verify(
    call: Call,
    conversations: Annotated[
        list[str] | None, typer.Argument(metavar="CONVERSATION", help="Ids or keys; without one, all of them.")
    ] = None,
    anchors: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also hold the logs against what `audit anchor` printed.")
    ] = None,
) -> None:
    """Recompute every hash, replay the log and read every file. Names the first bad row of each conversation.

    With PALAVER_AUDIT_KEY the seals of a server are checked too. The exit code is 1 when anything was changed or is
    missing.

    Examples:

      palaver verify
      palaver verify support/42 --json
      palaver verify --anchors tips.jsonl
    """
    async with existing(call) as store:
        talks = await to_verify(store, conversations or [])
        sound = [await _verified(call, store, talk) for talk in talks]
        if anchors is not None:
            sound += [await _anchored(call, store, line) for line in anchors.read_text().splitlines() if line.strip()]
    if not call.as_json:
        say(f"{counted(sum(sound[: len(talks)]), 'conversation')} of {len(talks):,} verified.")
    if not all(sound):
        raise typer.Exit(1)


async def _anchored(call: Call, store: Store, line: str) -> bool:
    """Whether a log still leads through a tip that was kept elsewhere."""
    try:
        found = json.loads(line)
        tip = Tip(conversation=found["conversation"], n=found["n"], hash=found["tip"])
    except (ValueError, KeyError, TypeError):
        raise InvalidInput("anchors", "is not what `palaver audit anchor` prints") from None
    try:
        await check_tip(store.engine, store.scope, tip)
    except (VerificationFailed, ConversationNotFound) as problem:
        complain(problem, as_json=call.as_json)
        return False
    return True


async def _verified(call: Call, store: Store, talk: Conversation) -> bool:
    name, key = talk.key or talk.id, os.environ.get("PALAVER_AUDIT_KEY")
    try:
        found = await talk.verify()
        if key:
            await check_seals(store.engine, key.encode(), store.scope, talk.id)
    except (VerificationFailed, AttachmentNotFound) as problem:
        if call.as_json:
            emit({"conversation": talk.id, "key": talk.key, "ok": False, "problem": str(problem)})
        complain(problem, as_json=call.as_json)
        return False
    if call.as_json:
        emit({**wire(found), "key": talk.key, "ok": True})
    else:
        counts = f"{counted(found.turns, 'turn')}, {counted(found.events, 'event')}"
        say(f"ok  {name}  {counts}, {counted(found.attachments, 'file')}")
    return True


# ---- stats ---------------------------------------------------------------------------------------------------------


@command("stats", PANEL)
async def stats(call: Call) -> None:
    """Count what is stored, say how large the file is, and what memory work waits or was put aside.

    Example:

      palaver stats --json
    """
    async with existing(call) as store:
        found = await store.stats()
        embedding = await _embedding(store)
    if call.as_json:
        data = wire(found)
        emit({**data, "storage": {**data["storage"], "embedding": embedding}})
        return
    rows = [
        ("conversations", f"{found.conversations:,}"),
        ("turns", f"{found.turns:,}"),
        ("tokens", f"{found.tokens:,}"),
        ("events", f"{found.events:,}"),
        ("attachments", f"{found.attachments:,} ({size(found.attachment_bytes)})"),
    ]
    storage = dict(found.storage)
    outbox = storage.pop("outbox", [])
    rows += [(name.replace("_", " "), _shown(name, value)) for name, value in storage.items()]
    rows.append(("outbox", "; ".join(_job_line(job) for job in outbox) or "nothing waits"))
    rows.append(("embedding", f"{counted(embedding['backlog'], 'passage')} to go ({embedding['embedder']})"))
    table(("what", "value"), rows)


async def _embedding(store: Store) -> dict[str, Any]:
    """How far the embedder in use has come."""
    name = embedder_name(store)
    return {"embedder": name, "backlog": await store.engine.embedding_backlog(name)}


def _job_line(job: Mapping[str, Any]) -> str:
    state = "put aside" if job["dead"] else "waiting"
    tries = f" after {counted(job['attempts'], 'try', 'tries')}: {job['error']}" if job["error"] else ""
    return f"{job['kind']}: {job['jobs']:,} {state}{tries}"


def _shown(name: str, value: Any) -> str:
    if name.endswith("bytes"):
        return size(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


# ---- migrate -------------------------------------------------------------------------------------------------------


@command("migrate", PANEL)
async def migrate(
    call: Call,
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL for Postgres or Supabase; run nothing.")] = False,
    since: Annotated[int, typer.Option("--since", metavar="N", help="With --sql: from this schema on.", min=0)] = 0,
    supabase: Annotated[bool, typer.Option("--supabase", help="With --sql: the bucket for attachments, too.")] = False,
    compat: Annotated[
        list[str] | None, typer.Option(metavar="hal|librarian", help="Give the database that system's tables as well.")
    ] = None,
    anon_tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --compat hal: what the anonymous role may read and write.")
    ] = None,
    distribute: Annotated[
        str | None, typer.Option(metavar="citus", help="Spread the tables over a Citus cluster, by tenant.")
    ] = None,
) -> None:
    """Bring the database up to date; make it when it is not there. Safe to run twice, and from two places.

    On Postgres the address must be one of somebody who may create schemas and roles; the application needs less.
    With --sql, --compat and --distribute print their own part only.

    Examples:

      palaver migrate --db chat.db
      palaver migrate --db postgresql://admin@host/name
      palaver migrate --sql > palaver.sql
      palaver migrate --sql --supabase > palaver.sql
      palaver migrate --compat librarian --db postgresql://admin@host/name
    """
    extras = Extras(tuple(compat or ()), anon_tenant, distribute)
    if sql:
        typer.echo(extras.sql(since, storage=supabase), nl=False)
        return
    path = sqlite_path(call.url)
    extras.check(path)
    if anon_tenant is not None:
        note(f"Whoever has the public key can read, write and delete everything in the tenant {anon_tenant!r} now.")
    before, after = await (_migrated_file(call, path) if path is not None else _migrated_server(call.url, extras))
    if call.as_json:
        told = {"database": shown_url(call.url), "from": before, "to": after, "changed": before != after}
        emit(told | ({"compat": list(extras.compat), "distributed": bool(distribute)} if extras.are_given else {}))
    elif extras.are_given:
        say(f"{shown_url(call.url)} is at schema {after}, with {extras.told}.")
    elif before == after:
        say(f"{shown_url(call.url)} is at schema {after}, and up to date.")
    else:
        was = "it was made just now" if before is None else f"it was at {before}"
        say(f"{shown_url(call.url)} is at schema {after}; {was}.")


@dataclass(frozen=True, slots=True)
class Extras:
    """What a Postgres database is to have beside the schema."""

    compat: tuple[str, ...] = ()
    anon_tenant: str | None = None
    distribute: str | None = None

    @property
    def are_given(self) -> bool:
        return bool(self.compat or self.anon_tenant or self.distribute)

    @property
    def told(self) -> str:
        return " and ".join(
            [*(f"the tables of {name}" for name in self.compat), *(["distribution"] * bool(self.distribute))]
        )

    def check(self, path: Path | None) -> None:
        """Refuse what cannot be done before anything is."""
        if path is not None and self.are_given:
            raise InvalidInput("db", "must be a Postgres database for --compat and --distribute")
        self.sql(0)

    def sql(self, since: int, *, storage: bool = False) -> str:
        from palaver.engines.postgres import compat, migrate

        if self.distribute not in (None, "citus"):
            raise InvalidInput("distribute", f"{self.distribute!r} is not known; citus is")
        steps = [compat.script(self.compat, self.anon_tenant)] if self.compat or self.anon_tenant else []
        steps += [migrate.citus_script()] if self.distribute else []
        return migrate.as_transaction("\n".join(steps)) if steps else migrate.editor_script(since, storage=storage)

    async def apply(self, connection: Any) -> None:
        from palaver.engines.postgres import compat, migrate

        if self.compat:
            await compat.apply(connection, self.compat, self.anon_tenant)
        if self.distribute:
            await migrate.distribute(connection)


async def _migrated_file(call: Call, path: Path) -> tuple[int | None, int]:
    """The schema that a file had, if there was one, and has now."""
    before = _schema(path) if path.exists() else None
    async with creating(call):
        return before, _schema(path)


async def _migrated_server(url: str, extras: Extras) -> tuple[int | None, int]:
    """The schema that a Postgres database had, if it had one, and has now."""
    if urlsplit(url).scheme not in ("postgresql", "postgres"):
        raise InvalidInput("db", "must be a file or a Postgres database")
    try:
        from palaver.engines.postgres import migrate, transports
    except ModuleNotFoundError as problem:
        raise MissingExtra("postgres", "The Postgres engine") from problem
    async with transports.open_connection(url) as connection:
        before, after = await migrate.migrate(connection)
        await extras.apply(connection)
    return before or None, after


def _schema(path: Path) -> int:
    return int(_look(path, "user_version"))


def _look(path: Path, pragma: str) -> Any:
    """Ask SQLite about a file, without changing it. `palaver.open` would migrate what it opens."""
    from palaver.engines.sqlite.connection import SQLiteAddress, connect, translate_errors

    with translate_errors(path):
        db = connect(SQLiteAddress(path), readonly=True)
        try:
            return db.execute(f"PRAGMA {pragma}").fetchall()[0][0]
        finally:
            db.close()


def shown_url(url: str) -> str:
    """The URL without its password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    return parts._replace(netloc=parts.netloc.replace(f":{parts.password}@", ":…@")).geturl()


# ---- doctor --------------------------------------------------------------------------------------------------------


@command("doctor", PANEL)
async def doctor(call: Call) -> None:
    """Say what is installed, where the database is and whether it is sound, and which extras are missing.

    Changes nothing. The exit code is 1 when the database has a problem.

    Example:

      palaver doctor --db chat.db
    """
    report = {
        "versions": _versions(),
        "database": _database(call.url),
        "sqlite": _features(),
        "embedder": _local_embedder(),
        "extras": {name: _extra(*what) for name, what in EXTRAS.items()},
    }
    if call.as_json:
        emit(report)
    else:
        _show(report)
    if report["database"]["problem"]:
        raise typer.Exit(1)


def _versions() -> dict[str, str]:
    import apsw

    import palaver

    return {
        "palaver": palaver.__version__,
        "python": platform.python_version(),
        "apsw": version("apsw"),
        "sqlite": apsw.sqlite_lib_version(),
    }


def _features() -> dict[str, bool]:
    import apsw

    return {name: f"ENABLE_{name}" in apsw.compile_options for name in SQLITE_FEATURES}


def _extra(use: str, modules: tuple[str, ...]) -> dict[str, Any]:
    missing = [module for module in modules if find_spec(module) is None]
    return {"for": use, "installed": not missing, "missing": missing}


def _local_embedder() -> dict[str, Any]:
    """Whether the local embedder is installed, and whether its files are the expected ones."""
    from palaver.models.offline.embedder import RECALL_MINILM

    found: dict[str, Any] = {"name": RECALL_MINILM.name, "installed": RECALL_MINILM.is_installed(), "problem": None}
    if found["installed"]:
        try:
            RECALL_MINILM.check()
        except PalaverError as problem:
            found["problem"] = str(problem)
    return found


def _embedder_advice(found: Mapping[str, Any]) -> str:
    if not found["installed"]:
        return 'missing, recall goes by words alone: pip install "palaver[local]"'
    return found["problem"] or f"present, recall goes by words and meaning ({found['name']})"


def _database(url: str) -> dict[str, Any]:
    """What can be said of the database from outside."""
    found: dict[str, Any] = {"url": shown_url(url), "problem": None}
    try:
        path = sqlite_path(url)
        if path is not None:
            found.update(_file(path))
    except PalaverError as problem:
        found["problem"] = str(problem)
    return found


def _file(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {"file": str(path), "exists": False}
    wal = path.with_name(path.name + "-wal")
    found: dict[str, Any] = {
        "file": str(path.resolve()),
        "exists": True,
        "bytes": path.stat().st_size,
        "wal_bytes": wal.stat().st_size if wal.exists() else 0,
    }
    try:
        found.update(_inside(path))
    except PalaverError as problem:
        found["problem"] = str(problem)
    return found


def _inside(path: Path) -> dict[str, Any]:
    from palaver.engines.migrate import migrations
    from palaver.engines.sqlite.connection import APPLICATION_ID

    known = migrations("palaver.engines.sqlite.migrations")[-1].number
    schema, check = _schema(path), str(_look(path, "quick_check"))
    problem = None
    if _look(path, "application_id") != APPLICATION_ID:
        problem = "it is an SQLite file, but Palaver did not make it"
    elif check != "ok":
        problem = "it is damaged: restore a backup"
    elif schema > known:
        problem = f"it has schema {schema}, and this version knows up to {known}: upgrade Palaver"
    return {"schema": schema, "schema_known": known, "check": check == "ok", "problem": problem}


def _show(report: Mapping[str, Any]) -> None:
    rows = list(report["versions"].items())
    database = report["database"]
    rows.append(("database", database["url"]))
    if "file" in database:
        rows.append(("file", database["file"] if database["exists"] else f"{database['file']} (not there yet)"))
    if database.get("exists"):
        rows += [("size", size(database["bytes"])), ("WAL", size(database["wal_bytes"]))]
    if "schema" in database:
        rows.append(("schema", f"{database['schema']} of {database['schema_known']}"))
    rows.append(("problem", database["problem"] or "none"))
    rows += [(f"SQLite {name}", "present" if there else "missing") for name, there in report["sqlite"].items()]
    rows.append(("local embedder", _embedder_advice(report["embedder"])))
    rows += [(f"extra {name}", _advice(name, extra)) for name, extra in report["extras"].items()]
    table(("what", "value"), rows)


def _advice(name: str, extra: Mapping[str, Any]) -> str:
    if extra["installed"]:
        return f"installed, for {extra['for']}"
    return f'optional, for {extra["for"]}: pip install "palaver[{name}]" (missing: {", ".join(extra["missing"])})'
