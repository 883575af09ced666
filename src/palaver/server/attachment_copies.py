"""Copies of attachments for a new version of a turn. A file belongs to one turn, so the new version needs its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from palaver.conversations.conversation import Conversation
from palaver.model import Attachment, Content, File, Image, Part


async def copy_content(
    talk: Conversation, content: Content, files: Sequence[Attachment]
) -> tuple[Content, tuple[Attachment, ...]]:
    """Copy the files of a turn. Returns the content with references to the copies, and the copies."""
    copies = {one.id: await copy_attachment(talk, one) for one in files}
    if not isinstance(content, str):
        content = tuple(_with_copy(part, copies) for part in content)
    return content, tuple(copies.values())


async def copy_attachment(talk: Conversation, file: Attachment) -> Attachment:
    return await talk.attach(await talk.read_attachment(file.id), filename=file.filename, media_type=file.media_type)


def _with_copy(part: Part, copies: Mapping[str, Attachment]) -> Part:
    if not isinstance(part, Image | File):
        return part
    copy = copies.get(part.attachment or "")
    return part if copy is None else replace(part, attachment=copy.id)
