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
    role: Literal["user", "assistant", "system"] = Field("assistant", description="Role of the turn.")
    actor: Name | None = Field(None, description="Name of the speaker.")
    metadata: Json | None = Field(None, description="Metadata of the turn: an object of at most 64 KB.")
    model: Name | None = Field(None, description="Name of the model that writes the turn.")
    adapter: Name | None = Field(None, description="Name of the program or library that writes the turn.")
    idempotency_key: Name | None = Field(None, description="Same as the header `Idempotency-Key`.")
    expected_seq: Count | None = Field(None, description="The request fails if the new turn would get another `seq`.")
    replaces: Name | None = Field(None, description="The id of the turn that this one replaces.")
    discard_after: Flag = Field(False, description="With `replaces`: also replace the turns that followed.")


class Chunk(RequestBody):
    model_config = ConfigDict(**examples({"n": 0, "text": "You can "}), extra="forbid")
    n: Count = Field(description="Number of the chunk: 0, 1, 2, … Repeating a number changes nothing.")
    text: str = Field(description="Text of the chunk.")


class NextChunk(ResponseBody):
    next: int


class StreamEnd(RequestBody):
    tokens: Json | None = Field(
        None, description='Token usage that the provider reported: `{"prompt": 812, "completion": 64}`.'
    )
    model: Name | None = Field(None, description="Name of the model that wrote the turn.")
    adapter: Name | None = Field(None, description="Name of the program or library that wrote the turn.")
    finish_reason: Name | None = Field(None, description="Why the model stopped, such as `stop` or `length`.")
    tool_calls: list[Json] | None = Field(None, description='`{"id", "name", "arguments"}` for each call.')
    sources: list[Json] | None = Field(None, description="Sources of the text: a list of objects.")
    metadata: Json | None = Field(None, description="Metadata of the turn: an object of at most 64 KB.")
