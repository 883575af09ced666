"""The settings of `generate`, the agents, and the state that all answers of an open store share."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary

from palaver.core.validation import clean_name, clean_text
from palaver.errors import InvalidInput
from palaver.generation.provider_thread import Continuity, ProviderThreads, clean_continuity
from palaver.models.registry import OFFLINE, ModelRegistry, Named
from palaver.models.retry import RetryPolicy
from palaver.models.token_ratio import TokenRatios
from palaver.ports.engine import Engine
from palaver.telemetry import Telemetry, open_telemetry

T = TypeVar("T", "Agent", "GenerateSettings")


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An assistant with its own instructions, model, tools and view of the thread.

    `sees` are the actors whose turns are in its context; None means all of them.
    """

    instructions: str | None = None
    model: str | None = None
    tools: Sequence[object] = ()
    sees: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateSettings:
    """Defaults and limits of `generate`. A call may set its own token_budget, continuity, instructions and tools."""

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

    def __post_init__(self) -> None:
        clean_continuity(self.continuity)
        for name in ("history_messages", "tool_rounds", "tool_characters", "retries"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise InvalidInput(f"generate.{name}", "must be a whole number, 0 or more")
        if not self.tool_timeout > 0:
            raise InvalidInput("generate.tool_timeout", "must be a number of seconds above 0")

    @property
    def retry_policy(self) -> RetryPolicy:
        """How often a failed call of a model is retried, and how long it waits before each retry."""
        return RetryPolicy(most=self.retries, first=self.retry_pause, longest=self.longest_pause)


class RunningAnswer(Protocol):
    """An answer in progress, as others see it."""

    def stop(self) -> None: ...


@dataclass(slots=True)
class GenerationContext:
    """The state that all answers of one open store share. `running` is by tenant and conversation."""

    models: ModelRegistry
    settings: GenerateSettings
    agents: Mapping[str, Agent]
    token_ratios: TokenRatios
    telemetry: Telemetry
    provider_threads: ProviderThreads = field(default_factory=ProviderThreads)
    running: dict[tuple[str, str], set[RunningAnswer]] = field(default_factory=dict)
    _locks: WeakValueDictionary[tuple[str, str, str], asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def lock(self, tenant: str, conversation: str, key: str) -> asyncio.Lock:
        """Return the lock of an idempotency key: the second of two calls waits, and finds the answer of the first."""
        return self._locks.setdefault((tenant, conversation, key), asyncio.Lock())

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
    workspaces: Mapping[str, str] | None,
    settings: GenerateSettings | Mapping[str, object] | None,
    telemetry: object,
) -> GenerationContext:
    """Check the arguments of `palaver.open` that concern answers."""
    known = {clean_name("agents", name): _make_agent(name, given) for name, given in (agents or {}).items()}
    registry = ModelRegistry(
        default=model or OFFLINE,
        names=dict(models or {}),
        agents={name: agent.model for name, agent in known.items() if agent.model},
        workspaces=dict(workspaces or {}),
    )
    if not isinstance(settings, GenerateSettings):
        settings = _make_from_mapping("generate", GenerateSettings, settings or {})
    return GenerationContext(registry, settings, known, TokenRatios(engine), open_telemetry(telemetry))


def _make_agent(name: str, given: object) -> Agent:
    agent = given if isinstance(given, Agent) else _make_from_mapping(f"agents.{name}", Agent, given)
    if agent.instructions is not None:
        clean_text(f"agents.{name}.instructions", agent.instructions)
    return agent


def _make_from_mapping(field: str, kind: type[T], given: object) -> T:
    if not isinstance(given, Mapping):
        raise InvalidInput(field, "must be a mapping")
    known = [one.name for one in fields(kind)]
    unknown = given.keys() - set(known)
    if unknown:
        raise InvalidInput(f"{field}.{sorted(unknown)[0]}", f"unknown; the options are {', '.join(known)}")
    return kind(**given)
