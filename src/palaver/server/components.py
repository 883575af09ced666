"""Services shared by all requests while the server runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from palaver.audit.seals import clean_sealing_key, seal_everything
from palaver.conversations.internals import (
    clock_of,
    engine_of,
    generation_of,
    models_of,
    single_tenant_warning,
    worker_of,
)
from palaver.conversations.open_options import TelemetryOptions
from palaver.conversations.opener import open as open_store
from palaver.conversations.store import Store
from palaver.conversations.sweeper import Sweeper
from palaver.core.bounded_dict import BoundedDict
from palaver.errors import FilesNotConfigured, InvalidInput, PalaverError
from palaver.files.storage import storage_problem
from palaver.generation.settings import GenerateSettings
from palaver.model import Scope
from palaver.models.registry import ModelRegistry
from palaver.models.token_tables import load_table
from palaver.models.tokens import BpeCounter
from palaver.server.auth import Authenticator, Caller
from palaver.server.compat.sdk_retries import REMEMBERED, RetriedRequests
from palaver.server.errors import Refusal
from palaver.server.live.answers import ANSWER_JOB, Answers
from palaver.server.live.channel import ChannelHub
from palaver.server.model_settings import ModelSettings, models_file
from palaver.server.ops.metrics import Metrics
from palaver.server.ops.otlp import Exporters, make_exporters
from palaver.server.ops.readiness import Readiness
from palaver.server.settings import ServerSettings
from palaver.telemetry import Telemetry

log = logging.getLogger("palaver.server")
START_SECONDS = 60.0  # an answer without a first event after this time is considered lost


@dataclass(slots=True)
class Services:
    settings: ServerSettings
    store: Store
    authenticator: Authenticator
    hub: ChannelHub
    answers: Answers
    readiness: Readiness
    metrics: Metrics
    model_settings: ModelSettings
    streams: Counter[str] = field(default_factory=Counter)  # open live streams, by caller
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    deadline: float | None = None  # for running answers, by the monotonic clock, once the server is asked to stop
    retries: RetriedRequests[Any] = field(default_factory=RetriedRequests)
    recent_exchanges: BoundedDict[str, Any] = field(default_factory=lambda: BoundedDict(REMEMBERED))  # by id
    start_seconds: float = START_SECONDS
    # One client's history at a time is stored in a conversation.
    history_locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def check_stream_limit(self, caller: Caller) -> None:
        """Refuse one more live stream to a caller that has reached the limit."""
        limit = self.settings.max_streams
        if caller.name != "local" and self.streams[caller.name] >= limit:
            raise Refusal(429, f"at most {limit} open streams", {"Retry-After": "5"}, limit=limit)

    @contextmanager
    def count_stream(self, caller: Caller) -> Iterator[None]:
        self.streams[caller.name] += 1
        self.metrics.readers.inc()
        try:
            yield
        finally:
            self.metrics.readers.dec()
            self.streams[caller.name] -= 1
            if not self.streams[caller.name]:
                del self.streams[caller.name]

    @property
    def registry(self) -> ModelRegistry:
        return models_of(self.store)

    @property
    def telemetry(self) -> Telemetry:
        return generation_of(self.store).telemetry

    @property
    def generate_settings(self) -> GenerateSettings:
        return generation_of(self.store).settings

    @property
    def models(self) -> frozenset[str]:
        """The models that callers may name: those in the server's configuration."""
        known = self.registry
        return frozenset({known.default, *known.names, *known.agents.values(), *known.workspaces.values()})

    def begin_shutdown(self) -> None:
        """Accept no new answers, live readers or jobs. Live readers are disconnected; running answers continue."""
        if self.deadline is None:
            self.deadline = time.monotonic() + self.settings.shutdown_seconds - self.settings.closing_seconds
            log.info("closing, with %d running answers", self.answers.count)
        self.readiness.closing = True
        self.answers.is_closing = True
        worker_of(self.store).jobs = {}  # those that are running end; the others are for other processes
        self.hub.close()
        self.closing.set()

    async def drain(self) -> None:
        """Stop taking work while the socket still listens, and let the running answers end, until one deadline."""
        self.begin_shutdown()
        least = asyncio.create_task(asyncio.sleep(min(self.settings.drain_seconds, self.settings.shutdown_seconds / 2)))
        await self.answers.close(
            self._seconds_left(),
            ask_again=self.settings.interrupted_answers == "ask_again",
            stop_seconds=self.settings.closing_seconds / 2,
        )
        await least

    def _seconds_left(self) -> float:
        return max(0.0, (self.deadline or 0.0) - time.monotonic())


@asynccontextmanager
async def _exporters(settings: ServerSettings, metrics: Metrics) -> AsyncIterator[Exporters | None]:
    """Export spans and metrics while the server runs, if its settings say so."""
    if not settings.telemetry:
        yield None
        return
    exporters = make_exporters(metrics.registry)
    sending = asyncio.create_task(exporters.send_metrics_forever(), name="palaver-metrics")
    try:
        yield exporters
    finally:
        sending.cancel()
        await asyncio.to_thread(exporters.close)  # sends what is left


@asynccontextmanager
async def open_services(settings: ServerSettings, metrics: Metrics | None = None) -> AsyncIterator[Services]:
    """Open the database and the services on it. Refuses to listen beyond loopback without keys or JWTs."""
    metrics = metrics or Metrics()
    async with (
        _exporters(settings, metrics) as exporters,
        open_store(
            settings.url,
            scope=Scope.of(settings.tenant, None),
            **settings.store_options(),
            telemetry=TelemetryOptions(spans=exporters.tracing if exporters else None, meter=metrics),
            stream_lease=settings.stream_lease,
        ) as store,
    ):
        if settings.needs_auth and not settings.has_jwt and not await engine_of(store).has_key():
            raise InvalidInput(
                "host",
                f"{settings.host} is reachable by others, and there is no key: run `palaver keys create NAME`, "
                "or set PALAVER_JWT_SECRET or PALAVER_JWKS",
            )
        if settings.files is None and settings.url.startswith("postgres"):
            log.warning("attachments are refused: %s", FilesNotConfigured())
        if settings.files is not None and (problem := storage_problem(settings.files)):
            log.warning("attachments cannot be stored: %s. Check PALAVER_FILES, and the rights of the folder", problem)
        if settings.url.startswith("postgres") and (warning := await single_tenant_warning(store)):
            log.warning("%s", warning)
        hub = ChannelHub(store)
        services = Services(
            settings=settings,
            store=store,
            authenticator=Authenticator(settings, store),
            hub=hub,
            answers=Answers(hub, metrics),
            readiness=Readiness(engine_of(store), worker_of(store), settings.ready_lag),
            metrics=metrics,
            model_settings=ModelSettings(settings, models_of(store), models_file(settings)),
        )
        await services.model_settings.refresh()
        await asyncio.to_thread(load_table, BpeCounter().name)  # so that no request waits for it
        if settings.interrupted_answers == "ask_again":
            worker = worker_of(store)
            worker.jobs = {**worker.jobs, ANSWER_JOB: services.answers.answer_again(store)}
        tasks = [asyncio.create_task(_seal_periodically(services), name="palaver-sealer")]
        if settings.sweep_every:
            sweeper = Sweeper(store, settings.sweep_every, settings.retention_minutes, every_tenant=True)
            tasks.append(asyncio.create_task(sweeper.run(), name="palaver-sweeper"))
        try:
            yield services
        finally:
            services.begin_shutdown()
            await services.answers.close(services._seconds_left())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _seal_periodically(services: Services) -> None:
    settings, store = services.settings, services.store
    if settings.audit_key is None:
        return
    key = clean_sealing_key(settings.audit_key.encode())
    while True:
        try:
            await seal_everything(engine_of(store), key, clock_of(store).now())
        except PalaverError as problem:  # tried again in the next round
            log.warning("the log could not be sealed (%s)", type(problem).__name__)
        await asyncio.sleep(settings.seal_every)
