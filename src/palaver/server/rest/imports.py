"""Import of exports of other products, with progress."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import Request
from starlette.responses import Response

from palaver.conversations.store import Store
from palaver.core.rights import require_right
from palaver.errors import InvalidInput, PalaverError
from palaver.interchange.exports.formats import Export, open_export
from palaver.interchange.exports.importer import import_export
from palaver.model import READ, WRITE
from palaver.server.dependencies import StoreDep
from palaver.server.live import sse

# Formats of people's exports. Those that are database files of programs are for the command line.
FORMATS = ("chatgpt", "claude", "open-webui", "librechat")
EVERY = 0.3  # seconds between two frames of progress


async def import_conversations(request: Request, store: StoreDep) -> Response:
    """Import an export of ChatGPT, Claude, Open WebUI or LibreChat. The body is the archive or the JSON file.

    The response is a stream of frames: `progress` (`read` of `size` bytes), and at the end `done` with a report, or
    `error`. It is safe to repeat an import: messages that were imported before are not stored again.
    """
    require_right(store.scope, READ)
    require_right(store.scope, WRITE)
    data = await request.body()
    if not data:
        raise InvalidInput("body", "must be the file of an export")
    return sse.EventStream(_frames(store, data))


async def _frames(store: Store, data: bytes) -> AsyncIterator[bytes]:
    read = 0

    def advance(count: int) -> None:
        nonlocal read
        read += count

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "export.zip" if data.startswith(b"PK") else "conversations.json")
        task: asyncio.Task[dict[str, Any]] | None = None
        try:
            await asyncio.to_thread(path.write_bytes, data)
            export = await asyncio.to_thread(_open, path)
            task = asyncio.create_task(_import(store, export, advance))
            while not (await asyncio.wait({task}, timeout=EVERY))[0]:
                yield sse.frame("progress", {"read": min(read, len(data)), "size": len(data)})
            yield sse.frame("done", task.result())
        except PalaverError as problem:
            yield sse.frame("error", problem.to_problem())
        finally:
            if task is not None:
                task.cancel()  # when the reader has gone; a second import continues


def _open(path: Path) -> Export:
    export = open_export(path)
    if export is None or export.format.NAME not in FORMATS:
        raise InvalidInput("body", f"is not an export that can be imported here: {', '.join(FORMATS)}")
    return export


async def _import(store: Store, export: Export, advance: Any) -> dict[str, Any]:
    report = await import_export(store, export, advance, store.scope.user)
    return {**report.to_json(), "title": export.format.TITLE}
