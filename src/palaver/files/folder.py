"""Storage of attachments in a local folder, with the standard library alone."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from errno import ENOSPC
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from palaver.errors import AttachmentNotFound, DatabaseFull, EngineUnavailable, InvalidInput

LEFT_OVER = timedelta(days=1)
MAX_ATTEMPTS = 100  # at making a file's folder while others delete their last file in it
T = TypeVar("T")
_HALF_WRITTEN = re.compile(r"#[0-9a-f]+$")  # the suffix of a file that is being written


def folder_problem(folder: Path) -> str | None:
    """Return why a folder cannot store files, or None. Changes nothing: a missing folder is made when it is needed."""
    folder = folder.absolute()
    place = next(one for one in (folder, *folder.parents) if os.path.exists(one))  # raises no PermissionError
    if not place.is_dir():
        return f"{place} is not a folder"
    if not os.access(place, os.W_OK | os.X_OK):
        missing = "" if place == folder else f"{folder} does not exist, and "
        return f"{missing}this user may not write to {place}"
    return None


class FolderBlobs:
    """A local folder. A stored file is whole and survives a power cut: it and its folders are synced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()  # the program may change its working directory

    async def put(self, path: str, data: bytes) -> None:
        await self._run(path, lambda file: self._write(file, data), written=True)

    async def get(self, path: str) -> bytes:
        return await self._run(path, Path.read_bytes)

    async def get_range(self, path: str, start: int, end: int) -> bytes:
        return await self._run(path, lambda file: _read_range(file, start, end))

    async def size(self, path: str) -> int:
        return await self._run(path, lambda file: file.stat().st_size)

    async def delete(self, path: str) -> None:
        try:
            await self._run(path, self._remove)
        except AttachmentNotFound:
            pass  # then it is deleted

    async def listed(self) -> AsyncIterator[tuple[str, datetime]]:
        """Yield the path and the modification time of every file, and delete what killed processes left behind."""
        with translate_errors(""):
            files = await asyncio.to_thread(lambda: list(self._walk()))
        for one in files:
            yield one

    async def upload_url(self, path: str, seconds: int) -> str | None:
        """Return None: files reach a folder only through the server."""
        return None

    async def _run(self, path: str, work: Callable[[Path], T], *, written: bool = False) -> T:
        """Do file work in a thread."""
        file = self._file(path)
        with translate_errors(path, written=written):
            return await asyncio.to_thread(work, file)

    def _file(self, path: str) -> Path:
        names = path.strip("/").split("/")
        if "\0" in path or any(name in ("", ".", "..") for name in names) or _HALF_WRITTEN.search(names[-1]):
            raise InvalidInput("path", "is outside the folder")
        return self.folder.joinpath(*names)

    def _write(self, file: Path, data: bytes) -> None:
        """Write under another name, sync, then rename: a reader sees all of it or nothing."""
        half = file.with_name(f"{file.name}#{uuid4().hex}")
        handle = _create(half)
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            half.rename(file)
        except BaseException:
            half.unlink(missing_ok=True)
            raise
        for folder in self._folders(file):
            _sync(folder)

    def _folders(self, file: Path) -> Iterator[Path]:
        """Yield every folder that leads to a file, the nearest first: without them it is not durable."""
        for folder in file.parents:
            yield folder
            if folder == self.folder:
                return

    def _remove(self, file: Path) -> None:
        file.unlink()
        with suppress(OSError):  # a folder that is not empty stays, with those above it
            for folder in self._folders(file):
                if folder != self.folder:
                    folder.rmdir()

    def _walk(self) -> Iterator[tuple[str, datetime]]:
        long_ago = datetime.now(UTC) - LEFT_OVER
        for folder, _, names in os.walk(self.folder):
            for file in (Path(folder, name) for name in names):
                try:
                    changed = datetime.fromtimestamp(file.stat().st_mtime, UTC)
                except FileNotFoundError:
                    continue  # deleted since
                if not _HALF_WRITTEN.search(file.name):
                    yield file.relative_to(self.folder).as_posix(), changed
                elif changed < long_ago:  # no row refers to it
                    file.unlink(missing_ok=True)


def _create(file: Path) -> int:
    """Open a new file for writing. Its folder may be deleted after it was created: then create it once more."""
    for _ in range(MAX_ATTEMPTS):
        with suppress(FileNotFoundError, FileExistsError):  # mkdir raises the second for a folder that is gone again
            file.parent.mkdir(parents=True, exist_ok=True)
            return os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    raise OSError("another process keeps deleting the folder")


def _read_range(file: Path, start: int, end: int) -> bytes:
    if not 0 <= start < end:
        raise InvalidInput("range", f"must not be empty, got {start} to {end}")
    with file.open("rb") as source:
        source.seek(start)
        return source.read(end - start)


def _sync(folder: Path) -> None:
    try:
        handle = os.open(folder, os.O_RDONLY)
    except (FileNotFoundError, PermissionError):
        return  # deleted with its last file, or a system that opens no folders
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def translate_errors(path: str, *, written: bool = False) -> Iterator[None]:
    """Translate errors of the file system: their messages contain paths."""
    try:
        yield
    except OSError as problem:
        if isinstance(problem, (FileNotFoundError, IsADirectoryError, NotADirectoryError)) and not written:
            raise AttachmentNotFound(path) from None
        if problem.errno == ENOSPC:
            raise DatabaseFull("no space left for files; nothing was written: free some space") from None
        why = "check files= (PALAVER_FILES), and the rights of the folder"
        raise EngineUnavailable(f"the files cannot be reached ({type(problem).__name__}): {why}") from None
