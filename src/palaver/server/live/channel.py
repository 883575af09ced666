"""Live feeds: each followed conversation is read once per process, for all its readers.

A `Channel` reads the log as it grows, and the text that writers of this process have not flushed yet, and keeps its
latest frames. A reader first catches up from the log, from its own position, and then shares the channel's frames. A
reader that is too slow for them goes back to the log. No reader waits for another.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress

from palaver.conversations.internals import components_of, engine_of, generation_of
from palaver.conversations.store import Store
from palaver.core.identity import stamped_seq
from palaver.errors import EngineUnavailable, StoreClosed, TurnNotFound
from palaver.model import Event, Scope, Turn
from palaver.ports.engine import Signal
from palaver.ports.queries import EventQuery
from palaver.server.live.frames import EVENTS_WITH_TURN, FeedPosition, Frame, FrameEncoder, ReaderCursor

PAGE = 500
KEPT_FRAMES = 512  # that readers of a channel share
PACE = 0.00005  # seconds per reader between two deltas: many readers get fewer, longer ones
LONGEST_PACE = 0.1
RETRY = 0.2  # seconds, if the database is busy


class Closed(Exception):
    """The server is shutting down. The reader can reconnect to another process, or later."""


class Channel:
    """The live feed of one conversation."""

    def __init__(self, store: Store, conversation: str, kept_frames: int = KEPT_FRAMES) -> None:
        # Readers were authorised one by one; the channel itself reads for all of them.
        self.store = store.scoped(Scope(store.scope.tenant, None, frozenset({"read"}), "tenant"))
        self.engine, self.conversation = engine_of(store), conversation
        self.unflushed = components_of(store).unflushed
        self.encoder = FrameEncoder(FeedPosition())
        self.frames: deque[Frame] = deque(maxlen=kept_frames)
        self.next_index = 0
        self.readers: set[asyncio.Event] = set()
        self.closed = False
        self._wake = asyncio.Event()
        self._log_grew = True
        self._failure: BaseException | None = None

    @property
    def point(self) -> FeedPosition:
        return self.encoder.point

    @property
    def first_index(self) -> int:
        return self.next_index - len(self.frames)

    # ---- one read for all readers

    async def start(self) -> None:
        """Start at the current end of the log, and note how much of each pending text the log has."""
        info = await self.engine.conversation(self.store.scope, self.conversation)
        self.point.n = info.last_event
        await self.note_pending_text(self.point)

    async def note_pending_text(self, point: FeedPosition) -> None:
        """Note in a position how much of each pending text the log had there."""
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
                relay = asyncio.create_task(self._wake_on_signal(signal))
                stack.callback(relay.cancel)
                while not (self.frames and self.frames[-1].is_last):
                    await self._read_once()
        except Exception as problem:  # raised to the readers
            self._failure = problem
        finally:
            self.close()

    async def _wake_on_signal(self, signal: Signal) -> None:
        try:
            while True:
                await signal.wait()
                self._log_grew = True
                self._wake.set()
        except StoreClosed as problem:  # raised to the readers
            self._failure = problem
            self.close()

    async def _read_once(self) -> None:
        if self._log_grew or self._has_unknown_writers():
            self._log_grew = False
            try:
                await self._read_log()
                if self._has_unknown_writers():  # one started while this channel opened
                    await self.note_pending_text(self.point)
            except EngineUnavailable:
                self._log_grew = True
                await asyncio.sleep(RETRY)
                return
        self.publish(self.unflushed_frames(self.encoder))
        await self._wake.wait()
        if self.readers:
            await asyncio.sleep(min(LONGEST_PACE, PACE * len(self.readers)))
        self._wake.clear()

    def _has_unknown_writers(self) -> bool:
        writers = self.unflushed.of(self.conversation)
        return any((stamped_seq(one.turn) or 0) not in self.point.marks for one in writers)

    async def _read_log(self) -> None:
        async for frames in self.catch_up(self.encoder):
            self.publish(frames)
            for frame in frames:
                if frame.kind == "stop":
                    # The request to stop may come from another process.
                    generation_of(self.store).stop(self.store.scope.tenant, self.conversation)

    def unflushed_frames(self, encoder: FrameEncoder) -> list[Frame]:
        return [
            frame
            for growing in self.unflushed.of(self.conversation)
            for frame in encoder.encode_unflushed(growing.turn, growing.since, growing.length)
        ]

    async def events(self, audit: EventQuery) -> list[Event]:
        return await self.engine.events(self.store.scope, self.conversation, audit)

    async def catch_up(self, encoder: FrameEncoder) -> AsyncIterator[list[Frame]]:
        """Yield frames up to the end of the log, a page at a time."""
        while page := await self.events(EventQuery(after=encoder.point.n, limit=PAGE)):
            yield encoder.encode_events(page, await self._turns_of_events(page))
            if len(page) < PAGE:
                return

    async def _turns_of_events(self, page: Iterable[Event]) -> dict[str, Turn]:
        ids = {event.turn for event in page if event.turn and event.kind in EVENTS_WITH_TURN}
        found = await asyncio.gather(*(self._find_turn(id) for id in ids))
        return {turn.id: turn for turn in found if turn is not None}

    async def _find_turn(self, id: str) -> Turn | None:
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

    # ---- one reader

    async def follow(self, point: FeedPosition, silence: float) -> AsyncGenerator[tuple[Frame, str] | None]:
        """Yield every frame after `point`, with the position after it; None after each silence of `silence` seconds.

        Ends with the conversation; raises Closed.
        """
        cursor, news = ReaderCursor(point), asyncio.Event()
        self.readers.add(news)
        try:
            while True:
                async for frame in self._frames_from_log(cursor):
                    yield frame, str(point)
                    if frame.is_last:
                        return
                # No await between the last read of the log and here, so nothing was missed.
                index, ahead = self.next_index, self.unflushed_frames(FrameEncoder(point.copy()))
                for frame in filter(None, map(cursor.new_part, ahead)):
                    yield frame, str(point)
                async for shared in self._shared_frames(cursor, index, news, silence):
                    yield None if shared is None else (shared, str(point))
                    if shared is not None and shared.is_last:
                        return
        finally:
            self.readers.discard(news)

    async def follow_while(
        self, point: FeedPosition, silence: float, check: Callable[[], Awaitable[None]]
    ) -> AsyncIterator[tuple[Frame, str] | None]:
        """Follow until `check` raises, because a key was revoked or the reader left the conversation.

        It is called in every silence, as often if there is none, and when the participants may have changed.
        """
        checked = time.monotonic()
        async with aclosing(self.follow(point, silence)) as frames:
            async for sent in frames:
                if sent is None or sent[0].kind == "update" or time.monotonic() - checked >= silence:
                    await check()
                    checked = time.monotonic()
                yield sent

    async def _frames_from_log(self, cursor: ReaderCursor) -> AsyncIterator[Frame]:
        """Yield frames from the log until the reader has reached the channel."""
        await self.note_pending_text(cursor.point)
        encoder = FrameEncoder(cursor.point.copy())
        while True:
            async for frames in self.catch_up(encoder):
                for frame in filter(None, map(cursor.new_part, frames)):
                    yield frame
                cursor.point.move_to(encoder.point)
            if cursor.point.n >= self.point.n:
                return

    async def _shared_frames(
        self, cursor: ReaderCursor, index: int, news: asyncio.Event, silence: float
    ) -> AsyncIterator[Frame | None]:
        """Yield frames of the channel until the reader falls behind; None after each silence."""
        while True:
            news.clear()
            while self.first_index <= index < self.next_index:
                try:
                    frame = cursor.new_part(self.frames[index - self.first_index])
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


class ChannelHub:
    """The open channels of this process, by tenant and conversation."""

    def __init__(self, store: Store, kept_frames: int = KEPT_FRAMES) -> None:
        self.store, self.kept_frames = store, kept_frames
        self._open: dict[tuple[str, str], tuple[Channel, asyncio.Task[None]]] = {}
        self._users: dict[tuple[str, str], int] = {}
        self._starting: dict[tuple[str, str], asyncio.Lock] = {}
        self.closing = False

    @asynccontextmanager
    async def channel(self, tenant: str, conversation: str) -> AsyncIterator[Channel]:
        """Open the channel of a conversation for the duration of the block. Rights must have been checked before."""
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
        channel = Channel(store, place[1], self.kept_frames)
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
        """Disconnect all readers. Called when the server starts to shut down."""
        self.closing = True
        for channel, _ in self._open.values():
            channel.close()

    @property
    def readers(self) -> int:
        return sum(len(channel.readers) for channel, _ in self._open.values())
