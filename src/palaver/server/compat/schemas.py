"""Bodies of other protocols, for the OpenAPI document. Requests are parsed by hand, because clients add fields."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Json = dict[str, Any]


class Open(BaseModel):
    """A body with further fields. Those that are not known are ignored, and do not reach a provider."""

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


class ContextExtension(BaseModel):
    context: Json | None = Field(None, description="Options of the context: policy, token_budget and so on.")


Extension = Annotated[
    ContextExtension | None,
    Field(description="Extension of Palaver, for requests with a conversation: `context` has options of the context."),
]


Text = Annotated[str, Field(min_length=1)]


class NamedFunction(Open):
    name: str


class ChatToolChoice(Open):
    type: Literal["function"]
    function: NamedFunction


class ResponseToolChoice(NamedFunction):
    type: Literal["function"]


class AnyMessageToolChoice(Open):
    type: Literal["auto", "any", "none"]
    disable_parallel_tool_use: bool | None = None


class OneMessageToolChoice(NamedFunction):
    type: Literal["tool"]
    disable_parallel_tool_use: bool | None = None


Choice = Literal["none", "auto", "required"]

# ---- Chat Completions ----------------------------------------------------------------------------------------------


class NewChatCompletion(Open):
    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"examples": [{"model": "offline", "messages": [{"role": "user", "content": "Hello"}]}]},
    )
    model: str = Field(description="A name from `/v1/models`, or the provider's own name. Empty: the server's default.")
    messages: list[Json] = Field(min_length=1, description="Messages in the format of the API.")
    stream: bool | None = Field(None, description="`true` streams the answer as server-sent events.")
    stream_options: Json | None = Field(None, description="`include_usage`: end the stream with the token usage.")
    tools: list[Json] | None = Field(None, description="Functions that the client runs.")
    tool_choice: Choice | ChatToolChoice | None = Field(None, description="Which tool the model must or may call.")
    store: bool | None = Field(None, description="Store the exchange even if no conversation is named.")
    metadata: dict[str, str] | None = Field(None, description="`conversation_id` names the conversation.")
    palaver: Extension = None


class ChatCompletion(Open):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Json]
    usage: Json


class ChatCompletionList(BaseModel):
    object: Literal["list"]
    data: list[ChatCompletion]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ChatCompletionMessage(Open):
    id: str
    role: str
    content: str | None


class ChatCompletionMessageList(BaseModel):
    object: Literal["list"]
    data: list[ChatCompletionMessage]
    first_id: str | None
    last_id: str | None
    has_more: bool


# ---- Responses and Conversations -----------------------------------------------------------------------------------


class ResponseFields(Open):
    model_config = ConfigDict(
        extra="allow", json_schema_extra={"examples": [{"model": "offline", "input": "What can I eat?"}]}
    )
    input: str | list[Json] = Field(description="Text, or a list of input items.")
    instructions: str | None = Field(None, description="System instructions of this request.")
    conversation: str | Json | None = Field(None, description="The id of the conversation, or an object with its `id`.")
    previous_response_id: str | None = Field(None, description="The id of the response that this one continues.")
    store: bool | None = Field(None, description="Store the response. Default: true, as with the provider.")
    context_management: list[Json] | None = Field(
        None,
        description='`{"type": "compaction", "compact_threshold": …}`: compact '
        "the thread when it has this many tokens.",
    )
    stream: bool | None = Field(None, description="`true` streams the answer as server-sent events.")
    tools: list[Json] | None = Field(None, description="Functions that the client runs.")
    tool_choice: Choice | ResponseToolChoice | None = Field(None, description="Which tool the model must or may call.")
    metadata: dict[str, str] | None = Field(None, description="`conversation_id` names the conversation.")
    palaver: Extension = None


class NewResponse(ResponseFields):
    model: str = Field(description="A name from `/v1/models`, or the provider's own name.")


class CountedResponse(ResponseFields):
    """A request whose tokens are counted, not sent."""

    model: str | None = Field(None, description="The model whose tokens are counted.")


class ResponseObject(Open):
    id: str
    object: Literal["response"]
    created_at: int
    status: str
    model: str
    output: list[Json]


class NewCompaction(Open):
    model_config = ConfigDict(
        extra="allow", json_schema_extra={"examples": [{"model": "offline", "previous_response_id": "resp_01"}]}
    )
    model: Text = Field(
        description="A model of this server. Palaver summarises with the summariser of the conversation."
    )
    input: str | list[Json] | None = Field(
        None, description="Items to compact, instead of a stored response. Text, or a list of items."
    )
    instructions: str | None = Field(None, description="Accepted, but not used.")
    previous_response_id: str | None = Field(None, description="Compact the thread up to this response.")


class CompactedResponse(BaseModel):
    id: str
    created_at: int
    object: Literal["response.compaction"]
    output: list[Json] = Field(description="The user messages, followed by one compaction item.")
    usage: Json


class Deleted(BaseModel):
    id: str
    object: str
    deleted: Literal[True]


class InputTokens(BaseModel):
    object: Literal["response.input_tokens"]
    input_tokens: int


class NewOpenAIConversation(Open):
    items: list[Json] | None = Field(None, max_length=20, description="First items of the conversation, at most 20.")
    metadata: Json | None = Field(None, description="Metadata of the conversation.")


class OpenAIMetadata(Open):
    metadata: Json = Field(description="The new metadata, which replaces the old.")


class OpenAIConversation(BaseModel):
    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: Json


class NewItems(Open):
    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"examples": [{"items": [{"type": "message", "role": "user", "content": "Hello"}]}]},
    )
    items: list[Json] = Field(max_length=20, description="Items to store, at most 20.")


class Item(Open):
    id: str
    type: str


class ItemList(BaseModel):
    object: Literal["list"]
    data: list[Item]
    first_id: str | None
    last_id: str | None
    has_more: bool


class NewEmbeddings(Open):
    model_config = ConfigDict(
        extra="allow", json_schema_extra={"examples": [{"model": "local", "input": ["What can I eat?"]}]}
    )
    model: str = Field(description="The name of the server's embedder, or `local`.")
    input: Annotated[str, Field(min_length=1)] | list[Annotated[str, Field(min_length=1)]] = Field(
        description="A text, or a list of at most 2,048 texts."
    )
    encoding_format: Literal["float", "base64"] | None = Field(
        None, description="Format of the vectors. Default: `float`."
    )
    dimensions: int | None = Field(None, description="Only the dimensions of the embedder are accepted.")


class Embedding(BaseModel):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingList(BaseModel):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Json


# ---- Messages ------------------------------------------------------------------------------------------------------


class NewMessage(Open):
    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [{"model": "offline", "max_tokens": 1024, "messages": [{"role": "user", "content": "Hello"}]}]
        },
    )
    model: str = Field(description="A name from `/v1/models`, or the provider's own name.")
    messages: list[Json] = Field(min_length=1, description="Messages in the format of the API.")
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(None, description="Maximum number of tokens of the answer.")
    system: str | list[Json] | None = Field(None, description="System prompt.")
    stream: bool | None = Field(None, description="`true` streams the answer as server-sent events.")
    tools: list[Json] | None = Field(None, description="Tools that the client runs.")
    tool_choice: AnyMessageToolChoice | OneMessageToolChoice | None = Field(
        None, description="Which tool the model must or may call."
    )
    metadata: Json | None = Field(None, description="`conversation_id` names the conversation.")
    context_management: Json | None = Field(
        None, description="`edits`: `compact_20260112`, `clear_tool_uses_20250919` and `clear_thinking_20251015`."
    )
    palaver: Extension = None


class MessageObject(Open):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Json]
    usage: Json


class TokenCount(BaseModel):
    input_tokens: int


# ---- UI messages ---------------------------------------------------------------------------------------------------


class NewUIMessage(Open):
    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "id": "chat-1",
                    "trigger": "submit-message",
                    "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "Hello"}]}],
                }
            ]
        },
    )
    id: str = Field(description="The id or the key of the conversation.")
    messages: list[Json] | None = Field(None, description="The whole thread, as `useChat` sends it.")
    message: Json | None = Field(None, description="The last message, instead of all messages.")
    trigger: Literal["submit-message", "regenerate-message"] | None = Field(
        None, description="`regenerate-message` answers the last question again."
    )
    messageId: str | None = Field(None, description="The id of the message to regenerate or to replace.")
    model: str | None = Field(None, description="Name of the model.")
    tools: Json | None = Field(None, description="Tools that run in the page, by name.")
    palaver: Extension = None


# ---- models --------------------------------------------------------------------------------------------------------


class Model(BaseModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(BaseModel):
    object: Literal["list"]
    data: list[Model]
