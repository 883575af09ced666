"""Fields of a turn that callers give as keywords, as types.

A type checker reports a misspelt or mistyped option with these; at run time the methods check the values themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NotRequired, Required, TypedDict

from palaver.model import Attachment, ContentInput, Role, TokenUsage, ToolCall, ToolResult, Turn

Moment = datetime | str  # a string is in ISO 8601; a moment without a time zone is in UTC


class TurnOptions(TypedDict, total=False):
    """Fields of a turn that is stored.

    - `actor`: the name of the speaker; by default the user, the agent, or the role.
    - `created`: when it was said; now by default.
    - `metadata`: data of the application, stored with the turn and never shown to a model.
    - `tool_calls`: calls of an assistant turn: `ToolCall`s, or `{"id", "name", "arguments"}` each.
    - `tool_results`: results of a tool turn: `ToolResult`s, or `{"id", "content", "is_error"}` each.
    - `attachments`: files that `attach` stored.
    - `sources`: where an answer comes from; each is an object such as `{"url": …}`.
    - `tokens`: tokens as the provider counted them.
    - `model`, `adapter`, `finish_reason`: the model that wrote it, the API it was called by, and why it ended.
    - `idempotency_key`: a retry with the same key returns the stored turn.
    """

    actor: str | None
    created: Moment | None
    metadata: Mapping[str, object] | None
    tool_calls: Sequence[ToolCall | Mapping[str, object]] | None
    tool_results: Sequence[ToolResult | Mapping[str, object]] | None
    attachments: Sequence[Attachment]
    sources: Sequence[Mapping[str, object]] | None
    tokens: TokenUsage | Mapping[str, int | None] | None
    model: str | None
    adapter: str | None
    finish_reason: str | None
    idempotency_key: str | None


class TurnInput(TurnOptions):
    """One turn of `append_many`: its role, its content, and the options of `append`."""

    role: Required[Role]
    content: NotRequired[ContentInput]


class PlaceOptions(TypedDict, total=False):
    """Where a turn goes.

    - `expected_seq`: the sequence number that the turn must get; otherwise `AppendConflict`.
    - `replaces`: the turn that this one replaces in the active view (an edit or a regenerated answer).
    - `discard_after`: with `replaces`, also leave out what followed the replaced turn.
    """

    expected_seq: int | None
    replaces: Turn | str | None
    discard_after: bool


class StreamOptions(TurnOptions, PlaceOptions, total=False):
    """Options of `stream`: the fields of a turn and its place."""


class SealOptions(TypedDict, total=False):
    """Fields of a streamed turn that are known only at its end; see `TurnOptions`. `None` changes nothing."""

    tokens: TokenUsage | Mapping[str, int | None] | None
    model: str | None
    adapter: str | None
    finish_reason: str | None
    tool_calls: Sequence[ToolCall | Mapping[str, object]] | None
    sources: Sequence[Mapping[str, object]] | None
    metadata: Mapping[str, object] | None


TURN_FIELDS = tuple(TurnOptions.__annotations__)
SEAL_FIELDS = tuple(SealOptions.__annotations__)
