"""Many vectors in little memory: int8 with a scale each, and one bit per dimension to find the nearest first. Pure.

A vector of 384 dimensions takes 436 bytes instead of 1,536. The question is compared with the bits of all vectors
(Hamming distance); the nearest by that are compared exactly, up to the rounding to int8. The others get an estimate.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
RESCORED = 4_000  # vectors of a block that are compared exactly, at least
RESCORED_SHARE = 0.01  # and at least this part of it
CHUNK = 65_536  # vectors that are encoded at a time
_POPCOUNT = np.array([bin(n).count("1") for n in range(256)], np.uint8)


@dataclass(frozen=True, slots=True)
class QuantizedVectors:
    """Unit vectors as int8 with one scale each, and the signs of their differences from `centre` as bits."""

    codes: NDArray[np.int8]
    scales: Floats
    bits: NDArray[np.uint64]  # a row for each 64 dimensions
    centre: Floats

    @classmethod
    def of(cls, vectors: Floats) -> QuantizedVectors:
        """Quantise vectors. Their mean is the centre: what all have in common does not tell them apart."""
        centre = vectors.mean(axis=0)
        parts = [_encode(vectors[at : at + CHUNK], centre) for at in range(0, len(vectors), CHUNK)]
        codes, scales, bits = (np.concatenate(column) for column in zip(*parts, strict=True))
        return cls(codes, scales, np.ascontiguousarray(bits.T), centre)

    def __len__(self) -> int:
        return len(self.scales)

    @property
    def nbytes(self) -> int:
        return int(self.codes.nbytes + self.scales.nbytes + self.bits.nbytes)

    def decode(self, rows: NDArray[np.bool_] | NDArray[np.int64] | slice = slice(None)) -> Floats:
        """Return vectors as floats."""
        decoded: Floats = self.codes[rows].astype(np.float32) * self.scales[rows][:, None]
        return decoded

    def keep(self, rows: NDArray[np.bool_]) -> QuantizedVectors:
        """Return the vectors of these rows."""
        return QuantizedVectors(self.codes[rows], self.scales[rows], self.bits[:, rows], self.centre)

    def compare(self, question: Floats) -> Floats:
        """Return the inner product with each vector: exact for the nearest, an estimate for the others."""
        if not len(self):
            return np.zeros(0, np.float32)
        distance = _count_differences(self.bits, _bits((question - _along(question, self.centre))[None, :])[0])
        products: Floats = _estimate(distance, len(question))
        nearest = _smallest(distance, max(RESCORED, int(len(self) * RESCORED_SHARE)))
        exact = (self.codes[nearest].astype(np.float32) @ question) * self.scales[nearest]
        # The estimates are brought to the scale of the exact values, and stay below the nearest ones.
        level = float(np.median(exact) - np.median(products[nearest]))
        products += np.float32(level)
        np.minimum(products, exact.min(), out=products)
        products[nearest] = exact
        return products


def _encode(vectors: Floats, centre: Floats) -> tuple[NDArray[np.int8], Floats, NDArray[np.uint64]]:
    scales = np.maximum(np.abs(vectors).max(axis=1), 1e-12).astype(np.float32) / np.float32(127)
    codes = np.rint(vectors / scales[:, None]).astype(np.int8)
    return codes, scales, _bits(vectors - centre)


def _along(question: Floats, centre: Floats) -> Floats:
    """Return the part of the question that points towards the centre."""
    size = float(centre @ centre)
    return (float(question @ centre) / size * centre).astype(np.float32) if size else np.zeros_like(question)


def _bits(vectors: Floats) -> NDArray[np.uint64]:
    packed = np.packbits(vectors > 0, axis=1)
    padding = -packed.shape[1] % 8
    return np.ascontiguousarray(np.pad(packed, ((0, 0), (0, padding)))).view(np.uint64)


def _count_differences(bits: NDArray[np.uint64], asked: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """Return the Hamming distance of each vector; word by word, so that little memory is needed."""
    total = np.zeros(bits.shape[1], np.uint16)
    for words, word in zip(bits, asked, strict=True):
        different = words ^ word
        if hasattr(np, "bitwise_count"):  # from numpy 2 on
            total += np.bitwise_count(different)
        else:
            total += _POPCOUNT[different.view(np.uint8).reshape(-1, 8)].sum(axis=1, dtype=np.uint16)
    return total


def _smallest(distance: NDArray[np.uint16], few: int) -> NDArray[np.int64]:
    """Return the places of the smallest distances: `few`, and all others that are as small as the last of them."""
    up_to = int(np.bincount(distance).cumsum().searchsorted(min(few, len(distance))))
    return np.flatnonzero(distance <= up_to)


def _estimate(distance: NDArray[np.uint16], dimensions: int) -> Floats:
    """Return the average cosine of vectors whose signs differ in this number of dimensions."""
    table = np.cos(pi * np.arange(dimensions + 65) / dimensions).astype(np.float32)
    found: Floats = table[distance]
    return found
