"""The candidates that the engine found in a large scope, with everything that the ranking needs of them. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from palaver.ports.recall import Candidates, RecallSize
from palaver.recall.query import Query
from palaver.recall.scoring import Floats, Lexical
from palaver.recall.sessions import Flags
from palaver.recall.turn_arrays import IndexedProfile, Profile, read_row
from palaver.recall.vectors import Nearness, VectorSample, compare_with_nearest


class CandidateArrays(NamedTuple):
    """The candidates and their neighbours. `sample` says which of them stand for all turns of the scope."""

    turns: IndexedProfile
    sample: Flags


def build_arrays(found: Candidates) -> CandidateArrays:
    turns = IndexedProfile.of(Profile.build(map(read_row, found.rows), sparse=True), (), 0)
    sample = np.zeros(len(turns.profile), bool)
    indices, _ = turns.find(np.asarray(found.sample, np.int64))
    sample[indices] = True
    return CandidateArrays(turns, sample)


def count_words(turns: IndexedProfile, query: Query, found: Candidates, size: RecallSize) -> Lexical:
    """Return which candidates contain which stems, and how rare each stem is in the whole scope."""
    tids, sizes, held = found.hits.T
    bits = {stem: bit for bit, stem in enumerate(query.all_stems)}
    hits, holding = {}, {}
    for stem in query.stems:
        mine = [bits[one] for one in (stem, *query.others.get(stem, ()))]
        if query.language is None and found.holding[mine[0]]:  # see `ranking.count_words`
            del mine[1:]
        has_stem = np.any([held >> bit & 1 for bit in mine], axis=0)
        indices, is_known = turns.find(tids[has_stem])
        hits[stem] = (indices, sizes[has_stem][is_known].astype(np.int32), np.ones(len(indices), np.int32))
        holding[stem] = max(found.holding[bit] for bit in mine)  # most passages with one of them have the others, too
    return Lexical(query.stems, hits, max(1, size.passages), max(1.0, size.terms / max(1, size.passages)), holding)


def compare(turns: IndexedProfile, found: Candidates, sample: VectorSample | None, question: Floats | None) -> Nearness:
    """Return how near the candidates are. `sample` is None if the scope has no vectors yet."""
    if question is None:
        return Nearness()
    if sample is None:
        return Nearness(question, np.full(len(turns.profile), np.nan, np.float32))
    return compare_with_nearest(turns, found.near, sample, question)
