"""The shapes of other people's protocols, for the OpenAPI document. They are read by hand: their clients add fields."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Json = dict[str, Any]


class Open(BaseModel):
    """Fields that are not named here are passed on to the model, or not minded."""

    model_config = ConfigDict(extra="allow")


class OpenAIErrorBody(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(BaseModel):
    error: OpenAIErrorBody


class AnthropicErrorBody(BaseModel):
    type: str
    message: str


class AnthropicError(BaseModel):
    type: Literal["error"]
    error: AnthropicErrorBody


# ---- Chat Completions, models --------------------------------------------------------------------------------------


class NewChatCompletion(Open):
    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"examples": [{"model": "offline", "messages": [{"role": "user", "content": "Hello"}]}]},
    )
    model: str = Field(description="One of `/v1/models`, or the provider's own name of it.")
    messages: list[Json]
    stream: bool | None = None
    stream_options: Json | None = None
    tools: list[Json] | None = Field(None, description="Functions that the client runs.")
    tool_choice: str | Json | None = None
    store: bool | None = Field(None, description="Keep the exchange, where no conversation is named.")
    metadata: dict[str, str] | None = Field(None, description="`conversation_id` names the conversation.")


class ChatCompletion(Open):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Json]
    usage: Json


class Model(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(BaseModel):
    object: Literal["list"]
    data: list[Model]
