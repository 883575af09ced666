"""Routes of live events, of one conversation or of many, and of tickets for clients that cannot send a header."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Annotated

from fastapi import Header, Query
from starlette.responses import Response

from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import engine_of
from palaver.core.rights import require_right
from palaver.errors import EngineUnavailable, Gone, NotFound
from palaver.model import READ
from palaver.ports.queries import EventQuery
from palaver.server.auth import Caller
from palaver.server.components import Services
from palaver.server.dependencies import CallerDep, ConversationDep, Reply, ServicesDep, StoreDep
from palaver.server.errors import Refusal
from palaver.server.live import sse
from palaver.server.live.channel import Channel, Closed
from palaver.server.live.frames import FeedPosition, Frame

LastEventId = Annotated[
    str | None,
    Header(max_length=20_000, description="The `id:` of the last frame. EventSource sends it when it reconnects."),
]
AfterPoint = Annotated[
    str | None,
    Query(
        max_length=20_000,
        description="An event number, or the `id:` of a frame. Default: 0, the start of the log.",
    ),
]
TicketOf = Annotated[
    str | None,
    Query(max_length=20_000, description="A ticket of `POST /api/tickets`, instead of an `Authorization` header."),
]
SILENCE = (Frame("silence", 0, {}), "")
QUEUED = 64  # frames of a multiplexed stream that may wait for a slow client


async def create_ticket(services: ServicesDep, store: StoreDep, caller: CallerDep) -> Response:
    """Create a short-lived ticket to read events. It is for EventSource in browsers, which cannot send a key."""
    require_right(store.scope, READ)
    ticket = services.authenticator.ticket(caller)
    return Reply({"ticket": ticket, "expires_in": services.settings.ticket_seconds}, 201)


async def follow_conversation(
    services: ServicesDep,
    caller: CallerDep,
    talk: ConversationDep,
    after: AfterPoint = None,
    last_event_id: LastEventId = None,
    ticket: TicketOf = None,
) -> Response:
    """Stream the events of a conversation as server-sent events: first the stored ones after a position, then live.

    - `append`, `open`, `delta`, `commit` and `abort` are about turns. The `delta` frames of a turn make up its text.
      `commit` and `abort` have the whole turn.
    - `reset`: the position is not in this log. Read the turns again.
    - `gone`, `denied` and `closing` are the last frame of a stream. After `closing`, connect again with the `id:` of
      the last frame, or with the `after` in its data.
    - Every other frame has the name of its kind of event in the log.
    """
    services.check_stream_limit(caller)
    feed = _Feed(services, caller, talk)
    await feed.begin(last_event_id if last_event_id is not None else after)
    return _stream(services, caller, feed.encoded_frames())


async def follow_conversations(
    services: ServicesDep,
    store: StoreDep,
    caller: CallerDep,
    conversation: Annotated[
        list[str], Query(min_length=1, max_length=100, description="The ids of the conversations, at most 100.")
    ],
    after: AfterPoint = None,
    last_event_id: LastEventId = None,
    ticket: TicketOf = None,
) -> Response:
    """Stream the events of several conversations on one connection.

    The data of each frame has the id of its conversation. An `id:` contains one position per conversation, in the order
    of the URL, separated by semicolons.
    """
    if len(conversation) > services.settings.max_feeds:
        limit = services.settings.max_feeds
        raise Refusal(413, f"at most {limit} conversations", field="conversation", limit=limit, size=len(conversation))
    services.check_stream_limit(caller)
    names = list(dict.fromkeys(conversation))
    feeds = [_Feed(services, caller, await store.get(one)) for one in names]
    points = (last_event_id if last_event_id is not None else after or "").split(";")
    for feed, point in zip(feeds, points + [""] * (len(feeds) - len(points)), strict=False):
        await feed.begin(point or None)
    return _stream(services, caller, _merge_feeds(feeds))


class _Feed:
    """One conversation, for one reader."""

    def __init__(self, services: Services, caller: Caller, talk: Conversation) -> None:
        self.services, self.caller, self.talk = services, caller, talk
        self.point = FeedPosition()
        self.is_lost = False

    async def begin(self, point: str | None) -> None:
        """Find the start position in the log. One that is not there leads to a reset."""
        found = FeedPosition() if point is None or point == "" else FeedPosition.parse(point)
        if found is not None and found.n:
            here = EventQuery(after=found.n - 1, limit=1)
            store = self.services.store.scoped(self.caller.scope)
            if not await engine_of(store).events(store.scope, self.talk.id, here):
                found = None
        self.is_lost = found is None
        self.point = found or FeedPosition(self.talk.info.last_event)

    async def check(self) -> None:
        """Raise if the caller may no longer read the conversation."""
        await self.services.authenticator.still_allowed(self.caller)
        await self.talk.refresh()

    async def frames(self) -> AsyncIterator[tuple[Frame, str] | None]:
        """Yield the frames, after a reset if the position was lost, and a last one that says why the stream ends.

        None stands for a silence.
        """
        if self.is_lost:
            yield Frame("reset", self.point.n, {"last_event": self.point.n}), str(self.point)
        try:
            async with AsyncExitStack() as stack:
                hub, silence = self.services.hub, self.services.settings.heartbeat
                channel: Channel = await stack.enter_async_context(hub.channel(self.talk.info.tenant, self.talk.id))
                async for sent in channel.follow_while(self.point, silence, self.check):
                    yield sent
        except (Closed, EngineUnavailable):  # the client resumes here, with another process or later
            yield Frame("closing", self.point.n, {"after": str(self.point)}), str(self.point)
        except Gone:
            yield Frame("gone", self.point.n, {}), str(self.point)
        except (NotFound, Refusal):
            yield Frame("denied", self.point.n, {}), str(self.point)

    async def encoded_frames(self) -> AsyncIterator[bytes]:
        async for sent in self.frames():
            yield sse.PING if sent is None else sse.frame(sent[0].kind, sent[0].encoded, sent[1])


def _stream(services: Services, caller: Caller, frames: AsyncIterator[bytes]) -> Response:
    async def count_reader() -> AsyncIterator[bytes]:
        with services.count_stream(caller):
            async with aclosing(frames):  # type: ignore[type-var]
                async for one in frames:
                    yield one

    return sse.EventStream(count_reader())


async def _merge_feeds(feeds: list[_Feed]) -> AsyncIterator[bytes]:
    """Merge the frames of all feeds as they arrive. Each id holds the positions of all feeds."""
    queue: asyncio.Queue[tuple[int, tuple[Frame, str] | Exception | None]] = asyncio.Queue(QUEUED)

    async def pump(number: int, feed: _Feed) -> None:
        try:
            async for sent in feed.frames():
                await queue.put((number, sent or SILENCE))
            await queue.put((number, None))
        except Exception as problem:  # otherwise the reader would wait for this feed for ever
            await queue.put((number, problem))

    points = [str(feed.point) for feed in feeds]
    tasks = [asyncio.create_task(pump(number, feed)) for number, feed in enumerate(feeds)]
    left = set(range(len(feeds)))
    try:
        while left:
            number, sent = await queue.get()
            if isinstance(sent, Exception):
                raise sent
            if sent is None:
                left.discard(number)
            elif sent is SILENCE:
                if number == min(left):  # one feed keeps the connection alive for all
                    yield sse.PING
            else:
                frame, points[number] = sent
                data = {**frame.data, "conversation": feeds[number].talk.id}
                yield sse.frame(frame.kind, data, ";".join(points))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
