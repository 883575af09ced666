"""Bodies of generated answers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from palaver.core.validation import MAX_ATTACHMENTS
from palaver.server.rest.schemas.base import (
    BIG,
    Content,
    Flag,
    Json,
    Name,
    Positive,
    RequestBody,
    ResponseBody,
    examples,
)
from palaver.server.rest.schemas.memory import ContextOptions
from palaver.server.rest.schemas.turns import Turn


class ReasoningSettings(RequestBody):
    effort: Name | None = None
    summary: Name | None = None


class ModelSettings(RequestBody):
    """Parameters that are passed to the model unchanged."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Positive | None = None
    max_completion_tokens: Positive | None = None
    max_output_tokens: Positive | None = None
    stop: str | list[str] | None = None
    seed: Annotated[int, Field(ge=-BIG, le=BIG)] | None = None
    reasoning_effort: Name | None = None
    reasoning: ReasoningSettings | None = None


class AnswerOptions(ContextOptions):
    agent: Name | None = None
    tools: list[Name] | None = Field(
        None, description="Names of built-in tools. null: those of the agent or of the server."
    )
    continuity: Literal["auto", "off", "with-history"] | None = None
    settings: ModelSettings | None = None
    stream: Flag = Field(False, description="Reply with server-sent events; so does `Accept: text/event-stream`.")


class Question(AnswerOptions):
    model_config = ConfigDict(**examples({"message": "What can I eat?", "stream": True}), extra="forbid")
    message: Content | None = Field(None, description="Without a message, the conversation is answered as it is.")
    actor: Name | None = None
    history: list[Json] | None = Field(
        None, description="Earlier messages that the client has and this server has not stored."
    )
    attachments: Annotated[list[Name], Field(max_length=MAX_ATTACHMENTS)] | None = Field(
        None,
        description="Ids of uploads. With `replaces`, files of that turn may be named too: they are copied, and all of "
        "them are if this is not given.",
    )
    metadata: Json | None = None
    idempotency_key: Name | None = None
    replaces: Name | None = Field(None, description="The id of the question that this one replaces.")


class Regenerate(AnswerOptions):
    model_config = ConfigDict(**examples({"stream": True}), extra="forbid")


class Answer(ResponseBody):
    turn: Turn
    usage: Json | None
    explanation: Json | None = Field(
        description="A summary: how full the prompt was, and of what. null if the caller is not the owner."
    )
    request: str | None = Field(
        description="The id of the record of the last model call. null if the caller is not the owner."
    )


class Stopping(ResponseBody):
    event: int = Field(description="The number of the logged stop request.")
