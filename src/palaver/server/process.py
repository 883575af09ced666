"""Runs the server: one process, or several over Postgres."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol
from uvicorn.supervisors import Multiprocess

from palaver.server.ops import logs
from palaver.server.settings import PASSED_ON, ServerSettings

log = logging.getLogger("palaver.server")

MAX_HEADERS = 64 * 1024  # bytes
KEEP_ALIVE = 75  # seconds: longer than proxies keep a connection that they may reuse
STARTING = 120  # seconds for a new worker to start before an old one is stopped, when all are replaced
STARTUP_FAILURE = 3  # exit code of a uvicorn worker that could not start
SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"  # named by prometheus_client


async def serve(settings: ServerSettings) -> bool:
    """Serve until a signal, with checked settings. Returns False if it could not start; the log says why."""
    os.environ[PASSED_ON] = settings.to_text()  # workers inherit it
    logs.set_up(settings)
    config = uvicorn.Config(
        "palaver.server.app:from_environment",
        factory=True,
        http=KeepAliveProtocol,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        access_log=False,  # it would log URLs; Palaver's own log has the pattern of the path
        log_config=None,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(settings.closing_seconds / 2)),
        timeout_worker_healthcheck=STARTING,
        h11_max_incomplete_event_size=MAX_HEADERS,
    )
    if settings.workers > 1:
        with shared_metrics_folder():
            supervisor = Supervisor(config, sockets=[config.bind_socket()])
            supervisor.run()
        return all(one.exitcode != STARTUP_FAILURE for one in supervisor.processes)
    server = uvicorn.Server(config)
    await server.serve()
    return server.started


class KeepAliveProtocol(AutoHTTPProtocol):  # type: ignore[valid-type, misc]
    """Closes a connection without a complete request: its headers never end, or its body was refused.

    Uvicorn waits for those without limit. It closes idle connections itself, and `middleware` limits bodies and
    responses.
    """

    # A connection is checked at this interval, and closed if it is in this state at two checks in a row.
    check_seconds = 15.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._next_check = self.loop.call_later(self.check_seconds, self._check_connection, self)

    def connection_lost(self, problem: Exception | None) -> None:
        self._next_check.cancel()
        super().connection_lost(problem)

    def _check_connection(self, before: object) -> None:
        """Close the connection if it waits as at the last check.

        `before` is the request that was the latest at the last check if the connection waited then; otherwise the
        protocol itself, which equals no request.
        """
        is_over = self.cycle is None or self.cycle.response_complete
        waits = is_over and self.timeout_keep_alive_task is None  # an idle connection has a timer
        if waits and before is self.cycle:
            self.transport.close()
            return
        self._next_check = self.loop.call_later(
            self.check_seconds, self._check_connection, self.cycle if waits else self
        )


class Supervisor(Multiprocess):
    """Replaces workers that have exited.

    Uvicorn also pings workers: it would kill one that loads slowly, and wait for one that is dead.
    """

    def keep_subprocess_alive(self) -> None:
        for process in self.processes:
            process.ping = _always_alive  # type: ignore[method-assign]
            if not self.should_exit.is_set() and process.exitcode not in (None, STARTUP_FAILURE):
                log.error("worker %s died with exit code %s and is replaced", process.pid, process.exitcode)
        super().keep_subprocess_alive()


def _always_alive(timeout: float = 0) -> bool:
    return True


@contextmanager
def shared_metrics_folder() -> Iterator[None]:
    """Make a folder in which workers keep their metrics, so that any of them can report all. Workers inherit it."""
    with TemporaryDirectory(prefix="palaver-metrics-") as folder:
        os.environ[SHARED_METRICS] = folder
        try:
            yield
        finally:
            del os.environ[SHARED_METRICS]
