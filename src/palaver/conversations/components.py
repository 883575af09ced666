"""The objects that an open database is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from palaver.context.builder import ContextBuilder
from palaver.conversations.clock_watch import ClockWatch
from palaver.conversations.lifetime import Lifetime
from palaver.conversations.live_buffer import Unflushed
from palaver.conversations.open_options import STREAM_FLUSH, STREAM_LEASE
from palaver.conversations.redaction import HeldBackStreams
from palaver.core.turn_draft import DraftBuilder
from palaver.files.reader import Files
from palaver.generation.settings import GenerationContext
from palaver.memory.worker.loop import Worker
from palaver.models.budgets import Budgets
from palaver.models.embedding_budget import EmbeddingBudget
from palaver.models.token_ratio import TokenRatios
from palaver.ports.blobs import Blobs
from palaver.ports.clock import Clock, Ids
from palaver.ports.engine import Engine, TokenEngine
from palaver.recall.service import RecallService
from palaver.telemetry import Meter

if TYPE_CHECKING:
    from palaver.redaction.findings import Redactor


class SignedInEngine(Engine, TokenEngine, Protocol):
    """An engine that works for the user of one token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """The objects that one open database works with. All its scopes share them."""

    engine: Engine
    blobs: Blobs
    drafts: DraftBuilder
    ids: Ids
    contexts: ContextBuilder
    worker: Worker
    clock: Clock
    clock_watch: ClockWatch
    generation: GenerationContext
    budgets: Budgets
    redactor: Redactor  # for turns, before they are stored
    redact_record: Callable[[str], str]  # for the request log
    held_back: HeldBackStreams
    unflushed: Unflushed = field(default_factory=Unflushed)
    meter: Meter = field(default_factory=Meter)
    lifetime: Lifetime = field(default_factory=Lifetime)
    stream_lease: float = STREAM_LEASE
    stream_flush: float = STREAM_FLUSH
    blobs_chosen: bool = False  # by the application, for all callers

    def signed_in(self, engine: SignedInEngine) -> Components:
        """Return the components for the user that `engine` is signed in as: only the shared caches stay the same."""
        blobs = self.blobs if self.blobs_chosen else engine.blobs
        budgets = Budgets(engine, self.clock, is_on=engine.is_service)
        embedding_budget = EmbeddingBudget.of(self.worker.embedder, budgets, self.worker.models)
        recall = RecallService(engine, self.worker.embedder, self.clock, budget=embedding_budget)
        return replace(
            self,
            engine=engine,
            blobs=blobs,
            contexts=ContextBuilder(engine, recall, self.contexts.counter),
            budgets=budgets,
            worker=replace(self.worker, engine=engine, budgets=budgets, files=Files(engine, blobs)),
            generation=replace(self.generation, token_ratios=TokenRatios(engine)),
        )
