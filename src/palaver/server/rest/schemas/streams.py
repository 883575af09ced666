"""Bodies of turns that a client streams."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from palaver.server.rest.schemas.base import (
    Count,
    Flag,
    Json,
    Name,
    RequestBody,
    ResponseBody,
    examples,
)


class NewStream(RequestBody):
    model_config = ConfigDict(**examples({"role": "assistant", "actor": "bot"}), extra="forbid")
    role: Literal["user", "assistant", "system"] = "assistant"
    actor: Name | None = None
    metadata: Json | None = None
    model: Name | None = None
    adapter: Name | None = None
    idempotency_key: Name | None = None
    expected_seq: Count | None = None
    replaces: Name | None = None
    discard_after: Flag = False


class Chunk(RequestBody):
    model_config = ConfigDict(**examples({"n": 0, "text": "You can "}), extra="forbid")
    n: Count = Field(description="0, 1, 2, …; repeating a number changes nothing.")
    text: str


class NextChunk(ResponseBody):
    next: int


class StreamEnd(RequestBody):
    tokens: Json | None = None
    model: Name | None = None
    adapter: Name | None = None
    finish_reason: Name | None = None
    tool_calls: list[Json] | None = None
    sources: list[Json] | None = None
    metadata: Json | None = None
