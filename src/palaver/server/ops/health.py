"""For whoever runs the server: is it there, can it work, and what has it done."""

from __future__ import annotations

import hmac

from fastapi import Request
from starlette.responses import Response

from palaver.server.auth import bearer, unauthorized
from palaver.server.errors import Refused
from palaver.server.ops.metrics import MEDIA
from palaver.server.rest.dependencies import Reply, ServicesOf
from palaver.server.settings import ServerSettings

UNREADY = {"Retry-After": "5"}


async def healthz() -> Response:
    """The process is there and answers. It asks nothing of the database: a restart would not mend that."""
    return Reply({"status": "ok"})


async def readyz(services: ServicesOf) -> Response:
    """Whether requests should come here: 503, with the reasons, when they should not."""
    readiness = services.readiness
    if readiness.closing:
        return _unready({"server": "is shutting down"})
    look = await readiness.look()
    return _unready(look.problems) if look.problems else Reply({"status": "ready", "problems": {}})


def _unready(problems: object) -> Response:
    return Reply({"status": "not ready", "problems": problems}, 503, UNREADY)


async def metrics(request: Request, services: ServicesOf) -> Response:
    """Figures of all tenants together, for Prometheus."""
    check_watcher(services.settings, request)
    look = await services.readiness.look()
    return Response(services.metrics.shown(look.health), media_type=MEDIA)


def check_watcher(settings: ServerSettings, request: Request) -> None:
    """Figures are of all tenants, so that no tenant's key will do. On loopback, where nobody needs one, nor is one
    needed here."""
    token = settings.metrics_token
    if token is None:
        if settings.needs_auth:
            raise Refused(403, "Set PALAVER_METRICS_TOKEN to read the figures of this server")
        return
    sent = bearer(request.headers) or ""
    if not hmac.compare_digest(sent.encode(), token.encode()):
        raise unauthorized("Send the metrics token: Authorization: Bearer …")
