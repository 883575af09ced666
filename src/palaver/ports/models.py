"""What Palaver asks of models: chat models, embedders, token counters; requests and events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from palaver.model import Summary, ToolCall, Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as a model is told of it. `parameters` is the JSON schema of an object; with `strict` a provider that can
    keeps the arguments to it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A turn that recall found, for a model that answers with quotations."""

    turn: str
    role: str
    actor: str
    text: str
    created: datetime
    score: float
    conversation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """What a model is asked, in nobody's own form.

    `messages` are those of a Context. `settings` go into the body as they are (temperature and so on). With
    `may_call` false the tools are still named, because the thread holds their calls, but none may be called any more;
    `must_call` demands some call, or one of the tool of that name.
    `previous_response_id` continues an answer that the service kept, `keep` asks it to keep this one. The first
    `stable` messages will stand at the start of the next request, too: worth a cache. `thoughts` are what the model
    thought before its tool calls, by the id of the first one, in the provider's own form.
    """

    messages: tuple[dict[str, Any], ...]
    tools: tuple[ToolSpec, ...] = ()
    may_call: bool = True
    must_call: bool | str = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = True
    previous_response_id: str | None = None
    keep: bool = False
    quotes: tuple[Quote, ...] = ()
    stable: int = 0
    thoughts: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Started:
    """The service has begun to answer: its id of the answer, and the model that it took."""

    id: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """A finished piece of reasoning, in the provider's own form: it wants it back with the results of its calls."""

    block: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallReady:
    """A tool call, complete."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Cited:
    source: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the service counted them. `prompt` includes those that were `cached`."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """Why it ended: stop, length, tool_calls or content_filter; another word is the provider's own. `sequence` is what
    it was told to stop at, where a provider says that."""

    reason: str
    sequence: str | None = None


ModelEvent = Started | TextDelta | ReasoningDelta | Thought | CallReady | Cited | Usage | Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterBound:
    """What a model's tokenizer makes of a text, as a multiple of our own count: the most that was seen lately."""

    model: str
    ratio: float
    samples: int


class Counter(Protocol):
    """Counts tokens, offline and exactly; `name` says which table it uses."""

    @property
    def name(self) -> str: ...

    def __call__(self, text: str) -> int: ...


class Embedder(Protocol):
    """Turns texts into vectors of one length; `name` is stored with each vector.

    It may also have `supersedes`, the names of embedders before it: a store that holds their vectors is embedded again
    in the background, and then theirs are dropped.
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


class ChatModel(Protocol):
    """Answers, piece by piece.

    `name` is what the model is chosen by ("openai:gpt-5"), `adapter` the wire format, `provider` whose service it is.
    `window` is how many tokens it reads, where that is known. `remembers` says that it can continue an answer by its
    id; `project` tells accounts apart, because an id is worth nothing in another one.
    """

    name: str
    adapter: str
    provider: str
    window: int | None
    remembers: bool
    project: str

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """The request in the provider's form: exactly what `stream` will send."""
        ...

    def stream(self, body: dict[str, Any]) -> AsyncIterator[ModelEvent]:
        """Send it, once, and hand on what comes back. Raises a ModelError; the last event is Finished."""
        ...
