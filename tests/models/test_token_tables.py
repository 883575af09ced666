"""The token tables of the package are OpenAI's own, and no text takes long to count with them."""

from __future__ import annotations

import base64
import random
import time
from hashlib import sha1
from pathlib import Path

import pytest
import tiktoken_ext.openai_public
import tools.token_tables
from hypothesis import given
from hypothesis import strategies as st
from tools.token_tables import SHA256

from palaver.models import token_tables
from palaver.models.token_tables import SPLIT, load_table, read_ranks
from palaver.models.tokens import HARD_PIECE
from tests.support.examples import examples

BLOBS = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"
LINE = b"%s %d\n"


def published(name: str) -> bytes:
    """The file that OpenAI publishes, made from the table of the package."""
    return b"".join(LINE % (base64.b64encode(token), rank) for token, rank in read_ranks(name).items())


@pytest.mark.costly
@pytest.mark.parametrize("name", SPLIT)
def test_tiktoken_takes_the_table_for_its_own(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tiktoken reads a file from its cache only if it has the SHA-256 that OpenAI published."""
    cached = tmp_path / sha1(BLOBS.format(name).encode()).hexdigest()
    cached.write_bytes(published(name))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    theirs = getattr(tiktoken_ext.openai_public, name)()
    assert theirs["pat_str"] == SPLIT[name]
    assert theirs["mergeable_ranks"] == read_ranks(name)


def test_an_interrupted_build_leaves_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full in the middle of the last table: the next build writes the tables again."""
    write_bytes, last = Path.write_bytes, list(SHA256)[-1]

    def on_a_full_disk(path: Path, data: bytes) -> int:
        if not path.name.startswith(last):
            return write_bytes(path, data)
        write_bytes(path, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tools.token_tables, "_published", lambda name: b"IQ== 0\nIg== 1")
    with monkeypatch.context() as during:
        during.setattr(Path, "write_bytes", on_a_full_disk)
        with pytest.raises(OSError, match="No space"):
            tools.token_tables.write(tmp_path)
    assert tools.token_tables.is_missing(tmp_path)
    tools.token_tables.write(tmp_path)
    assert not tools.token_tables.is_missing(tmp_path)


def test_every_table_has_a_published_hash() -> None:
    assert SPLIT.keys() == SHA256.keys()


@pytest.mark.parametrize("name", SPLIT)
@examples(100)
@given(text=st.text(max_size=60))
def test_tokens_are_those_of_the_text(name: str, text: str) -> None:
    table = load_table(name)
    tokens = table.encoding.encode_ordinary(text)
    assert table.count(text) == len(tokens)
    assert table.encoding.decode(tokens) == text


def test_a_clone_that_was_not_installed_says_how_to_get_the_tables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(token_tables, "_FOLDER", tmp_path)
    with pytest.raises(FileNotFoundError, match="pip install --editable"):
        read_ranks("o200k_base")


SEED = random.Random(7)
HOSTILE = {
    **{repr(one): one * HARD_PIECE for one in ("a", " ", "\n", "\t", "=", "-", "7", "日", "😀", "\u0301", "'s")},
    "two letters": "aA" * (HARD_PIECE // 2),
    "six Chinese characters": "中文字符测试" * (HARD_PIECE // 6),
    "random letters": "".join(SEED.choices("abcdefghijklmnopqrstuvwxyz", k=HARD_PIECE)),
    "random Chinese characters": "".join(chr(SEED.randint(0x4E00, 0x9FFF)) for _ in range(HARD_PIECE)),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", SPLIT)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_no_piece_takes_much_longer_than_prose(text: str, name: str) -> None:
    """tiktoken before 0.13 took 28 seconds for one of these, which is 10,000 times as long as prose."""
    prose = ("The harbour lay still, and 12 gulls cried.\n" * 2_000)[:HARD_PIECE]
    load_table(name).count(prose)
    assert _seconds(text[:HARD_PIECE], name) < 40 * _seconds(prose, name) + 0.05


def _seconds(text: str, name: str) -> float:
    return min(_once(text, name), _once(text, name))


def _once(text: str, name: str) -> float:
    start = time.process_time()
    load_table(name).count(text)
    return time.process_time() - start
