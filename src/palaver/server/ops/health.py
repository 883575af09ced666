"""Routes for operators: liveness, readiness, metrics."""

from __future__ import annotations

import hmac

from fastapi import Request
from starlette.responses import Response

from palaver.server.auth import bearer, unauthorized
from palaver.server.dependencies import Reply, ServicesDep
from palaver.server.errors import Refusal
from palaver.server.ops.metrics import MEDIA
from palaver.server.settings import ServerSettings

UNREADY = {"Retry-After": "5"}


async def healthz() -> Response:
    """Liveness. It does not check the database, because a restart would not repair that."""
    return Reply({"status": "ok"})


async def readyz(services: ServicesDep) -> Response:
    """Readiness. 503, with the reasons, if this process should get no requests."""
    readiness = services.readiness
    if readiness.closing:
        return _not_ready({"server": "is shutting down"})
    check = await readiness.check()
    return _not_ready(check.problems) if check.problems else Reply({"status": "ready", "problems": {}})


def _not_ready(problems: object) -> Response:
    return Reply({"status": "not ready", "problems": problems}, 503, UNREADY)


async def metrics(request: Request, services: ServicesDep) -> Response:
    """Metrics of all tenants together, for Prometheus."""
    check_metrics_token(services.settings, request)
    check = await services.readiness.check()
    return Response(services.metrics.render(check.health), media_type=MEDIA)


def check_metrics_token(settings: ServerSettings, request: Request) -> None:
    """Require the metrics token. Metrics cover all tenants, so a tenant's key is not enough.

    Without a token they are readable where no authentication is needed, such as on loopback.
    """
    token = settings.metrics_token
    if token is None:
        if settings.needs_auth:
            raise Refusal(403, "Set PALAVER_METRICS_TOKEN to read the metrics of this server")
        return
    sent = bearer(request.headers) or ""
    if not hmac.compare_digest(sent.encode(), token.encode()):
        raise unauthorized("Send the metrics token: Authorization: Bearer …")
