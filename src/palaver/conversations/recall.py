"""Recall: the turns and facts of a conversation that fit a question best."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from palaver.context.builder import recall_scope_for
from palaver.context.options import RecallRange
from palaver.conversations.arguments import one_of, optional_moment
from palaver.conversations.emptiness import EmptyResults
from palaver.conversations.handle import Handle
from palaver.core.filters import NO_FILTER, TurnFilter, Where, clean_where
from palaver.core.identity import micros
from palaver.core.turn_options import Moment
from palaver.core.validation import clean_limit, clean_text
from palaver.errors import InvalidInput
from palaver.memory.settings import kind_of
from palaver.model import READ, Empty, Fact, RecallHit, Results, Scope
from palaver.ports.recall import RecallScope
from palaver.recall.emptiness import NOTHING_ASKED, explain_ranking
from palaver.recall.service import RecallService
from palaver.recall.terms import MAX_QUERY
from palaver.telemetry import Telemetry

if TYPE_CHECKING:  # numpy is imported when something is recalled, not when a store is opened
    from palaver.recall.ranking import ScoredFact

MAX_HITS = 1_000
MIN_FACT_SIMILARITY = 0.1  # for a fact that shares no word with the question


class Recall:
    """A recall that has not run yet: `hits = await talk.recall(…)`, or `async for hit in talk.recall(…)`."""

    def __init__(self, search: Callable[[], Coroutine[Any, Any, Results[RecallHit]]]) -> None:
        self._search = search

    def __await__(self) -> Generator[Any, None, Results[RecallHit]]:
        return self._search().__await__()

    async def __aiter__(self) -> AsyncIterator[RecallHit]:
        for hit in await self._search():
            yield hit


@dataclass(frozen=True, slots=True)
class RecallQuery:
    """The checked arguments of one recall."""

    text: str
    k: int
    where: RecallScope
    threshold: float | None
    since: int | None
    until: int | None
    include_facts: bool
    only: TurnFilter = NO_FILTER
    unrelated: bool = False


@dataclass(frozen=True, slots=True)
class ConversationRecall:
    """Recalls on behalf of one conversation."""

    handle: Handle
    service: RecallService
    telemetry: Telemetry
    empties: EmptyResults

    def recall(
        self,
        query: str,
        k: int,
        *,
        scope: RecallRange,
        threshold: float | None,
        since: Moment | None,
        until: Moment | None,
        include_facts: bool,
        where: Where | None,
    ) -> Recall:
        self.handle.require(READ)
        wanted = clean_where(where)
        only = replace(wanted, since=None, until=None)  # the time bounds turns and facts alike
        checked = RecallQuery(
            text=clean_text("query", query),
            k=clean_limit("k", k, MAX_HITS),
            where=recall_scope_for(scope, self.handle.info),
            threshold=_clean_threshold(threshold),
            since=one_of("since", optional_moment("since", since), wanted.since),
            until=one_of("until", optional_moment("until", until), wanted.until),
            include_facts=include_facts and only.is_empty,  # a fact has no role and no metadata
            only=only,
            unrelated=scope == "conversation" and kind_of(self.handle.info.settings) == "items",
        )
        return Recall(lambda: self._search(checked))

    async def _search(self, query: RecallQuery) -> Results[RecallHit]:
        if not query.text.strip() or not query.k:
            return self.empties.report("recall", (), NOTHING_ASKED)
        with self.telemetry.memory("search_memory", self.handle.id) as span:
            hits = await find_hits(self.service, self.handle.scope, query)
            span.set(gen_ai__memory__record__count=len(hits))
            return self.empties.report("recall", hits, await self._why_empty(query, hits.empty))

    async def _why_empty(self, query: RecallQuery, empty: Empty | None) -> Empty | None:
        if empty is None or query.where.conversation is None:
            return empty
        return await self.empties.in_conversation(self.handle.scope, self.handle.info, empty)


async def find_hits(service: RecallService, scope: Scope, query: RecallQuery) -> Results[RecallHit]:
    """Return the turns and facts that fit a question best, within what a scope may see."""
    text = query.text[:MAX_QUERY]
    ranking = await service.rank(
        scope,
        query.where,
        text,
        query.k,
        since=query.since,
        until=query.until,
        only=query.only,
        unrelated=query.unrelated,
    )
    totals = ranking.scores.total
    relevance = {int(i): round(float(ranking.scores.relevance[i]), 4) for i in ranking.order[: query.k]}
    best = [i for i in relevance if query.threshold is None or relevance[i] >= query.threshold]
    turns = await service.turns(scope, ranking, best)
    tids = {i: int(ranking.profile.tid[i]) for i in turns}
    quotes = await service.quotes(scope, {tids[i]: turn for i, turn in turns.items()}, query.text)
    hits = [
        RecallHit(
            score=float(totals[i]),
            relevance=relevance[i],
            turn=turns[i],
            quote=quotes.get(tids[i]),
            parts=ranking.scores.parts(i),
        )
        for i in best
        if i in turns
    ]
    if query.include_facts:
        hits += _fact_hits(await service.facts(scope, query.where, text, ranking), query)
    hits.sort(key=lambda hit: -hit.score)
    empty = None if hits else explain_ranking(ranking, query.threshold, embeds=service.embedder is not None)
    return Results.of(hits[: query.k], empty)


def _fact_hits(facts: Sequence[ScoredFact], query: RecallQuery) -> list[RecallHit]:
    """Return the facts that hold a word of the question or are similar in meaning."""
    fitting = [
        RecallHit(score=sum(parts.values()), relevance=round(relevance, 4), fact=fact, parts=parts)
        for fact, parts, relevance in facts
        if _is_between(fact, query.since, query.until) and (parts["lexical"] or parts["dense"] >= MIN_FACT_SIMILARITY)
    ]
    return [hit for hit in fitting if hit.relevance >= (query.threshold or 0.0)]


def _is_between(fact: Fact, since: int | None, until: int | None) -> bool:
    said = micros(fact.valid_from)
    return (since is None or said >= since) and (until is None or said < until)


def _clean_threshold(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInput("threshold", "must be a number")
    if not abs(value) < 2**53:  # NaN is refused, too
        raise InvalidInput("threshold", "is too large")
    return value
