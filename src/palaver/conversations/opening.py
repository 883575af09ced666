"""The parts of a store: connected when it is opened, disconnected when it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from palaver.context.builder import ContextBuilder
from palaver.conversations.components import Components
from palaver.conversations.details import clean_scope
from palaver.conversations.internals import components_of, maintenance_of, sessions_of
from palaver.conversations.lifetime import Lifetime
from palaver.conversations.open_options import (
    STREAM_FLUSH,
    STREAM_LEASE,
    SystemClock,
    clean_minutes,
    clean_seconds,
)
from palaver.conversations.redaction import HeldBackStreams
from palaver.conversations.sessions import new_session
from palaver.conversations.store import Store
from palaver.conversations.sweeper import Sweeper
from palaver.core.identity import new_id
from palaver.core.turn_draft import DraftBuilder
from palaver.errors import (
    EngineError,
    InvalidInput,
    MissingExtra,
)
from palaver.files.reader import Files
from palaver.files.storage import open_blobs
from palaver.generation.settings import GenerateSettings, open_generation_context
from palaver.memory.model_calls import CALLS_PER_DAY, check_limit
from palaver.memory.worker.loop import Worker
from palaver.model import Scope
from palaver.models.offline.embedder import available as embedder_available
from palaver.models.offline.embedder import open_embedder
from palaver.models.tokens import BpeCounter
from palaver.ports.blobs import Blobs
from palaver.ports.clock import Clock, Ids
from palaver.ports.engine import Engine, Token, TokenEngine
from palaver.ports.models import Counter, Embedder, Extractor, Summarizer
from palaver.recall.service import RecallService
from palaver.redaction.cached import CachedRedactor
from palaver.redaction.lazy import LazyRedactor
from palaver.telemetry import Meter

if TYPE_CHECKING:
    from palaver.redaction.findings import Redactor

AUTO_EMBEDDER = "local"


@asynccontextmanager
async def assemble_store(
    url: str,
    *,
    lifetime: Lifetime,
    tenant: str = "default",
    user: str | None = None,
    scope: Scope | None = None,
    files: Path | str | None = None,
    blobs: Blobs | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
    token_counter: Counter | None = None,
    embedder: Embedder | str | None = "auto",
    model: str | None = None,
    models: Mapping[str, Any] | None = None,
    agents: Mapping[str, Any] | None = None,
    workspaces: Mapping[str, Any] | None = None,
    generate: GenerateSettings | Mapping[str, Any] | None = None,
    telemetry: Any = None,
    meter: Meter | None = None,
    summarizer: Summarizer | None = None,
    extractor: Extractor | None = None,
    model_calls_per_day: int | None = CALLS_PER_DAY,
    redactor: Redactor | None = None,
    worker: bool = True,
    stream_lease: float = STREAM_LEASE,
    stream_flush: float = STREAM_FLUSH,
    sweep_every: float | None = None,
    retention_minutes: float | None = None,
    migrate_url: str | None = None,
    listen_url: str | None = None,
    read_url: str | None = None,
    key: str | None = None,
    token: Token | None = None,
) -> AsyncIterator[Store]:
    """Connect the parts of a store, and disconnect them at the end. `palaver.open` describes the options."""
    scope = clean_scope(scope or Scope.of(tenant, user))
    counter = token_counter or BpeCounter()
    clock, ids = clock or SystemClock(), ids or new_id
    embed, meter = _embedder(embedder), meter or Meter()
    async with AsyncExitStack() as stack:
        if isinstance(embedder, str) and embed is not None and hasattr(embed, "aclose"):
            stack.push_async_callback(embed.aclose)  # an embedder object is closed by its owner
        if url == "memory:":
            folder = stack.enter_context(TemporaryDirectory(prefix="palaver-"))
            url = f"sqlite:///{folder}/memory.db"
        options = {
            "migrate_url": migrate_url,
            "listen_url": listen_url,
            "read_url": read_url,
            "key": key,
            "token": token,
        }
        engine = await stack.enter_async_context(open_engine(url, clock, home=scope, **options))
        if isinstance(engine, TokenEngine):
            scope = _agreed(scope, engine.scope)
        generation = open_generation_context(engine, model, models, agents, workspaces, generate, telemetry)
        stack.push_async_callback(generation.models.aclose)
        keeper = blobs or _blobs(url, engine, files)
        redacting = LazyRedactor(redactor)
        components = Components(
            engine=engine,
            blobs=keeper,
            blobs_chosen=bool(blobs or files),
            drafts=DraftBuilder(counter),
            ids=ids,
            contexts=ContextBuilder(engine, RecallService(engine, embed, clock), counter),
            clock=clock,
            worker=Worker(
                engine,
                counter,
                ids,
                clock,
                redactor=redacting,
                embedder=embed,
                summarizer=summarizer,
                extractor=extractor,
                model_calls_per_day=check_limit("model_calls_per_day", model_calls_per_day),
                models=generation.models,
                meter=meter,
                files=Files(engine, keeper),
            ),
            generation=generation,
            redactor=redacting,
            redact_record=CachedRedactor(redacting.redact),
            held_back=HeldBackStreams(redacting),
            meter=meter,
            lifetime=lifetime,
            stream_lease=clean_seconds("stream_lease", stream_lease),
            stream_flush=clean_seconds("stream_flush", stream_flush),
        )
        store = Store(components, scope)
        for name, work in await _chores(store, sweep_every, retention_minutes, worker):
            stack.push_async_callback(_stop, asyncio.create_task(work, name=name))
        yield store


async def _chores(
    store: Store, sweep_every: float | None, retention_minutes: float | None, worker: bool
) -> list[tuple[str, Coroutine[Any, Any, None]]]:
    """Finish what earlier processes left undone, and return the tasks that run while the store is open."""
    components, found = components_of(store), []
    engine = components.engine
    if not isinstance(engine, TokenEngine) or not engine.is_anonymous:
        every = None if sweep_every is None else clean_seconds("sweep_every", sweep_every)
        if retention_minutes is not None:
            clean_minutes(retention_minutes)
        await engine.abort_expired_streams()
        await maintenance_of(store).delete_pending_blobs()
        found.append(("palaver-reaper", _reap(engine, components.stream_lease)))
        if every is not None:
            found.append(("palaver-sweeper", Sweeper(store, every, retention_minutes).run()))
    if worker:
        found.append(("palaver-worker", _work(store)))
    return found


async def _work(store: Store) -> None:
    """Do memory work for everything that this store may work for, or for the users who are signed in."""
    components, sessions = components_of(store), sessions_of(store)
    engine = components.engine
    if not isinstance(engine, TokenEngine) or engine.is_service:
        return await components.worker.run()
    sessions.home = None if engine.is_anonymous else new_session(components, store.scope, engine)
    return await sessions.run()


def open_engine(url: str, clock: Clock, *, home: Scope, **options: Any) -> AbstractAsyncContextManager[Engine]:
    """Open the engine that a URL names. `home` is the scope of an engine that may work for one only."""
    if not isinstance(url, str):
        raise InvalidInput("url", f"must be text, not {type(url).__name__}")
    given = {name: value for name, value in options.items() if value is not None}
    scheme = urlsplit(url).scheme
    if scheme in ("supabase+https", "supabase+http"):
        _check_options(given, ("key", "token", "migrate_url"), "is for Postgres; a Supabase project has one address")
        try:
            from palaver.engines.postgres.supabase import open_supabase
        except ModuleNotFoundError as problem:
            raise MissingExtra("supabase", "The Supabase engine") from problem
        return open_supabase(url, clock, home=home, **{"key": None, "token": None, **given})
    if scheme in ("postgresql", "postgres"):
        _check_options(given, ("migrate_url", "listen_url", "read_url"), "is for Supabase")
        try:
            from palaver.engines.postgres.engine import open_postgres
        except ModuleNotFoundError as problem:
            raise MissingExtra("postgres", "The Postgres engine") from problem
        return open_postgres(url, clock, home=home.tenant, **given)
    if scheme != "sqlite":
        known = "sqlite:///file.db, memory:, postgresql://host/name or supabase+https://project.supabase.co"
        raise InvalidInput("url", f"no engine for {scheme or url!r}: use {known}")
    _check_options(given, (), "is for a server; a SQLite file has one address")
    try:
        from palaver.engines.sqlite import open_sqlite
    except ModuleNotFoundError as problem:
        raise MissingExtra("all", "The SQLite engine") from problem
    return open_sqlite(url, clock)


def _check_options(given: Mapping[str, Any], known: Sequence[str], problem: str) -> None:
    for name in given:
        if name not in known:
            raise InvalidInput(name, problem)


def _agreed(asked: Scope, told: Scope) -> Scope:
    """Return the scope of the token. Refuse a tenant or user that contradicts it."""
    if asked.tenant not in ("default", told.tenant):
        raise InvalidInput("tenant", "is not the one that the token names")
    if asked.user not in (None, told.user):
        raise InvalidInput("user", "is not the one that the token names")
    return told


def _blobs(url: str, engine: Engine, files: Path | str | None) -> Blobs:
    if files is None and isinstance(engine, TokenEngine):
        return engine.blobs
    return open_blobs(files or default_folder(url))


def default_folder(url: str) -> Path:
    """Return the folder for attachments: next to the database file, or for a server in the current directory."""
    parts = urlsplit(url)
    name = unquote(parts.path[1:])
    if parts.scheme != "sqlite":
        name = quote(name, safe="@ ")  # a database may have any name, which must not lead to another folder
    path = Path(name or "palaver")
    return path.with_name(path.name + "-files")


def _embedder(choice: Embedder | str | None) -> Embedder | None:
    """Return the embedder: the given one, one by name, or the local one if it is installed."""
    if choice == "auto":
        choice = AUTO_EMBEDDER if embedder_available() else "none"
    return open_embedder(choice) if isinstance(choice, str) else choice


async def _reap(engine: Engine, lease: float) -> None:
    """Abort the streams whose writers have died, soon after their lease."""
    while True:
        await asyncio.sleep(max(0.05, lease / 3))
        try:
            end = await engine.next_lease_end()
            if end is not None:
                await engine.abort_expired_streams()
        except EngineError:
            continue  # busy or full now: retried in the next round


async def _stop(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
