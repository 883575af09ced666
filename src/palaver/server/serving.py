"""Running it: one process, or several over Postgres."""

from __future__ import annotations

import os

import uvicorn
from uvicorn.supervisors import Multiprocess

from palaver.server.settings import PASSED_ON, ServerSettings

MAX_HEADERS = 64 * 1024  # bytes


async def serve(settings: ServerSettings) -> None:
    """Serve until a signal. The settings were checked."""
    os.environ[PASSED_ON] = settings.to_text()  # also for the workers
    config = uvicorn.Config(
        "palaver.server.app:from_environment",
        factory=True,
        host=settings.host,
        port=settings.port,
        workers=settings.workers,
        access_log=False,  # it would show what stands in URLs; our own log has the pattern of the path
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=round(settings.shutdown_seconds),
        h11_max_incomplete_event_size=MAX_HEADERS,
    )
    if settings.workers > 1:
        Multiprocess(config, sockets=[config.bind_socket()]).run()
    else:
        await uvicorn.Server(config).serve()
