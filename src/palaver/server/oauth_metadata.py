"""Protected resource metadata (RFC 9728): where a client of `/mcp` gets a token."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from palaver.model import READ, WRITE
from palaver.server import wire

MCP = "/mcp"
METADATA = "/.well-known/oauth-protected-resource"
CHALLENGE = "WWW-Authenticate"


def _base(scope: Scope) -> str:
    """Return the base URL of this server as callers see it."""
    public: str | None = scope["app"].state.services.settings.public_url
    return (public or str(Request(scope).base_url)).rstrip("/")


def metadata_url(scope: Scope) -> str:
    return _base(scope) + METADATA + MCP


def add_challenge(scope: Scope, refusal: HTTPException) -> HTTPException:
    """Add the URL of the metadata to a 401 of `/mcp`."""
    headers = dict(refusal.headers or {})
    if scope["path"] == MCP and CHALLENGE in headers:
        headers[CHALLENGE] += f', resource_metadata="{metadata_url(scope)}"'
        refusal.headers = headers
    return refusal


async def resource_metadata(request: Request) -> Response:
    """Describe the protected resource and its authorization server."""
    issuer = request.app.state.services.settings.jwt_issuer
    body: dict[str, object] = {
        "resource": _base(request.scope) + MCP,
        "resource_name": "Palaver",
        "scopes_supported": [READ, WRITE],
        "bearer_methods_supported": ["header"],
    }
    if issuer:
        body["authorization_servers"] = [issuer]
    return Response(wire.encode(body), media_type="application/json")
