"""Recall as a service: reads from the engine, asks the embedder, and ranks with the pure modules.

Arrays over the turns of a scope are cached and extended as turns arrive; the caches are bounded. Words are always up to
date. Vectors follow through the outbox: until they are there, a turn is found by its words.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from palaver.core.bounded_dict import BoundedDict
from palaver.core.budgets import payer_of
from palaver.core.filters import NO_FILTER, TurnFilter
from palaver.core.matrix_threads import one_matrix_thread, with_one_matrix_thread
from palaver.errors import BudgetExceeded
from palaver.model import FileQuote, Scope, Turn
from palaver.models.embedding_budget import EmbeddingBudget
from palaver.models.offline.embedder import available as embedder_available
from palaver.ports.clock import Clock
from palaver.ports.engine import RecallStore
from palaver.ports.models import Embedder
from palaver.ports.ranking import RankingStore
from palaver.ports.recall import CandidateQuery, FactQuery, Nearest, RecallScope, RecallSize, VectorRows
from palaver.recall.languages import NAMES, recognise
from palaver.recall.terms import MAX_QUERY, terms

if TYPE_CHECKING:  # numpy is imported when something is recalled, not when a store is opened
    from palaver.recall.query import Query
    from palaver.recall.ranking import Filter, Ranking, ScoredFact
    from palaver.recall.scope_ranking import ScoredScope
    from palaver.recall.scoring import Floats, Lexical
    from palaver.recall.turn_arrays import IndexedProfile
    from palaver.recall.vectors import ConversationVectors, Nearness, PooledVectors, VectorSample

SIZE_AGE = timedelta(minutes=1)  # the size of a scope is read again after this time
GROWTH = 1.25  # a sample of vectors is read again when the scope has grown by a quarter


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallLimits:
    """Bounds of the caches, and of what is read for one question."""

    profiles: int = 32  # scopes whose arrays are cached
    pooled: int = 16_384  # passages of several conversations from which on their vectors are kept together
    vector_bytes: int = 256 * 1024 * 1024
    postings: int = 20_000  # passages per stem; a word that is everywhere says little
    huge: int = 300_000  # passages of a scope from which on fewer are read per stem
    postings_of_huge: int = 8_000
    all_vectors: int = 5_000  # passages: beyond this, the engine may be asked for the nearest vectors instead
    sample: int = 1_000  # vectors that stand for the rest, where only the nearest are read
    nearest: int = 500  # turns by meaning, where only the nearest are read
    by_words: int = 500  # turns by their words, whose cosines are read in addition
    all_turns: int = 20_000  # beyond this, the engine may be asked for candidates instead of all turns
    candidates: int = 300  # turns by words, and as many by meaning, where the engine ranks them


class _KnownScope(NamedTuple):
    """The turns of a scope, and how many passages and words they have."""

    turns: IndexedProfile
    passages: int
    words: int
    missing: int  # passages that are not in the text index, though they should be


class RecallService:
    """Ranks the turns of a scope for a question."""

    def __init__(
        self,
        engine: RecallStore,
        embedder: Embedder | None,
        clock: Clock,
        limits: RecallLimits | None = None,
        budget: EmbeddingBudget | None = None,
    ) -> None:
        self.engine, self.embedder, self.clock, self.budget = engine, embedder, clock, budget
        self.ranking_store = engine if isinstance(engine, RankingStore) else None
        self.limits = limits = limits or RecallLimits()
        self._profiles: BoundedDict[tuple[Scope, RecallScope], IndexedProfile] = BoundedDict(limits.profiles)
        self._lost_vectors: BoundedDict[tuple[Scope, RecallScope], int] = BoundedDict(limits.profiles)
        self._missing: BoundedDict[tuple[Scope, RecallScope], int] = BoundedDict(limits.profiles)
        self._samples: BoundedDict[tuple[Scope, RecallScope], VectorSample] = BoundedDict(limits.profiles)
        self._sizes: BoundedDict[tuple[Scope, RecallScope], tuple[datetime, RecallSize]] = BoundedDict(limits.profiles)
        self._vectors: OrderedDict[int, ConversationVectors] = OrderedDict()
        self._pools: OrderedDict[tuple[Scope, RecallScope], PooledVectors] = OrderedDict()
        self._lock = asyncio.Lock()
        self.note = self._describe()  # how the last question was looked for; a ranking has its own

    async def rank(
        self,
        scope: Scope,
        where: RecallScope,
        text: str,
        most: int,
        *,
        since: int | None = None,
        until: int | None = None,
        through: int | None = None,
        asked: tuple[int, int] | None = None,
        only: TurnFilter = NO_FILTER,
        unrelated: bool = False,
    ) -> Ranking:
        """Score every turn of the scope for this text, and return the best `most`.

        `since` and `until` bound the time; `through` the position, within one conversation. `asked` is the time and
        position of the turn that asks: it is not an answer to itself. `only` is a filter on metadata, speakers and
        roles. `unrelated` turns are not credited with what their neighbours say.
        """
        from palaver.recall.ranking import Filter, Hints, Ranking, count_words
        from palaver.recall.scope_ranking import score_scope

        bounds = Filter(
            since=since,
            until=until,
            through=through,
            asked=asked,
            actors=only.actors,
            roles=only.roles,
            unrelated=unrelated,
        )
        if self.ranking_store is not None and where.conversation is None:
            size = await self._read_size(self.ranking_store, scope, where)
            if size.turns > self.limits.all_turns:
                return await self._rank_candidates(self.ranking_store, scope, where, size, text, most, bounds, only)
        if only.metadata:
            bounds = await self._with_metadata(scope, where, bounds, only)
        async with self._lock:
            known = await self._read_profile(scope, where)
        turns = known.turns
        query = self._parse(text, turns.profile.actors)
        postings = {}
        if query.stems:
            most_postings = self.limits.postings_of_huge if known.passages > self.limits.huge else self.limits.postings
            postings = await self.engine.postings(scope, where, query.all_stems, most_postings)
        lexical = count_words(turns, query, postings, passages=known.passages, words=known.words)
        near = self._on_scale(await self._compare(scope, where, query, turns, lexical))
        scored = await asyncio.to_thread(score_scope, turns.profile, query, lexical, near, most, bounds)
        if query.collects and near.question is not None and near.sample is None:
            wider = await asyncio.to_thread(with_one_matrix_thread(self._widen), (scope, where), turns, near, scored)
            scored = await asyncio.to_thread(score_scope, turns.profile, query, lexical, near, most, bounds, wider)
        note = self._describe(near, query)
        lost = (_lost_note(known.missing, "passages"), _lost_note(self._lost_vectors.get((scope, where), 0), "vectors"))
        self.note = note = "; ".join(filter(None, (note, *lost, self.engine.index_problem())))
        profile, scores, order = scored
        return Ranking(profile, scores, order, note, near, hints=Hints.of(query, lexical))

    async def _with_metadata(self, scope: Scope, where: RecallScope, bounds: Filter, only: TurnFilter) -> Filter:
        """Let a filter on metadata choose the turns to rank."""
        import numpy as np

        return replace(bounds, tids=np.array(await self.engine.turns_where(scope, where, only.metadata), np.int64))

    async def _rank_candidates(
        self,
        store: RankingStore,
        scope: Scope,
        where: RecallScope,
        size: RecallSize,
        text: str,
        most: int,
        bounds: Filter,
        only: TurnFilter,
    ) -> Ranking:
        """Rank the turns of a large scope that the engine finds by words, by meaning and by dates, with neighbours."""
        import numpy as np

        from palaver.recall.candidates import build_arrays, compare, count_words
        from palaver.recall.dates import spans
        from palaver.recall.ranking import Hints, Ranking, rank_turns
        from palaver.recall.vectors import aim_at_sample

        now = self.clock.now()
        query = self._parse(text, size.actors)
        question, refusal = await self._embed(scope, where, query)
        sample = None if question is None else await self._read_sample(store, scope, where, size.passages)
        if question is not None and sample is not None:
            question = aim_at_sample(question, sample)
        wanted = CandidateQuery(
            stems=query.all_stems,
            size=size,
            by_words=max(most, self.limits.candidates),
            by_meaning=max(most, self.limits.candidates),
            model=self.embedder.name if self.embedder else None,
            asked=None if question is None or sample is None else question.tolist(),
            spans=spans(query.dates, now),
            since=bounds.since,
            until=bounds.until,
            filter=only,
        )
        found = await store.candidates(scope, where, wanted)
        if found.matching is not None:
            bounds = replace(bounds, tids=np.array(found.matching, np.int64))
        turns, typical = build_arrays(found)
        query = self._parse(text, turns.profile.actors)  # its codes of actors are those of these turns
        lexical = count_words(turns, query, found, size)
        near = self._on_scale(compare(turns, found, sample, question))
        args = (turns.profile, query, lexical, near, most, bounds, typical)
        scores, order = await asyncio.to_thread(rank_turns, *args)
        near = near._replace(refusal=refusal)
        self.note = note = self._describe(near, query)
        return Ranking(turns.profile, scores, order, note, near, is_sparse=True, hints=Hints.of(query, lexical))

    async def _read_size(self, store: RankingStore, scope: Scope, where: RecallScope) -> RecallSize:
        """Return how large a scope is, as it was less than a minute ago."""
        now, known = self.clock.now(), self._sizes.get((scope, where))
        if known is None or not timedelta() <= now - known[0] < SIZE_AGE:
            known = now, await store.recall_size(scope, where, self.limits.all_turns)
            self._sizes[scope, where] = known
        return known[1]

    def _parse(self, text: str, actors: Sequence[str]) -> Query:
        from palaver.recall.query import parse

        query = parse(text, actors, self.clock.now())
        return query if self._knows(query) else replace(query, words_first=True)

    def _knows(self, query: Query) -> bool:
        """Return whether the embedder knows the language of a question. One that does not say knows all of them."""
        known = getattr(self.embedder, "languages", None)
        return self.embedder is None or known is None or (query.language or "en") in known

    def _describe(self, near: Nearness | None = None, query: Query | None = None) -> str:
        if self.embedder is None:
            how = "none is in use" if embedder_available() else "its files are missing: reinstall palaver"
            return f"by words alone: no embedder ({how})"
        if near is not None and near.refusal is not None:
            return f"by words alone: {near.refusal}"
        if near is not None and near.question is None:
            return f"by words alone: {self.embedder.name} failed"
        how = f"by words and meaning ({self.embedder.name})"
        if query is None or not query.words_first:
            return how
        return f"{how}; the embedder does not know {NAMES[query.language or 'en']}, so words count more"

    def describe_languages(self, texts: Sequence[str]) -> str:
        """Say that turns are in languages that the embedder does not know."""
        known = getattr(self.embedder, "languages", None)
        if known is None:
            return ""
        found = Counter(language for text in texts if (language := recognise(text)) is not None)
        unknown = [
            f"{count:,} in {NAMES[language]}" for language, count in found.most_common() if language not in known
        ]
        return f"; turns in a language that the embedder does not know: {', '.join(unknown)}" if unknown else ""

    async def turns(self, scope: Scope, ranking: Ranking, indices: Sequence[int]) -> dict[int, Turn]:
        """Read the turns at these indices, as they are stored now."""
        tids = {i: int(ranking.profile.tid[i]) for i in indices}
        turns = await self.engine.turns_by_number(scope, list(tids.values()))
        return {i: turns[tid] for i, tid in tids.items() if tid in turns}

    async def quotes(self, scope: Scope, turns: Mapping[int, Turn], text: str) -> dict[int, FileQuote]:
        """Read passages that fit the question from the files of these turns, by the numbers of the turns."""
        tids = [tid for tid, turn in turns.items() if turn.attachments]
        stems = tuple(dict.fromkeys(terms(text[:MAX_QUERY])))
        return await self.engine.file_quotes(scope, tids, stems) if tids and stems else {}

    async def facts(self, scope: Scope, where: RecallScope, text: str, ranking: Ranking) -> list[ScoredFact]:
        """Read the facts of the scope, and score each by words and by meaning."""
        from palaver.recall.ranking import compare_facts, score_facts

        if self.ranking_store is not None and ranking.is_sparse:
            return await self._find_facts(self.ranking_store, scope, where, text, ranking)
        facts = await self.engine.facts_where(scope, where)
        vectors = {}
        if facts and self.embedder is not None and ranking.near.question is not None:
            vectors = await self.engine.fact_vectors(scope, where, self.embedder.name)
        query = self._parse(text, ranking.profile.actors)
        with one_matrix_thread:
            cosines = compare_facts(vectors, ranking.near)
        return score_facts(facts, query, cosines, ranking.near.alike)

    async def _find_facts(
        self, store: RankingStore, scope: Scope, where: RecallScope, text: str, ranking: Ranking
    ) -> list[ScoredFact]:
        """Score the facts of a large scope that the engine finds by words and by meaning."""
        from palaver.recall.ranking import compare_facts, score_facts

        query = self._parse(text, ranking.profile.actors)
        question = ranking.near.question
        wanted = FactQuery(
            stems=query.stems,
            most=self.limits.candidates,
            model=self.embedder.name if self.embedder else None,
            asked=None if question is None else question.tolist(),
        )
        found = await store.facts_found(scope, where, wanted)
        vectors = {one.fact.id: one.vector for one in found if one.vector}
        facts = [one.fact for one in found]
        with one_matrix_thread:
            cosines = compare_facts(vectors, ranking.near)
        return score_facts(facts, query, cosines, ranking.near.alike)

    # ---- the profile

    async def _read_profile(self, scope: Scope, where: RecallScope) -> _KnownScope:
        from palaver.recall.turn_arrays import IndexedProfile, Profile, read_row

        known = self._profiles.pop((scope, where), None)
        stamp, through = (known.stamp, known.through) if known is not None else (None, 0)
        rows = await self.engine.profile(scope, where, stamp, through)
        missing = self._missing.get((scope, where), 0) if rows.missing is None else rows.missing
        known = known.update(rows.rows, rows.stamp, rows.through) if known is not None and not rows.fresh else None
        if known is not None and rows.total not in (None, len(known.profile)):  # a turn came late, and is missing
            rows, known = await self.engine.profile(scope, where, None, 0), None
        if known is None:
            known = IndexedProfile.of(Profile.build(map(read_row, rows.rows)), rows.stamp, rows.through)
        self._profiles[scope, where] = known
        self._missing[scope, where] = missing
        return _KnownScope(known, rows.passages, rows.terms, missing)

    # ---- vectors

    async def _compare(
        self, scope: Scope, where: RecallScope, query: Query, known: IndexedProfile, lexical: Lexical
    ) -> Nearness:
        """Compare the question with the vectors of the scope: with all of them, or with the nearest of very many."""
        from palaver.recall.vectors import Nearness, compare_with_all, compare_with_pool

        # Before the vectors: a service may learn its dimensions with this answer.
        question, refusal = await self._embed(scope, where, query)
        if question is None:
            return Nearness(refusal=refusal)
        if self.ranking_store is not None and lexical.passages > self.limits.all_vectors:
            sample = await self._read_sample(self.ranking_store, scope, where, lexical.passages)
            if sample is not None:
                return await self._find_nearest(self.ranking_store, scope, where, known, lexical, sample, question)
        async with self._lock:
            if where.conversation is None and lexical.passages > self.limits.pooled:
                pool = await self._read_pool(scope, where, known)
                return await asyncio.to_thread(with_one_matrix_thread(compare_with_pool), known, pool, question)
            self._pools.pop((scope, where), None)
            await self._read_vectors(scope, where, known)
            vectors = [self._vectors[cid] for cid in known.conversations if cid in self._vectors]
        return await asyncio.to_thread(with_one_matrix_thread(compare_with_all), known, vectors, question)

    def _widen(
        self, key: tuple[Scope, RecallScope], known: IndexedProfile, near: Nearness, scored: ScoredScope
    ) -> Nearness | None:
        """Compare the turns with the question and the best turns together. None if those have no vectors."""
        from palaver.recall.scoring import DEFAULT, widen
        from palaver.recall.vectors import compare_with_all, compare_with_pool, vectors_of

        assert near.asked is not None
        pool = self._pools.get(key)
        vectors = [self._vectors[cid] for cid in known.conversations if cid in self._vectors]
        best = scored.profile.tid[scored.order[: DEFAULT.feedback_turns]].tolist()
        nearest = vectors_of(vectors if pool is None else [pool.held], best)
        if not len(nearest):
            return None
        question = widen(near.asked, nearest)
        return compare_with_all(known, vectors, question) if pool is None else compare_with_pool(known, pool, question)

    def _on_scale(self, near: Nearness) -> Nearness:
        """Use the scale of the embedder's cosines, if it is known."""
        typical = getattr(self.embedder, "typical_cosine", None)
        return near if typical is None else near._replace(alike=near.alike.on_scale(typical))

    async def _embed(self, scope: Scope, where: RecallScope, query: Query) -> tuple[Floats | None, str | None]:
        """Embed the question. None if there is no embedder or it failed; None and the reason if a budget refused it.

        The user of the scope pays. If the application asks, the owner of the searched conversations pays.
        """
        import numpy as np

        if self.embedder is None:
            return None, None
        try:
            if self.budget is not None:
                await self.budget.take(payer_of(scope, where.owner or ""), [query.dense_text])
            return np.asarray((await self.embedder.embed([query.dense_text]))[0], np.float32), None
        except BudgetExceeded as problem:
            return None, str(problem)
        except Exception:  # a provider's client may raise anything, and turns are found by their words without it
            return None, None

    async def _find_nearest(
        self,
        store: RankingStore,
        scope: Scope,
        where: RecallScope,
        known: IndexedProfile,
        lexical: Lexical,
        sample: VectorSample,
        question: Floats,
    ) -> Nearness:
        """Read the cosines of the turns that are near by meaning or by words."""
        from palaver.recall.vectors import aim_at_sample, best_by_words, compare_with_nearest

        assert self.embedder is not None
        question = aim_at_sample(question, sample)
        among = known.profile.tid[best_by_words(len(known.profile), lexical, self.limits.by_words)].tolist()
        wanted = Nearest(model=self.embedder.name, asked=question.tolist(), k=self.limits.nearest, among=among)
        nearest = await store.nearest(scope, where, wanted)
        with one_matrix_thread:
            return compare_with_nearest(known, nearest, sample, question)

    async def _read_sample(
        self, store: RankingStore, scope: Scope, where: RecallScope, passages: int
    ) -> VectorSample | None:
        """Return some vectors of a large scope. None if it has none yet.

        They are read again when the scope has grown, and while there are few: a store that is being embedded begins
        with none.
        """
        from palaver.recall.vectors import VectorSample, decode, has_length

        assert self.embedder is not None
        kept = self._samples.pop((scope, where), None)
        if kept is None or passages > kept.passages * GROWTH or len(kept.vectors) < self.limits.sample // 2:
            stored = await store.some_vectors(scope, where, self.embedder.name, self.limits.sample)
            stored = [half for half in stored if has_length(half, self.embedder.dimensions)]
            if not stored:
                return None
            kept = VectorSample(decode(stored, self.embedder.dimensions), passages)
        self._samples[scope, where] = kept
        return kept

    async def _read_vectors(self, scope: Scope, where: RecallScope, known: IndexedProfile) -> None:
        """Bring the cached vectors up to date."""
        import numpy as np

        from palaver.recall.vectors import MAX_BLOCK, ConversationVectors, decode, has_length

        assert self.embedder is not None
        stamps = {cid: vectors.stamp for cid, vectors in self._vectors.items()}
        found = await self.engine.vectors(scope, where, self.embedder.name, stamps)
        self._lost_vectors[scope, where] = sum(one.missing for one in found)
        for stored in found:
            old = self._vectors.pop(stored.conversation, None)
            rows = [(tid, half) for _, tid, half in stored.rows if has_length(half, self.embedder.dimensions)]
            if old is None or stored.fresh:
                old = ConversationVectors.empty(self.embedder.dimensions)
            for at in range(0, max(1, len(rows)), MAX_BLOCK):
                some = rows[at : at + MAX_BLOCK]
                tids = np.array([tid for tid, _ in some], np.int64)
                new = decode([half for _, half in some], self.embedder.dimensions)
                finite = np.isfinite(new).all(axis=1)  # a damaged vector would spoil every sum that it is in
                old = await asyncio.to_thread(old.add, tids[finite], new[finite], stored.stamp)
            self._vectors[stored.conversation] = old
        self._drop_oldest_vectors(set(known.conversations))

    async def _read_pool(self, scope: Scope, where: RecallScope, known: IndexedProfile) -> PooledVectors:
        """Bring the vectors of a large scope up to date. They are read in slices, so that little is held twice."""
        from palaver.recall.vectors import MAX_BLOCK, PooledVectors

        assert self.embedder is not None
        pool = self._pools.pop((scope, where), None) or PooledVectors.empty(self.embedder.dimensions)
        await asyncio.to_thread(pool.drop, pool.stamps.keys() - set(known.conversations))
        lost, is_complete = 0, False
        while not is_complete:
            found = await self.engine.vectors(scope, where, self.embedder.name, pool.stamps, MAX_BLOCK)
            is_complete = sum(len(one.rows) for one in found) < MAX_BLOCK
            lost += sum(one.missing for one in found)
            await asyncio.to_thread(self._add_to_pool, pool, found)
        self._lost_vectors[scope, where] = lost
        self._pools[scope, where] = pool
        self._drop_oldest_vectors([(scope, where)])
        return pool

    def _add_to_pool(self, pool: PooledVectors, found: Sequence[VectorRows]) -> None:
        import numpy as np

        from palaver.recall.vectors import decode, has_length

        assert self.embedder is not None
        pool.drop([one.conversation for one in found if one.fresh])
        pool.stamps.update((one.conversation, one.stamp) for one in found)
        rows = [
            (one.conversation, tid, half)
            for one in found
            for _, tid, half in one.rows
            if has_length(half, self.embedder.dimensions)
        ]
        if not rows:
            return
        conversations, tids, halves = zip(*rows, strict=True)
        new = decode(halves, self.embedder.dimensions)
        finite = np.isfinite(new).all(axis=1)  # a damaged vector would spoil every sum that it is in
        pool.add(np.array(conversations)[finite].tolist(), np.array(tids, np.int64)[finite], new[finite])

    def _drop_oldest_vectors(self, used: Collection[object]) -> None:
        """Drop vectors that were not used for longest, but none in use: those of conversations or of one scope."""
        caches: list[Any] = [self._vectors, self._pools]
        size = sum(vectors.nbytes for cache in caches for vectors in cache.values())
        for cache in caches:
            for key in [key for key in cache if key not in used]:
                if size <= self.limits.vector_bytes:
                    return
                size -= cache.pop(key).nbytes


def _lost_note(missing: int, what: str) -> str:
    """Say that part of the index is lost."""
    return f"{missing:,} {what} were lost and are being rebuilt" if missing > 0 else ""
