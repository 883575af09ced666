"""Excerpts of long texts: what fits the question, in order, and never more than there is room for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palaver.recall.excerpts import find_excerpt
from palaver.recall.terms import terms

FILLER = [f"Paragraph {n} speaks of general matters and of nothing else." for n in range(12)]
CODE = "```python\n" + "\n".join(f"value_{n} = budget({n})" for n in range(30)) + "\n```"


def excerpt(text: str, question: str, room: int = 160) -> str:
    parts = find_excerpt(text, dict.fromkeys(terms(question), 1.0), room)
    return " … ".join(text[start:end].strip() for start, end in parts)


def test_the_passage_that_fits_is_found_deep_inside() -> None:
    text = "\n\n".join([*FILLER, "The rent of the flat is 900 euros.", *FILLER])
    assert "900 euros" in excerpt(text, "How much is the rent?")


def test_words_that_are_shown_already_count_less() -> None:
    text = "\n\n".join(["The rent is high.", "The rent is really high.", *FILLER, "The deposit was paid in May."])
    found = excerpt(text, "rent and deposit", room=80)
    assert "deposit" in found
    assert "rent" in found


def test_prose_comes_before_code() -> None:
    text = f"Here is my budget tracker so far.\n{CODE}\nIt should warn me when I spend too much."
    found = excerpt(text, "What should the tracker do?", room=120)
    assert "warn me" in found
    assert "value_3" not in found


def test_without_any_of_the_words_it_is_the_beginning() -> None:
    assert excerpt(" ".join(FILLER), "zebra", room=70).startswith("Paragraph 0")


@given(st.text(max_size=2_000), st.lists(st.text(max_size=8), max_size=4), st.integers(0, 500))
def test_parts_are_in_order_and_fit(text: str, words: list[str], room: int) -> None:
    parts = find_excerpt(text, dict.fromkeys(words, 1.0), room)
    assert all(0 <= start < end <= len(text) for start, end in parts)
    assert list(parts) == sorted(parts)
    assert sum(len(text[start:end].strip()) for start, end in parts) <= room + 4 * len(parts)
