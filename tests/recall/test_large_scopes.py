"""Very large scopes: quantised vectors and candidates give the same best turns as an exact ranking of all."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from palaver.recall.quantized import QuantizedVectors
from palaver.recall.query import parse
from palaver.recall.ranking import Filter
from palaver.recall.scope_ranking import score_scope
from palaver.recall.scoring import Lexical
from palaver.recall.turn_arrays import IndexedProfile, Profile, Row
from palaver.recall.vectors import MAX_BLOCK, QUANTISED, ConversationVectors, VectorBlock, compare_with_all

CHANCE = np.random.default_rng(7)
NOW = datetime(2026, 11, 15, tzinfo=UTC)


def some_vectors(count: int, groups: int = 200) -> np.ndarray:
    """Vectors in groups, as turns about the same things are."""
    centres = CHANCE.standard_normal((groups, 384))
    vectors = centres[CHANCE.integers(0, groups, count)] + CHANCE.standard_normal((count, 384)) * 0.8
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def known_turns(count: int) -> IndexedProfile:
    rows = (Row(n + 1, 0, n, n * 1_000_000, 20, "user", "ann", 0, True) for n in range(count))
    return IndexedProfile.of(Profile.build(rows), (), count)


@pytest.mark.costly
def test_the_nearest_quantised_vectors_are_the_nearest() -> None:
    vectors = some_vectors(40_000)
    quantised = QuantizedVectors.of(vectors)
    assert quantised.nbytes / len(vectors) == 436
    shares = []
    for question in vectors[::2_000]:
        exact, found = vectors @ question, quantised.compare(question)
        best = np.argsort(-exact)[:100]
        shares.append(len(set(best) & set(np.argsort(-found)[:100])) / 100)
        assert np.abs(found[best] - exact[best]).max() < 0.01
    assert np.mean(shares) >= 0.98


@pytest.mark.costly
def test_blocks_are_quantised_when_they_are_large_and_stay_bounded() -> None:
    held = ConversationVectors.empty(384)
    vectors = some_vectors(3 * QUANTISED)
    for at in range(0, len(vectors), 5_000):
        some = vectors[at : at + 5_000]
        held = held.add(np.arange(at, at + len(some)), some, ())
    assert held.count == len(vectors)
    assert any(isinstance(block.vectors, QuantizedVectors) for block in held.blocks)
    assert max(len(block.tids) for block in held.blocks) <= MAX_BLOCK
    assert np.abs(held.total - vectors.sum(axis=0)).max() < 0.1
    small = VectorBlock.of(np.arange(10), vectors[:10])
    assert small.compare(vectors[3])[3] == pytest.approx(1, abs=1e-6)


@pytest.mark.costly
def test_candidates_rank_as_the_whole_scope_does() -> None:
    count = 20_000
    known, vectors = known_turns(count), some_vectors(count)
    held = ConversationVectors.empty(384).add(np.arange(1, count + 1), vectors, ())
    query = parse("pottery class?", known.profile.actors, NOW)
    places = CHANCE.choice(count, 300, replace=False)
    hits = {stem: (places[:200], np.full(200, 8, np.int32), np.ones(200, np.int32)) for stem in query.stems}
    lexical = Lexical(query.stems, hits, count, 8.0)
    near = compare_with_all(known, [held], vectors[5])
    whole = score_scope(known.profile, query, lexical, near, 100, Filter())
    some = score_scope(known.profile, query, lexical, near, 100, Filter(), large=1_000)
    assert len(some.profile) < len(whole.profile) / 2
    best, found = (one.profile.tid[one.order].tolist() for one in (whole, some))
    assert len(set(best) & set(found)) >= 98
    assert len(set(best[:20]) & set(found[:20])) >= 18
    bounded = score_scope(known.profile, query, lexical, near, 100, Filter(since=10_000_000_000), large=1_000)
    assert (bounded.profile.created[bounded.order] >= 10_000_000_000).all()
