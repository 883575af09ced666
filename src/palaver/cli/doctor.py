"""`palaver doctor`: what is installed, and whether the database is sound."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import existing, hide_password, sqlite_path
from palaver.cli.migrate import read_pragma, read_schema
from palaver.cli.output import counted, emit, size, table
from palaver.conversations.engine_choice import scheme_of
from palaver.conversations.internals import engine_of, worker_of
from palaver.errors import FilesNotConfigured, InvalidInput, MissingExtra, NotFound, PalaverError
from palaver.memory.worker.jobs.repair import repair_conversation, repair_database
from palaver.memory.worker.loop import Worker
from palaver.ports.damage import Damage, describe, merge

PANEL = "Maintenance"
SERVER_SECONDS = 10

# The use of each extra, and the modules that show that it is installed.
EXTRAS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "server": ("the HTTP server", ("fastapi", "uvicorn", "jwt", "prometheus_client")),
    "local": ("faster recall by meaning, offline", ("onnxruntime", "tokenizers")),
    "postgres": ("databases on Postgres", ("asyncpg",)),
    "supabase": ("databases on Supabase", ("supabase",)),
    "s3": ("files in a bucket", ("obstore",)),
    "openai": ("models with OpenAI's interface", ("openai",)),
    "anthropic": ("Anthropic's models", ("anthropic",)),
    "mcp": ("the MCP server", ("mcp",)),
    "otel": ("traces", ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")),  # fastapi brings the API
}
SQLITE_FEATURES = ("FTS5", "RTREE", "SESSION", "DBSTAT_VTAB", "COLUMN_METADATA")


@command("doctor", PANEL)
async def doctor(
    call: Call,
    repair: Annotated[bool, typer.Option("--repair", help="Rebuild damaged derived data from the turns.")] = False,
) -> None:
    """Report versions, the location and the health of the database, and missing extras.

    The command also checks the data that is derived from turns: the text index, vectors, summaries, notes and facts.
    Without --repair, it changes nothing. The exit status is 1 if the database has a problem.

    Examples:

      palaver doctor --db chat.db
      palaver doctor --db chat.db --repair
    """
    report = {
        "versions": _versions(),
        "database": await _derived(call, await _database(call.url), repair),
        "files": _files(call.url),
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
    missing = [module for module in modules if not _is_installed(module)]
    return {"for": use, "installed": not missing, "missing": missing}


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


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
        return "missing, so recall matches only words: reinstall palaver"
    return found["problem"] or f"installed, recall matches words and meaning ({found['name']})"


async def _database(url: str) -> dict[str, Any]:
    """Describe the database without opening it."""
    found: dict[str, Any] = {"url": hide_password(url), "problem": None}
    try:
        path = sqlite_path(url)
        if path is not None:
            found.update(_file(path))
        elif scheme_of(url) in ("postgresql", "postgres"):
            if find_spec("asyncpg") is None:
                raise MissingExtra("postgres", "The Postgres engine")
            async with asyncio.timeout(SERVER_SECONDS):
                await _describe_server(url, found)
        elif url != "memory:" and not scheme_of(url).startswith("supabase+"):
            raise InvalidInput("db", "must be a file, or a database on Postgres or Supabase")
    except PalaverError as problem:
        found["problem"] = str(problem)
    except TimeoutError:
        found["problem"] = f"the server did not respond within {SERVER_SECONDS} seconds"
    return found


async def _derived(call: Call, database: dict[str, Any], repair: bool) -> dict[str, Any]:
    """Check the derived data of a database that this version can open, and repair it if that is wanted."""
    sound = not database["problem"] or database.get("derived_only", False)
    if not sound or database.get("schema") != database.get("schema_known") or "schema" not in database:
        return database
    try:
        async with existing(call) as store:
            engine = engine_of(store)
            found = await engine.find_damage(thorough=True)
            repaired = found if repair else []
            if repair:
                await _repair(worker_of(store), found)
                found = await engine.find_damage(thorough=True)
            kept = await engine.rows_kept_aside()
            outbox = (await store.stats()).storage["outbox"]
    except PalaverError as problem:
        return {**database, "problem": database["problem"] or str(problem)}
    totals = describe(merge([replace(one, tenant="", conversation=None, ids=()) for one in found]))
    advice = f"derived data is damaged ({totals}): run `palaver doctor --repair`" if found else None
    return {
        **database,
        "problem": advice,
        "damage": [_damage_line(one) for one in found],
        "repaired": [_damage_line(one) for one in repaired],
        "waiting": [_waiting_line(job) for job in outbox if job["error"]],
        "kept_aside": [f"{one.table}: {one.count} of conversation {one.conversation}" for one in kept],
    }


def _damage_line(one: Damage) -> str:
    return str(one) if one.conversation is None else f"{one}, in conversation {one.conversation}"


def _waiting_line(job: Mapping[str, Any]) -> str:
    """Describe jobs that were tried and are not done: they failed, or a budget is used up."""
    outcome = "failed" if job["dead"] else "will be retried"
    return f"{job['kind']}: {counted(job['jobs'], 'job')} {outcome} ({job['error']})"


async def _repair(worker: Worker, found: Sequence[Damage]) -> None:
    """Repair the tables and the index, then each conversation, and write again what is missing."""
    await repair_database(worker)
    for tenant, conversation in dict.fromkeys((one.tenant, one.conversation) for one in found):
        if conversation is not None:
            with suppress(NotFound):  # deleted since the damage was found
                await repair_conversation(worker, tenant, conversation)
    await worker.drain()


def _files(url: str) -> dict[str, str | None]:
    """Where attachments are stored, or what has to be set so that they can be."""
    from palaver.conversations.opening import default_folder
    from palaver.files.storage import storage_problem

    place = os.environ.get("PALAVER_FILES") or default_folder(url)
    if place is None and url.startswith("supabase"):
        return {"location": "the project's bucket chat-attachments", "problem": None}
    if place is None:
        return {
            "location": None,
            "problem": f"not set, so attachments cannot be stored or read: {FilesNotConfigured()}",
        }
    shown, problem = hide_password(str(place)), storage_problem(place)
    return {"location": shown, "problem": problem and f"{shown}: attachments cannot be stored: {problem}"}


async def _describe_server(url: str, found: dict[str, Any]) -> None:
    """Add the schema of a Postgres database, the roles of the login, and whether the database is distributed."""
    from palaver.engines.postgres import citus, migrate, transports

    async with transports.open_connection(url) as connection, connection.transaction():
        found["schema"] = (await migrate.read_version(connection)).number
        found["schema_known"] = migrate.known_version()
        found["roles"] = await migrate.roles_of_login(connection)
        await migrate.check_version(connection)
        found["cluster"] = await citus.describe(connection)


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
    from palaver.engines.sqlite.table_repair import are_sources_whole

    known = migrations("palaver.engines.sqlite.migrations")[-1].number
    schema, check = read_schema(path), str(read_pragma(path, "quick_check"))
    problem, derived = None, False
    if read_pragma(path, "application_id") != APPLICATION_ID:
        problem = "this SQLite file is not a database of Palaver"
    elif check != "ok":
        problem, derived = "the file is damaged: restore a backup", are_sources_whole(path)
    elif schema > known:
        problem = f"its schema is {schema}, but this version supports at most {known}: upgrade Palaver"
    checked = {"check": check == "ok", "derived_only": derived, "problem": problem}
    return {"schema": schema, "schema_known": known, **checked}


def _show(report: Mapping[str, Any]) -> None:
    rows = list(report["versions"].items())
    database = report["database"]
    rows.append(("database", database["url"]))
    if "file" in database:
        rows.append(("file", database["file"] if database["exists"] else f"{database['file']} (does not exist yet)"))
    if database.get("exists"):
        rows += [("size", size(database["bytes"])), ("WAL", size(database["wal_bytes"]))]
    if "schema" in database:
        rows.append(("schema", f"{database['schema']} of {database['schema_known']}"))
    if database.get("cluster"):
        rows.append(("cluster", database["cluster"]))
    if "roles" in database:
        rows.append(("roles", _describe_roles(database["roles"])))
    rows.append(("problem", database["problem"] or "none"))
    rows += [("damage", one) for one in database.get("damage", ())]
    rows += [("repaired", one) for one in database.get("repaired", ())]
    rows += [("jobs", one) for one in database.get("waiting", ())]
    rows += [("kept aside", one) for one in database.get("kept_aside", ())]
    rows.append(("files", report["files"]["problem"] or report["files"]["location"]))
    rows += [(f"SQLite {name}", "present" if there else "missing") for name, there in report["sqlite"].items()]
    rows.append(("local embedder", _embedder_advice(report["embedder"])))
    rows += [(f"extra {name}", _advice(name, extra)) for name, extra in report["extras"].items()]
    table(("what", "value"), rows)


def _describe_roles(roles: Sequence[str]) -> str:
    member = f"member of {', '.join(roles)}" if roles else "member of none of Palaver's roles"
    if "palaver_worker" in roles:
        return member
    return f"{member}; without palaver_worker, background work is done for one tenant only: GRANT palaver_worker TO …"


def _advice(name: str, extra: Mapping[str, Any]) -> str:
    if extra["installed"]:
        return f"installed, for {extra['for']}"
    return f'optional, for {extra["for"]}: pip install "palaver[{name}]" (missing: {", ".join(extra["missing"])})'
