"""Files of a conversation: storing them, reading them back, and uploads that bypass this process."""

from __future__ import annotations

import asyncio
import logging
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote_to_bytes
from uuid import uuid4

from palaver.conversations.arguments import MAX_READ
from palaver.conversations.emptiness import EmptyResults, why_no_files
from palaver.conversations.handle import Handle
from palaver.conversations.redaction import TurnRedaction
from palaver.conversations.storage_room import StorageRoom
from palaver.core.identity import file_hash
from palaver.core.validation import MAX_FILE, clean_limit, clean_name, optional_name
from palaver.errors import AttachmentNotFound, EngineError, InvalidInput, PalaverError, TooLarge
from palaver.files import kinds
from palaver.files.reader import Files
from palaver.files.sandbox import NO_TEXT, check_archive
from palaver.files.storage import STAGED, UnsetBlobs, blob_folder, blob_path
from palaver.model import READ, WRITE, Attachment, FileText, Results, Upload
from palaver.ports.blobs import Blobs
from palaver.ports.clock import Clock, Ids

log = logging.getLogger("palaver.files")

UPLOAD_SECONDS, MAX_UPLOAD_SECONDS = 900, 86_400
READ_SECONDS = 10.0  # that a context waits for the text of all its files
COULD_NOT_READ = "could not be read now"


@dataclass(frozen=True, slots=True)
class AttachmentReader:
    """Reads the files of one conversation."""

    handle: Handle
    files: Files
    redaction: TurnRedaction
    empties: EmptyResults
    read_seconds: float = READ_SECONDS

    async def newest(self, limit: int, before: Attachment | str | None) -> Results[Attachment]:
        self.handle.require(READ)
        id = before.id if isinstance(before, Attachment) else optional_name("before", before)
        limit = clean_limit("limit", limit, MAX_READ)
        found = await self.handle.engine.attachments(self.handle.scope, self.handle.id, id, limit)
        has_place = not isinstance(self.files.blobs, UnsetBlobs)
        return self.empties.report("files", found, why_no_files(id, has_place=has_place))

    async def get(self, attachment: Attachment | str) -> Attachment:
        self.handle.require(READ)
        id = attachment.id if isinstance(attachment, Attachment) else clean_name("attachment", attachment)
        return await self.handle.engine.attachment(self.handle.scope, self.handle.id, id)

    async def read(self, attachment: Attachment | str) -> bytes:
        return await self.files.read(self.handle.scope, self.handle.id, await self.get(attachment))

    async def read_range(self, attachment: Attachment | str, start: int, end: int) -> bytes:
        known = await self.get(attachment)
        start = clean_limit("start", start, 2**53)
        end = min(clean_limit("end", end, 2**53), known.bytes)
        if start >= end:
            return b""
        return await self.files.read_range(self.handle.scope, self.handle.id, known, start, end)

    async def text(self, attachment: Attachment | str) -> FileText:
        known = await self.get(attachment)
        found = await self._stored_text(known)
        return found or await self.files.words(self.handle.scope, self.handle.id, known, self.redaction.redact_text)

    async def texts(self, files: Sequence[Attachment]) -> list[FileText | None]:
        """Return the text of each file, for a context. None for one that is not read in time.

        A file that the worker has not read yet is read now, and its text is stored, so that it is read once.
        """
        tasks = [asyncio.create_task(self._read_text(file)) for file in files]
        try:
            await asyncio.wait(tasks, timeout=self.read_seconds)
            return [task.result() if task.done() else None for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_text(self, file: Attachment) -> FileText:
        if file.media_type not in kinds.READABLE:
            return FileText(file.id, "", NO_TEXT)
        try:
            return await self._stored_text(file) or await self._extract(file)
        except PalaverError as problem:  # the message is answered without a file that was deleted or cannot be reached
            log.warning("attachment %s could not be read: %s", file.id, type(problem).__name__)
            return FileText(file.id, "", COULD_NOT_READ)

    async def _stored_text(self, file: Attachment) -> FileText | None:
        return await self.handle.engine.file_text(self.handle.scope, self.handle.id, file.id)

    async def _extract(self, file: Attachment) -> FileText:
        """Extract the text of a file that the worker has not read yet, and store it."""
        found = await self.text(file)
        if file.turn and WRITE in self.handle.scope.rights:
            await self.handle.engine.put_file_text(self.handle.scope, self.handle.id, found)
        return found

    async def data_url(self, attachment: Attachment | str) -> str:
        known = await self.get(attachment)
        data = await self.read(known)
        return f"data:{known.media_type};base64,{b64encode(data).decode()}"


@dataclass(frozen=True, slots=True)
class AttachmentWriter:
    """Stores files in one conversation."""

    handle: Handle
    blobs: Blobs
    clock: Clock
    ids: Ids
    redaction: TurnRedaction
    room: StorageRoom

    async def attach(self, data: bytes | Path | str, filename: str | None, media_type: str | None) -> Attachment:
        self.handle.require(WRITE)
        if isinstance(data, str):
            media_type, data = split_data_url(data, media_type)
        elif isinstance(data, Path):
            filename = filename or data.name
            data = await asyncio.to_thread(data.read_bytes)
        if not isinstance(data, bytes | bytearray | memoryview):
            hint = ": pass what its read() returns" if hasattr(data, "read") else ""
            raise InvalidInput("data", f"must be bytes, a path or a data: URL, not {type(data).__name__}{hint}")
        return await self._store(self.ids(), bytes(data), filename, media_type)

    async def _store(self, id: str, data: bytes, filename: str | None, media_type: str | None) -> Attachment:
        _check_size(len(data))
        filename = None if filename is None else kinds.check_name(clean_name("filename", filename))
        media_type = await asyncio.to_thread(kinds.checked, data, filename, optional_name("media_type", media_type))
        await check_archive(media_type, data)
        await self.room.take_bytes(len(data))
        filename = self.redaction.redact_filename(filename) or "file" + kinds.ending_of(media_type)
        attachment = Attachment(
            id=id,
            filename=filename,
            media_type=media_type,
            bytes=len(data),
            sha256=await asyncio.to_thread(file_hash, data),
            path=blob_path(self.handle.uploader, self.handle.id, filename),
            owner=self.handle.uploader,
        )
        async with put_blobs(self.blobs, {attachment.path: data}) as undo:
            stored = await self.handle.engine.attach(self.handle.scope, self.handle.id, attachment)
            if stored.path != attachment.path:  # a repeated call: the bytes of the first are kept
                await undo()
            return stored

    # ---- uploads

    async def open_upload(self, filename: str, media_type: str | None, seconds: int) -> Upload:
        self.handle.require(WRITE)
        await self.handle.refresh()
        filename = kinds.check_name(clean_name("filename", filename))
        seconds = max(1, clean_limit("seconds", seconds, MAX_UPLOAD_SECONDS))
        path = f"{self._staging_folder}/{uuid4()}"
        return Upload(
            id=self.ids(),
            path=path,
            filename=filename,
            media_type=optional_name("media_type", media_type),
            expires_at=self.clock.now() + timedelta(seconds=seconds),
            url=await self.blobs.upload_url(path, seconds),
        )

    async def put_upload(self, upload: Upload, data: bytes) -> None:
        await self._check_upload(upload)
        _check_size(len(data))
        await self.blobs.put(upload.path, data)

    async def complete_upload(self, upload: Upload) -> Attachment:
        await self._check_upload(upload)
        stored = await self._find(upload.id)
        if stored is not None:
            return stored  # a retry
        try:
            data = await self._read_staged(upload)
        except AttachmentNotFound:
            return await self._get(upload.id)  # a concurrent call was faster, or nothing was uploaded
        try:
            stored = await self._store(upload.id, data, upload.filename, upload.media_type)
        except InvalidInput:
            await self.blobs.delete(upload.path)
            raise
        await self.blobs.delete(upload.path)
        return stored

    async def _read_staged(self, upload: Upload) -> bytes:
        """Return the uploaded bytes. Their size is checked first, so that a huge file is never read."""
        try:
            _check_size(await self.blobs.size(upload.path))
        except TooLarge:
            await self.blobs.delete(upload.path)
            raise
        return await self.blobs.get(upload.path)

    async def _find(self, attachment: str) -> Attachment | None:
        try:
            return await self._get(attachment)
        except AttachmentNotFound:
            return None

    async def _get(self, attachment: str) -> Attachment:
        self.handle.require(READ)
        id = clean_name("attachment", attachment)
        return await self.handle.engine.attachment(self.handle.scope, self.handle.id, id)

    @property
    def _staging_folder(self) -> str:
        return f"{blob_folder(self.handle.uploader, self.handle.id)}/{STAGED}"

    async def _check_upload(self, upload: Upload) -> None:
        """Refuse an upload of another user or another conversation: its path is the caller's claim."""
        self.handle.require(WRITE)
        await self.handle.refresh()
        if not upload.path.startswith(f"{self._staging_folder}/") or ".." in upload.path:
            raise AttachmentNotFound(upload.id)


@asynccontextmanager
async def put_blobs(blobs: Blobs, contents: Mapping[str, bytes]) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Store files, then run the block, which stores the rows that name them. Yields a function that undoes it.

    If the rows are refused, the files are deleted. After an `EngineError` it is unknown whether the rows are stored, so
    the files stay; a sweep deletes them if no row names them.
    """

    async def undo() -> None:
        for path in contents:
            await blobs.delete(path)

    for path, data in contents.items():
        await blobs.put(path, data)
    try:
        yield undo
    except PalaverError as problem:
        if not isinstance(problem, EngineError):
            await undo()
        raise


def _check_size(size: int) -> None:
    if size > MAX_FILE:
        raise TooLarge("data", size=size, limit=MAX_FILE, unit="bytes")


def split_data_url(url: str, media_type: str | None) -> tuple[str | None, bytes]:
    """Split `data:image/png;base64,…` into its type and its bytes."""
    header, comma, body = url.partition(",")
    if not header.startswith("data:") or not comma:
        raise InvalidInput("data", "text must be a data: URL; a file on disk is given as a pathlib.Path")
    kind, *options = header.removeprefix("data:").split(";")
    try:
        data = b64decode(body, validate=True) if "base64" in options else unquote_to_bytes(body)
    except ValueError:
        raise InvalidInput("data", "the data: URL is not valid base64") from None
    return media_type or kind or None, data
