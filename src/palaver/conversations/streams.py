"""Turns that arrive in pieces: opened, extended under a lease, and then committed or aborted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palaver.conversations.append import TurnAppender, batch_of
from palaver.conversations.arguments import check_keywords, turn_id
from palaver.conversations.handle import Handle
from palaver.conversations.redaction import LOST, HeldBackStreams, TurnRedaction
from palaver.conversations.storage_room import StorageRoom
from palaver.core.concurrency import run_in_strides
from palaver.core.strides import size_of
from palaver.core.turn_draft import DraftBuilder, check_size, clean_usage, encode_calls, encode_sources
from palaver.core.turn_options import SEAL_FIELDS
from palaver.core.validation import clean_count, clean_mapping, clean_role, clean_text, optional_name
from palaver.errors import InvalidInput, StreamMoved
from palaver.model import READ, WRITE, TokenUsage, Turn
from palaver.ports.queries import StreamChunk, StreamEnd
from palaver.telemetry import Meter

COMMIT_TRIES = 3


@dataclass(frozen=True, slots=True)
class TurnStreams:
    """The streams of one conversation."""

    handle: Handle
    appender: TurnAppender
    drafts: DraftBuilder
    redaction: TurnRedaction
    held_back: HeldBackStreams
    meter: Meter
    room: StorageRoom
    lease: float  # seconds that a writer may be silent

    @property
    def conversation(self) -> str:
        return self.handle.id

    @property
    def _lease_micros(self) -> int:
        return round(self.lease * 1_000_000)

    # ---- for writers that send each piece themselves

    async def open(
        self,
        role: str = "assistant",
        *,
        expected_seq: int | None = None,
        replaces: Turn | str | None = None,
        discard_after: bool = False,
        **fields: Any,
    ) -> Turn:
        if clean_role(role) == "tool":
            raise InvalidInput("role", "a tool turn cannot be streamed: append it with its tool_results")
        if "content" in fields:
            raise InvalidInput("content", "is sent in chunks, by append_chunk")
        self.handle.require(WRITE)
        self.handle.require_talk("stream")
        drafts = await self.appender.make_drafts([{"role": role, "content": "", **fields}])
        batch = batch_of(tuple(drafts), expected_seq, replaces, discard_after)
        await self.room.require_some()
        return await self.handle.engine.stream_open(self.handle.scope, self.handle.id, batch, self._lease_micros)

    async def append_chunk(self, turn: Turn | str, n: int, text: str) -> int:
        self.handle.require(WRITE)
        number = clean_count("n", n)
        if number is None:
            raise InvalidInput("n", "must be the number of the chunk")
        text = clean_text("text", text)
        id = turn_id("turn", turn)
        if self.redaction.is_on:
            return await self._append_redacted(id, number, text)
        return await self.send(id, StreamChunk(n=number, text=text))

    async def _append_redacted(self, turn: str, number: int, text: str) -> int:
        """Store the part of a piece that no later text can change; hold back the rest."""
        if turn not in self.held_back:
            await self.renew(turn)  # raises if the stream is sealed
        held = self.held_back.get_or_open(turn)
        async with held.lock:
            chunk = await run_in_strides(lambda: held.take(number, text), len(text))
            return await self.send(turn, chunk)

    async def append_commit(self, turn: Turn | str, final: Mapping[str, Any]) -> Turn:
        id = turn_id("turn", turn)
        self.handle.require(WRITE)
        check_keywords(final, SEAL_FIELDS, "known at the end of a stream")
        stored = await self._read(id)
        if self.redaction.is_on and stored.status == "pending":
            if stored.text and id not in self.held_back:
                raise InvalidInput("turn", LOST)
            await self._send_held_back(id)
        for _ in range(COMMIT_TRIES):
            stored = await self._read(id)
            try:
                sealed = await self.commit(stored, stored.text, None, final)
            except StreamMoved:
                continue  # another chunk arrived in between
            self.held_back.drop(id)
            return sealed
        raise StreamMoved(id)

    async def append_abort(self, turn: Turn | str) -> Turn:
        self.handle.require(WRITE)
        id = turn_id("turn", turn)
        if (await self._read(id)).status == "pending":
            await self._send_held_back(id)
        sealed = await self.abort(id, None)
        self.held_back.drop(id)
        return sealed

    async def _read(self, turn: str) -> Turn:
        self.handle.require(READ)
        return await self.handle.engine.turn(self.handle.scope, self.handle.id, turn)

    async def _send_held_back(self, turn: str) -> None:
        """Store the text that redaction still holds back as a last piece."""
        held = self.held_back.get(turn)
        if held is not None:
            async with held.lock:
                await self.send(turn, held.finish())

    # ---- for `TurnWriter`, too

    async def renew(self, turn: Turn | str) -> None:
        self.handle.require(WRITE)
        id = turn_id("turn", turn)
        await self.handle.engine.stream_renew(self.handle.scope, self.handle.id, id, self._lease_micros)

    async def send(self, turn: str, chunk: StreamChunk) -> int:
        return await self.handle.engine.stream_chunk(self.handle.scope, self.handle.id, turn, chunk, self._lease_micros)

    async def commit(self, turn: Turn, text: str, tail: StreamChunk | None, final: Mapping[str, Any]) -> Turn:
        self.handle.require(WRITE)
        end = await run_in_strides(lambda: self._end_of(turn, text, tail, **final), len(text) + size_of(final))
        sealed = await self.handle.engine.stream_commit(self.handle.scope, self.handle.id, turn.id, end)
        self.meter.stored(1)
        await self.room.add_end(end)
        return sealed

    async def abort(self, turn: str, tail: StreamChunk | None) -> Turn:
        return await self.handle.engine.stream_abort(self.handle.scope, self.handle.id, turn, tail)

    def _end_of(
        self,
        turn: Turn,
        text: str,
        tail: StreamChunk | None,
        *,
        tokens: TokenUsage | Mapping[str, Any] | None = None,
        model: str | None = None,
        adapter: str | None = None,
        finish_reason: str | None = None,
        tool_calls: object = None,
        sources: object = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> StreamEnd:
        given = {"tool_calls": tool_calls, "sources": sources, "metadata": metadata}
        _, redacted = self.redaction.redact_turn("", given)
        calls = encode_calls(redacted["tool_calls"])
        if calls and turn.role != "assistant":
            raise InvalidInput("tool_calls", f"belong to an assistant turn, not to a {turn.role} turn")
        check_size(text, calls)
        usage = clean_usage(tokens)
        return StreamEnd(
            content=text,
            token_count=self.drafts.measure(text, calls),
            tail=tail,
            tool_calls=calls,
            sources=encode_sources(redacted["sources"]),
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            model=optional_name("model", model),
            adapter=optional_name("adapter", adapter),
            finish_reason=optional_name("finish_reason", finish_reason),
            metadata=clean_mapping("metadata", redacted["metadata"]),
        )
