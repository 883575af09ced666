"""Arguments and results of the engine's methods for recall: turn arrays, postings, vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallScope:
    """Which conversations a recall looks at, inside what the scope may see. Nothing set: the tenant."""

    conversation: str | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRows:
    """The shapes of turns. `fresh` rows replace what was known; others are new, or have a mark of late."""

    stamp: tuple[int, ...]
    fresh: bool
    rows: list[tuple[Any, ...]]
    through: int  # up to this number nothing is missing; after it, the next reading repeats some rows
    passages: int
    terms: int
    total: int | None = None  # how many there are; where one may be missing that came late


class Postings(NamedTuple):
    """Where a stem stands: for each passage that holds it, the number of its turn and its size in stems."""

    tids: Any  # two arrays, or lists, of numbers
    sizes: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRows:
    """Vectors of one conversation (number, turn, half floats). `fresh` rows replace what was known."""

    conversation: int
    fresh: bool
    rows: list[tuple[int, int, bytes]]
    stamp: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """What to look for among many vectors: the `k` turns nearest to `asked`, and how near the turns `among` are."""

    model: str
    asked: Sequence[float]
    k: int
    among: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToEmbed:
    """A passage that a model has not seen: part `part` of a turn's text. Not every one is worth a vector.

    `own_words` is true for what a participant said here as a user; only there can a standing instruction be. `place` is
    for the engine, and goes back to it with what was made of the passages.
    """

    pid: int
    tid: int
    turn: str | None
    part: int
    text: str
    worth_a_vector: bool
    own_words: bool
    place: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """What the worker made of passages: vectors (passage, turn, part, half floats) and marks (passage, turn, 2 or 1).

    `passages` are all of them with the ids of their turns: numbers are given out again after a deletion.
    """

    passages: tuple[tuple[int, str | None], ...]
    vectors: tuple[tuple[int, int, int, bytes], ...] = ()
    marks: tuple[tuple[int, int, int], ...] = ()
    place: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactToEmbed:
    """A valid fact that has no vector of an embedder yet."""

    tenant: str
    conversation: str
    id: str
    text: str
