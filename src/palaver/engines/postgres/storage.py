"""Attachments in Supabase Storage: a private bucket, whose policies are in storage.sql."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import httpx
from storage3 import AsyncStorageClient
from storage3.exceptions import StorageApiError

from palaver.engines.postgres.supabase_transport import Project
from palaver.errors import AttachmentNotFound, EngineError, EngineUnavailable, PalaverError, TokenRefused
from palaver.ports.engine import Token

if TYPE_CHECKING:
    from storage3._async.file_api import AsyncBucketProxy


BUCKET = "chat-attachments"


class StorageBlobs:
    """The bucket, as one caller. Each request carries the caller's token, as in the transport."""

    def __init__(self, project: Project, token: Token | None) -> None:
        self.project, self.token = project, token

    async def put(self, path: str, data: bytes) -> None:
        bucket = await self._bucket()
        with _translate_errors(path):
            await bucket.upload(path, data, {"content-type": "application/octet-stream"})

    async def get(self, path: str) -> bytes:
        bucket = await self._bucket()
        with _translate_errors(path):
            found: bytes = await bucket.download(path)
            return found

    async def get_range(self, path: str, start: int, end: int) -> bytes:
        return (await self.get(path))[start:end]

    async def size(self, path: str) -> int:
        return len(await self.get(path))

    async def listed(self) -> AsyncIterator[tuple[str, datetime]]:
        """Yield nothing: the rows say which files a caller may see."""
        return
        yield

    async def upload_url(self, path: str, seconds: int) -> str | None:
        return None

    async def delete(self, path: str) -> None:
        """Delete a file. One that the policies hide is treated as missing; the rows never name such a file."""
        bucket = await self._bucket()
        with _translate_errors(path):
            await bucket.remove([path])

    async def _bucket(self) -> AsyncBucketProxy:
        client = self.project.client
        bearer = await self.project.bearer(self.token)
        headers = dict(client.options.headers)
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        assert client.options.httpx_client is not None
        own = AsyncStorageClient(str(client.storage_url), headers, http_client=client.options.httpx_client)
        return own.from_(BUCKET)


@contextmanager
def _translate_errors(path: str) -> Iterator[None]:
    try:
        yield
    except StorageApiError as problem:
        raise _error_for(str(problem.status), str(problem.code).lower(), path) from None
    except (httpx.HTTPError, OSError, TimeoutError) as problem:
        raise EngineUnavailable(f"the project's storage cannot be reached ({type(problem).__name__})") from None


def _error_for(status: str, code: str, path: str) -> PalaverError:
    if status == "404" and "bucket" in code:
        return EngineError(f"the project has no bucket {BUCKET!r}: see docs/how-to/supabase.md")
    if status == "404" or code == "not_found":
        return AttachmentNotFound(path)
    if status in ("401", "403"):
        return TokenRefused(f"the storage rejected the token (status {status})")
    if status == "429" or status.startswith("5"):
        return EngineUnavailable(f"the project's storage failed (status {status})")
    return EngineError(f"the project's storage rejected the request (status {status})")
