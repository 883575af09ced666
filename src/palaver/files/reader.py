"""Reading attachments: their bytes, checked against the stored hash, and their text."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from palaver.core.identity import file_hash
from palaver.errors import AttachmentNotFound, InvalidInput, VerificationFailed
from palaver.files.sandbox import extract
from palaver.model import Attachment, FileText, Scope
from palaver.ports.blobs import Blobs
from palaver.ports.engine import FileStore

NOT_THERE, CHANGED = "its bytes are missing", "its bytes differ from those that were stored"


@dataclass(frozen=True, slots=True)
class Files:
    """Reads attachments from the database or from blob storage."""

    engine: FileStore
    blobs: Blobs

    async def read(self, scope: Scope, conversation: str, file: Attachment) -> bytes:
        """Return the bytes of a file. Raises `VerificationFailed` when they are missing or changed."""
        try:
            kept = await self.engine.file_in_database(scope, file.path)
            data = await self.blobs.get(file.path) if kept is None else kept
        except (AttachmentNotFound, InvalidInput):
            raise VerificationFailed(conversation, f"attachment {file.id}", NOT_THERE) from None
        if file_hash(data) != file.sha256:
            raise VerificationFailed(conversation, f"attachment {file.id}", CHANGED)
        return data

    async def read_range(self, scope: Scope, conversation: str, file: Attachment, start: int, end: int) -> bytes:
        """Return some of the bytes. A part cannot be checked against the hash."""
        try:
            kept = await self.engine.file_in_database(scope, file.path)
            return await self.blobs.get_range(file.path, start, end) if kept is None else kept[start:end]
        except (AttachmentNotFound, InvalidInput):
            raise VerificationFailed(conversation, f"attachment {file.id}", NOT_THERE) from None

    async def words(
        self, scope: Scope, conversation: str, file: Attachment, clean: Callable[[str], Awaitable[str]]
    ) -> FileText:
        """Extract the text of a file in a separate process; `clean` redacts it."""
        try:
            data = await self.read(scope, conversation, file)
        except VerificationFailed as failure:
            return FileText(file.id, "", failure.problem)
        found = await extract(file.media_type, data)
        return FileText(file.id, await clean(found.text) if found.text else "", found.problem)
