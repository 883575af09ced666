"""For any results and any budget: the answer of `recall` is inside it, in either form."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palaver
from palaver.model import Results
from palaver.models.tokens import BpeCounter, MarginCounter
from palaver.server.mcp import schemas
from palaver.server.mcp.budgeted_text import ToolAnswer, fit_pieces
from palaver.server.mcp.tools import build_history_page, fit_recalled
from tests.server.mcp.helpers import call, in_process
from tests.support.examples import examples

COUNTERS = (BpeCounter(), BpeCounter("cl100k_base"), MarginCounter())
WHEN = datetime(2026, 11, 15, 10, 1, 2, 3, UTC)
# Plain words, and what costs most inside JSON: quotes, controls, marks of fences, scripts, emoji.
HOSTILE = st.text(st.sampled_from('ab "\\\n\t\x01<>/recalled{}[]…é語🙂'), max_size=600)
TEXTS = st.one_of(HOSTILE, st.text(max_size=300), st.integers(0, 3_000).map(lambda n: "word " * n))


def hit(n: int, text: str) -> schemas.Hit:
    return schemas.Hit(
        conversation=f"01M7FBZ51BKNVQF5A0ZHMD{n:04}", turn=f"01M7FBZ53MC7WE3FJJGEPW{n:04}", who="ada", role="user",
        when=WHEN, text=text, score=0.123,
    )  # fmt: skip


@examples(40)
@given(
    st.lists(TEXTS, max_size=20),
    st.integers(schemas.MIN_BUDGET, 3_000),
    st.sampled_from(COUNTERS),
)
def test_an_answer_is_never_over_budget(texts: list[str], budget: int, count: BpeCounter | MarginCounter) -> None:
    hits = [hit(n, text) for n, text in enumerate(texts)]
    answer = fit_recalled(Results(hits), budget, count)
    value = answer.value
    assert isinstance(value, schemas.Recalled)
    assert count(answer.text) <= budget
    assert count(value.model_dump_json()) <= budget
    assert value.tokens <= budget
    # Best first, none passed over, and what is shortened says so.
    assert [one.turn for one in value.pieces] == [one.turn for one in hits[: len(value.pieces)]]
    assert value.left_out == len(hits) - len(value.pieces)
    assert all(one.shortened or one.text == whole.text for one, whole in zip(value.pieces, hits, strict=False))


@examples(40)
@given(st.lists(TEXTS, min_size=1, max_size=20), st.integers(schemas.MIN_BUDGET, 3_000))
def test_a_page_of_history_is_not_over_budget_and_leaves_no_gap(texts: list[str], budget: int) -> None:
    """Only a turn that fills a page by itself is shortened: a client that reads on from the last one misses nothing."""
    said = [hit(n, text) for n, text in enumerate(texts)]

    def render(some: Sequence[schemas.Passage]) -> ToolAnswer:
        return build_history_page("c", None, None, some, len(said), budget)

    kept = fit_pieces(said, budget, COUNTERS[0], render, cut_last=False)
    assert render(kept).cost(COUNTERS[0]) <= budget
    assert not any(one.shortened for one in kept[1:])
    assert len(kept) == 1 or not any(one.shortened for one in kept)


@pytest.mark.costly
async def test_megabytes_are_shortened_and_not_refused() -> None:
    async with palaver.open("memory:", embedder="none") as store, in_process(store) as client:
        text = "peanuts " + "nuts and bolts " * 200_000
        await call(client, "append", conversation="long", role="user", text=text)
        found = await call(client, "recall", query="peanuts", token_budget=500)
        assert found["tokens"] <= 500
        (piece,) = found["pieces"]
        assert piece["shortened"]
        assert piece["text"].startswith("peanuts nuts")
        page = await call(client, "history", conversation="long", token_budget=500)
        assert page["turns"][0]["shortened"]


@pytest.mark.parametrize("budget", [schemas.MIN_BUDGET - 1, 0, -1, schemas.MAX_BUDGET + 1])
async def test_a_budget_that_cannot_be_kept_is_refused(budget: int) -> None:
    async with palaver.open("memory:", embedder="none") as store, in_process(store) as client:
        result = await client.call_tool("recall", {"query": "x", "token_budget": budget})
        assert result.is_error
        assert "token_budget" in result.content[0].text
