"""Attachments in Supabase Storage: a private bucket, whose policies are in storage.sql."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import httpx
from storage3 import AsyncStorageClient
from storage3.exceptions import StorageApiError

from palaver.errors import AttachmentNotFound, EngineError, EngineUnavailable, TokenRefused
from palaver.ports.engine import Token

if TYPE_CHECKING:
    from palaver.engines.postgres.supabase import Project

BUCKET = "chat-attachments"


class StorageBlobs:
    """One caller's way to the bucket. The token goes with the request, as in the transport."""

    def __init__(self, project: Project, token: Token | None) -> None:
        self.project, self.token = project, token

    async def put(self, path: str, data: bytes) -> None:
        bucket = await self._bucket()
        with _translated(path):
            await bucket.upload(path, data, {"content-type": "application/octet-stream"})

    async def get(self, path: str) -> bytes:
        bucket = await self._bucket()
        with _translated(path):
            found: bytes = await bucket.download(path)
            return found

    async def get_range(self, path: str, start: int, end: int) -> bytes:
        return (await self.get(path))[start:end]

    async def size(self, path: str) -> int:
        return len(await self.get(path))

    async def listed(self) -> AsyncIterator[tuple[str, datetime]]:
        """Nothing: what a caller sees of the bucket is what the rows say."""
        return
        yield

    async def upload_url(self, path: str, seconds: int) -> str | None:
        return None

    async def delete(self, path: str) -> None:
        """A file that the policies hide looks like one that is not there; nobody is told to delete such a one."""
        bucket = await self._bucket()
        with _translated(path):
            await bucket.remove([path])

    async def _bucket(self) -> Any:
        client = self.project.client
        bearer = await self.project.bearer(self.token)
        headers = dict(client.options.headers)
        if bearer is not None:
            headers["Authorization"] = f"Bearer {bearer}"
        assert client.options.httpx_client is not None
        own = AsyncStorageClient(str(client.storage_url), headers, http_client=client.options.httpx_client)
        return own.from_(BUCKET)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except StorageApiError as problem:
        raise _failure(str(problem.status), str(problem.code).lower(), path) from None
    except (httpx.HTTPError, OSError, TimeoutError) as problem:
        raise EngineUnavailable(f"the project's storage is out of reach ({type(problem).__name__})") from None


def _failure(status: str, code: str, path: str) -> Exception:
    if status == "404" and "bucket" in code:
        return EngineError(f"the project has no bucket {BUCKET!r}: see docs/supabase.md")
    if status == "404" or code == "not_found":
        return AttachmentNotFound(path)
    if status in ("401", "403"):
        return TokenRefused(f"the storage refuses this token (status {status})")
    if status == "429" or status.startswith("5"):
        return EngineUnavailable(f"the project's storage could not answer (status {status})")
    return EngineError(f"the project's storage refuses this (status {status})")
