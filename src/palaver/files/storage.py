"""Storage of attachments: a folder, or an S3-compatible bucket, both through obstore."""

from __future__ import annotations

import asyncio
import os
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from errno import ENOSPC
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit

from palaver.core.identity import file_hash
from palaver.errors import (
    AttachmentNotFound,
    DatabaseFull,
    EngineError,
    EngineUnavailable,
    FilesNotConfigured,
    InvalidInput,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore

MAX_FOLDER = 200  # characters; file systems allow 255 bytes
STAGED = "uploads"  # the folder, inside a conversation's, of unfinished uploads
LEFT_OVER = timedelta(days=1)
BUCKET_SECONDS = 60
BUCKET_OPTIONS = ("endpoint", "region", "virtual_hosted_style_request")
SAVED_NOT_SHOWN: Any = {"Content-Disposition": "attachment", "Content-Type": "application/octet-stream"}
_EXTENSION = re.compile(r"\.[a-z0-9]{1,10}$")
_HALF_WRITTEN = re.compile(r"#\d+$")  # the suffix of a file that is being written


def blob_folder(user: str, conversation: str) -> str:
    """Return `{user_id}/{conversation_id}`, escaped so that a user id cannot leave the folder."""
    folder = quote(user, safe="@ ").replace(".", "%2E") if user.strip(".") != user else quote(user, safe="@ ")
    if len(folder) > MAX_FOLDER:
        folder = f"{folder[:100]}-{file_hash(user.encode())}"
    return f"{folder or '_'}/{conversation}"


def blob_path(user: str, conversation: str, filename: str) -> str:
    """Return a new path, `{user_id}/{conversation_id}/{uuid.ext}`."""
    extension = _EXTENSION.search(filename.lower())
    return f"{blob_folder(user, conversation)}/{uuid.uuid4()}{extension.group() if extension else ''}"


def open_blobs(place: Path | str) -> ObjectBlobs:
    """Open a folder, or `s3://bucket/prefix?endpoint=…&region=…` with the AWS keys of the environment."""
    if not isinstance(place, str) or "://" not in place:
        return FolderBlobs(Path(place))
    parts = urlsplit(place)
    if parts.scheme != "s3" or not parts.netloc:
        raise InvalidInput("files", "must be a folder, or s3://bucket/prefix")
    options = dict(parse_qsl(parts.query))
    if unknown := options.keys() - set(BUCKET_OPTIONS):
        raise InvalidInput("files", f"{sorted(unknown)[0]} is not known; there are {', '.join(BUCKET_OPTIONS)}")
    return BucketBlobs(parts.netloc, parts.path.strip("/"), options)


class ObjectBlobs:
    """One object per file, written whole or not at all. Subclasses provide `store`."""

    @cached_property
    def store(self) -> ObjectStore:
        raise NotImplementedError

    async def put(self, path: str, data: bytes) -> None:
        with _translate_errors(path, written=True):
            await self.store.put_async(path, data)

    async def get(self, path: str) -> bytes:
        with _translate_errors(path):
            found = await self.store.get_async(path)
            return bytes(await found.bytes_async())

    async def get_range(self, path: str, start: int, end: int) -> bytes:
        with _translate_errors(path):
            return bytes(await self.store.get_range_async(path, start=start, end=end))

    async def size(self, path: str) -> int:
        with _translate_errors(path):
            return int((await self.store.head_async(path))["size"])

    async def delete(self, path: str) -> None:
        try:
            with _translate_errors(path):
                await self.store.delete_async(path)
        except AttachmentNotFound:
            pass  # then it is deleted

    async def listed(self) -> AsyncIterator[tuple[str, datetime]]:
        """Yield the path and the modification time of every file."""
        with _translate_errors(""):
            async for page in self.store.list():
                for one in page:
                    yield one["path"], one["last_modified"]

    async def upload_url(self, path: str, seconds: int) -> str | None:
        """Return a URL to which this one file can be uploaded for some seconds. None: only through the server."""
        return None


class FolderBlobs(ObjectBlobs):
    """A local folder. A stored file survives a power cut: it and its folders are synced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()  # the program may change its working directory

    @cached_property
    def store(self) -> ObjectStore:
        from obstore.store import LocalStore

        return LocalStore(prefix=self.folder, automatic_cleanup=True, mkdir=True)

    async def put(self, path: str, data: bytes) -> None:
        await super().put(path, data)
        await asyncio.to_thread(self._sync, self.folder / path.lstrip("/"))

    def _sync(self, file: Path) -> None:
        """Sync the file and every folder that leads to it: without them it is not durable."""
        for place in (file, *(self.folder / parent for parent in file.relative_to(self.folder).parents)):
            handle = os.open(place, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

    async def listed(self) -> AsyncIterator[tuple[str, datetime]]:
        if not self.folder.is_dir():
            return
        await asyncio.to_thread(self._drop_half_written)
        async for one in super().listed():
            yield one

    def _drop_half_written(self) -> None:
        """Delete files that a killed process left half written; no row refers to them."""
        long_ago = (datetime.now(UTC) - LEFT_OVER).timestamp()
        for file in self.folder.rglob("*#*"):
            if _HALF_WRITTEN.search(file.name) and file.is_file() and file.stat().st_mtime < long_ago:
                file.unlink(missing_ok=True)


class BucketBlobs(ObjectBlobs):
    """An S3-compatible bucket. Its files are served as downloads, so that a browser does not render them."""

    def __init__(self, bucket: str, prefix: str, options: dict[str, str]) -> None:
        self.bucket, self.prefix, self.options = bucket, prefix, options

    @cached_property
    def store(self) -> ObjectStore:
        from obstore.store import S3Store

        options: dict[str, Any] = {**self.options}
        local = options.get("endpoint", "").startswith("http://")
        return S3Store(
            self.bucket,
            prefix=self.prefix or None,
            client_options={"allow_http": local, "timeout": timedelta(seconds=BUCKET_SECONDS)},
            retry_config={"max_retries": 3, "retry_timeout": timedelta(seconds=BUCKET_SECONDS)},
            **options,
        )

    async def put(self, path: str, data: bytes) -> None:
        with _translate_errors(path, written=True):
            await self.store.put_async(path, data, attributes=SAVED_NOT_SHOWN)

    async def upload_url(self, path: str, seconds: int) -> str | None:
        import obstore

        store: Any = self.store
        with _translate_errors(path):
            return await obstore.sign_async(store, "PUT", path, timedelta(seconds=seconds))


class UnsetBlobs:
    """Stands in where no location for files was chosen: everything that needs one is refused."""

    async def put(self, path: str, data: bytes) -> None:
        raise FilesNotConfigured

    async def get(self, path: str) -> bytes:
        raise FilesNotConfigured

    async def get_range(self, path: str, start: int, end: int) -> bytes:
        raise FilesNotConfigured

    async def size(self, path: str) -> int:
        raise FilesNotConfigured

    async def delete(self, path: str) -> None:
        raise FilesNotConfigured  # the file may be in a location that another process knows

    async def listed(self) -> AsyncIterator[tuple[str, datetime]]:
        """Yield nothing: this store knows of no files."""
        nothing: tuple[tuple[str, datetime], ...] = ()
        for one in nothing:
            yield one

    async def upload_url(self, path: str, seconds: int) -> str | None:
        raise FilesNotConfigured


@contextmanager
def _translate_errors(path: str, *, written: bool = False) -> Iterator[None]:
    """Translate errors of the object store: their messages may contain keys, addresses and paths."""
    from obstore.exceptions import BaseError

    try:
        yield
    except FileNotFoundError:
        raise (EngineError("the bucket is not there") if written else AttachmentNotFound(path)) from None
    except (ValueError, TypeError):  # which of them depends on the call
        raise InvalidInput("path", "leads out of the folder") from None
    except (BaseError, OSError) as problem:
        if f"os error {ENOSPC}" in str(problem) or getattr(problem, "errno", None) == ENOSPC:
            raise DatabaseFull("no space left for files; nothing was written") from None
        raise EngineUnavailable(f"the files are out of reach ({type(problem).__name__})") from None
