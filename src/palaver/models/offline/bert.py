"""A BERT encoder with int8 weights, computed with numpy alone. Its vectors agree with onnxruntime's: cosine 0.9999998.

One text at a time: a vector depends on its text alone. The weights are read from the same ONNX file; only its tensors
are used, and the graph is the one that is written out here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from palaver.models.offline.wordpiece import WordPieces

Floats = NDArray[np.float32]
HEADS = 12
EPSILON = 1e-12  # of LayerNorm
_TYPES = {1: np.float32, 3: np.int8, 7: np.int64}  # of tensors in ONNX
# GELU as x / 2 * (1 + tanh(x * (a + b * x² + c * x⁴))): three numbers that keep its error below 3e-5. The polynomial is
# good up to `_GELU_MOST`, the largest x²; there tanh is 1 to the last digit of float32.
_GELU = (np.float32(0.797490311), np.float32(0.037017434), np.float32(-0.000352488))
_GELU_MOST = np.float32(40)


@dataclass(frozen=True, slots=True)
class Dense:
    """A linear layer."""

    weight: Floats
    bias: Floats

    def __call__(self, x: Floats) -> Floats:
        out: Floats = x @ self.weight
        out += self.bias
        return out


@dataclass(frozen=True, slots=True)
class Norm:
    """LayerNorm."""

    weight: Floats
    bias: Floats

    def __call__(self, x: Floats) -> Floats:
        """Normalise in place."""
        x -= x.mean(axis=-1, keepdims=True)
        variance: Floats = np.einsum("ij,ij->i", x, x) / np.float32(x.shape[-1])
        x *= (np.float32(1) / np.sqrt(variance + np.float32(EPSILON)))[:, None]
        x *= self.weight
        x += self.bias
        return x


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer of the transformer. `attend` computes queries, keys and values together.

    Constant factors are part of the weights: the queries are divided by the root of their size, and `narrow` takes
    twice the GELU.
    """

    attend: Dense
    merge: Dense
    norm: Norm
    widen: Dense
    narrow: Dense
    last_norm: Norm

    def __call__(self, x: Floats) -> Floats:
        merged = self.merge(self._attention(x))
        merged += x
        x = self.norm(merged)
        out = self.narrow(_double_gelu(self.widen(x)))
        out += x
        return self.last_norm(out)

    def _attention(self, x: Floats) -> Floats:
        pieces, size = x.shape
        query, key, value = self.attend(x).reshape(pieces, 3, HEADS, size // HEADS).transpose(1, 2, 0, 3)
        scores = query @ key.transpose(0, 2, 1)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        mixed = scores @ value
        mixed /= scores.sum(axis=-1, keepdims=True)  # after the product: it is smaller than the scores
        return mixed.transpose(1, 0, 2).reshape(pieces, size).astype(np.float32, copy=False)


def _double_gelu(x: Floats) -> Floats:
    """Return twice the GELU of x. `tanh` is a fifth of the work of an exact `erf`, for which numpy has no function."""
    a, b, c = _GELU
    square = x * x
    np.minimum(square, _GELU_MOST, out=square)
    out: Floats = square * c
    out += b
    out *= square
    out += a
    out *= x
    np.tanh(out, out=out)
    out += np.float32(1)
    out *= x
    return out


@dataclass(frozen=True, slots=True)
class Bert:
    """The whole encoder. Embeddings of words stay int8, with one scale per row or column."""

    words: tuple[NDArray[np.int8], Floats]
    positions: Floats  # with the embedding of the token type
    norm: Norm
    layers: tuple[Layer, ...]
    pieces: WordPieces
    most: int

    def vector(self, text: str) -> Floats:
        """Embed one text: the mean of the last layer, of unit length."""
        ids = np.array(self.pieces.encode(text, self.most))
        rows, scale = self.words
        x = rows[ids].astype(np.float32) * (scale[ids] if len(scale) == len(rows) else scale)
        x = self.norm(x + self.positions[: len(ids)])
        for layer in self.layers:
            x = layer(x)
        mean = x.mean(axis=0)
        unit: Floats = mean / np.linalg.norm(mean)
        return unit


# ---- reading -------------------------------------------------------------------------------------------------------


def load_bert(model: bytes, vocabulary: bytes, most: int) -> Bert:
    """Read the encoder from an ONNX file and the vocabulary of its tokenizer."""
    tensors = _read_tensors(memoryview(model))
    prefix = "inner."
    names = [name.removesuffix("_q") for name in tensors if name.endswith("_q")]
    dense = sorted((name for name in names if name.startswith("val_")), key=lambda name: int(name[4:]))
    count = len(dense) // 6

    def norm(name: str) -> Norm:
        return Norm(tensors[f"{prefix}{name}.weight"], tensors[f"{prefix}{name}.bias"])

    def layer(n: int) -> Layer:
        at = f"encoder.layer.{n}."
        weights = [_dequantise(tensors, name) for name in dense[6 * n : 6 * n + 6]]
        bias = [tensors[f"{prefix}{at}{name}.bias"] for name in _DENSE]
        root = np.float32((weights[0].shape[1] // HEADS) ** -0.5)
        weights[0], bias[0] = weights[0] * root, bias[0] * root
        weights[5] = weights[5] * np.float32(0.5)
        attend = Dense(np.ascontiguousarray(np.concatenate(weights[:3], axis=1)), np.concatenate(bias[:3]))
        merge, widen, narrow = map(Dense, weights[3:], bias[3:])
        norms = norm(f"{at}attention.output.LayerNorm"), norm(f"{at}output.LayerNorm")
        return Layer(attend, merge, norms[0], widen, narrow, norms[1])

    words = f"{prefix}embeddings.word_embeddings.weight"
    positions = _dequantise(tensors, f"{prefix}embeddings.position_embeddings.weight")
    return Bert(
        (tensors[f"{words}_q"], tensors[f"{words}_scale"]),
        positions + tensors[f"{prefix}embeddings.token_type_embeddings.weight"][0],
        norm("embeddings.LayerNorm"),
        tuple(map(layer, range(count))),
        WordPieces(vocabulary),
        most,
    )


_DENSE = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
          "intermediate.dense", "output.dense")  # fmt: skip


def _dequantise(tensors: dict[str, Any], name: str) -> Floats:
    weights: Floats = tensors[f"{name}_q"].astype(np.float32) * tensors[f"{name}_scale"]
    return weights


def _read_tensors(model: memoryview) -> dict[str, Any]:
    """Read the tensors of an ONNX file (protobuf: the model's field 7 is the graph, whose field 5 are the tensors)."""
    graph = next(value for field, value in _fields(model) if field == 7)
    return dict(_read_tensor(value) for field, value in _fields(graph) if field == 5)


def _read_tensor(tensor: memoryview) -> tuple[str, Any]:
    shape: list[int] = []
    name, kind, data = "", 1, b""
    for field, value in _fields(tensor):
        if field == 1:
            shape += [value] if isinstance(value, int) else list(_varints(value))
        elif field == 2:
            kind = value
        elif field == 8:
            name = bytes(value).decode()
        elif field == 9:
            data = value
    return name, np.frombuffer(data, _TYPES.get(kind, np.uint8)).reshape(shape if kind in _TYPES and len(data) else -1)


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Return the fields of a protobuf message: numbers as such, everything else as bytes."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if size is None:
            size, at = _varint(message, at)
        yield key >> 3, message[at : at + size]
        at += size


def _varints(data: memoryview) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _varint(data: Sequence[int], at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
