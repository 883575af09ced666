"""Vectors of passages, and how near they are to a question. Pure; the arrays are cached by the service."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from palaver.recall.quantized import QuantizedVectors
from palaver.recall.relevance import ALIKE, Alikeness
from palaver.recall.scoring import DEFAULT, FEW, Floats, Indices, Lexical, Weights, aim, lexical_share
from palaver.recall.sessions import Flags, Ints
from palaver.recall.turn_arrays import IndexedProfile


def decode(halves: Sequence[bytes], dimensions: int) -> Floats:
    """Decode stored vectors, one row each; `dimensions` is for the case that there are none."""
    if not halves:
        return np.zeros((0, dimensions), np.float32)
    return np.frombuffer(b"".join(halves), np.float16).astype(np.float32).reshape(len(halves), -1)


def has_length(half: bytes, dimensions: int) -> bool:
    """Return whether a stored vector is as long as the embedder's. Others are not its own, and are ignored."""
    return len(half) == dimensions * np.dtype(np.float16).itemsize


QUANTISED = 16_384  # vectors of a block from which on it is quantised: smaller scopes are compared exactly
MAX_BLOCK = 131_072  # vectors of a block; more would need much memory while they are put together


class VectorBlock(NamedTuple):
    """Some vectors, and the numbers of their turns."""

    tids: Ints
    vectors: Floats | QuantizedVectors

    @classmethod
    def of(cls, tids: Ints, vectors: Floats) -> VectorBlock:
        """Make a block; a large one is quantised."""
        return cls(tids, QuantizedVectors.of(vectors) if len(tids) >= QUANTISED else vectors)

    def floats(self, rows: Flags | slice = slice(None)) -> Floats:
        return self.vectors.decode(rows) if isinstance(self.vectors, QuantizedVectors) else self.vectors[rows]

    def keep(self, rows: Flags) -> VectorBlock:
        """Return the vectors of these rows."""
        if rows.all():
            return self
        kept = self.vectors.keep(rows) if isinstance(self.vectors, QuantizedVectors) else self.vectors[rows]
        return VectorBlock(self.tids[rows], kept)

    def compare(self, question: Floats) -> Floats:
        """Return the inner product with each vector; in a quantised block, an estimate for those that are far."""
        if isinstance(self.vectors, QuantizedVectors):
            return self.vectors.compare(question)
        products: Floats = self.vectors @ question
        return products


@dataclass(frozen=True, slots=True)
class ConversationVectors:
    """The vectors of one conversation, in blocks.

    Each block is much larger than the next, so that adding a few vectors copies little.
    """

    blocks: tuple[VectorBlock, ...]
    total: Floats  # the sum of the vectors
    stamp: tuple[int, ...]

    @classmethod
    def empty(cls, dimensions: int) -> ConversationVectors:
        return cls((), np.zeros(dimensions, np.float32), ())

    @property
    def count(self) -> int:
        return sum(len(block.tids) for block in self.blocks)

    @property
    def nbytes(self) -> int:
        return sum(int(block.vectors.nbytes + block.tids.nbytes) for block in self.blocks)

    def add(self, tids: Ints, vectors: Floats, stamp: tuple[int, ...]) -> ConversationVectors:
        blocks = list(self.blocks)
        if len(tids):
            blocks.append(VectorBlock.of(tids, vectors))
        while len(blocks) > 1 and _should_join(*blocks[-2:]):
            blocks[-2:] = [_join(*blocks[-2:])]
        return ConversationVectors(tuple(blocks), self.total + vectors.sum(axis=0), stamp)


def _should_join(one: VectorBlock, other: VectorBlock) -> bool:
    return len(one.tids) < 2 * len(other.tids) and len(one.tids) + len(other.tids) <= MAX_BLOCK


def _join(one: VectorBlock, other: VectorBlock) -> VectorBlock:
    return VectorBlock.of(np.concatenate((one.tids, other.tids)), np.concatenate((one.floats(), other.floats())))


@dataclass(slots=True)
class PooledVectors:
    """The vectors of a scope of many conversations together, so that small ones are quantised, too.

    `tids` has the turns of each conversation's vectors, and `stamps` the engine's stamps. Not immutable: its owner
    changes it under a lock.
    """

    held: ConversationVectors
    tids: dict[int, Ints]
    stamps: dict[int, tuple[int, ...]]
    places: BlockPlaces | None = None

    @classmethod
    def empty(cls, dimensions: int) -> PooledVectors:
        return cls(ConversationVectors.empty(dimensions), {}, {})

    @property
    def nbytes(self) -> int:
        return self.held.nbytes + sum(int(tids.nbytes) for tids in self.tids.values())

    def add(self, conversations: Sequence[int], tids: Ints, vectors: Floats) -> None:
        """Add vectors of the conversations, which are given for each vector."""
        for at in range(0, len(tids), MAX_BLOCK):
            end = at + MAX_BLOCK
            self.held = self.held.add(tids[at:end], vectors[at:end], ())
        owners = np.asarray(conversations, np.int64)
        for cid in np.unique(owners).tolist():
            more = tids[owners == cid]
            self.tids[cid] = np.concatenate((self.tids[cid], more)) if cid in self.tids else more
        self.places = None

    def drop(self, conversations: Collection[int]) -> None:
        """Forget conversations and their vectors."""
        gone = [self.tids.pop(cid) for cid in conversations if cid in self.tids]
        for cid in conversations:
            self.stamps.pop(cid, None)
        if not gone:
            return
        removed = np.concatenate(gone)
        blocks, total = [], self.held.total
        for block in self.held.blocks:
            is_gone = np.isin(block.tids, removed)
            if is_gone.any():
                total = total - block.floats(is_gone).sum(axis=0)
            blocks.append(block.keep(~is_gone))
        self.held = ConversationVectors(tuple(blocks), total, ())
        self.places = None

    def find_places(self, known: IndexedProfile) -> BlockPlaces:
        """Return where the turns of the vectors are in the profile; found once for each profile."""
        if self.places is None or self.places.order is not known.order:
            self.places = BlockPlaces.of(known, self.held.blocks)
        return self.places


class BlockPlaces(NamedTuple):
    """For each block, the indices of its turns in a profile, and which of its vectors have one; None: all of them."""

    order: Ints  # of the profile
    indices: tuple[Ints, ...]
    is_known: tuple[Flags | None, ...]
    are_unique: bool  # no turn has two vectors

    @classmethod
    def of(cls, known: IndexedProfile, blocks: Sequence[VectorBlock]) -> BlockPlaces:
        found = [known.find(block.tids) for block in blocks]
        indices = tuple(places for places, _ in found)
        count = np.bincount(np.concatenate(indices), minlength=1).max(initial=0) if indices else 0
        flags = tuple(None if is_known.all() else is_known for _, is_known in found)
        return cls(known.order, indices, flags, bool(count <= 1))


@dataclass(frozen=True, slots=True)
class VectorSample:
    """Some of the vectors of a scope that has too many to read, and how many passages it had then."""

    vectors: Floats
    passages: int


class Nearness(NamedTuple):
    """The question as a vector, and its cosine with each turn of the profile; NaN for a turn without a vector.

    Where only the nearest turns were looked at, `sample` holds the cosines of some others. `alike` says how near the
    turns are to each other. `asked` is the question before `aim` changed it. `refusal` says why a budget did not allow
    to embed it.
    """

    question: Floats | None = None
    cosines: Floats | None = None
    sample: Floats | None = None
    alike: Alikeness = Alikeness()
    asked: Floats | None = None
    refusal: str | None = None

    def distribution(self) -> Floats | None:
        """Return cosines that are typical of the scope."""
        if self.sample is not None or self.cosines is None:
            return self.sample
        return self.cosines[~np.isnan(self.cosines)]


def compare_with_all(known: IndexedProfile, vectors: Sequence[ConversationVectors], question: Floats) -> Nearness:
    """Compare the question with every vector of the scope; a turn gets the cosine of its nearest passage."""
    blocks = [block for one in vectors for block in one.blocks]
    return _compare_blocks(len(known.profile), vectors, BlockPlaces.of(known, blocks), question)


def compare_with_pool(known: IndexedProfile, pool: PooledVectors, question: Floats) -> Nearness:
    """Do the same with the vectors of a scope that are kept together."""
    return _compare_blocks(len(known.profile), [pool.held], pool.find_places(known), question)


def _compare_blocks(n: int, vectors: Sequence[ConversationVectors], places: BlockPlaces, question: Floats) -> Nearness:
    asked, (question, alike) = question, _aim_at(question, vectors)
    best = np.full(n, np.nan, np.float32)
    blocks = [block for one in vectors for block in one.blocks]
    for block, indices, is_known in zip(blocks, places.indices, places.is_known, strict=True):
        products = block.compare(question)
        products = products if is_known is None else products[is_known]
        if places.are_unique:
            best[indices] = products
        else:
            np.fmax.at(best, indices, products)
    return Nearness(question, best, alike=alike, asked=asked)


def vectors_of(vectors: Sequence[ConversationVectors], tids: Sequence[int]) -> Floats:
    """Return one vector per turn that has any, the mean of its passages'."""
    found = []
    for tid in tids:
        own = [block.floats(block.tids == tid) for one in vectors for block in one.blocks]
        own = [some for some in own if len(some)]
        if own:
            found.append(np.concatenate(own).mean(axis=0))
    return np.stack(found) if found else np.zeros((0, 0), np.float32)


def _aim_at(question: Floats, vectors: Sequence[ConversationVectors]) -> tuple[Floats, Alikeness]:
    count = sum(one.count for one in vectors)
    if not count:
        return question, Alikeness()
    total = sum((one.total for one in vectors[1:]), vectors[0].total)
    return aim(question, (total / count).astype(question.dtype), count), measure_alikeness(total, count, count)


def measure_alikeness(total: Floats, count: int, passages: int, weights: Weights = DEFAULT) -> Alikeness:
    """Measure how near `count` unit vectors are to each other, from their sum. `passages` are all of the scope.

    Few vectors say little, so the less of them there are, the more the usual value counts.
    """
    trust = passages / (passages + FEW)
    if count < 2:
        return Alikeness(removed=weights.common * trust)
    measured = (float(total @ total) - count) / (count * (count - 1))
    return Alikeness(trust * measured + (1 - trust) * ALIKE, weights.common * trust)


def aim_at_sample(question: Floats, sample: VectorSample) -> Floats:
    return aim(question, sample.vectors.mean(axis=0), sample.passages)


def compare_with_nearest(
    known: IndexedProfile, found: Sequence[tuple[int, float]], sample: VectorSample, question: Floats
) -> Nearness:
    """Use the cosines that the engine found (turn, cosine), and those of the sample."""
    best = np.full(len(known.profile), np.nan, np.float32)
    indices, is_known = known.find(np.array([tid for tid, _ in found], np.int64))
    np.fmax.at(best, indices, np.array([cosine for _, cosine in found], np.float32)[is_known])
    total = sample.vectors.sum(axis=0)
    alike = measure_alikeness(total, len(sample.vectors), sample.passages)
    return Nearness(question, best, sample.vectors @ question, alike)


def best_by_words(n: int, lexical: Lexical, most: int) -> Indices:
    """Return the indices of the turns that hold most of the question's words, best first."""
    share = lexical_share(n, lexical, DEFAULT)
    matching = np.flatnonzero(share)
    return matching[np.argsort(-share[matching], kind="stable")[:most]]
