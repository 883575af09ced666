"""Where the bytes of attachments are kept: a folder."""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from pathlib import Path
from urllib.parse import quote

from palaver.errors import AttachmentNotFound, InvalidInput
from palaver.identity import file_hash

MAX_FOLDER = 200  # letters; file systems take 255 bytes
_EXTENSION = re.compile(r"\.[a-z0-9]{1,10}$")


def blob_path(user: str, conversation: str, filename: str) -> str:
    """`{user_id}/{conversation_id}/{uuid.ext}`, with a user id that cannot climb out of the folder."""
    folder = quote(user, safe="@ ").replace(".", "%2E") if user.strip(".") != user else quote(user, safe="@ ")
    if len(folder) > MAX_FOLDER:
        folder = f"{folder[:100]}-{file_hash(user.encode())}"
    extension = _EXTENSION.search(filename.lower())
    return f"{folder or '_'}/{conversation}/{uuid.uuid4()}{extension.group() if extension else ''}"


class FolderBlobs:
    """One file per blob. A file is whole or not there: it is written aside, synced and renamed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def put(self, path: str, data: bytes) -> None:
        await asyncio.to_thread(self._put, self._locate(path), data)

    async def get(self, path: str) -> bytes:
        try:
            return await asyncio.to_thread(self._locate(path).read_bytes)
        except FileNotFoundError:
            raise AttachmentNotFound(path) from None

    async def delete(self, path: str) -> None:
        await asyncio.to_thread(self._delete, self._locate(path))

    def _locate(self, path: str) -> Path:
        target = (self.folder / path).resolve()
        if not target.is_relative_to(self.folder.resolve()) or target == self.folder.resolve():
            raise InvalidInput("path", "leads out of the folder")
        return target

    def _put(self, target: Path, data: bytes) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = target.with_name(f".{target.name}.part")
        with aside.open("wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        aside.replace(target)
        _sync_folder(target.parent)

    def _delete(self, target: Path) -> None:
        target.unlink(missing_ok=True)
        for folder in (target.parent, target.parent.parent):
            if folder != self.folder and folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def _sync_folder(folder: Path) -> None:
    """A rename is durable only when its folder is."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
