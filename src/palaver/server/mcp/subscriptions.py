"""Subscriptions to conversations: turns the live feed into "resource updated" notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

from palaver.conversations.conversation import Conversation
from palaver.errors import Gone, NotFound, PermissionDenied
from palaver.server.live.channel import ChannelHub, Closed
from palaver.server.live.frames import FeedPosition

MAX_SUBSCRIPTIONS = 100  # per connection
SILENT = ("delta", "chunk", "stop")  # pending text is not notified until it is complete

Notify = Callable[[str], Awaitable[None]]
Check = Callable[[], Awaitable[None]]


async def always_allowed() -> None:
    """Always allow access, for a host whose caller cannot lose it."""


@dataclass(slots=True)
class Subscriptions:
    """The conversations that one connection follows, by URI."""

    hub: ChannelHub
    notify: Notify
    check: Check = always_allowed
    heartbeat: float = 15.0
    _tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, uri: str, talk: Conversation) -> None:
        """Follow a conversation from the state in which it was read."""
        if uri not in self._tasks:
            task = asyncio.create_task(self._follow(uri, talk), name="palaver-mcp-following")
            self._tasks[uri] = task
            task.add_done_callback(partial(self._forget_task, uri))

    def _forget_task(self, uri: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(uri) is task:
            del self._tasks[uri]
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it

    async def drop(self, uri: str) -> None:
        task = self._tasks.pop(uri, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        for uri in list(self._tasks):
            await self.drop(uri)

    async def wait(self) -> None:
        """Wait until every feed has ended."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _follow(self, uri: str, talk: Conversation) -> None:
        async def check() -> None:
            await self.check()
            await talk.refresh()

        try:
            async with self.hub.channel(talk.info.tenant, talk.id) as channel:
                async for sent in channel.follow_while(FeedPosition(talk.info.last_event), self.heartbeat, check):
                    if sent is not None and sent[0].kind not in SILENT:
                        await self.notify(uri)
        except Gone:
            await self.notify(uri)  # the next read reports that it is gone
        except (Closed, NotFound, PermissionDenied):
            pass  # the server is stopping, or the caller lost access
