"""Routes of files: upload, directly into a bucket too; describe; download, through expiring links too."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import quote

from fastapi import Header, Path, Query, Request
from starlette.datastructures import UploadFile
from starlette.responses import Response

from palaver.conversations.internals import clock_of
from palaver.core.rights import require_right
from palaver.errors import InvalidInput
from palaver.model import WRITE, Attachment
from palaver.server import wire
from palaver.server.dependencies import (
    ID,
    CallerDep,
    ConversationDep,
    IfNoneMatch,
    Reply,
    ServicesDep,
    StoreDep,
    page_path,
)
from palaver.server.errors import Refusal
from palaver.server.rest import schemas

AttachmentId = Annotated[str, Path(**ID, description="The id of the file.")]
UploadId = Annotated[str, Path(**ID, description="The id of the upload.")]
Filename = Annotated[
    str | None, Query(min_length=1, max_length=255, description="Name of the file, if the body is the file itself.")
]
RangeOf = Annotated[
    str | None, Header(alias="Range", max_length=512, description="One range of bytes, such as `bytes=0-1023`.")
]
IfRange = Annotated[str | None, Header(max_length=512, description="An ETag: the range is sent only if it is current.")]
TicketOf = Annotated[
    str | None, Query(max_length=4_096, description="The ticket of a link, instead of an `Authorization` header.")
]
# A file is never a page of this origin: browsers save it, and one that shows it may run nothing.
SANDBOX = "default-src 'none'; sandbox"
# Sent with their own type, so that a page can show or play them. Other files are sent as bytes.
DISPLAYABLE = re.compile(r"(?:image|audio|video)/(?!svg)[\w.+-]+|application/pdf")
LINK_SECONDS = 300


# ---- upload --------------------------------------------------------------------------------------------------------


async def upload_attachment(request: Request, talk: ConversationDep, filename: Filename = None) -> Response:
    """Store a file of at most 50 MB. Send it as the body, or as the field `file` of a form.

    Then put its id into `attachments` of a turn. The type of the file is detected from its bytes. A name or type that
    contradicts them is refused with 415. So is a file that is not an image, PDF, text, office document, audio, video or
    archive.
    """
    if request.headers.get("content-type", "").startswith("multipart/form-data"):
        data, name, kind = await _read_form(request)
    else:
        data, name, kind = await request.body(), filename, request.headers.get("content-type")
        if not data and kind is None:  # an empty file has a type
            raise InvalidInput("body", "is missing: send the bytes of the file, or a form with the field `file`")
    stored = await talk.attach(data, filename=name or filename, media_type=kind)
    return _created_reply(talk, stored)


async def _read_form(request: Request) -> tuple[bytes, str | None, str | None]:
    async with request.form(max_files=1, max_fields=10) as form:
        file = form.get("file")
        if not isinstance(file, UploadFile):
            raise InvalidInput("file", "must be a file in the form")
        return await file.read(), file.filename, file.content_type


def _created_reply(talk: ConversationDep, stored: Attachment) -> Response:
    return Reply(wire.attachment(stored), 201, {"Location": f"/api/conversations/{talk.id}/attachments/{stored.id}"})


async def open_upload(
    services: ServicesDep, caller: CallerDep, talk: ConversationDep, body: schemas.NewUpload
) -> Response:
    """Open an upload. PUT the bytes to `url`, then complete the upload. If the server uses a bucket, `url` is in it."""
    seconds = body.seconds or services.settings.upload_seconds
    upload = await talk.open_upload(body.filename, media_type=body.media_type, seconds=int(seconds))
    path = f"/api/conversations/{talk.id}/uploads/{upload.id}"
    token = services.authenticator.upload_ticket(caller, f"PUT {path}", upload, int(seconds))
    shown = {
        "id": upload.id,
        "method": "PUT",
        "url": upload.url or f"{path}?ticket={token}",
        "token": token,
        "expires_at": upload.expires_at,
    }
    return Reply(shown, 201)


async def put_upload(
    request: Request,
    services: ServicesDep,
    store: StoreDep,
    talk: ConversationDep,
    upload: UploadId,
    ticket: TicketOf = None,
) -> Response:
    """Send the bytes of an upload, if the server uses no bucket."""
    require_right(store.scope, WRITE)
    known = services.authenticator.upload_of(ticket, upload)
    await talk.put_upload(known, await request.body())
    return Response(status_code=204)


async def complete_upload(
    services: ServicesDep, store: StoreDep, talk: ConversationDep, upload: UploadId, body: schemas.UploadToken
) -> Response:
    """Complete an upload: check and store the file. It is safe to repeat this."""
    require_right(store.scope, WRITE)
    return _created_reply(talk, await talk.complete_upload(services.authenticator.upload_of(body.token, upload)))


# ---- describe ------------------------------------------------------------------------------------------------------


async def list_attachments(
    request: Request,
    talk: ConversationDep,
    limit: Annotated[int, Query(ge=1, le=1_000, description="Maximum number of files.")] = 50,
    before: Annotated[str | None, Query(**ID, description="Only files older than the file with this id.")] = None,
) -> Response:
    """List the files of a conversation, newest first, including those without a turn."""
    found = await talk.attachments(limit, before=before)
    more = page_path(request, before=found[-1].id) if len(found) == limit else None
    items = [wire.attachment(one) for one in found]
    return Reply({"items": items, "next": more, "empty": wire.plain(found.empty)})


async def get_attachment(talk: ConversationDep, attachment: AttachmentId) -> Response:
    """Get the description of a file: name, type, size, hash and turn."""
    return Reply(wire.attachment(await talk.attachment(attachment)))


async def get_attachment_text(
    talk: ConversationDep,
    attachment: AttachmentId,
    start: Annotated[int, Query(ge=0, le=schemas.BIG, description="Position of the first character.")] = 0,
    length: Annotated[int, Query(ge=1, le=1_000_000, description="Number of characters.")] = 100_000,
) -> Response:
    """Get the text of a PDF, an office document or a text file. If there is none, `problem` is the reason."""
    found = await talk.attachment_text(attachment)
    shown = {"start": start, "text": found.text[start : start + length], "characters": len(found.text)}
    return Reply({"attachment": found.attachment, "problem": found.problem, **shown})


# ---- download ------------------------------------------------------------------------------------------------------


async def create_link(
    services: ServicesDep, caller: CallerDep, talk: ConversationDep, attachment: AttachmentId, body: schemas.NewLink
) -> Response:
    """Create a link to the file that works without credentials for a limited time, such as for an `<img>`."""
    known = await talk.attachment(attachment)
    path = f"/api/conversations/{talk.id}/attachments/{known.id}/content"
    seconds = body.seconds or LINK_SECONDS
    ticket = services.authenticator.link_ticket(caller, f"GET {path}", seconds)
    end = clock_of(services.store).now().timestamp() + seconds
    expires = datetime.fromtimestamp(end if caller.until is None else min(end, caller.until), UTC)
    return Reply({"url": f"{path}?ticket={ticket}", "expires_at": expires}, 201)


async def download_attachment(
    talk: ConversationDep,
    attachment: AttachmentId,
    range_: RangeOf = None,
    if_range: IfRange = None,
    if_none_match: IfNoneMatch = None,
    ticket: TicketOf = None,
) -> Response:
    """Download a file, or one range of it. A whole file is checked against its hash."""
    known = await talk.attachment(attachment)
    headers = _file_headers(known)
    if if_none_match is not None and headers["ETag"] in [
        one.strip().removeprefix("W/") for one in if_none_match.split(",")
    ]:
        return Response(status_code=304, headers=headers)
    wanted = _parse_range(range_, known.bytes) if if_range in (None, headers["ETag"]) else None
    kind = known.media_type if DISPLAYABLE.fullmatch(known.media_type) else "application/octet-stream"
    if wanted is None:
        return Response(await talk.read_attachment(known), headers=headers, media_type=kind)
    start, end = wanted
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{known.bytes}"
    data = await talk.read_attachment_range(known, start, end)
    return Response(data, 206, headers=headers, media_type=kind)


def _file_headers(known: Attachment) -> dict[str, str]:
    return {
        "Content-Disposition": content_disposition(known.filename),
        "Content-Security-Policy": SANDBOX,
        "X-Content-Type-Options": "nosniff",
        "Accept-Ranges": "bytes",
        "ETag": f'"{known.sha256}"',
        "Cache-Control": "private, no-cache",
    }


def content_disposition(filename: str) -> str:
    """Return `Content-Disposition` (RFC 6266): the name in ASCII for old clients, and unchanged for all others."""
    plain = re.sub(r"[^A-Za-z0-9._ -]", "_", filename.encode("ascii", "replace").decode())
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"


def _parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Parse one range. Return None, for the whole file, if the header is missing or malformed. Raises 416."""
    match = re.fullmatch(r"bytes=(\d{0,18})-(\d{0,18})", (header or "").replace(" ", ""))
    if match is None or match.groups() == ("", ""):
        return None
    first, last = match.groups()
    start = int(first) if first else max(0, size - int(last))
    end = min(int(last) + 1, size) if first and last else size
    if first and last and int(last) < int(first):
        return None
    if start >= size or (not first and int(last) == 0):
        raise Refusal(416, f"the file has {size:,} bytes", {"Content-Range": f"bytes */{size}"}, limit=size)
    return start, end
