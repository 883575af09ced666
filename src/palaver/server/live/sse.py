"""Server-sent events: frames as text, kept alive, ended in good order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.responses import StreamingResponse

from palaver.server.rest import wire

RETRY_MILLISECONDS = 2_000
PING = b": ping\n\n"
HEADERS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a proxy must not wait for more
}


def frame(kind: str, data: Mapping[str, Any] | bytes, id: str | None = None) -> bytes:
    """One event. The data is one line of JSON, which has no line breaks of its own."""
    head = f"event: {kind}\n" + (f"id: {id}\n" if id is not None else "")
    return b"%sdata: %s\n\n" % (head.encode(), data if isinstance(data, bytes) else wire.encode(data))


class EventStream(StreamingResponse):
    """A response made of frames. It begins at once, before the first of them."""

    media_type = "text/event-stream"

    def __init__(
        self, frames: AsyncIterator[bytes], headers: Mapping[str, str] | None = None, *, greeted: bool = True
    ) -> None:
        # The clients of other protocols take a frame that only says when to come back for a broken one.
        super().__init__(_greeted(frames) if greeted else frames, headers={**HEADERS, **(headers or {})})


async def _greeted(frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
    async for one in frames:
        yield one


async def kept_alive(frames: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    """The frames, and a comment after each silence."""
    upcoming: asyncio.Task[bytes | None] | None = None
    try:
        while True:
            upcoming = upcoming or asyncio.ensure_future(_next(frames))
            done, _ = await asyncio.wait([upcoming], timeout=seconds)
            if not done:
                yield PING
                continue
            found, upcoming = upcoming.result(), None
            if found is None:
                return
            yield found
    finally:
        if upcoming is not None:
            upcoming.cancel()
            await asyncio.gather(upcoming, return_exceptions=True)
        close = getattr(frames, "aclose", None)
        if close is not None:
            await close()


async def _next(frames: AsyncIterator[bytes]) -> bytes | None:
    return await anext(frames, None)
