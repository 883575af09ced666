"""`python -m bench.large_scopes`: ranking 100,000 and 1,000,000 turns with a vector each, in processor time.

Generated vectors in groups, as turns about the same things are. The engine's reads and the embedding of the question
are not part of it. Agreement is the share of the 100 nearest turns, by exact inner products, that are among the 100
nearest that were found.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from palaver.recall.query import parse
from palaver.recall.ranking import Filter
from palaver.recall.scope_ranking import score_scope
from palaver.recall.scoring import Lexical
from palaver.recall.turn_arrays import IndexedProfile, Profile, Row
from palaver.recall.vectors import MAX_BLOCK, ConversationVectors, compare_with_all

SIZES = (100_000, 1_000_000)
QUESTIONS = 12
GROUP = 200  # turns about the same thing
NOISE = 0.7  # of a turn's vector, beside what its group has in common
PER_STEM = 20_000  # passages with each word of the question
MINUTE = 60_000_000
Floats = NDArray[np.float32]


def _near(centres: Floats, chance: np.random.Generator, count: int) -> Floats:
    chosen = centres[chance.integers(0, len(centres), count)]
    moved = chosen + chance.standard_normal(chosen.shape).astype(np.float32) * np.float32(NOISE)
    return (moved / np.linalg.norm(moved, axis=1, keepdims=True)).astype(np.float32)


def _fill(turns: int, centres: Floats, chance: np.random.Generator) -> tuple[ConversationVectors, list[Floats]]:
    held, exact = ConversationVectors.empty(centres.shape[1]), []
    for at in range(0, turns, MAX_BLOCK):
        some = _near(centres, chance, min(MAX_BLOCK, turns - at))
        held = held.add(np.arange(at + 1, at + len(some) + 1), some, ())
        exact.append(some.astype(np.float16))
    return held, exact


def measure(turns: int) -> str:
    chance = np.random.default_rng(22)
    centres = chance.standard_normal((turns // GROUP, 384)).astype(np.float32)
    held, exact = _fill(turns, centres, chance)
    rows = (Row(n + 1, 0, n, n * MINUTE, 30, ("user", "assistant")[n % 2], "ab"[n % 2], 0, True) for n in range(turns))
    known = IndexedProfile.of(Profile.build(rows), (), turns)
    query = parse("Which books did I read about pottery?", known.profile.actors, datetime.now(UTC))
    few = min(PER_STEM, turns // 10)
    sizes = np.full(few, 12, np.int32), np.ones(few, np.int32)
    hits = {stem: (np.sort(chance.choice(turns, few, replace=False)), *sizes) for stem in query.stems}
    lexical = Lexical(query.stems, hits, turns, 12.0)
    seconds, agreement = [], []
    for question in _near(centres, chance, QUESTIONS):
        start = time.process_time()
        near = compare_with_all(known, [held], question)
        score_scope(known.profile, query, lexical, near, 400, Filter())
        seconds.append(time.process_time() - start)
        assert near.question is not None
        assert near.cosines is not None
        products = np.concatenate([some.astype(np.float32) @ near.question for some in exact])
        agreement.append(len(_best(products) & _best(near.cosines)) / 100)
    return (
        f"{turns:,} turns: {np.median(seconds) * 1e3:.0f} ms of processor time, "
        f"{held.nbytes / turns:.0f} bytes per vector, "
        f"agreement {np.mean(agreement):.3f} (at least {min(agreement):.2f})"
    )


def _best(values: Floats) -> set[int]:
    return set(np.argpartition(-values, 100)[:100].tolist())


if __name__ == "__main__":
    for size in SIZES:
        print(measure(size))
