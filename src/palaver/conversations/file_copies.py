"""Copies of files for a new version of a turn. A file belongs to one turn, so the new version needs its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from palaver.conversations.attachments import AttachmentReader, AttachmentWriter
from palaver.core.turn_draft import decode_content, encode_content, referenced_attachments
from palaver.model import Attachment, Content, ContentInput, File, Image, Part, Turn


@dataclass(frozen=True, slots=True)
class FileCopies:
    """Copies the files of one conversation."""

    reader: AttachmentReader
    writer: AttachmentWriter

    async def for_edit(
        self, old: Turn, content: ContentInput, given: Sequence[Attachment] | None
    ) -> tuple[ContentInput, tuple[Attachment, ...]]:
        """Return the content and the files of the turn that replaces `old`, with copies of the files of `old`.

        If no files are given, those of `old` are kept. Of files that its content named, a new content of parts keeps
        only those that it names too.
        """
        content = content if isinstance(content, str) else decode_content(*encode_content(content))
        files = _kept_files(old, content) if given is None else [*given]
        wanted = {one.id for one in files} | set(referenced_attachments(content))
        copies = {one.id: await self._copy(one) for one in old.attachments if one.id in wanted}
        attached = {one.id: copies.get(one.id, one) for one in files}
        return _with_copies(content, copies), tuple(attached.values())

    async def _copy(self, file: Attachment) -> Attachment:
        return await self.writer.attach(await self.reader.read(file.id), file.filename, file.media_type)


def _kept_files(old: Turn, content: Content) -> list[Attachment]:
    left_out = set() if isinstance(content, str) else set(referenced_attachments(old.content))
    return [one for one in old.attachments if one.id not in left_out]


def _with_copies(content: Content, copies: Mapping[str, Attachment]) -> Content:
    return content if isinstance(content, str) else tuple(_with_copy(part, copies) for part in content)


def _with_copy(part: Part, copies: Mapping[str, Attachment]) -> Part:
    if not isinstance(part, Image | File):
        return part
    copy = copies.get(part.attachment or "")
    return part if copy is None else replace(part, attachment=copy.id)
