"""Files: upload, look, download."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from fastapi import Path, Query, Request
from starlette.responses import Response

from palaver.server import wire
from palaver.server.edge import ID, Reply, Talk

AttachmentId = Annotated[str, Path(**ID)]
# A file is never a page of ours: it is saved, not shown.
SANDBOX = "default-src 'none'; sandbox"


async def upload_attachment(
    request: Request,
    talk: Talk,
    filename: Annotated[str, Query(min_length=1, max_length=255)],
) -> Response:
    """Store a file: the body is its bytes, at most 50 MB. Name its id in `attachments` of a turn."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip() or None
    stored = await talk.attach(await request.body(), filename=filename, media_type=kind)
    return Reply(wire.attachment(stored), 201, {"Location": f"/api/conversations/{talk.id}/attachments/{stored.id}"})


async def get_attachment(talk: Talk, attachment: AttachmentId) -> Response:
    """What is known of a file."""
    return Reply(wire.attachment(await talk.attachment(attachment)))


async def download_attachment(talk: Talk, attachment: AttachmentId) -> Response:
    """The bytes of a file, checked against their hash."""
    known = await talk.attachment(attachment)
    data = await talk.read_attachment(known)
    headers = {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(known.filename, safe='')}",
        "Content-Security-Policy": SANDBOX,
        "ETag": f'"{known.sha256}"',
        "Cache-Control": "private, no-cache",
    }
    return Response(data, headers=headers, media_type="application/octet-stream")
