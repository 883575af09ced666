"""Server-sent events: encodes frames, keeps connections alive, closes streams in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

from starlette.responses import StreamingResponse

from palaver.server import wire

RETRY_MILLISECONDS = 2_000
PING = b": ping\n\n"
HEADERS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a proxy must not buffer
}


def frame(kind: str, data: Mapping[str, object] | bytes, id: str | None = None) -> bytes:
    """Encode one event. The data is JSON on one line."""
    head = f"event: {kind}\n" + (f"id: {id}\n" if id is not None else "")
    return b"%sdata: %s\n\n" % (head.encode(), data if isinstance(data, bytes) else wire.encode(data))


class EventStream(StreamingResponse):
    """A response made of frames. It starts before the first frame."""

    media_type = "text/event-stream"

    def __init__(
        self, frames: AsyncIterator[bytes], headers: Mapping[str, str] | None = None, *, with_retry: bool = True
    ) -> None:
        # Without for clients of other protocols: they treat a frame with only `retry` as broken.
        super().__init__(_with_retry_hint(frames) if with_retry else frames, headers={**HEADERS, **(headers or {})})


async def _with_retry_hint(frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield f"retry: {RETRY_MILLISECONDS}\n\n".encode()
    async for one in frames:
        yield one


async def keep_alive(frames: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    """Yield the frames, and a comment after each silence of `seconds`."""
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
