"""Writers of summaries and titles: the application's summariser, a model, or the offline rules in place of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial

from palaver.core.budgets import payer_of
from palaver.core.concurrency import Pause, no_pause
from palaver.core.identity import canonical_json
from palaver.errors import BudgetExceeded, PalaverError
from palaver.memory.compaction import SUMMARY_TOKENS, Compaction
from palaver.memory.model_calls import BUDGET_REACHED, name_postponed
from palaver.memory.retention import retention_of
from palaver.memory.worker.model_calls import CallLimit
from palaver.memory.worker.services import JobServices, log
from palaver.model import ConversationInfo, Request, Scope, Summary, Turn
from palaver.models.budgets import PlannedCall
from palaver.models.model_summarizer import ModelSummarizer, RecordCall, ReserveCall, check_summary
from palaver.models.offline import summarizer as offline
from palaver.models.offline import topic_summarizer
from palaver.models.prices import Price
from palaver.models.registry import OFFLINE
from palaver.models.request_log import RequestRecorder
from palaver.models.response_accumulator import ModelResponse
from palaver.ports.models import ChatModel, Counter, Summarizer, Usage

Write = Callable[[Summarizer], Awaitable[str]]


@dataclass(slots=True)
class OfflineSummarizer:
    """Extracts sentences, without a model; where the words of turns are not kept, only topics."""

    counter: Counter
    pause: Pause = no_pause
    keeps_words: bool = True

    @property
    def name(self) -> str:
        return offline.NAME if self.keeps_words else topic_summarizer.NAME

    async def summarize(self, turns: Sequence[Turn], budget: int) -> str:
        if not self.keeps_words:
            topics = partial(topic_summarizer.summarize, turns, budget=budget, count=self.counter)
            return await asyncio.to_thread(topics)
        work = partial(offline.summarize, turns, budget=budget, count=self.counter, pause=self.pause)
        return await asyncio.to_thread(work)

    async def merge(self, summaries: Sequence[Summary], budget: int) -> str:
        work = partial(offline.merge, summaries, budget=budget, count=self.counter, pause=self.pause)
        return await asyncio.to_thread(work)


def model_writer(
    services: JobServices, scope: Scope, info: ConversationInfo, name: str | None
) -> ModelSummarizer | None:
    """Return a writer over the model of that name, or the conversation's own; None when that is the offline model."""
    if services.models is None:
        return None
    chosen = name or services.models.choose(info)
    model, price = services.models.chat(chosen), services.models.price(chosen)
    if model.adapter == OFFLINE:
        return None
    record = _recorder(services, scope, info, model, price)
    return ModelSummarizer(model, services.counter, record, reserve=_reserver(services, scope, info, model, price))


def _reserver(
    services: JobServices, scope: Scope, info: ConversationInfo, model: ChatModel, price: Price | None
) -> ReserveCall | None:
    """Return the function that counts each call in the budgets of the conversation's owner."""
    budgets = services.budgets
    if budgets is None:
        return None

    def reserve(body: dict[str, object], response: ModelResponse) -> AbstractAsyncContextManager[None]:
        call = PlannedCall(model, price, services.counter(canonical_json(body)), body)
        return budgets.reserved(payer_of(scope, info.owner), call, lambda: response)

    return reserve


def _recorder(
    services: JobServices, scope: Scope, info: ConversationInfo, model: ChatModel, price: Price | None
) -> RecordCall:
    """Return the function that stores each call of the model as a request of the conversation."""
    at = services.clock.now()

    async def record(purpose: str, body: dict[str, object], response: dict[str, object]) -> None:
        request = Request(
            id=services.ids(),
            conversation=info.id,
            at=at,
            model=model.name,
            adapter=model.adapter,
            purpose=purpose,
            body=body,
        )
        usage = Usage(**response["usage"])  # type: ignore[arg-type]
        cost = {} if price is None else {"cost": price.cost(usage)}
        await RequestRecorder(services.engine, scope, request, services.cached_redactor, None).finish(
            {**response, **cost}, None
        )
        services.meter.answered(usage)

    return record


async def write_summary(limit: CallLimit, info: ConversationInfo, write: Write) -> tuple[str, str]:
    """Return a redacted text and the name of its writer.

    When the chosen writer fails, is too slow or writes nothing, or may not be called now, the offline one takes its
    place, and the name says so: "offline-extractive-1 (in place of openai:gpt-5)".
    """
    text, name = await _write_or_replace(limit, info, write)
    # The turns were redacted before, and the text is again: a summary may join what stood apart.
    return limit.services.redactor.redact(text).text, name


async def _write_or_replace(limit: CallLimit, info: ConversationInfo, write: Write) -> tuple[str, str]:
    services = limit.services
    keeps_words = retention_of(info.settings) == "full"
    offline_writer = OfflineSummarizer(services.counter, services.pause(), keeps_words)
    try:
        writer = _chosen_summarizer(services, limit.scope, info)
    except PalaverError as problem:  # no key, no such model, a missing extra
        _log_failure(_wanted_model(services, info), info, problem)
        return await write(offline_writer), f"{offline_writer.name} (in place of {_wanted_model(services, info)})"
    if writer is None:
        return await write(offline_writer), offline_writer.name
    if refusal := await limit.refusal(info, waits=writer is not services.summarizer):
        return await write(offline_writer), name_postponed(offline_writer.name, writer.name, refusal)
    if writer is services.summarizer:
        await limit.record("summarize", writer.name)
    try:
        async with asyncio.timeout(services.model_seconds):  # before 3.12, wait_for may swallow a cancellation
            text = await write(writer)
        return check_summary(text, SUMMARY_TOKENS, services.counter), writer.name
    except BudgetExceeded:
        return await write(offline_writer), name_postponed(offline_writer.name, writer.name, BUDGET_REACHED)
    except Exception as problem:  # a provider's client may raise anything, and no chat may wait for it
        _log_failure(writer.name, info, problem)
        return await write(offline_writer), f"{offline_writer.name} (in place of {writer.name})"


def _chosen_summarizer(services: JobServices, scope: Scope, info: ConversationInfo) -> Summarizer | None:
    """Return the application's summariser, or a writer over `summarizer_model`, by default the conversation's model."""
    wanted = Compaction.of(info.settings).summarizer_model
    return services.summarizer or model_writer(services, scope, info, wanted)


def _wanted_model(services: JobServices, info: ConversationInfo) -> str | None:
    chosen = services.models.choose(info) if services.models is not None else None
    return Compaction.of(info.settings).summarizer_model or chosen


def _log_failure(name: str | None, info: ConversationInfo, problem: Exception) -> None:
    kind = type(problem).__name__
    log.warning("summarizer %s failed (%s) in conversation %s; the offline one writes instead", name, kind, info.id)
