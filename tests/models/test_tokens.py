"""Token counts: exact by the public tables, with a margin elsewhere, fast on any text."""

import math
import subprocess
import sys
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palaver.models import tokens
from palaver.models.token_tables import load_table
from palaver.models.tokens import (
    BpeCounter,
    CharCounter,
    MarginCounter,
    counter_for,
    is_dense,
    split_for_counting,
)
from tests.support.examples import examples

PROSE = "We could meet on Thursday at the little café near the station, if the weather holds, and talk it all over."
CODE = "def add(a, b):\n    return {'sum': a + b, 'args': [a, b]}\n\nfor _ in range(3):\n    print(add(_, _ ** 2))\n"
RUSSIAN = "Мы встретимся в четверг у вокзала и всё обсудим."


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (None, "o200k_base"),
        ("", "o200k_base"),
        ("offline", "o200k_base"),
        ("offline:echo", "o200k_base"),
        ("gpt-4o", "o200k_base"),
        ("openai:gpt-4o-mini", "o200k_base"),
        ("gpt-4.1", "o200k_base"),
        ("openai:gpt-5.2-codex", "o200k_base"),
        ("openai/gpt-oss-120b", "o200k_base"),
        ("openrouter:openai/gpt-5", "o200k_base"),
        ("o1", "o200k_base"),
        ("openai:o3-mini", "o200k_base"),
        ("chatgpt-4o-latest", "o200k_base"),
        ("ft:gpt-4o-mini:acme::abc", "o200k_base"),
        ("GPT-4", "cl100k_base"),
        ("gpt-4-turbo", "cl100k_base"),
        ("gpt-4-1106-preview", "cl100k_base"),
        ("openai:gpt-3.5-turbo", "cl100k_base"),
        ("azure:gpt-35-turbo", "cl100k_base"),
        ("openai:text-embedding-3-small", "cl100k_base"),
        ("anthropic:claude-sonnet-4-5", "o200k_base×1.15/1.4"),
        ("gemini-2.5-pro", "o200k_base×1.15/1.4"),
        ("ollama:llama3:8b", "o200k_base×1.15/1.4"),
        ("mistral-large", "o200k_base×1.15/1.4"),
        ("qwen3-30b", "o200k_base×1.15/1.4"),
        ("deepseek-r1", "o200k_base×1.15/1.4"),
        ("openai:llama-3.1-70b", "o200k_base×1.15/1.4"),
        ("gpt-2", "o200k_base×1.15/1.4"),
        ("our-own-model", "o200k_base×1.15/1.4"),
    ],
)
def test_the_model_name_chooses_the_counter(model: str | None, name: str) -> None:
    assert counter_for(model).name == name


@pytest.mark.parametrize(
    ("table", "text", "tokens"),
    [
        ("o200k_base", "", 0),
        ("o200k_base", "hello world", 2),
        ("o200k_base", "<|endoftext|>", 7),
        ("cl100k_base", "<|endoftext|>", 7),
        ("cl100k_base", "tiktoken is great!", 6),
        ("cl100k_base", "お誕生日おめでとう", 9),
    ],
)
def test_counts_are_those_of_the_published_tables(table: str, text: str, tokens: int) -> None:
    assert BpeCounter(table)(text) == tokens


PIECES = st.one_of(
    st.sampled_from(
        ["the", "Don't", "don’t", "isn'T", "I'll", "x" * 40, "café", "Привет", "お誕生日", "🙂", "12345", "3.14"]
    ),
    st.sampled_from([" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\x1c", "\x85", "\u200b", "\u0301"]),
    st.sampled_from(["'s", "/", "//", "...", "?!", "-", "_", "(", "ﬀ", "Ⅷ", "²", "़"]),
    st.text(max_size=3),
)


@pytest.mark.costly
@given(st.lists(PIECES, max_size=12).map("".join), st.sampled_from(["o200k_base", "cl100k_base"]))
@example("a b  c", "o200k_base")
@example("the\n", "o200k_base")
@example("a \nb", "o200k_base")
@example(" leading and trailing ", "o200k_base")
@example("1 2 345 6789 ٣ ٤", "cl100k_base")
def test_words_that_were_seen_before_count_as_they_do_in_the_text(text: str, table: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    assert BpeCounter(table)(text) == BpeCounter(table)(text) == load_table(table).count(text)


def test_many_words_are_forgotten_again() -> None:
    words = tokens._Words(load_table("o200k_base"), " ", limit=10)
    assert [words[f"word{n}"] for n in range(100)] == [2] * 100
    assert len(words) <= 10
    assert words["x" * 33] > 1
    assert "x" * 33 not in words


@pytest.mark.parametrize("text", [PROSE, PROSE.replace("café", "“place” — the new one —"), "ok", "I'm 41."])
def test_prose_gets_the_small_margin(text: str) -> None:
    assert not is_dense(text)
    assert counter_for("claude")(text) == math.ceil(BpeCounter()(text) * 115 / 100)


@pytest.mark.parametrize(
    "text", [CODE, '{"a": [1, 2]}', RUSSIAN, "会議は木曜日です", "שלום לכולם", "👍🏽👩‍👩‍👧", "Mañana será otro día"]
)
def test_code_and_other_scripts_get_the_large_margin(text: str) -> None:
    assert is_dense(text)
    assert counter_for("claude")(text) == math.ceil(BpeCounter()(text) * 140 / 100)


def test_the_margin_is_rounded_up_and_exact_where_it_is_whole() -> None:
    twenty = "hello" + " hello" * 19
    assert BpeCounter()(twenty) == 20
    assert MarginCounter()(twenty) == 23
    assert MarginCounter()("hello") == 2
    assert MarginCounter()("") == 0


@given(st.text())
def test_a_margin_never_counts_less_than_the_table(text: str) -> None:
    assert BpeCounter()(text) <= MarginCounter()(text) <= math.ceil(BpeCounter()(text) * 1.4)


@pytest.mark.parametrize("counter", [BpeCounter(), BpeCounter("cl100k_base"), MarginCounter(), CharCounter()])
def test_half_a_surrogate_pair_is_counted(counter: BpeCounter | MarginCounter | CharCounter) -> None:
    assert counter("\ud800 x") > 0


def test_characters_are_counted_as_code_points() -> None:
    assert CharCounter()("añ👍") == 3
    assert CharCounter().name == "characters"


@pytest.mark.costly
@pytest.mark.parametrize("piece", ["a", " ", "\n", "=", "日", "7", " \n", "<|endoftext|>"])
@pytest.mark.parametrize("counter", [BpeCounter(), BpeCounter("cl100k_base"), MarginCounter()])
def test_time_is_linear_on_monotonous_text(counter: BpeCounter | MarginCounter, piece: str) -> None:
    """A quadratic counter would take 64 times as long for 8 times the text; linear takes 8 times."""
    short, long = piece * 50_000, piece * 400_000
    counter(short)
    assert _seconds(counter, long) < 30 * _seconds(counter, short) + 0.05


@pytest.mark.costly
def test_a_turn_of_five_megabytes_is_counted_at_once() -> None:
    text = (PROSE + "\n" + CODE + RUSSIAN) * 20_000
    assert len(text.encode()) > 5_000_000
    assert _seconds(MarginCounter(), text) < 10


def test_no_table_is_read_at_import() -> None:
    code = "import sys, palaver.models.tokens; sys.exit('tiktoken' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def _seconds(counter: BpeCounter | MarginCounter, text: str) -> float:
    """Processor time, the better of two: other work on the machine does not count."""
    return min(_once(counter, text), _once(counter, text))


def _once(counter: BpeCounter | MarginCounter, text: str) -> float:
    start = time.process_time()
    counter(text)
    return time.process_time() - start


PARTS = [
    "a",
    "B",
    "é",
    "1",
    "23",
    "4567",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\t",
    "'s",
    "'LL",
    "!",
    "...",
    "/",
    "密码",
    " the",
    "3a",
    "\r\n",
]


@pytest.mark.parametrize("table", ["o200k_base", "cl100k_base"])
@examples(100)
@given(parts=st.lists(st.sampled_from(PARTS), max_size=60))
def test_a_text_in_pieces_has_the_tokens_of_the_whole(table: str, parts: list[str]) -> None:
    text = "".join(parts)
    pieces = list(split_for_counting(text, piece=3, hard_piece=10_000))
    assert "".join(pieces) == text
    assert sum(map(load_table(table).count, pieces)) == load_table(table).count(text)


def test_a_large_text_is_counted_exactly_where_it_has_spaces() -> None:
    text = "The harbour lay still, and 12 gulls cried. " * 2_000
    assert BpeCounter()(text) == load_table("o200k_base").count(text)
    word = "a" * 200_000
    assert 0 <= BpeCounter()(word) - load_table("o200k_base").count(word) <= 8
