"""The parts of a store: connected when it is opened, disconnected when it is closed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

from palaver.context.builder import ContextBuilder
from palaver.conversations.clock_watch import ClockWatch
from palaver.conversations.components import Components
from palaver.conversations.details import clean_scope
from palaver.conversations.engine_choice import open_engine, scheme_of
from palaver.conversations.internals import components_of, maintenance_of, sessions_of
from palaver.conversations.lifetime import Lifetime
from palaver.conversations.open_options import (
    STREAM_FLUSH,
    STREAM_LEASE,
    BackgroundOptions,
    StoreOptions,
    SystemClock,
    clean_minutes,
    clean_seconds,
)
from palaver.conversations.redaction import HeldBackStreams
from palaver.conversations.sessions import new_session
from palaver.conversations.store import Store
from palaver.conversations.sweeper import Sweeper
from palaver.core.budgets import clean_options
from palaver.core.identity import new_id
from palaver.core.turn_draft import DraftBuilder
from palaver.errors import EngineError, FilesNotConfigured, InvalidInput
from palaver.files.reader import Files
from palaver.files.storage import UnsetBlobs, open_blobs
from palaver.generation.settings import GenerationContext, open_generation_context
from palaver.memory.model_calls import CALLS_PER_DAY, check_limit
from palaver.memory.person_settings import clean_person_options
from palaver.memory.shapes import clean_shapes
from palaver.memory.worker.loop import Worker
from palaver.model import WRITE, Scope
from palaver.models.budgets import Budgets
from palaver.models.embedding_budget import EmbeddingBudget
from palaver.models.offline.embedder import available as embedder_available
from palaver.models.offline.embedder import open_embedder
from palaver.models.tokens import BpeCounter
from palaver.ports.blobs import Blobs
from palaver.ports.clock import Clock
from palaver.ports.engine import Engine, TokenEngine
from palaver.ports.models import Embedder
from palaver.recall.service import RecallService
from palaver.redaction.cached import CachedRedactor
from palaver.redaction.lazy import LazyRedactor
from palaver.telemetry import Meter

AUTO_EMBEDDER = "local"
SHORTEST_JOB_LEASE = 1.0  # seconds: a worker renews it three times in that time
_log = logging.getLogger("palaver.files")


@asynccontextmanager
async def assemble_store(options: StoreOptions, lifetime: Lifetime) -> AsyncIterator[Store]:
    """Connect the parts of a store, and disconnect them at the end."""
    async with AsyncExitStack() as stack:
        connected = await _connect(stack, options)
        store = Store(_make_components(connected, options, lifetime), connected.scope)
        for name, work in await _background_tasks(store, options.background):
            stack.push_async_callback(_stop, asyncio.create_task(work, name=name))
        stack.push_async_callback(connected.generation.finish_all)
        yield store


@dataclass(frozen=True, slots=True)
class _Connected:
    """Everything of a store that has to be closed, and what belongs to it."""

    engine: Engine
    scope: Scope
    clock: Clock
    blobs: Blobs
    embedder: Embedder | None
    generation: GenerationContext


async def _connect(stack: AsyncExitStack, options: StoreOptions) -> _Connected:
    scope, clock = clean_scope(options.scope), options.testing.get("clock") or SystemClock()
    embedder = _open_embedder(stack, options.embedder)
    url = _file_url(stack, options.url)
    engine = await stack.enter_async_context(open_engine(url, clock, scope, options.database))
    if isinstance(engine, TokenEngine):
        scope = _agreed(scope, engine.scope)
    answers = options.answers
    generation = open_generation_context(
        engine,
        answers["model"],
        answers["models"],
        answers["agents"],
        answers["workspaces"],
        answers["generate"],
        options.telemetry.get("spans"),
    )
    stack.push_async_callback(generation.models.aclose)
    blobs = options.files.get("blobs") or _open_folder(url, engine, options.files.get("folder"))
    return _Connected(engine, scope, clock, blobs, embedder, generation)


def _make_components(connected: _Connected, options: StoreOptions, lifetime: Lifetime) -> Components:
    engine, clock, memory = connected.engine, connected.clock, options.memory
    counter, ids = memory.get("token_counter") or BpeCounter(), options.testing.get("ids") or new_id
    person = clean_person_options(memory.get("person"))
    meter, redactor = options.telemetry.get("meter") or Meter(), LazyRedactor(memory.get("redactor"))
    is_open = not isinstance(engine, TokenEngine) or engine.is_service
    lease = clean_seconds("stream_lease", options.streams.get("lease", STREAM_LEASE))
    budgets = Budgets(engine, clock, clean_options(options.budgets), meter, is_on=is_open)
    embedding_budget = EmbeddingBudget.of(connected.embedder, budgets, connected.generation.models)
    recall = RecallService(engine, connected.embedder, clock, budget=embedding_budget)
    return Components(
        engine=engine,
        budgets=budgets,
        blobs=connected.blobs,
        blobs_chosen=bool(options.files.get("blobs") or options.files.get("folder")),
        drafts=DraftBuilder(counter),
        ids=ids,
        contexts=ContextBuilder(engine, recall, counter, person),
        clock=clock,
        clock_watch=ClockWatch(clock),
        worker=Worker(
            engine,
            counter,
            ids,
            clock,
            redactor=redactor,
            embedder=connected.embedder,
            summarizer=memory.get("summarizer"),
            extractor=memory.get("extractor"),
            extractor_model=memory.get("extractor_model"),
            model_calls_per_day=check_limit("model_calls_per_day", memory.get("model_calls_per_day", CALLS_PER_DAY)),
            person=person,
            shapes=clean_shapes(memory.get("subjects")),
            models=connected.generation.models,
            budgets=budgets,
            meter=meter,
            files=None if isinstance(connected.blobs, UnsetBlobs) else Files(engine, connected.blobs),
            lease_seconds=max(lease, SHORTEST_JOB_LEASE),
        ),
        generation=connected.generation,
        redactor=redactor,
        redact_record=CachedRedactor(redactor.redact),
        held_back=HeldBackStreams(redactor),
        meter=meter,
        lifetime=lifetime,
        stream_lease=lease,
        stream_flush=clean_seconds("stream_flush", options.streams.get("flush", STREAM_FLUSH)),
    )


async def _background_tasks(
    store: Store, options: BackgroundOptions
) -> list[tuple[str, Coroutine[object, object, None]]]:
    """Finish what earlier processes left undone, and return the tasks that run while the store is open."""
    components, found = components_of(store), []
    engine = components.engine
    if not isinstance(engine, TokenEngine) or not engine.is_anonymous:
        every, minutes = options.get("sweep_every"), options.get("retention_minutes")
        if minutes is not None:
            clean_minutes(minutes)
        await engine.abort_expired_streams()
        await _delete_pending_blobs(store)
        found.append(("palaver-reaper", _reap(engine, components.stream_lease)))
        if WRITE in store.scope.rights:
            found.append(("palaver-eraser", _finish_deletions(store)))
        if every is not None:
            sweeper = Sweeper(store, clean_seconds("sweep_every", every), minutes)
            found.append(("palaver-sweeper", sweeper.run()))
    if options.get("worker", True):
        found.append(("palaver-worker", _work(store)))
    return found


async def _delete_pending_blobs(store: Store) -> None:
    try:
        await maintenance_of(store).delete_pending_blobs()
    except FilesNotConfigured as problem:  # they wait for a process that knows where the files are
        _log.warning("the bytes of deleted files cannot be removed: %s", problem)


async def _finish_deletions(store: Store) -> None:
    """Finish the deletions that an earlier process began. A failure is logged; the next sweep tries again."""
    try:
        await maintenance_of(store).finish_deletions()
    except (EngineError, FilesNotConfigured) as problem:
        _log.warning("a deletion was not finished (%s)", type(problem).__name__)


async def _work(store: Store) -> None:
    """Do memory work for everything that this store may work for, or for the users who are signed in."""
    components, sessions = components_of(store), sessions_of(store)
    engine = components.engine
    if not isinstance(engine, TokenEngine) or engine.is_service:
        return await components.worker.run()
    sessions.home = None if engine.is_anonymous else new_session(components, store.scope, engine)
    return await sessions.run()


def _agreed(asked: Scope, told: Scope) -> Scope:
    """Return the scope of the token. Refuse a tenant or user that contradicts it."""
    if asked.tenant not in ("default", told.tenant):
        raise InvalidInput("tenant", "is not the one that the token names")
    if asked.user not in (None, told.user):
        raise InvalidInput("user", "is not the one that the token names")
    return told


def _open_folder(url: str, engine: Engine, files: Path | str | None) -> Blobs:
    if files is None and isinstance(engine, TokenEngine):
        return engine.blobs
    place = files or default_folder(url)
    return UnsetBlobs() if place is None else open_blobs(place)


def default_folder(url: str) -> Path | None:
    """Return the folder for attachments next to the database file. A database server has none.

    A folder of one machine would be lost with its container, and another process would not find it.
    """
    if scheme_of(url) != "sqlite":
        return None
    path = Path(unquote(urlsplit(url).path[1:]) or "palaver")
    return path.with_name(path.name + "-files")


def _open_embedder(stack: AsyncExitStack, choice: Embedder | str | None) -> Embedder | None:
    """Return the embedder: the given one, one by name, or the local one if it is installed."""
    if not isinstance(choice, str):
        return choice  # closed by its owner
    if choice == "auto":
        choice = AUTO_EMBEDDER if embedder_available() else "none"
    embedder = open_embedder(choice)
    if embedder is not None and hasattr(embedder, "aclose"):
        stack.push_async_callback(embedder.aclose)
    return embedder


def _file_url(stack: AsyncExitStack, url: str) -> str:
    """Return the URL to open: for `memory:` that of a file which is gone when the store is closed."""
    if url != "memory:":
        return url
    folder = stack.enter_context(TemporaryDirectory(prefix="palaver-"))
    return f"sqlite:///{folder}/memory.db"


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
