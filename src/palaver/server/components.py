"""What all requests share while the server runs."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakValueDictionary

from palaver.audit.seals import clean_sealing_key, seal_everything
from palaver.conversations.opening import open as open_store
from palaver.conversations.store import Store
from palaver.conversations.sweeper import Sweeper
from palaver.errors import InvalidInput, PalaverError
from palaver.model import Scope
from palaver.server.auth import Authenticator, Caller
from palaver.server.compat.sdk_retries import Retries
from palaver.server.errors import Refused
from palaver.server.live.answers import Answers
from palaver.server.live.channel import Hub
from palaver.server.ops.metrics import Metrics
from palaver.server.ops.readiness import Readiness
from palaver.server.settings import ServerSettings

log = logging.getLogger("palaver.server")


@dataclass(slots=True)
class Services:
    settings: ServerSettings
    store: Store
    authenticator: Authenticator
    hub: Hub
    answers: Answers
    readiness: Readiness
    metrics: Metrics
    streams: Counter[str] = field(default_factory=Counter)  # open live streams, by caller
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    retries: Retries[Any] = field(default_factory=Retries)
    recent: OrderedDict[str, Any] = field(default_factory=OrderedDict)  # exchanges of late, by name
    # Histories of clients are taken in one after another, in each conversation.
    taking_in: WeakValueDictionary[tuple[str, str], asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def admit(self, caller: Caller) -> None:
        """One more live stream? A caller that never closes them is refused at some point."""
        limit = self.settings.max_streams
        if caller.name != "local" and self.streams[caller.name] >= limit:
            raise Refused(429, f"at most {limit} open streams", {"Retry-After": "5"}, limit=limit)

    @contextmanager
    def streaming(self, caller: Caller) -> Iterator[None]:
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
    def models(self) -> frozenset[str]:
        """The models that callers may name: those that whoever runs this server has named."""
        book = self.store.parts.generation.models
        return frozenset({book.default, *book.names, *book.agents.values(), *book.workspaces.values()})

    def begin_shutdown(self) -> None:
        """Live readers leave at once, so that the server can end; answers get a moment longer. A signal calls this."""
        self.readiness.closing = True
        self.hub.close()
        self.closing.set()


@asynccontextmanager
async def open_services(settings: ServerSettings, metrics: Metrics | None = None) -> AsyncIterator[Services]:
    """The database and everything around it. Refuses to serve others without a way to tell them apart."""
    metrics = metrics or Metrics()
    async with open_store(
        settings.url,
        files=settings.files,
        scope=Scope.of(settings.tenant, None),
        embedder=settings.embedder,
        model=settings.model,
        models=settings.models,
        agents=settings.agents,
        workspaces=settings.workspaces,
        generate=settings.generate,
        meter=metrics,
        stream_lease=settings.stream_lease,
    ) as store:
        if settings.needs_auth and not settings.has_jwt and not await store.engine.has_key():
            raise InvalidInput(
                "host",
                f"{settings.host} is not only this machine, and nobody has a key: run `palaver keys create NAME`, "
                "or set PALAVER_JWT_SECRET or PALAVER_JWKS",
            )
        hub = Hub(store)
        services = Services(
            settings=settings,
            store=store,
            authenticator=Authenticator(settings, store),
            hub=hub,
            answers=Answers(hub, metrics),
            readiness=Readiness(store.engine, settings.ready_lag),
            metrics=metrics,
        )
        chores = [asyncio.create_task(_seal_now_and_then(services), name="palaver-sealer")]
        if settings.sweep_every:
            sweeper = Sweeper(store, settings.sweep_every, settings.retention_minutes, every_tenant=True)
            chores.append(asyncio.create_task(sweeper.run(), name="palaver-sweeper"))
        try:
            yield services
        finally:
            services.begin_shutdown()
            await services.answers.close(settings.shutdown_seconds)
            for chore in chores:
                chore.cancel()
            await asyncio.gather(*chores, return_exceptions=True)


async def _seal_now_and_then(services: Services) -> None:
    settings, store = services.settings, services.store
    if settings.audit_key is None:
        return
    key = clean_sealing_key(settings.audit_key.encode())
    while True:
        try:
            await seal_everything(store.engine, key, store.parts.clock.now())
        except PalaverError as problem:  # the next round does it
            log.warning("the log could not be sealed (%s)", type(problem).__name__)
        await asyncio.sleep(settings.seal_every)
