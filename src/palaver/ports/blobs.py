"""The port for the storage of file bytes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Protocol


class Blobs(Protocol):
    """Stores the bytes of attachments. A path consists of plain names and slashes."""

    async def put(self, path: str, data: bytes) -> None: ...

    async def get(self, path: str) -> bytes: ...

    async def get_range(self, path: str, start: int, end: int) -> bytes: ...

    async def size(self, path: str) -> int: ...

    async def delete(self, path: str) -> None:
        """Delete a file. Deleting one that does not exist is not an error."""
        ...

    def listed(self) -> AsyncIterator[tuple[str, datetime]]:
        """Iterate over every file and the time when it was stored."""
        ...

    async def upload_url(self, path: str, seconds: int) -> str | None:
        """Return a URL where this one file may be uploaded for `seconds`. None: the bytes must pass through Palaver."""
        ...
