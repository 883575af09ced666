"""Storage of attachments in an S3-compatible bucket, through obstore (the extra `s3`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from palaver.errors import AttachmentNotFound, EngineError, EngineUnavailable, InvalidInput, MissingExtra

if TYPE_CHECKING:
    from obstore.store import S3Store

BUCKET_SECONDS = 60
SAVED_NOT_SHOWN: Any = {"Content-Disposition": "attachment", "Content-Type": "application/octet-stream"}


class BucketBlobs:
    """An S3-compatible bucket. Its files are served as downloads, so that a browser does not render them."""

    def __init__(self, bucket: str, prefix: str, options: dict[str, str]) -> None:
        self.bucket, self.prefix, self.options = bucket, prefix, options
        require_obstore()

    @cached_property
    def store(self) -> S3Store:
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
        with translate_errors(path, written=True):
            await self.store.put_async(path, data, attributes=SAVED_NOT_SHOWN)

    async def get(self, path: str) -> bytes:
        with translate_errors(path):
            found = await self.store.get_async(path)
            return bytes(await found.bytes_async())

    async def get_range(self, path: str, start: int, end: int) -> bytes:
        with translate_errors(path):
            return bytes(await self.store.get_range_async(path, start=start, end=end))

    async def size(self, path: str) -> int:
        with translate_errors(path):
            return int((await self.store.head_async(path))["size"])

    async def delete(self, path: str) -> None:
        try:
            with translate_errors(path):
                await self.store.delete_async(path)
        except AttachmentNotFound:
            pass  # then it is deleted

    async def listed(self) -> AsyncIterator[tuple[str, datetime]]:
        """Yield the path and the modification time of every file."""
        with translate_errors(""):
            async for page in self.store.list():
                for one in page:
                    yield one["path"], one["last_modified"]

    async def upload_url(self, path: str, seconds: int) -> str | None:
        """Return a URL to which this one file can be uploaded for some seconds."""
        import obstore

        with translate_errors(path):
            return await obstore.sign_async(self.store, "PUT", path, timedelta(seconds=seconds))


def require_obstore() -> None:
    """Raise `MissingExtra` where a bucket is named and obstore is not installed. It is loaded at the first file."""
    if find_spec("obstore") is None:
        raise MissingExtra("s3", "Files in a bucket")


@contextmanager
def translate_errors(path: str, *, written: bool = False) -> Iterator[None]:
    """Translate errors of the object store: their messages may contain keys, addresses and paths."""
    from obstore.exceptions import BaseError

    try:
        yield
    except FileNotFoundError:
        raise (EngineError("the bucket does not exist") if written else AttachmentNotFound(path)) from None
    except (ValueError, TypeError):  # which of them depends on the call
        raise InvalidInput("path", "is outside the bucket") from None
    except (BaseError, OSError) as problem:
        why = "check files= (PALAVER_FILES), and the bucket's keys in the environment"
        raise EngineUnavailable(f"the files cannot be reached ({type(problem).__name__}): {why}") from None
