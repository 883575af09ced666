"""The ports for chat models, embedders and token counters, with their requests and events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, Protocol, TypedDict

from palaver.model import Summary, ToolCall, Turn, warn_renamed

# JSON in the form of a provider's API, which only the client of that provider reads.
JsonObject = dict[str, Any]


class NamedTool(TypedDict):
    """The tool that a model must call."""

    name: str


ToolChoice = Literal["auto", "none", "required"] | NamedTool


INSTRUCTIONS_CACHE = "instructions_cache_control"  # a setting: how a client wants its own system prompt to be cached


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as it is described to a model.

    `parameters` is the JSON schema of an object. With `strict`, a provider that supports it enforces the schema.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A recalled turn, for a model whose answers are quotations."""

    turn: str
    role: str
    actor: str
    text: str
    created: datetime
    score: float
    conversation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """A request to a model, independent of any provider's format.

    `messages` are those of a Context. `settings` are copied into the body (temperature and so on). With the
    `tool_choice` `none` the tools are still listed, because the thread holds their calls, but none may be called.
    `previous_response_id` continues an answer that the service stored, `keep` asks it to store this one. The first
    `stable` messages will also begin the next request, so they are worth caching. `reasoning` is that of the
    model before its tool calls, by the id of the first one, in the provider's own format.
    """

    messages: tuple[dict[str, Any], ...]
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    settings: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = True
    previous_response_id: str | None = None
    keep: bool = False
    quotes: tuple[Quote, ...] = ()
    stable: int = 0
    reasoning: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)

    @property
    def may_call(self) -> bool:
        """Deprecated: use `tool_choice`."""
        warn_renamed("ModelRequest.may_call", "tool_choice")
        return self.tool_choice != "none"

    @property
    def must_call(self) -> bool | str:
        """Deprecated: use `tool_choice`."""
        warn_renamed("ModelRequest.must_call", "tool_choice")
        return self.tool_choice["name"] if isinstance(self.tool_choice, dict) else self.tool_choice == "required"

    @property
    def thoughts(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Deprecated: use `reasoning`."""
        warn_renamed("ModelRequest.thoughts", "reasoning")
        return self.reasoning


@dataclass(frozen=True, slots=True)
class Started:
    """The service has begun to answer: the id of its response, and the model that it uses."""

    id: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """A finished block of reasoning in the provider's format. It must be sent back with the results of the calls."""

    block: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallReady:
    """A complete tool call."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Cited:
    """A source that the answer cites."""

    source: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as counted by the service. `prompt` includes the `cached` ones."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """Why the answer ended: stop, length, tool_calls or content_filter; any other word is the provider's.

    `sequence` is the stop sequence that was reached, if the provider reports it.
    """

    reason: str
    sequence: str | None = None


ModelEvent = Started | TextDelta | ReasoningDelta | Thought | CallReady | Cited | Usage | Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterBound:
    """A model's own token count as a multiple of ours: the highest ratio seen recently."""

    model: str
    ratio: float
    samples: int


class Counter(Protocol):
    """Counts tokens exactly and offline. `name` identifies the tokenizer's table."""

    @property
    def name(self) -> str: ...

    def __call__(self, text: str) -> int: ...


class Embedder(Protocol):
    """Turns texts into vectors of one length. `name` is stored with each vector.

    It may also have `supersedes`, the names of embedders that it replaces: a store with their vectors is embedded again
    in the background, and then the old vectors are deleted. And `typical_cosine`, the mean cosine of two turns of one
    conversation: without it, relevance measures that in each scope, and trusts meaning less. And `languages`, the codes
    of those that it knows ("en"): for questions in others, words count more than meaning. And `price`, as of a
    model: its calls count in budgets then.
    """

    name: str
    dimensions: int

    async def embed(self, texts: Sequence[str]) -> list[list[float]]: ...


class Summarizer(Protocol):
    """Writes summaries. When it fails or is too slow, the offline summariser writes in its place."""

    @property
    def name(self) -> str: ...

    async def summarize(self, turns: Sequence[Turn], budget: int) -> str:
        """Summarise turns in about `budget` tokens."""
        ...

    async def merge(self, summaries: Sequence[Summary], budget: int) -> str:
        """Summarise summaries, oldest first, in about `budget` tokens."""
        ...


class Extractor(Protocol):
    """Proposes facts and notes from turns. Proposals that the turns do not support are dropped."""

    name: str

    async def extract(self, turns: Sequence[Turn], schema: Mapping[str, Any]) -> str:
        """Return JSON that follows the schema."""
        ...


def provider_model(model: ChatModel) -> str:
    """Return the provider's own name of a model: "gpt-5" for "openai:gpt-5"."""
    return str(getattr(model, "model", model.name))


class ChatModel(Protocol):
    """A model that streams answers.

    `name` selects the model ("openai:gpt-5"), `adapter` is the wire format, `provider` its company. `window` is the
    size of its context window in tokens, if known. With `remembers`, the service can continue an answer by its id;
    `project` identifies the account, because such an id is valid only there. A model that has `takes_tools = False` is
    offered no tools that nobody asked for.
    """

    name: str
    adapter: str
    provider: str
    window: int | None
    remembers: bool
    project: str

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """Return the request in the provider's format: exactly what `stream` will send."""
        ...

    def stream(self, body: dict[str, Any]) -> AsyncIterator[ModelEvent]:
        """Send a body once and yield the events of the response, Finished last. Raises a ModelError."""
        ...
