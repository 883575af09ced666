"""The prompt of one model call: the context, the client's own history, images, and the token budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import NamedTuple

from palaver.context.client_history import ClientHistory
from palaver.context.inputs import Context
from palaver.context.options import OVERHEAD_TOKENS, parse_options
from palaver.context.render import Message, prepend
from palaver.context.settings import counts_characters
from palaver.core.concurrency import run_in_strides
from palaver.core.identity import canonical_json
from palaver.errors import BudgetTooSmall
from palaver.generation.plan import AnswerPlan
from palaver.generation.progress import Progress
from palaver.generation.tool_clearing import NOTHING, Cleared, clear_tool_uses
from palaver.models.tokens import counter_for
from palaver.ports.conversation import Thread
from palaver.ports.models import Quote

HISTORY_SHARE = 3  # a client's history takes a third of the budget at most
QUOTED_HITS = 40
# A prompt teaches how the provider counts only if it fills a quarter of its budget. In a short one, the tokens that a
# provider adds to every prompt would distort the ratio, and the ratio matters only near the budget.
TEACHING_SHARE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The input of a model call.

    `counted` is our own count of its tokens. A provider that keeps its responses gets only the `new` messages and the
    id of the `previous` response.
    """

    context: Context
    at: datetime  # just before the context was read
    messages: tuple[Message, ...]
    counted: int
    budget: int
    ratio: float = 1.0  # the provider's token count divided by ours
    quotes: tuple[Quote, ...] = ()
    cleared: Cleared = NOTHING
    previous: str | None = None
    new: tuple[Message, ...] = ()


class PromptBudget(NamedTuple):
    """The tokens of a prompt: in all, for tools and history, and for the context. None: its policy decides."""

    total: int
    extra: int
    context: int | None


async def build_prompt(plan: AnswerPlan, progress: Progress, history: ClientHistory, ratio: float) -> Prompt:
    """Build the next prompt of an answer. `ratio` is the provider's token count divided by ours."""
    at = plan.services.clock.now()
    history = _trim_history(plan, history)
    budget = _plan_budget(plan, history, ratio)
    context = await _build_context(plan, progress, budget)
    messages = [await _inline_images(plan.thread, message) for message in _insert_history(context, history)]
    counted = context.tokens + budget.extra
    messages, cleared = _clear_tools(plan, messages, counted)
    return Prompt(
        context=context,
        at=at,
        messages=tuple(messages),
        counted=counted - cleared.tokens,
        cleared=cleared,
        budget=budget.total,
        ratio=ratio,
        quotes=await _find_quotes(plan, progress),
    )


async def _build_context(plan: AnswerPlan, progress: Progress, budget: PromptBudget) -> Context:
    options = dict(plan.context)
    if budget.context is not None:
        options["token_budget"] = budget.context
    return await plan.services.contexts.build(
        parse_options(
            **options,
            instructions=plan.instructions,
            viewer=plan.options.agent,
            filter_participants=plan.agent.sees,
            model=plan.model.name,
        ),
        progress.bound,
    )


# ---- the budget


def _plan_budget(plan: AnswerPlan, history: ClientHistory, ratio: float) -> PromptBudget:
    if counts_characters(plan.context):
        return PromptBudget(2**31, 0, None)
    total = plan.total_budget
    specs = [canonical_json([spec.name, spec.description, dict(spec.parameters)]) for spec in plan.tool_specs]
    extra = _count(plan, [*specs, history.text])
    left = int(total / ratio) - extra
    if left < 1:
        raise BudgetTooSmall("the descriptions of the tools", needed=extra, budget=total, unit="tokens")
    return PromptBudget(total, extra, left)


def _trim_history(plan: AnswerPlan, history: ClientHistory) -> ClientHistory:
    if counts_characters(plan.context):
        return history
    limit = plan.total_budget // HISTORY_SHARE
    while history.messages and _count(plan, [history.text]) > limit:
        history = history.without_oldest()
    return history


def _count(plan: AnswerPlan, texts: Sequence[str]) -> int:
    count = counter_for(plan.model.name)
    return sum(count(text) + OVERHEAD_TOKENS for text in texts if text)


def can_teach_ratio(plan: AnswerPlan, prompt: Prompt, body: Mapping[str, object]) -> bool:
    """Return whether the provider's token count of this prompt can be compared with ours."""
    same = "previous_response_id" not in body and not _has_images(prompt.messages)
    near = prompt.counted * TEACHING_SHARE >= prompt.context.explanation.budget
    return same and near and not counts_characters(plan.context)


def _has_images(messages: Sequence[Mapping[str, object]]) -> bool:
    return any(not isinstance(message["content"], str) for message in messages)


# ---- messages


def _clear_tools(plan: AnswerPlan, messages: list[Message], counted: int) -> tuple[list[Message], Cleared]:
    if plan.options.clear_tool_uses is None:
        return messages, NOTHING
    return clear_tool_uses(messages, plan.options.clear_tool_uses, counted, counter_for(plan.model.name))


def _insert_history(context: Context, history: ClientHistory) -> list[Message]:
    """Quote the client's history at the head of the current message."""
    messages = list(context.messages)
    text, place = history.text, context.stable
    if text and place < len(messages):
        messages[place] = prepend(messages[place], text)
    return messages


async def _inline_images(thread: Thread, message: Message) -> Message:
    """Replace images that are stored here with data: URLs."""
    if isinstance(message["content"], str):
        return message
    parts = [
        {**part, "url": await thread.data_url(part["attachment"])}
        if part["type"] == "image" and part.get("attachment") and not part.get("url")
        else part
        for part in message["content"]
    ]
    return {**message, "content": parts}


async def _find_quotes(plan: AnswerPlan, progress: Progress) -> tuple[Quote, ...]:
    """Find the turns that fit the question best, for a model that quotes them."""
    question, bound = progress.question, progress.bound
    if not getattr(plan.model, "quotes", False) or question is None or not question.text.strip():
        return ()
    assert bound is not None
    from palaver.models.offline.chat import quotes_of

    hits = await plan.thread.recall(question.text, QUOTED_HITS, include_facts=False)
    before = [hit for hit in hits if hit.turn is not None and not bound.excludes(hit.turn)]
    others = [hit for hit in before if hit.turn is not None and hit.turn.id != question.id]
    size = sum(len(hit.turn.text) for hit in others if hit.turn is not None)
    return await run_in_strides(partial(quotes_of, question.text, others), size)
