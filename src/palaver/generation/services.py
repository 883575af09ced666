"""The services that answers in one conversation are made with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from palaver.generation.settings import GenerationContext
from palaver.model import Scope
from palaver.models.budgets import Budgets
from palaver.ports.clock import Clock, Ids
from palaver.ports.conversation import ContextSource, ConversationSearch
from palaver.ports.engine import Engine
from palaver.telemetry import Meter


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationServices:
    """Everything that an answer needs besides its conversation and its options."""

    shared: GenerationContext
    engine: Engine
    scope: Scope
    clock: Clock
    ids: Ids
    meter: Meter
    budgets: Budgets
    contexts: ContextSource
    search: ConversationSearch
    redact_content: Callable[[str], Awaitable[str]]  # for stored text, if the conversation asks for redaction
    lease: float  # seconds without a sign of life after which an answer's process counts as gone
    redact_record: Callable[[str], str]  # for the request log, which never holds secrets
