"""Live feeds: each conversation that somebody follows is read once, for all who follow it here.

A `Channel` reads the log as it grows and the text that writers of this process have ahead of it, and keeps its latest
frames. A reader first catches up from the log, from its own point on, and then shares the channel's frames. Whoever is
too slow for them goes back to the log. Nobody waits for anybody.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress

from palaver.conversations.store import Store
from palaver.core.identity import stamped_seq
from palaver.errors import EngineUnavailable, StoreClosed, TurnNotFound
from palaver.model import Event, Scope, Turn
from palaver.ports.engine import Signal
from palaver.ports.queries import EventQuery
from palaver.server.live.frames import TOLD_WITH_TURN, Frame, Point, Teller, Telling

PAGE = 500
KEPT = 512  # frames of a channel that readers share
PACE = 0.00005  # seconds between two rounds of live text, for each reader: many readers get fewer, longer pieces
LONGEST_PACE = 0.1
RETRY = 0.2  # seconds, when the database is busy


class Closed(Exception):
    """The server is shutting down: the reader may come back to another process, or later."""


class Channel:
    def __init__(self, store: Store, conversation: str) -> None:
        # Whoever reads from here was let in by name; the channel itself reads for all of them.
        self.store = store.scoped(Scope(store.scope.tenant, None, frozenset({"read"}), "tenant"))
        self.engine, self.conversation = store.engine, conversation
        self.unflushed = store.parts.unflushed
        self.teller = Teller(Point())
        self.frames: deque[Frame] = deque(maxlen=KEPT)
        self.next_index = 0
        self.readers: set[asyncio.Event] = set()
        self.closed = False
        self._wake = asyncio.Event()
        self._log_grew = True
        self._failure: BaseException | None = None

    @property
    def point(self) -> Point:
        return self.teller.point

    @property
    def first_index(self) -> int:
        return self.next_index - len(self.frames)

    # ---- reading once, for all

    async def start(self) -> None:
        """Begin at the end of the log as it is now. Texts that are being written are known from there on."""
        info = await self.engine.conversation(self.store.scope, self.conversation)
        self.point.n = info.last_event
        await self.know_writers(self.point)

    async def know_writers(self, point: Point) -> None:
        """How much of the growing texts the log had told at a point, for one who has not counted."""
        for growing in self.unflushed.of(self.conversation):
            seq = stamped_seq(growing.turn) or 0
            if seq not in point.marks:
                told = await self.events(EventQuery(turn=growing.turn, kinds=("open", "chunk"), limit=100_000))
                ends = [event.payload.get("to", 0) for event in told if event.n <= point.n]
                if ends:
                    point.marks[seq] = ends[-1]

    async def run(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                signal = await stack.enter_async_context(self.engine.watch(self.conversation))
                stack.enter_context(self.unflushed.listening(self.conversation, self._wake.set))
                relay = asyncio.create_task(self._relay(signal))
                stack.callback(relay.cancel)
                while not (self.frames and self.frames[-1].is_last):
                    await self._round()
        except Exception as problem:  # the readers are told; nobody else would be
            self._failure = problem
        finally:
            self.close()

    async def _relay(self, signal: Signal) -> None:
        try:
            while True:
                await signal.wait()
                self._log_grew = True
                self._wake.set()
        except StoreClosed as problem:  # before the server is: the readers are told
            self._failure = problem
            self.close()

    async def _round(self) -> None:
        if self._log_grew or self._has_unknown_writers():
            self._log_grew = False
            try:
                await self._read_log()
                if self._has_unknown_writers():  # one began while this channel was opened
                    await self.know_writers(self.point)
            except EngineUnavailable:
                self._log_grew = True
                await asyncio.sleep(RETRY)
                return
        self.publish(self.text_ahead(self.teller))
        await self._wake.wait()
        if self.readers:
            await asyncio.sleep(min(LONGEST_PACE, PACE * len(self.readers)))
        self._wake.clear()

    def _has_unknown_writers(self) -> bool:
        writers = self.unflushed.of(self.conversation)
        return any((stamped_seq(one.turn) or 0) not in self.point.marks for one in writers)

    async def _read_log(self) -> None:
        async for frames in self.catch_up(self.teller):
            self.publish(frames)
            for frame in frames:
                if frame.kind == "stop":
                    self._stop_answers()

    def _stop_answers(self) -> None:
        """Somebody has asked, perhaps another process: the answers that are made here end with what came."""
        place = (self.store.scope.tenant, self.conversation)
        for one in tuple(self.store.parts.generation.running.get(place, ())):
            one.stop()

    def text_ahead(self, teller: Teller) -> list[Frame]:
        return [
            frame
            for growing in self.unflushed.of(self.conversation)
            for frame in teller.written(growing.turn, growing.since, growing.length)
        ]

    async def events(self, audit: EventQuery) -> list[Event]:
        return await self.engine.events(self.store.scope, self.conversation, audit)

    async def catch_up(self, teller: Teller) -> AsyncIterator[list[Frame]]:
        """Frames from the log until there is no more, a page at a time."""
        while page := await self.events(EventQuery(after=teller.point.n, limit=PAGE)):
            yield teller.page(page, await self._turns(page))
            if len(page) < PAGE:
                return

    async def _turns(self, page: Iterable[Event]) -> dict[str, Turn]:
        ids = {event.turn for event in page if event.turn and event.kind in TOLD_WITH_TURN}
        found = await asyncio.gather(*(self._turn(id) for id in ids))
        return {turn.id: turn for turn in found if turn is not None}

    async def _turn(self, id: str) -> Turn | None:
        try:
            return await self.engine.turn(self.store.scope, self.conversation, id)
        except TurnNotFound:
            return None

    def publish(self, frames: list[Frame]) -> None:
        if frames:
            self.frames.extend(frames)
            self.next_index += len(frames)
            self.alert()

    def alert(self) -> None:
        for reader in self.readers:
            reader.set()

    def close(self) -> None:
        self.closed = True
        self.alert()

    # ---- each reader for itself

    async def follow(self, point: Point, silence: float) -> AsyncGenerator[tuple[Frame, str] | None]:
        """Every frame after `point`, each with the point after it; None after each silence of so many seconds.

        Ends with the conversation; raises Closed.
        """
        telling, news = Telling(point), asyncio.Event()
        self.readers.add(news)
        try:
            while True:
                async for frame in self._from_log(telling):
                    yield frame, str(point)
                    if frame.is_last:
                        return
                # From the last look at the log until here nothing came in between.
                index, ahead = self.next_index, self.text_ahead(Teller(point.copy()))
                for new in filter(None, map(telling.new, ahead)):
                    yield new, str(point)
                async for shared in self._shared(telling, index, news, silence):
                    yield None if shared is None else (shared, str(point))
                    if shared is not None and shared.is_last:
                        return
        finally:
            self.readers.discard(news)

    async def follow_while(
        self, point: Point, silence: float, check: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[tuple[Frame, str] | None]:
        """The same for as long as `check` does not raise: keys are revoked, and people leave conversations.

        It is asked in every silence, as often where there is none, and when those who take part may have changed.
        """
        checked = time.monotonic()
        async with aclosing(self.follow(point, silence)) as frames:
            async for told in frames:
                if told is None or told[0].kind == "update" or time.monotonic() - checked >= silence:
                    await check()
                    checked = time.monotonic()
                yield told

    async def _from_log(self, telling: Telling) -> AsyncIterator[Frame]:
        """Frames from the log until the reader is where the channel is."""
        await self.know_writers(telling.point)
        teller = Teller(telling.point.copy())
        while True:
            async for frames in self.catch_up(teller):
                for new in filter(None, map(telling.new, frames)):
                    yield new
                telling.point.go_to(teller.point)
            if telling.point.n >= self.point.n:
                return

    async def _shared(
        self, telling: Telling, index: int, news: asyncio.Event, silence: float
    ) -> AsyncIterator[Frame | None]:
        """Frames of the channel, until the reader has fallen behind; None when there was none for a while."""
        while True:
            news.clear()
            while self.first_index <= index < self.next_index:
                try:
                    frame = telling.new(self.frames[index - self.first_index])
                except LookupError:
                    return
                index += 1
                if frame is not None:
                    yield frame
            if index < self.first_index:
                return
            if self.closed:
                raise Closed from self._failure
            try:
                async with asyncio.timeout(silence):
                    await news.wait()
            except TimeoutError:
                yield None


class Hub:
    """The channels that are open here, by tenant and conversation."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._open: dict[tuple[str, str], tuple[Channel, asyncio.Task[None]]] = {}
        self._users: dict[tuple[str, str], int] = {}
        self._starting: dict[tuple[str, str], asyncio.Lock] = {}
        self.closing = False

    @asynccontextmanager
    async def channel(self, tenant: str, conversation: str) -> AsyncIterator[Channel]:
        """The feed of a conversation, while somebody is in this block. Whether they may read it was asked before."""
        place = (tenant, conversation)
        self._users[place] = self._users.get(place, 0) + 1
        try:
            async with self._starting.setdefault(place, asyncio.Lock()):
                channel = await self._channel(place)
            yield channel
        finally:
            self._users[place] -= 1
            if not self._users[place]:
                del self._users[place]
                self._starting.pop(place, None)
                await self._stop(place)

    async def _channel(self, place: tuple[str, str]) -> Channel:
        if self.closing:
            raise Closed
        known = self._open.get(place)
        if known is not None and not known[0].closed:
            return known[0]
        store = self.store.scoped(Scope.of(place[0], None))
        channel = Channel(store, place[1])
        await channel.start()
        task = asyncio.create_task(channel.run(), name="palaver-channel")
        self._open[place] = (channel, task)
        return channel

    async def _stop(self, place: tuple[str, str]) -> None:
        known = self._open.pop(place, None)
        if known is not None:
            known[1].cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(known[1], return_exceptions=True)

    def close(self) -> None:
        """Tell all readers to leave. Called when the server begins to shut down."""
        self.closing = True
        for channel, _ in self._open.values():
            channel.close()

    @property
    def readers(self) -> int:
        return sum(len(channel.readers) for channel, _ in self._open.values())
