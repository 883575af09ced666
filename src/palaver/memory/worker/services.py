"""The services that jobs use: the database, models, redaction and the throttle of one worker."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from palaver.core.concurrency import Pause, no_pause, run_in_strides
from palaver.core.strides import size_of
from palaver.files.reader import Files
from palaver.memory.model_calls import CALLS_PER_DAY
from palaver.memory.person_settings import PersonSettings
from palaver.memory.shapes import SubjectShape
from palaver.memory.worker.throttle import BackgroundThrottle
from palaver.model import ConversationInfo, Turn
from palaver.models.budgets import Budgets
from palaver.models.embedding_budget import EmbeddingBudget
from palaver.models.registry import ModelRegistry
from palaver.ports.clock import Clock, Ids
from palaver.ports.engine import Engine
from palaver.ports.models import Counter, Embedder, Extractor, Summarizer
from palaver.redaction.apply import redact_calls, redact_results
from palaver.redaction.cached import CachedRedactor
from palaver.redaction.findings import Redactor
from palaver.redaction.lazy import LazyRedactor
from palaver.telemetry import Meter

log = logging.getLogger("palaver.worker")  # types and ids only: a message of an exception may quote a conversation

TRIES = 6  # of a job before it is set aside, and of a write that is refused because the conversation has changed


@dataclass(slots=True)
class JobServices:
    """The services of one worker, shared by its jobs.

    `model_seconds` is how long a summariser, an extractor or a model that writes titles may take.
    `model_calls_per_day` is how often they are called for one conversation; None: without a limit.
    """

    engine: Engine
    counter: Counter
    ids: Ids
    clock: Clock
    redactor: Redactor = field(default_factory=LazyRedactor)
    embedder: Embedder | None = None
    summarizer: Summarizer | None = None
    extractor: Extractor | None = None
    extractor_model: str | None = None
    models: ModelRegistry | None = None
    budgets: Budgets | None = None
    meter: Meter = field(default_factory=Meter)
    files: Files | None = None
    model_seconds: float = 60.0
    model_calls_per_day: int | None = CALLS_PER_DAY
    person: PersonSettings = field(default_factory=PersonSettings)
    shapes: Mapping[str, SubjectShape] = field(default_factory=dict)
    in_background: bool = False  # in a process that serves requests at the same time
    cached_redactor: CachedRedactor = field(init=False)
    throttle: BackgroundThrottle = field(init=False)

    def __post_init__(self) -> None:
        self.throttle = BackgroundThrottle(self.engine)
        self.cached_redactor = CachedRedactor(self.redactor.redact)

    @property
    def embedding_budget(self) -> EmbeddingBudget | None:
        """The budget of the embedder; None if it is free."""
        return EmbeddingBudget.of(self.embedder, self.budgets, self.models)

    def pause(self) -> Pause:
        """Return the pause between two steps of work in a thread."""
        return self.throttle.pause() if self.in_background else no_pause

    def limit_of(self, info: ConversationInfo) -> int | None:
        """Return how many model calls a day background work may make for a conversation; None: without a limit."""
        given = info.settings.get("compaction") or {}
        limit: int | None = given.get("model_calls_per_day", self.model_calls_per_day)
        return limit

    async def clean(self, turns: Sequence[Turn]) -> list[Turn]:
        """Redact the turns, in strides if they are large."""
        size = sum(len(turn.text) + size_of((turn.tool_calls, turn.tool_results)) for turn in turns)
        return await run_in_strides(lambda: [self._clean(turn) for turn in turns], size)

    def _clean(self, turn: Turn) -> Turn:
        """Redact the turn: secrets must not reach anything that is derived from it."""
        redact = self.redactor.redact
        text = self.cached_redactor(turn.text)  # read twice: for the summary, and for working memory
        results = tuple(redact_results(turn.tool_results, redact))
        calls = tuple(redact_calls(turn.tool_calls, redact))
        content = turn.content if text == turn.text else text
        return structs.replace(turn, content=content, tool_results=results, tool_calls=calls)

    def clean_words(self, info: ConversationInfo) -> Callable[[str], Awaitable[str]]:
        """Return the function that redacts the text of a file, if the conversation has `redact` set."""

        async def clean(text: str) -> str:
            if not info.settings.get("redact"):
                return text
            return await run_in_strides(lambda: self.redactor.redact(text).text, len(text))

        return clean
