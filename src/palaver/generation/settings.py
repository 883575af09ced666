"""The settings of `generate`, the agents, and the state that all answers of an open store share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

from palaver.context.settings import (
    CONTEXT_SETTINGS,
    ContextSettings,
    clean_context_settings,
    merge_levels,
    stored_context_settings,
)
from palaver.core.validation import clean_actor, clean_name, clean_text, optional_name
from palaver.errors import InvalidInput
from palaver.generation.provider_thread import Continuity, ProviderThreads, clean_continuity
from palaver.memory.settings import Simultaneous, check_simultaneous
from palaver.model import ConversationInfo
from palaver.models.registry import ModelRegistry, Named, check_default_model, check_named_model
from palaver.models.retry import RetryPolicy
from palaver.models.token_ratio import TokenRatios
from palaver.ports.engine import Engine
from palaver.telemetry import Telemetry, open_telemetry

FINISH_SECONDS = 10.0  # the longest time that closing a store waits for the answers that it stops
T = TypeVar("T", "Agent", "GenerateSettings", "Workspace")

# Common parameters of providers. An option that is spelt similarly would be a wrong suggestion.
MODEL_PARAMETERS = frozenset({
    "temperature", "top_p", "top_k", "seed", "stop", "max_tokens", "max_completion_tokens", "max_output_tokens",
    "presence_penalty", "frequency_penalty", "response_format", "reasoning_effort", "verbosity", "thinking",
})  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An assistant with its own instructions, model, tools and view of the conversation.

    - `instructions`: the system instructions.
    - `model`: the name of its model; None for the model of the workspace or the store.
    - `tools`: the tools that it may call, as in `GenerateOptions`.
    - `sees`: the actors whose turns are in its contexts; None for all actors.
    - `context`: defaults for its contexts, such as `{"policy": "recent-chars"}`; see `ContextSettings`.
    """

    instructions: str | None = None
    model: str | None = None
    tools: Sequence[object] = ()
    sees: Sequence[str] | None = None
    context: ContextSettings = field(default_factory=ContextSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """Defaults for the conversations of a workspace.

    - `model`: the name of the model that answers; None for the model of the store.
    - `context`: defaults for contexts; see `ContextSettings`.
    """

    model: str | None = None
    context: ContextSettings = field(default_factory=ContextSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateSettings:
    """Defaults and limits of `generate`.

    A call of `generate` can override the first four:

    - `instructions`: the system instructions; none by default.
    - `token_budget`: the maximum number of tokens of a context; by default, it depends on the model.
    - `continuity`: `auto` (the default), `with-history` or `off`; see `GenerateOptions`.
    - `tools`: the tools that the model may call; none by default.

    The others hold for every call:

    - `history_messages`: the maximum number of messages to quote from a history that a client sends; 20.
    - `tool_rounds`: the maximum number of rounds of tool calls in one answer; 5.
    - `tool_timeout`: the seconds that a tool call may take; 30. A `Tool` can have its own.
    - `tool_characters`: the maximum number of characters of one tool result in the prompt; 4,000. A longer result is
      shortened, and stored as an attachment.
    - `retries`: how often a failed request to a model is retried; 2.
    - `retry_pause`: the seconds before the first retry; 0.5. The pause doubles with each retry.
    - `longest_pause`: the longest pause before a retry, in seconds; 30. If the provider asks for a longer one, the
      request fails.
    - `request_bodies`: how many of the latest request bodies are kept per conversation; 1,000. None: all.
    - `titles`: whether to write a title after the first answer; `True`.
    - `offer_files`: whether to offer the tool `read_attachment` if the conversation has files and the call sets no
      `tools`; `True`.
    - `simultaneous`: how a conversation without this setting handles a question while it answers another one:
      `parallel` (the default), `queue` or `reject`; see `ConversationSettings`.
    - `queue_timeout`: the seconds that a queued question waits before `QueueTimeout`; 120.
    - `context`: defaults for all contexts, including those of `build_context`; see `ContextSettings`. In a mapping, you
      can write these options next to the others: `palaver.open(generate={"policy": "recent-chars"})`.
    """

    instructions: str | None = None
    token_budget: int | None = None  # None: depends on the model
    continuity: Continuity = "auto"
    history_messages: int = 20  # of the history that a client sends
    tools: Sequence[object] = ()
    tool_rounds: int = 5
    tool_timeout: float = 30.0  # seconds per call
    tool_characters: int = 4_000  # of one result; a longer one is shortened and stored as an attachment
    retries: int = 2
    retry_pause: float = 0.5  # seconds before the first retry; doubles with each
    longest_pause: float = 30.0
    request_bodies: int | None = 1_000  # newest request bodies that are kept per conversation; None: all
    titles: bool = True
    offer_files: bool = True  # offer `read_attachment` where a conversation has files and nobody chose the tools
    simultaneous: Simultaneous = "parallel"  # for conversations without this setting: parallel, queue or reject
    queue_timeout: float = 120.0  # seconds that a queued question waits for the answers ahead of it
    context: ContextSettings = field(default_factory=ContextSettings)

    def __post_init__(self) -> None:
        clean_context_settings("generate.context", self.context)
        clean_context_settings("generate", {"token_budget": self.token_budget})
        if self.token_budget is not None and {"token_budget", "char_budget"} & self.context.keys():
            raise InvalidInput("generate.context", "has a budget, and so has generate.token_budget; give one of them")
        clean_continuity(self.continuity)
        for name in ("history_messages", "tool_rounds", "tool_characters", "retries"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InvalidInput(f"generate.{name}", "must be a whole number, 0 or more")
        check_simultaneous("generate.simultaneous", self.simultaneous)
        if not self.queue_timeout > 0:
            raise InvalidInput("generate.queue_timeout", "must be a number of seconds above 0")
        if not self.tool_timeout > 0:
            raise InvalidInput("generate.tool_timeout", "must be a number of seconds above 0")

    @property
    def context_defaults(self) -> Mapping[str, Any]:
        """The defaults of every context, with the budget."""
        return {"token_budget": self.token_budget, **self.context}

    @property
    def retry_policy(self) -> RetryPolicy:
        """How often a failed call of a model is retried, and how long it waits before each retry."""
        return RetryPolicy(most=self.retries, first=self.retry_pause, longest=self.longest_pause)


class RunningAnswer(Protocol):
    """An answer in progress, as others see it."""

    def stop(self) -> None: ...

    async def finish(self) -> None: ...


@dataclass(slots=True)
class GenerationContext:
    """The state that all answers of one open store share. `running` is by tenant and conversation."""

    models: ModelRegistry
    settings: GenerateSettings
    agents: Mapping[str, Agent]
    token_ratios: TokenRatios
    telemetry: Telemetry
    workspaces: Mapping[str, Workspace] = field(default_factory=dict)
    provider_threads: ProviderThreads = field(default_factory=ProviderThreads)
    running: dict[tuple[str, str], set[RunningAnswer]] = field(default_factory=dict)
    without_tools: set[str] = field(default_factory=set)  # names of models that refused a request for its tools
    _locks: WeakValueDictionary[tuple[str, str, str], asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def lock(self, tenant: str, conversation: str, key: str) -> asyncio.Lock:
        """Return the lock of an idempotency key: the second of two calls waits, and finds the answer of the first."""
        return self._locks.setdefault((tenant, conversation, key), asyncio.Lock())

    def context_options(
        self,
        info: ConversationInfo,
        call: Mapping[str, Any],
        *,
        agent: str | None = None,
        otherwise: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the options of a context: those of the call, conversation, agent, workspace or store, in this order.

        `agent` is the agent that the call names; `otherwise` are the caller's own defaults, after all the others.
        """
        levels = (
            call,
            stored_context_settings(info.settings),
            self.agents.get(agent or info.agent or "", Agent()).context,
            self.workspaces.get(info.workspace or "", Workspace()).context,
            self.settings.context_defaults,
            otherwise or {},
        )
        return merge_levels(levels)

    def stop(self, tenant: str, conversation: str) -> None:
        """Stop the answers of this process in a conversation, keeping their text."""
        for answer in tuple(self.running.get((tenant, conversation), ())):
            answer.stop()

    async def finish_all(self) -> None:
        """Stop all answers of this process and wait until they are stored, before the database is closed.

        The loop of a caller may have ended with `break`: Python then closes its generator later, in another task.
        """
        found = [answer.finish() for here in self.running.values() for answer in here]
        if found:
            await asyncio.wait([asyncio.create_task(one) for one in found], timeout=FINISH_SECONDS)

    def add_running(self, place: tuple[str, str], answer: RunningAnswer) -> None:
        self.running.setdefault(place, set()).add(answer)

    def remove_running(self, place: tuple[str, str], answer: RunningAnswer) -> None:
        here = self.running.get(place, set())
        here.discard(answer)
        if not here:
            self.running.pop(place, None)


def open_generation_context(
    engine: Engine,
    model: str | None,
    models: Mapping[str, Named] | None,
    agents: Mapping[str, Agent | Mapping[str, object]] | None,
    workspaces: Mapping[str, str | Workspace | Mapping[str, object]] | None,
    settings: GenerateSettings | Mapping[str, object] | None,
    telemetry: object,
) -> GenerationContext:
    """Check the arguments of `palaver.open` that concern answers."""
    known = {clean_actor("agents", name): _make_agent(name, given) for name, given in (agents or {}).items()}
    spaces = {
        clean_name("workspaces", name): _make_workspace(name, given) for name, given in (workspaces or {}).items()
    }
    for name, named in (models or {}).items():
        check_named_model(name, named)
    registry = ModelRegistry(
        default=check_default_model(model),
        names=dict(models or {}),
        agents={name: agent.model for name, agent in known.items() if agent.model},
        workspaces={name: space.model for name, space in spaces.items() if space.model},
    )
    if not isinstance(settings, GenerateSettings):
        settings = _make_from_mapping("generate", GenerateSettings, _gather_context(settings or {}))
    return GenerationContext(registry, settings, known, TokenRatios(engine), open_telemetry(telemetry), spaces)


def _make_agent(name: str, given: object) -> Agent:
    agent = given if isinstance(given, Agent) else _make_from_mapping(f"agents.{name}", Agent, given)
    if agent.instructions is not None:
        clean_text(f"agents.{name}.instructions", agent.instructions)
    clean_context_settings(f"agents.{name}.context", agent.context)
    return agent


def _make_workspace(name: str, given: object) -> Workspace:
    """Make the defaults of a workspace from its model's name, or from a mapping with `model` and `context`."""
    field = f"workspaces.{name}"
    if isinstance(given, str):
        given = Workspace(model=given)
    space = given if isinstance(given, Workspace) else _make_from_mapping(field, Workspace, given)
    optional_name(f"{field}.model", space.model)
    clean_context_settings(f"{field}.context", space.context)
    return space


def _gather_context(given: Mapping[str, object]) -> Mapping[str, object]:
    """Move options of contexts that stand among the settings of `generate` into their `context`."""
    if not isinstance(given, Mapping):
        return given
    moved = {name: value for name, value in given.items() if name in CONTEXT_SETTINGS and name != "token_budget"}
    context = given.get("context") or {}
    if not moved or not isinstance(context, Mapping):
        return given
    clean_context_settings("generate", moved)
    twice = sorted(moved.keys() & context.keys())
    if twice:
        raise InvalidInput(f"generate.{twice[0]}", f"was given twice: here and in generate.context.{twice[0]}")
    return {**{name: one for name, one in given.items() if name not in moved}, "context": {**context, **moved}}


def _make_from_mapping(field: str, kind: type[T], given: object) -> T:
    if not isinstance(given, Mapping):
        raise InvalidInput(field, "must be a mapping")
    known = [one.name for one in fields(kind)]
    unknown = given.keys() - set(known)
    if unknown:
        name = sorted(unknown)[0]
        hint = f"; did you mean {field}.context.{name}?" if name in CONTEXT_SETTINGS else ""
        if name in MODEL_PARAMETERS:
            hint = f"; model parameters go in generate(…, settings={{{name!r}: …}})"
        raise InvalidInput(f"{field}.{name}", f"unknown; the options are {', '.join(known)}{hint}")
    return kind(**given)
