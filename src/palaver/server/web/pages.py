"""The web app: files built from `web/`, kept in memory, and the page that shows an image from another host."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import FastAPI, Query
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from palaver.server.errors import Refusal

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".md": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
PACKED = {".br": "br", ".gz": "gzip"}  # the smaller one first
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' blob:; "
    "connect-src 'self'; frame-src 'self' blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
# Diagrams are drawn in a sandboxed frame of an opaque origin, which may load and ask nothing.
DIAGRAM = "diagram.html"
DIAGRAM_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; sandbox allow-scripts; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
# Addresses of the app. The browser decides what they show.
ADDRESSES = ("/", "/c/{conversation}", "/settings", "/memory")
# Below these, an unknown address is an error for a program; elsewhere it is a person's, and the app says so.
PROGRAMS = ("/api/", "/v1/", "/mcp", "/.well-known/", "/assets/")
# Files named by their hash never change; all others are revalidated. The frame's address names the version.
FOREVER, ASK, A_DAY = "public, max-age=31536000, immutable", "no-cache", "public, max-age=86400"
PICTURE = "body{margin:0}img{display:block;margin:auto;max-width:100%;max-height:100vh}"
PICTURE_HASH = base64.b64encode(hashlib.sha256(PICTURE.encode()).digest()).decode()


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file and its compressed versions."""

    media_type: str
    plain: bytes
    packed: dict[str, bytes] = field(default_factory=dict)

    def respond(self, request: Request, headers: dict[str, str]) -> Response:
        accepted = {one.partition(";")[0].strip() for one in request.headers.get("accept-encoding", "").split(",")}
        coding = next((one for one in PACKED.values() if one in accepted and one in self.packed), None)
        body = self.plain if coding is None else self.packed[coding]
        more = {} if coding is None else {"Content-Encoding": coding}
        return Response(body, media_type=self.media_type, headers={**headers, **more, "Vary": "Accept-Encoding"})


def read_built_files(folder: Path) -> dict[str, StaticFile]:
    """Read every file, by path. Empty if the app was not built."""
    found = {}
    for file in sorted({_plain_path(file) for file in folder.rglob("*")}):
        if file.suffix in TYPES:
            packed = {coding: Path(f"{file}{end}") for end, coding in PACKED.items()}
            bodies = {coding: path.read_bytes() for coding, path in packed.items() if path.exists()}
            plain = file.read_bytes() if file.exists() else gzip.decompress(bodies["gzip"])
            found[file.relative_to(folder).as_posix()] = StaticFile(TYPES[file.suffix], plain, bodies)
    return found


def _plain_path(file: Path) -> Path:
    """Return the path without the ending of a compressed version. Scripts and styles are installed compressed only."""
    return file.with_suffix("") if file.suffix in PACKED else file


def add_pages(app: FastAPI, files: dict[str, StaticFile]) -> bool:
    """Serve the app at `/`. Returns False if there is none."""
    if "index.html" not in files:
        return False

    headers = {"Cache-Control": ASK, "Content-Security-Policy": POLICY}
    for address in ADDRESSES:
        app.add_api_route(address, _serve(files["index.html"], headers), include_in_schema=False)
    for path, file in files.items():
        app.add_api_route(f"/{path}", _serve(file, _headers(path)), include_in_schema=False)
    app.add_api_route("/image", show_picture, include_in_schema=False)
    app.state.unknown_page = lambda request: _unknown(request, files["index.html"], headers)
    return True


def _headers(path: str) -> dict[str, str]:
    if path == DIAGRAM:
        return {
            "Cache-Control": A_DAY,
            "Content-Security-Policy": DIAGRAM_POLICY,
            "X-Frame-Options": "SAMEORIGIN",
        }
    return {"Cache-Control": FOREVER if path.startswith("assets/") else ASK}


def _unknown(request: Request, page: StaticFile, headers: dict[str, str]) -> Response | None:
    """Return the app for an unknown address that a person opened; it says that there is nothing. None for programs."""
    opened = request.method in ("GET", "HEAD") and "text/html" in request.headers.get("accept", "")
    if not opened or request.url.path.startswith(PROGRAMS):
        return None
    response = page.respond(request, headers)
    response.status_code = 404
    return response


def _serve(file: StaticFile, headers: dict[str, str]) -> Callable[[Request], Awaitable[Response]]:
    async def respond(request: Request) -> Response:
        return file.respond(request, headers)

    return respond


async def show_picture(url: str = Query(max_length=4_000)) -> Response:
    """Show one image from another host, for a sandboxed frame: the app's own page may not load any."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or set(url) & set("\"'<>\\ ;,\t\r\n"):
        raise Refusal(422, "url: must be the URL of an image", field="url")
    host = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    policy = (
        f"default-src 'none'; img-src {host}; style-src 'sha256-{PICTURE_HASH}'; sandbox; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    )
    text = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Image</title><style>{PICTURE}</style>'
        f'<img src="{escape(url)}" alt="" referrerpolicy="no-referrer"></html>'
    )
    return HTMLResponse(text, headers={"Content-Security-Policy": policy, "X-Frame-Options": "SAMEORIGIN"})
