"""Bodies of turns, branches and search results."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from palaver import model
from palaver.core.validation import MAX_BATCH, MAX_TOOL_FILES
from palaver.server import wire
from palaver.server.rest.schemas.base import (
    Content,
    Count,
    EmptyBody,
    Flag,
    Json,
    Moment,
    Name,
    RequestBody,
    ResponseBody,
    Role,
    examples,
    mirrors,
)
from palaver.server.rest.schemas.conversations import CONVERSATION, Conversation
from palaver.server.rest.schemas.files import Attachment

TURN: Json = {
    "id": "01KA2V4ZB8H6W3R5J2M8P00000",
    "conversation": CONVERSATION["id"],
    "seq": 0,
    "position": 0,
    "role": "user",
    "actor": "ada",
    "content": "I'm allergic to peanuts.",
    "created": "2026-11-15T09:30:02Z",
    "status": "complete",
    "tool_calls": [],
    "tool_results": [],
    "attachments": [],
    "sources": [],
    "tokens": None,
    "token_count": 7,
    "model": None,
    "adapter": None,
    "finish_reason": None,
    "metadata": {},
    "parent": None,
    "active": True,
    "superseded_by": None,
    "content_hash": "5f0c…",
}


@mirrors(model.ToolCall)
class ToolCall(ResponseBody):
    pass


@mirrors(model.ToolResult)
class ToolResult(ResponseBody):
    pass


@mirrors(model.TokenUsage)
class Tokens(ResponseBody):
    pass


@mirrors(model.Turn, omit=wire.HIDDEN_TURN_FIELDS)
class Turn(ResponseBody):
    model_config = examples(TURN)
    seq: int = Field(description="Order of arrival: 0, 1, 2, … without gaps.")
    position: int = Field(description="Order in the active branch.")
    content: str | list[Json] = Field(description="Text, or a list of parts (text, image, file, reasoning).")
    attachments: list[Attachment]


class TurnFields(RequestBody):
    content: Content = Field("", description="Text, or a list of parts. At most 5 MB, including the tool fields.")
    actor: Name | None = Field(None, description="Name of the speaker.")
    created: Moment | None = Field(None, description="Time of the message. Default: now.")
    metadata: Json | None = Field(None, description="Metadata of the turn: an object of at most 64 KB.")
    tool_calls: list[Json] | None = Field(
        None, description='`{"id", "name", "arguments"}` for each call. Only on assistant turns.'
    )
    tool_results: list[Json] | None = Field(
        None, description='`{"id", "content", "is_error"}` for each result. Only on tool turns.'
    )
    attachments: Annotated[list[Name], Field(max_length=MAX_TOOL_FILES)] | None = Field(
        None, description="Ids of uploads; at most 10, except on tool turns."
    )
    sources: list[Json] | None = Field(None, description="Sources of the text: a list of objects, at most 64 KB.")
    tokens: Json | None = Field(
        None, description='Token usage that the provider reported: `{"prompt": 812, "completion": 64}`.'
    )
    model: Name | None = Field(None, description="Name of the model that wrote the turn.")
    adapter: Name | None = Field(None, description="Name of the program or library that wrote the turn.")
    finish_reason: Name | None = Field(None, description="Why the model stopped, such as `stop` or `length`.")


class NewTurn(TurnFields):
    model_config = ConfigDict(
        **examples(
            {"role": "user", "content": "I'm allergic to peanuts."},
            {"role": "tool", "tool_results": [{"id": "c1", "content": "12 °C"}]},
        ),
        extra="forbid",
    )
    role: Role = Field(description="Role of the turn. `system` needs the right `system`.")
    idempotency_key: Name | None = Field(None, description="Same as the header `Idempotency-Key`.")
    expected_seq: Count | None = Field(None, description="The request fails if the new turn would get another `seq`.")
    replaces: Name | None = Field(None, description="The id of the turn that this one replaces.")
    discard_after: Flag = Field(False, description="With `replaces`: also replace the turns that followed.")


class BatchTurn(TurnFields):
    role: Role
    idempotency_key: Name | None = None


class NewTurns(RequestBody):
    model_config = ConfigDict(
        **examples({"turns": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]}),
        extra="forbid",
    )
    turns: Annotated[list[BatchTurn], Field(max_length=MAX_BATCH)] = Field(description="The turns, in order.")
    expected_seq: Count | None = Field(None, description="The request fails if the first turn would get another `seq`.")


class EditedTurn(TurnFields):
    model_config = ConfigDict(**examples({"content": "I'm allergic to nuts."}), extra="forbid")
    discard_after: Flag = Field(True, description="`false` keeps the turns that followed.")


class Turns(ResponseBody):
    items: list[Turn]


class TurnPage(ResponseBody):
    items: list[Turn | Json] = Field(description="Oldest first; with include_summaries, summaries too.")
    older: str | None = Field(description="The path of the page before; also in the Link header.")
    newer: str | None
    last_event: int = Field(description="Subscribe to live events after this number.")


class Match(ResponseBody):
    turn: Turn
    terms: list[str]
    spans: list[tuple[int, int]] = Field(description="Where the words are in the text: start and end of each.")


class Matches(ResponseBody):
    items: list[Match]
    empty: EmptyBody | None = Field(None, description="Why there are no items; null if there are some.")


class Found(ResponseBody):
    conversation: Conversation
    in_title: bool
    matches: list[Match]


class FoundList(ResponseBody):
    items: list[Found]
    empty: EmptyBody | None = Field(None, description="Why there are no items; null if there are some.")


class Branch(ResponseBody):
    position: int
    active: str | None
    turns: list[Turn]


class Branches(ResponseBody):
    items: list[Branch]
