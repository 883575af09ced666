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
    """Fields of a turn.

    - `actor`: the name of the speaker; by default the user, the agent, or the role.
    - `created`: the time of the turn; by default now.
    - `metadata`: data of your application, as a JSON object. It is stored with the turn and never shown to a model.
    - `tool_calls`: the tool calls of an assistant turn: each a `ToolCall`, or a mapping with `id`, `name` and
      `arguments`.
    - `tool_results`: the results of a tool turn: each a `ToolResult`, or a mapping with `id`, `content` and `is_error`.
    - `attachments`: files that `attach` returned.
    - `sources`: the sources of an answer; each is an object such as `{"url": …}`.
    - `tokens`: the token counts that the provider reported; see `TokenUsage`.
    - `model`: the name of the model that wrote the turn.
    - `adapter`: the API through which the model was called.
    - `finish_reason`: the reason why the model stopped, as the provider reported it.
    - `idempotency_key`: a name for this turn that you choose. A retry with the same key returns the stored turn instead
      of storing another one.
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
    """One turn for `append_many`.

    - `role`: `user`, `assistant`, `system` or `tool`. It is required.
    - `content`: text, or a list of parts.
    """

    role: Required[Role]
    content: NotRequired[ContentInput]


class PlaceOptions(TypedDict, total=False):
    """The place of a turn.

    - `expected_seq`: the sequence number that the turn must get. If another turn was stored first, `AppendConflict` is
      raised.
    - `replaces`: the turn that this one replaces in the active branch (an edit or a regenerated answer).
    - `discard_after`: with `replaces`, also remove the turns after the replaced turn from the active branch.
    """

    expected_seq: int | None
    replaces: Turn | str | None
    discard_after: bool


class StreamOptions(TurnOptions, PlaceOptions, total=False):
    """Options of `Conversation.stream`: the fields of a turn and its place."""


class SealOptions(TypedDict, total=False):
    """Fields of a streamed turn that are known only at its end. `None` changes nothing.

    - `tokens`, `model`, `adapter`, `finish_reason`, `tool_calls`, `sources`, `metadata`: as in `TurnOptions`.
    """

    tokens: TokenUsage | Mapping[str, int | None] | None
    model: str | None
    adapter: str | None
    finish_reason: str | None
    tool_calls: Sequence[ToolCall | Mapping[str, object]] | None
    sources: Sequence[Mapping[str, object]] | None
    metadata: Mapping[str, object] | None


TURN_FIELDS = tuple(TurnOptions.__annotations__)
SEAL_FIELDS = tuple(SealOptions.__annotations__)
