"""Recall as a service: what the engine has, what the embedder says, ranked by the pure rooms.

Arrays over the turns of a scope are cached and extended as turns arrive; both caches are bounded. The words are always
up to date. Vectors follow through the outbox: until they are there, a turn is found by its words.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from palaver.model import Fact, FileQuote, Scope, Turn
from palaver.models.offline.embedder import available as embedder_available
from palaver.ports.clock import Clock
from palaver.ports.engine import Engine
from palaver.ports.models import Embedder
from palaver.ports.recall import Nearest, Postings, ProfileRows, RecallScope
from palaver.recall.terms import terms

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from palaver.recall.query import Query
    from palaver.recall.scoring import Lexical, Scores
    from palaver.recall.turn_arrays import Profile

    Vectors = NDArray[np.float32]

MAX_PROFILES, MAX_VECTOR_BYTES = 32, 256 * 1024 * 1024
MAX_QUERY = 20_000  # characters; a longer one is cut, and recall looks at its beginning anyway
MAX_POSTINGS = 20_000  # passages per stem; a word that is everywhere says little
MANY = 5_000  # passages: from here on an engine may be asked for the nearest vectors, instead of for all
STANDING = 7  # the place of a mark in a shape
SAMPLE, NEAREST, BY_WORDS = 1_000, 500, 500  # vectors that stand for the rest; turns by meaning; turns by their words


@dataclass(frozen=True, slots=True)
class _Known:
    """A cached profile, and how to find a turn in it by its number."""

    profile: Profile
    stamp: tuple[int, ...]
    through: int
    order: Any
    sorted_tids: Any
    conversations: list[int]

    @classmethod
    def of(cls, profile: Profile, stamp: tuple[int, ...], through: int) -> _Known:
        import numpy as np

        order = profile.tid.argsort(kind="stable")
        conversations = np.unique(profile.conversation).tolist()
        return cls(profile, stamp, through, order, profile.tid[order], conversations)

    def with_news(self, news: ProfileRows) -> _Known:
        """With the turns that are not in the profile yet, and what is new of those that are."""
        import numpy as np

        found = {row[0]: _shape(row) for row in news.rows}
        places, there = self.indices(np.array(list(found), np.int64))
        rows = list(zip(found.values(), there.tolist(), strict=True))
        profile = self.profile.marked(places, [row[STANDING] for row, known in rows if known])
        if there.all():
            return replace(self, profile=profile, stamp=news.stamp, through=news.through)
        return _Known.of(profile.extended([row for row, known in rows if not known]), news.stamp, news.through)

    def indices(self, tids: Any) -> tuple[Any, Any]:
        """Where these turns stand in the profile, and which of them do."""
        if not len(self.sorted_tids):
            return self.order[:0], tids != tids
        places = self.sorted_tids.searchsorted(tids)
        places[places == len(self.sorted_tids)] = 0
        there = self.sorted_tids[places] == tids
        return self.order[places[there]], there


class _Block(NamedTuple):
    """Some vectors, and the numbers of their turns."""

    tids: Any
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class _Matrix:
    """The vectors of one conversation, in blocks: each is much larger than the next, so that a few more cost little."""

    blocks: tuple[_Block, ...]
    total: Vectors  # their sum
    stamp: tuple[int, ...]

    @property
    def count(self) -> int:
        return sum(len(block.tids) for block in self.blocks)

    @property
    def nbytes(self) -> int:
        return sum(int(block.vectors.nbytes) for block in self.blocks)

    def extended(self, block: _Block, stamp: tuple[int, ...]) -> _Matrix:
        blocks = [*self.blocks, block] if len(block.tids) else list(self.blocks)
        while len(blocks) > 1 and 2 * len(blocks[-1].tids) > len(blocks[-2].tids):
            blocks[-2:] = [_joined(*blocks[-2:])]
        return _Matrix(tuple(blocks), self.total + block.vectors.sum(axis=0), stamp)


def _joined(one: _Block, other: _Block) -> _Block:
    import numpy as np

    return _Block(np.concatenate((one.tids, other.tids)), np.concatenate((one.vectors, other.vectors)))


@dataclass(slots=True)
class _Sample:
    """Some of the vectors of a scope that has too many, and how large it was then."""

    vectors: Vectors
    passages: int


class _Near(NamedTuple):
    """The question as a vector, how near each turn is to it, and, where only the nearest are known, some others."""

    asked: Any = None
    cosines: Any = None
    sample: Any = None

    def others(self) -> Any:
        """What the scope's cosines are like."""
        return self.cosines[self.cosines == self.cosines] if self.sample is None else self.sample


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best that was found, best first, as indices into the profile."""

    profile: Profile
    scores: Scores
    order: Any
    note: str
    near: _Near

    def standing(self, most: int) -> list[int]:
        """The standing instructions, best first; nobody gives any where no assistant takes part."""
        if not self.profile.has_assistant:
            return []
        found = (self.profile.standing == 2).nonzero()[0][::-1]
        found = found[(-self.scores.total[found]).argsort(kind="stable")]
        return [int(i) for i in found[:most] if self.profile.searchable[i]]


class RecallService:
    def __init__(self, engine: Engine, embedder: Embedder | None, clock: Clock) -> None:
        self.engine, self.embedder, self.clock = engine, embedder, clock
        self._profiles: OrderedDict[tuple[Scope, RecallScope], _Known] = OrderedDict()
        self._matrices: OrderedDict[int, _Matrix] = OrderedDict()
        self._samples: OrderedDict[tuple[Scope, RecallScope], _Sample] = OrderedDict()
        self._lock = asyncio.Lock()
        self.note = self._how(answered=True)  # of the last question; a ranking has its own

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
    ) -> Ranking:
        """Score every turn of the scope for this text, and find the best of them; within one conversation, of those
        up to the position `through`."""
        from palaver.recall.query import parse

        async with self._lock:
            known, passages, terms = await self._profile(scope, where)
        query = parse(text, known.profile.actors, self.clock.now())
        found = await self.engine.postings(scope, where, query.stems, MAX_POSTINGS) if query.stems else {}
        lexical = _lexical(known, query, found, passages, terms)
        near = await self._cosines(scope, where, query, known, lexical)
        outside = _outside(known.profile, since, until, through)
        scores, order = await asyncio.to_thread(_ranked, known.profile, query, lexical, near, most, outside)
        self.note = note = self._how(answered=near.asked is not None)
        return Ranking(known.profile, scores, order, note, near)

    def _how(self, *, answered: bool) -> str:
        if self.embedder is None:
            how = "none is in use" if embedder_available() else 'pip install "palaver[local]"'
            return f"by words alone: no embedder ({how})"
        if not answered:
            return f"by words alone: {self.embedder.name} could not answer"
        return f"by words and meaning ({self.embedder.name})"

    async def turns(self, scope: Scope, ranking: Ranking, indices: Sequence[int]) -> dict[int, Turn]:
        """The turns at these indices, as they are stored now."""
        tids = {i: int(ranking.profile.tid[i]) for i in indices}
        turns = await self.engine.turns_by_number(scope, list(tids.values()))
        return {i: turns[tid] for i, tid in tids.items() if tid in turns}

    async def quotes(self, scope: Scope, turns: Mapping[int, Turn], text: str) -> dict[int, FileQuote]:
        """What the files of these turns say to the question, by the numbers of the turns."""
        tids = [tid for tid, turn in turns.items() if turn.attachments]
        stems = tuple(dict.fromkeys(terms(text[:MAX_QUERY])))
        return await self.engine.file_quotes(scope, tids, stems) if tids and stems else {}

    async def facts(
        self, scope: Scope, where: RecallScope, text: str, ranking: Ranking
    ) -> list[tuple[Fact, dict[str, float]]]:
        """The facts of the scope, with what speaks for each: the words that it shares with the question, and how much
        nearer it is to it than the turns of the scope are."""
        facts = await self.engine.facts_where(scope, where)
        near = await self._near_facts(scope, where, ranking.near) if facts else {}
        stems = set(terms(text))
        return [(fact, {"lexical": _share(fact, stems), "dense": near.get(fact.id, 0.0)}) for fact in facts]

    async def _near_facts(self, scope: Scope, where: RecallScope, near: _Near) -> dict[str, float]:
        import numpy as np

        from palaver.recall.scoring import levelled

        if self.embedder is None or near.asked is None:
            return {}
        vectors = await self.engine.fact_vectors(scope, where, self.embedder.name)
        if not vectors:
            return {}
        halves = np.frombuffer(b"".join(vectors.values()), np.float16).astype(np.float32)
        cosines = halves.reshape(len(vectors), -1) @ near.asked
        return dict(zip(vectors, levelled(len(vectors), cosines, near.others()).tolist(), strict=True))

    # ---- the profile

    async def _profile(self, scope: Scope, where: RecallScope) -> tuple[_Known, int, int]:
        from palaver.recall.turn_arrays import Profile

        key = (scope, where)
        known = self._profiles.pop(key, None)
        rows = await self.engine.profile(
            scope, where, known.stamp if known else None, known.through if known is not None else 0
        )
        known = known.with_news(rows) if known is not None and not rows.fresh else None
        if known is not None and rows.total not in (None, len(known.profile)):  # one came late, and is missing
            rows, known = await self.engine.profile(scope, where, None, 0), None
        if known is None:
            known = _Known.of(Profile.build([_shape(row) for row in rows.rows]), rows.stamp, rows.through)
        self._profiles[key] = known
        while len(self._profiles) > MAX_PROFILES:
            self._profiles.popitem(last=False)
        return known, rows.passages, rows.terms

    # ---- vectors

    async def _cosines(self, scope: Scope, where: RecallScope, query: Query, known: _Known, lexical: Lexical) -> _Near:
        import numpy as np

        if self.embedder is None:
            return _Near()
        try:  # before the vectors are fetched: a service may tell its dimensions with its first answer
            asked = np.asarray((await self.embedder.embed([query.dense_text]))[0], np.float32)
        except Exception:  # a provider's client may raise anything, and words are found without it; the note says so
            return _Near()
        sample = await self._sample(scope, where, lexical.passages) if lexical.passages > MANY else None
        if sample is not None:
            return await self._nearest(scope, where, known, lexical, sample, asked)
        async with self._lock:
            await self._fetch_vectors(scope, where)
            mine = [self._matrices[cid] for cid in known.conversations if cid in self._matrices]
        asked = _aimed(asked, mine)
        return _Near(asked, await asyncio.to_thread(_best_cosines, known, mine, asked))

    async def _nearest(
        self, scope: Scope, where: RecallScope, known: _Known, lexical: Lexical, sample: _Sample, asked: Any
    ) -> _Near:
        """The cosines of the turns that are near by meaning or by words, and those of the sample."""
        import numpy as np

        from palaver.recall.scoring import aim

        assert self.embedder is not None
        asked = aim(asked, sample.vectors.mean(axis=0), sample.passages)
        among = known.profile.tid[_best_by_words(len(known.profile), lexical)].tolist()
        wanted = Nearest(model=self.embedder.name, asked=asked.tolist(), k=NEAREST, among=among)
        found = await self.engine.nearest(scope, where, wanted)
        best = np.full(len(known.profile), np.nan, np.float32)
        indices, there = known.indices(np.array([tid for tid, _ in found], np.int64))
        np.fmax.at(best, indices, np.array([near for _, near in found], np.float32)[there])
        return _Near(asked, best, sample.vectors @ asked)

    async def _sample(self, scope: Scope, where: RecallScope, passages: int) -> _Sample | None:
        """Vectors that stand for the rest of a large scope.

        Taken again when the scope has grown by a quarter, and while there are only a few: a store that is being
        embedded begins with none.
        """
        import numpy as np

        assert self.embedder is not None
        key = (scope, where)
        kept = self._samples.pop(key, None)
        if kept is None or passages > kept.passages * 1.25 or len(kept.vectors) < SAMPLE // 2:
            found = await self.engine.some_vectors(scope, where, self.embedder.name, SAMPLE)
            if not found:
                return None
            halves = np.frombuffer(b"".join(found), np.float16).astype(np.float32)
            kept = _Sample(halves.reshape(len(found), -1), passages)
        self._samples[key] = kept
        while len(self._samples) > MAX_PROFILES:
            self._samples.popitem(last=False)
        return kept

    async def _fetch_vectors(self, scope: Scope, where: RecallScope) -> None:
        import numpy as np

        assert self.embedder is not None
        stamps = {cid: matrix.stamp for cid, matrix in self._matrices.items()}
        for found in await self.engine.vectors(scope, where, self.embedder.name, stamps):
            cid, rows = found.conversation, found.rows
            old = self._matrices.pop(cid, None)
            tids = np.array([row[1] for row in rows], np.int64)
            new = np.frombuffer(b"".join(row[2] for row in rows), np.float16).astype(np.float32)
            new = new.reshape(len(rows), -1) if rows else np.zeros((0, self.embedder.dimensions), np.float32)
            if old is None or found.fresh:
                old = _Matrix((), np.zeros(new.shape[1], np.float32), ())
            self._matrices[cid] = old.extended(_Block(tids, new), found.stamp)
        self._trim()

    def _trim(self) -> None:
        size = sum(matrix.nbytes for matrix in self._matrices.values())
        while size > MAX_VECTOR_BYTES and len(self._matrices) > 1:
            size -= self._matrices.popitem(last=False)[1].nbytes


def _ranked(
    profile: Profile, query: Query, lexical: Lexical, near: _Near, most: int, outside: Any
) -> tuple[Scores, Any]:
    from palaver.recall.scoring import rank, score

    scores = score(profile, query, lexical, near.cosines, sample=near.sample)
    return scores, rank(scores, most, exclude=outside)


def _share(fact: Fact, stems: set[str]) -> float:
    """The share of the question's stems that a fact holds."""
    held = stems.intersection(terms(f"{fact.subject} {fact.predicate} {fact.object}"))
    return len(held) / len(stems) if stems else 0.0


def _shape(row: tuple[Any, ...]) -> tuple[Any, ...]:
    tid, cid, position, created, tokens, role, actor, standing, status = row
    searchable = status == "complete" and role in ("user", "assistant") and tokens > 0
    return tid, cid, position, created, tokens + 3, role, actor, standing, searchable


def _lexical(known: _Known, query: Query, found: dict[str, Postings], passages: int, terms: int) -> Lexical:
    import numpy as np

    from palaver.recall.scoring import Lexical

    hits = {}
    for stem, (tids, sizes) in found.items():
        indices, there = known.indices(np.asarray(tids, np.int64))
        hits[stem] = (indices, np.asarray(sizes, np.int32)[there], np.ones(len(indices), np.int32))
    return Lexical(query.stems, hits, max(1, passages), max(1.0, terms / max(1, passages)))


def _best_by_words(n: int, lexical: Lexical) -> Any:
    """Where the turns stand that hold most of what is asked."""
    import numpy as np

    from palaver.recall.scoring import DEFAULT, attained

    share = attained(n, lexical, DEFAULT)
    held = np.flatnonzero(share)
    return held[np.argsort(-share[held], kind="stable")[:BY_WORDS]]


def _aimed(asked: Any, matrices: Sequence[_Matrix]) -> Any:
    """The question without half of what it shares with everything in the scope."""
    from palaver.recall.scoring import aim

    count = sum(matrix.count for matrix in matrices)
    if not count:
        return asked
    total = matrices[0].total.copy()
    for matrix in matrices[1:]:
        total += matrix.total
    return aim(asked, (total / count).astype(asked.dtype), count)


def _best_cosines(known: _Known, matrices: Sequence[_Matrix], asked: Any) -> Any:
    """For each turn, the cosine of its nearest passage; NaN where it has no vector yet."""
    import numpy as np

    best = np.full(len(known.profile), np.nan, np.float32)
    for block in (block for matrix in matrices for block in matrix.blocks):
        indices, there = known.indices(block.tids)
        np.fmax.at(best, indices, (block.vectors @ asked)[there])
    return best


def _outside(profile: Profile, since: int | None, until: int | None, through: int | None) -> Any:
    """The turns that a filter by time or position leaves out."""
    import numpy as np

    if since is None and until is None and through is None:
        return None
    left_out = np.zeros(len(profile), bool)
    if since is not None:
        left_out |= profile.created < since
    if until is not None:
        left_out |= profile.created >= until
    if through is not None:
        left_out |= profile.position > through
    return np.flatnonzero(left_out)
