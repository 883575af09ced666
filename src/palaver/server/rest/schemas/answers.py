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
    effort: Name | None = Field(
        None, description="How much the model reasons, as its provider names it, such as `low` or `high`."
    )
    summary: Name | None = Field(
        None, description="Summary of the reasoning, as the provider names it, such as `auto`."
    )


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
    agent: Name | None = Field(
        None,
        description="Name of an agent in the configuration of the server. It sets "
        "the model, the instructions and the tools.",
    )
    tools: list[Name] | None = Field(
        None, description="Names of built-in tools. Default: those of the agent, else of the server."
    )
    continuity: Literal["auto", "off", "with-history"] | None = Field(
        None,
        description="Continue the stored response of the provider: `auto`, `off`, or "
        "`with-history`, which also sends the history.",
    )
    settings: ModelSettings | None = Field(None, description="Parameters for the model, such as `temperature`.")
    stream: Flag = Field(
        False, description="Stream the answer as server-sent events. `Accept: text/event-stream` does the same."
    )


class Question(AnswerOptions):
    model_config = ConfigDict(**examples({"message": "What can I eat?", "stream": True}), extra="forbid")
    message: Content | None = Field(
        None, description="The message to answer. Without it, the last message of the conversation is answered."
    )
    actor: Name | None = Field(None, description="Name of the speaker. Default: the user.")
    history: list[Json] | None = Field(
        None, description="Earlier messages that the client has and this server has not stored."
    )
    attachments: Annotated[list[Name], Field(max_length=MAX_ATTACHMENTS)] | None = Field(
        None,
        description="Ids of files. With `replaces`, the list can contain files of "
        "that turn, which are then copied. Without "
        "a list, all of them are copied.",
    )
    metadata: Json | None = Field(None, description="Metadata of the message: an object of at most 64 KB.")
    idempotency_key: Name | None = Field(None, description="Same as the header `Idempotency-Key`.")
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
