"""A turn that is durable while it is written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, Unpack

from palaver.conversations.live_buffer import Unflushed
from palaver.core.concurrency import run_in_strides, run_uncancelled
from palaver.core.turn_options import StreamOptions
from palaver.core.validation import MAX_CONTENT, clean_text
from palaver.errors import EngineUnavailable, InvalidInput, PalaverError, StreamSealed, TooLarge
from palaver.model import Role, TokenUsage, ToolCall, Turn
from palaver.ports.queries import StreamChunk

if TYPE_CHECKING:
    from palaver.redaction.stream import StreamRedactor


class Appender(Protocol):
    """Stores a turn as a whole."""

    async def append(self, role: Role, content: str = "", **fields: Unpack[StreamOptions]) -> Turn: ...


class Streams(Protocol):
    """Stores a turn piece by piece, here or on a server. A turn is sealed as aborted `lease` seconds after the last."""

    @property
    def conversation(self) -> str: ...

    @property
    def lease(self) -> float: ...

    async def open(self, role: Any, **fields: Any) -> Turn: ...

    async def send(self, turn: str, chunk: StreamChunk) -> int: ...

    async def renew(self, turn: Turn | str) -> None: ...

    async def commit(self, turn: Turn, text: str, tail: StreamChunk | None, final: Mapping[str, Any]) -> Turn: ...

    async def abort(self, turn: str, tail: StreamChunk | None) -> Turn: ...


class TurnWriter:
    """Writes one turn piece by piece: `async with talk.stream("assistant") as out: await out.write(…)`.

    Pieces are collected and stored together, at most `flush` seconds after they were written. At the end of the block,
    the turn is committed. If an exception or a cancellation ends the block, the turn is sealed as `aborted`, and the
    text so far is kept. After the block, `write` raises `StreamSealed`.

    `turn` is the stored turn: pending in the block, in its final state after it. With `flush="end"`, it is None in the
    block.
    """

    def __init__(
        self,
        streams: Streams,
        appender: Appender,
        live: Unflushed,
        role: Role,
        *,
        flush: float | Literal["end"],
        options: StreamOptions,
        redactor: StreamRedactor | None = None,
    ) -> None:
        if flush != "end" and (isinstance(flush, str | bool) or flush < 0):
            raise InvalidInput("flush", 'must be seconds, zero or more, or "end"')
        self.turn: Turn | None = None
        self._state: Literal["new", "open", "ended"] = "new"
        self._streams, self._appender, self._live, self._redactor = streams, appender, live, redactor
        self._role, self._flush, self._options = role, flush, options
        self._final: dict[str, Any] = {}
        self._stored: list[str] = []
        self._unsent = ""  # chunk number `_chunk`, on its way: a retry must send exactly the same text
        self._buffer: list[str] = []
        self._size = 0  # bytes of all that was written, kept or not
        self._chunk = 0
        self._dirty = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: PalaverError | None = None
        self._writing = asyncio.Lock()
        self._feeding = asyncio.Lock()  # pieces reach the redactor in their order
        self._conversation = streams.conversation

    @property
    def text(self) -> str:
        """The text that was written so far."""
        return "".join([*self._stored, self._unsent, *self._buffer])

    def finish(
        self,
        *,
        tokens: TokenUsage | Mapping[str, int | None] | None = None,
        model: str | None = None,
        adapter: str | None = None,
        finish_reason: str | None = None,
        tool_calls: Sequence[ToolCall | Mapping[str, object]] | None = None,
        sources: Sequence[Mapping[str, object]] | None = None,
        metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Set fields that become known only at the end; see `TurnOptions`. They are stored with the commit."""
        if self._state == "ended":
            raise self._refusal()
        given = {
            "tokens": tokens, "model": model, "adapter": adapter, "finish_reason": finish_reason,
            "tool_calls": tool_calls, "sources": sources, "metadata": metadata,
        }  # fmt: skip
        self._final.update({name: value for name, value in given.items() if value is not None})

    async def write(self, text: str) -> None:
        """Add text to the end of the turn. It is stored at the next flush."""
        if self._state != "open":
            raise self._refusal()
        if self._failure is not None:
            raise self._failure
        text = clean_text("text", text)
        if self._redactor is not None:
            text = await self._feed(self._redactor, text)
        if text:
            self._size += len(text.encode())
            if self._size > MAX_CONTENT:
                raise self._overflow(text)
            self._buffer.append(text)
            self._dirty.set()
            if self.turn is not None:
                self._live.wrote(self._conversation, self.turn.id, text)

    async def _feed(self, redactor: StreamRedactor, text: str) -> str:
        async with self._feeding:
            return await run_in_strides(lambda: redactor.feed(text), len(text))

    def _overflow(self, text: str) -> TooLarge:
        """Keep the part of the piece that still fits into the turn. The stream has failed and will be aborted."""
        piece = text.encode()
        room = max(0, MAX_CONTENT + len(piece) - self._size)
        self._buffer.append(piece[:room].decode(errors="ignore"))  # without half a character
        self._failure = TooLarge("content", size=self._size, limit=MAX_CONTENT, unit="bytes")
        return self._failure

    def _take_rest(self, text: str) -> None:
        """Take the text that the redactor held back until the end."""
        self._size += len(text.encode())
        if self._size > MAX_CONTENT:
            self._overflow(text)
        else:
            self._buffer.append(text)

    def _refusal(self) -> PalaverError:
        """Return the error for a write outside the block."""
        if self._state == "new":
            return InvalidInput("stream", "is not open yet: write inside `async with talk.stream(…) as out`")
        if self.turn is not None and self.turn.status != "pending":
            return StreamSealed(self.turn.id, self.turn.status)
        return InvalidInput("stream", "has ended and accepts no more text: start another with talk.stream(…)")

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise InvalidInput(
                "stream", "was already used, and writes one turn only: start another with talk.stream(…)"
            )
        if self._flush != "end":
            await self._open()
        self._state = "open"
        return self

    async def _open(self) -> None:
        try:
            await run_uncancelled(self._add_turn())
        except asyncio.CancelledError as problem:  # nobody will write to it: it need not wait for the end of its lease
            if self.turn is not None:
                await run_uncancelled(self._abort(problem))
            raise
        assert self.turn is not None
        self._live.opened(self._conversation, self.turn.id)
        self._tasks = [asyncio.create_task(self._flush_now_and_then()), asyncio.create_task(self._keep_lease())]

    async def _add_turn(self) -> None:
        self.turn = await self._streams.open(self._role, **self._options)

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state = "ended"
        # Even when this task is being cancelled, the text so far must reach the disk first.
        await run_uncancelled(self._end(problem))

    async def _end(self, problem: BaseException | None) -> None:
        try:
            await self._stop_tasks()
            if self._redactor is not None:
                self._take_rest(self._redactor.finish())
            if problem is None:
                await self._commit_or_abort()
            else:
                await self._abort(problem)
        finally:
            if self.turn is not None:
                self._live.sealed(self._conversation, self.turn.id)

    async def _commit_or_abort(self) -> None:
        """Commit the turn. If the commit is refused because of an argument of `finish`, abort the turn."""
        try:
            await self._commit()
        except InvalidInput as problem:
            await self._abort(problem)
            raise

    async def _commit(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self.turn is None:
            self.turn = await self._appender.append(self._role, self.text, **{**self._options, **self._final})
            return
        await self._send()
        tail = StreamChunk(n=self._chunk, text="".join(self._buffer))
        self.turn = await self._streams.commit(self.turn, self.text, tail, self._final)

    async def _abort(self, problem: BaseException | None) -> None:
        try:
            if self.turn is None:
                await self._add_turn()
            assert self.turn is not None
            await self._send()
            tail = StreamChunk(n=self._chunk, text="".join(self._buffer))
            self.turn = await self._streams.abort(self.turn.id, tail)
        except PalaverError as second:
            if problem is not None:
                problem.add_note(f"and the stream could not be sealed: {second}")

    async def _flush_now_and_then(self) -> None:
        assert not isinstance(self._flush, str)
        try:
            while True:
                await self._dirty.wait()
                await asyncio.sleep(self._flush)
                await self._write_out()
        except PalaverError as problem:
            self._failure = problem  # the next write raises it

    async def _write_out(self) -> None:
        async with self._writing:
            self._dirty.clear()
            if not self._unsent:
                self._unsent, self._buffer = "".join(self._buffer), []
            try:
                await self._send()
            except EngineUnavailable:
                self._dirty.set()  # tried again after the next pause; nothing is dropped

    async def _send(self) -> None:
        if self._unsent and self.turn is not None:
            await self._streams.send(self.turn.id, StreamChunk(n=self._chunk, text=self._unsent))
            self._stored.append(self._unsent)
            self._unsent = ""
            self._chunk += 1

    async def _keep_lease(self) -> None:
        """Renew the lease regularly, even if the model sends no text."""
        assert self.turn is not None
        try:
            while True:
                await asyncio.sleep(self._streams.lease / 3)
                try:
                    await self._streams.renew(self.turn)
                except EngineUnavailable:
                    continue  # busy now; the lease holds for two more tries
        except PalaverError as problem:
            self._failure = problem

    async def _stop_tasks(self) -> None:
        """Wait for a running flush, so that chunk numbers and text agree. Then cancel the tasks."""
        if not self._tasks:
            return
        async with self._writing:
            for task in self._tasks:
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
