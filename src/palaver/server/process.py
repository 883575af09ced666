"""Running it: one process, or several over Postgres."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.supervisors import Multiprocess

from palaver.server.ops import logs
from palaver.server.settings import PASSED_ON, ServerSettings

MAX_HEADERS = 64 * 1024  # bytes
HEADER_SECONDS = 15.0  # between two looks at a connection: at the second, one without a whole request is closed
KEEP_ALIVE = 75  # seconds: longer than proxies keep a connection that they may use again
STARTING = 120  # seconds that a new worker may take before an old one goes, when all of them are renewed
STARTUP_FAILURE = 3  # how a worker of uvicorn ends that could not start
SHARED_FIGURES = "PROMETHEUS_MULTIPROC_DIR"  # the name that prometheus_client gives it


async def serve(settings: ServerSettings) -> bool:
    """Serve until a signal. The settings were checked. False when it could not start; the log says why."""
    os.environ[PASSED_ON] = settings.to_text()  # also for the workers
    logs.set_up(settings)
    config = uvicorn.Config(
        "palaver.server.app:from_environment",
        factory=True,
        http=Patient,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        access_log=False,  # it would show what stands in URLs; our own log has the pattern of the path
        log_config=None,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=round(settings.shutdown_seconds),
        timeout_worker_healthcheck=STARTING,
        h11_max_incomplete_event_size=MAX_HEADERS,
    )
    if settings.workers > 1:
        with figures_of_all():
            supervisor = Supervisor(config, sockets=[config.bind_socket()])
            supervisor.run()
        return all(one.exitcode != STARTUP_FAILURE for one in supervisor.processes)
    server = uvicorn.Server(config)
    await server.serve()
    return server.started


class Patient(AutoHTTPProtocol):  # type: ignore[valid-type, misc]
    """Closes a connection on which no request comes to be: its headers never end, or it is a body that was refused.

    Uvicorn waits for those for ever. Bodies and answers have their times in `limits`, and it minds idle connections.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._next_look = self.loop.call_later(HEADER_SECONDS, self._look, self)

    def connection_lost(self, problem: Exception | None) -> None:
        self._next_look.cancel()
        super().connection_lost(problem)

    def _look(self, before: Any) -> None:
        """`before` is the last request, when there was only that one at the last look; else the protocol itself."""
        is_over = self.cycle is None or self.cycle.response_complete
        waits = is_over and self.timeout_keep_alive_task is None  # an idle connection has a timer
        if waits and before is self.cycle:
            self.transport.close()
            return
        self._next_look = self.loop.call_later(HEADER_SECONDS, self._look, self.cycle if waits else self)


class Supervisor(Multiprocess):
    """Replaces workers that are gone, and believes the system about that.

    Uvicorn also wants a sign of life: a worker that loads slowly would be killed, and a dead one be waited for.
    """

    def keep_subprocess_alive(self) -> None:
        for process in self.processes:
            process.ping = _lives  # type: ignore[method-assign]
        super().keep_subprocess_alive()


def _lives(timeout: float = 0) -> bool:
    return True


@contextmanager
def figures_of_all() -> Iterator[None]:
    """A folder in which the workers keep what they count, so that any of them can tell it all. Workers inherit it."""
    with TemporaryDirectory(prefix="palaver-figures-") as folder:
        os.environ[SHARED_FIGURES] = folder
        try:
            yield
        finally:
            del os.environ[SHARED_FIGURES]
