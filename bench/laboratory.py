"""The scoring alone, in memory and without a database: how much each part of it contributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.datasets import Question, Talk
from bench.evidence import Answered, found, mean
from palaver.context.pack import Candidate, pick
from palaver.memory.standing_instructions import standing
from palaver.models.offline.embedder import RECALL_MINILM
from palaver.models.tokens import BpeCounter
from palaver.recall.query import Query, parse
from palaver.recall.relevance import Alikeness, estimate
from palaver.recall.scoring import ALONE, DEFAULT, Lexical, Scores, Weights, aim, rank, score, widen
from palaver.recall.terms import passages, segments
from palaver.recall.turn_arrays import Profile, Row
from palaver.recall.vectors import measure_alikeness

Encode = Callable[[str], NDArray[np.float32]]
BUDGETS = (1000, 2000, 4000, 8000)
EMBEDDED = {"user": 3, "assistant": 2}  # passages of a turn
_KINDS = {"instruction": 2, "preference": 1}
_count = BpeCounter()
RRF_CONSTANT = 60
HEADER = _count("[2023-05-08]\n")


@dataclass
class Desk:
    """A conversation laid out for scoring."""

    talk: Talk
    encode: Encode

    @cached_property
    def profile(self) -> Profile:
        return Profile.build(
            Row(
                tid=i,
                conversation=0,
                position=i,
                created=round(said.created.timestamp() * 1e6),
                tokens=_count(f"{said.actor}: {said.text}\n"),
                role=said.role,
                actor=said.actor,
                standing=_standing(said.role, said.text),
                searchable=True,
            )
            for i, said in enumerate(self.talk.turns)
        )

    @cached_property
    def index(self) -> tuple[dict[str, list[tuple[int, int, int]]], int, float]:
        """For each stem: turn, size of the passage, how often; then the number of passages and their mean size."""
        postings: dict[str, list[tuple[int, int, int]]] = {}
        sizes = []
        for i, said in enumerate(self.talk.turns):
            for passage in passages(said.text):
                stems = passage.split(" ")
                sizes.append(len(stems))
                for stem, tf in Counter(stems).items():
                    postings.setdefault(stem, []).append((i, len(stems), tf))
        return postings, len(sizes), float(np.mean(sizes))

    @cached_property
    def vectors(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The turn of each embedded passage, and its vector."""
        pairs = [
            (i, self.encode(segment))
            for i, said in enumerate(self.talk.turns)
            for segment in segments(said.text)[: EMBEDDED[said.role]]
        ]
        return np.array([i for i, _ in pairs]), np.stack([vector for _, vector in pairs])

    @cached_property
    def alike(self) -> Alikeness:
        vectors = self.vectors[1]
        measured = measure_alikeness(vectors.sum(axis=0), len(vectors), len(vectors))
        typical = RECALL_MINILM.typical_cosine
        return measured if typical is None else measured.on_scale(typical)

    def query(self, text: str) -> Query:
        return parse(text, self.profile.actors, self.talk.turns[-1].created + timedelta(hours=1))

    def lexical(self, query: Query, real_tf: bool) -> Lexical:
        postings, count, size = self.index
        hits: dict[str, Any] = {}
        for stem in query.stems:
            if stem in postings:
                turn, sizes, tf = zip(*postings[stem], strict=True)
                times = np.array(tf, np.int32) if real_tf else np.ones(len(tf), np.int32)
                hits[stem] = (np.array(turn), np.array(sizes, np.int32), times)
        return Lexical(query.stems, hits, count, size)

    def wider(self, query: Query, scores: Scores, weights: Weights) -> NDArray[np.float32]:
        """The cosines with the question and its best turns together."""
        owners, vectors = self.vectors
        best = [vectors[owners == i].mean(axis=0) for i in rank(scores, weights.feedback_turns)]
        return self.cosines(query, weights, widen(self.encode(query.dense_text), np.stack(best), weights))

    def cosines(
        self, query: Query, weights: Weights, question: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        owners, vectors = self.vectors
        question = self.encode(query.dense_text) if question is None else question
        aimed = aim(question, vectors.mean(axis=0), len(vectors), weights)
        best = np.full(len(self.profile), np.nan, np.float32)
        np.fmax.at(best, owners, vectors @ aimed)
        return best


def _standing(role: str, text: str) -> int:
    return max((_KINDS[one.kind] for one in standing(text)), default=0) if role == "user" else 0


# ---- systems -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class System:
    """A way to score. The frequency of a stem in a passage is 1, as the engine returns it, unless set otherwise."""

    weights: Weights = DEFAULT
    dense: bool = True
    real_tf: bool = False
    change: Callable[[Query], Query] = lambda query: query
    header_per_turn: bool = False

    def __call__(self, desk: Desk, text: str) -> Scores:
        query = self.change(desk.query(text))
        cosines = desk.cosines(query, self.weights) if self.dense else None
        lexical, about = desk.lexical(query, self.real_tf), desk.profile
        scores = score(about, query, lexical, cosines, self.weights)
        if query.collects and cosines is not None and self.weights.feedback:
            scores = score(about, query, lexical, desk.wider(query, scores, self.weights), self.weights)
        scores.relevance = estimate(about, query, lexical, cosines, desk.alike, scores, about.searchable)
        return scores

    def pick(self, desk: Desk, order: NDArray[np.int64], budget: int) -> list[int]:
        """The turns that a block of `budget` tokens quotes, chosen as a context does."""
        about, ranked = desk.profile, order.tolist()
        candidates = [
            Candidate(
                i if self.header_per_turn else int(about.session[i]), about.has_assistant and about.standing[i] == 2
            )
            for i in ranked
        ]
        tokens = about.tokens[order].tolist()
        chosen = pick(candidates, tokens.__getitem__, budget, standing_room=budget // 10, header_cost=HEADER)
        return [ranked[place] for place in chosen]


class Last(System):
    """The newest turns, whatever the question is."""

    def __call__(self, desk: Desk, text: str) -> Scores:
        return Scores(np.arange(len(desk.profile), dtype=np.float32))


class Fused(System):
    """Words and meaning, combined by reciprocal rank fusion, as common hybrid systems do."""

    def __call__(self, desk: Desk, text: str) -> Scores:
        words = BM25(desk, text).total
        meaning = desk.cosines(replace(desk.query(text), dense_text=text), replace(DEFAULT, common=0))
        places = (np.argsort(np.argsort(-np.nan_to_num(one, nan=-1), kind="stable")) for one in (words, meaning))
        return Scores(sum((1 / (RRF_CONSTANT + place) for place in places), np.zeros(1)).astype(np.float32))


_PLAIN = replace(ALONE, dense=0, date=0, session=0, speaker=0, length=0, standing=0, assistant=0, opening=0)
OURS = System()
BM25 = System(_PLAIN, dense=False, real_tf=True, header_per_turn=True)
LAST = Last(header_per_turn=True)
RRF = Fused(header_per_turn=True)

VARIANTS: Mapping[str, System] = {
    "full": OURS,
    "real term frequencies instead of 1": System(real_tf=True),
    "names kept in the dense query": System(change=lambda query: replace(query, dense_text=query.text)),
    "no common ground taken away": System(replace(DEFAULT, common=0)),
    "no speaker": System(replace(DEFAULT, speaker=0)),
    "no neighbours": System(ALONE),
    "no second neighbours": System(replace(DEFAULT, second_neighbour=0)),
    "no session": System(replace(DEFAULT, session=0)),
    "no date": System(replace(DEFAULT, date=0)),
    "no assistant penalty": System(replace(DEFAULT, assistant=0)),
    'no "did you" switch': System(change=lambda query: replace(query, asks_assistant=False)),
    "no overview switch": System(change=lambda query: replace(query, overview=False)),
    "no length": System(replace(DEFAULT, length=0)),
    "no feedback for lists": System(replace(DEFAULT, feedback=0)),
    "remarks as questions": System(replace(DEFAULT, remark_length=0.05, remark_ordinary=50)),
    "no standing boost": System(replace(DEFAULT, standing=0)),
    "date on every line": System(header_per_turn=True),
    "meaning alone": System(replace(DEFAULT, lexical=0)),
    "words alone (no embedder)": System(dense=False),
    "plain BM25, date on every line": BM25,
    "RRF of BM25 and meaning, date on every line": RRF,
    "last turns, date on every line": LAST,
}


def answer(desk: Desk, question: Question, system: System, budgets: Sequence[int] = BUDGETS) -> Answered:
    scores = system(desk, question.text)
    order = rank(scores)
    names = [desk.talk.turns[i].name for i in order[:10]]
    result = Answered(desk.talk.data, question.kind, question.headline, found(names, question.gold))
    gold = {i for i, said in enumerate(desk.talk.turns) if said.name in question.gold}
    for budget in budgets:
        whole = float(gold.issubset(system.pick(desk, order, budget)))
        result.figures |= {f"{name}@{budget}": whole for name in ("EIC", "AIC")}  # it quotes whole turns only
    return result


def answers(desks: Sequence[Desk], system: System, budgets: Sequence[int] = BUDGETS) -> list[Answered]:
    return [answer(desk, question, system, budgets) for desk in desks for question in desk.talk.questions]


def ablation(desks: Mapping[str, Sequence[Desk]]) -> str:
    """Return the figures with one part of the scoring changed at a time, as a Markdown table."""
    figures = ("R@10", "EIC@1000", "EIC@2000", "EIC@4000")
    lines = [f"| variant | {' | '.join(desks)} |", "|---" * (len(desks) + 1) + "|"]
    for name, system in VARIANTS.items():
        cells = [_cell(answers(some, system), figures) for some in desks.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(held: Sequence[Answered], figures: Sequence[str]) -> str:
    return " ".join(_short(mean(one.figures[name] for one in held if one.headline)) for name in figures)


def _short(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")
