"""Arguments and results of the engine's methods for recall: turn arrays, postings, vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from palaver.core.filters import NO_FILTER, TurnFilter
from palaver.model import Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallScope:
    """Which conversations a recall looks at, inside what the scope may see. Nothing set: the tenant."""

    conversation: str | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRows:
    """Rows of the turn arrays. `fresh` rows replace all known ones; otherwise they are new, or newly marked."""

    stamp: tuple[int, ...]
    fresh: bool
    rows: list[tuple[Any, ...]]
    through: int  # complete up to this row number; the next read starts after it and may repeat rows
    passages: int
    terms: int
    total: int | None = None  # number of rows in all; set where rows with lower numbers may be committed later
    missing: int | None = None  # passages that should be in the text index and are not; None: they were not counted


class Postings(NamedTuple):
    """The passages that contain a stem: for each, the row number of its turn and its length in stems."""

    tids: Any  # two arrays, or lists, of numbers
    sizes: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRows:
    """Vectors of one conversation (number, turn, half floats). `fresh` rows replace all known ones."""

    conversation: int
    fresh: bool
    rows: list[tuple[int, int, bytes]]
    stamp: tuple[int, ...]
    missing: int = 0  # vectors that should be there and are not


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """A search among vectors: the `k` turns nearest to `asked`, and the inner products of the turns `among`."""

    model: str
    asked: Sequence[float]
    k: int
    among: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallSize:
    """How much a recall looks at. `actors` are speakers of recent turns, where the engine has to rank the turns."""

    turns: int
    passages: int
    terms: int
    actors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateQuery:
    """A search for the turns that may be the best for a question, in a scope that is too large to read.

    `asked` is the question as a vector of `model`. `spans` are the times that the question names, `since` and `until`
    bounds of all turns; in microseconds. With a `filter`, only turns that meet it are candidates.
    """

    stems: Sequence[str]
    size: RecallSize
    by_words: int
    by_meaning: int
    model: str | None = None
    asked: Sequence[float] | None = None
    spans: Sequence[tuple[int, int]] = ()
    since: int | None = None
    until: int | None = None
    filter: TurnFilter = NO_FILTER


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Turns that may be the best ones, with their neighbours, and a sample that stands for the others.

    `rows` are those of the turn arrays. `holding` says for each stem how many passages of the scope contain it, and
    `hits` which stems a passage contains: the turn, its size in stems, and a bit for each stem. `near` are turns with
    inner products, `sample` the numbers of turns. `matching` are the turns that meet the filter; None: there was none.
    """

    rows: list[tuple[Any, ...]]
    holding: Sequence[int]
    hits: Any  # an array of three columns
    near: list[tuple[int, float]]
    sample: Sequence[int]
    matching: Sequence[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactQuery:
    """A search for facts in a scope that is too large to read: up to `most` by words, and as many by meaning."""

    stems: Sequence[str]
    most: int
    model: str | None = None
    asked: Sequence[float] | None = None


class FoundFact(NamedTuple):
    """A fact of a large scope, with its vector as half floats; empty if it has none of the embedder."""

    fact: Fact
    vector: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ToEmbed:
    """A passage without a vector of this model: part `part` of a turn's text. Not every one is worth a vector.

    `own_words` is true for text that a participant wrote as a user; only such text can hold a standing instruction.
    `place` belongs to the engine, which gets it back in `Embedded`.
    """

    pid: int
    tid: int
    turn: str | None
    part: int
    text: str
    worth_a_vector: bool
    own_words: bool
    place: tuple[str, int] = ("", 0)
    thread: tuple[str, str] | None = None  # tenant and conversation, where a batch may have several


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """The worker's results for passages: vectors (passage, turn, part, half floats), marks (passage, turn, 2 or 1).

    `passages` lists all of them with the ids of their turns, because row numbers are used again after a deletion.
    `is_progress` is false if earlier passages still have to be embedded.
    """

    passages: tuple[tuple[int, str | None], ...]
    vectors: tuple[tuple[int, int, int, bytes], ...] = ()
    marks: tuple[tuple[int, int, int], ...] = ()
    place: tuple[str, int] = ("", 0)
    is_progress: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FactToEmbed:
    """A valid fact that has no vector of an embedder yet."""

    tenant: str
    conversation: str
    id: str
    text: str
