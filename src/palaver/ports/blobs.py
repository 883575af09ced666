"""Where the bytes of files are stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Protocol


class Blobs(Protocol):
    """Keeps the bytes of attachments. A path is made of plain names and slashes."""

    async def put(self, path: str, data: bytes) -> None: ...

    async def get(self, path: str) -> bytes: ...

    async def get_range(self, path: str, start: int, end: int) -> bytes: ...

    async def size(self, path: str) -> int: ...

    async def delete(self, path: str) -> None:
        """Remove the file; one that is not there is removed already."""
        ...

    def listed(self) -> AsyncIterator[tuple[str, datetime]]:
        """Every file, and since when it is there."""
        ...

    async def upload_url(self, path: str, seconds: int) -> str | None:
        """Where anybody may put this one file, for so long. None: the bytes must come through us."""
        ...
