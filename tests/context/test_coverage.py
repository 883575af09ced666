"""How contexts spend their budget, and that every older turn is covered: properties of packing."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from palaver.context.inputs import Context, RecalledTurn
from palaver.context.options import Options, parse_options
from tests.support.growing_thread import GrowingThread

COVERING = ("balanced", "recall-heavy", "recent-chars")
SUMMARISING = ("rolling", "hierarchical")
quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
long = settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))


def sizes_of(turns: int, kind: str, small: int, large: int) -> list[int]:
    if kind == "even":
        return [small] * turns
    if kind == "mixed":
        return [small if n % 7 else large for n in range(turns)]
    return [large] * turns


@st.composite
def threads(draw: st.DrawFn, most: int = 400) -> GrowingThread:
    thread = GrowingThread(draw(st.sampled_from(SUMMARISING)))
    kind = draw(st.sampled_from(["even", "even", "mixed", "long"]))
    large = draw(st.sampled_from([200, 1_000, 5_000, 20_000]))
    turns = draw(st.integers(1, most if kind == "even" else min(most, 120)))
    thread.say(*sizes_of(turns, kind, draw(st.integers(5, 120)), large))
    if len(thread.sizes) % 2 == 0:
        thread.say(12)  # a question at the end
    else:
        thread.sizes[-1] = 12
    return thread


@st.composite
def budgets(draw: st.DrawFn) -> Options:
    policy = draw(st.sampled_from(COVERING))
    tokens = draw(st.integers(1_000, 64_000))
    recall = draw(st.booleans())
    if policy == "recent-chars" or draw(st.booleans()):
        return parse_options(policy=policy, char_budget=max(4_000, tokens * 4), semantic_recall=recall)
    return parse_options(policy=policy, token_budget=tokens, semantic_recall=recall)


def recent(context: Context) -> set[str]:
    return {id for block in context.explanation.blocks if block.kind in ("recent", "current") for id in block.turn_ids}


def check_coverage(thread: GrowingThread, options: Options) -> None:
    context = thread.settled(options)
    explanation = context.explain()
    assert context.tokens <= explanation.budget
    coverage = explanation.coverage
    assert coverage.not_covered == 0, str(explanation)
    assert coverage.verbatim + coverage.shortened + coverage.summarised == len(thread.sizes), str(explanation)


def check_doubling(thread: GrowingThread, options: Options) -> None:
    in_characters = options.char_budget is not None
    doubled = parse_options(
        policy=options.policy,
        semantic_recall=options.recall,
        **{"char_budget" if in_characters else "token_budget": options.budget * 2},
    )
    thread.settled(options)
    smaller, larger = thread.settled(options), thread.settled(doubled)
    assert recent(smaller) <= recent(larger), f"{smaller.explain()}\n{larger.explain()}"
    assert larger.explain().coverage.not_covered <= smaller.explain().coverage.not_covered


@pytest.mark.costly
@quick
@given(threads(), budgets())
def test_every_older_turn_is_covered_once_the_thread_is_settled(thread: GrowingThread, options: Options) -> None:
    check_coverage(thread, options)


@pytest.mark.costly
@quick
@given(threads(), budgets())
def test_a_budget_twice_as_large_shows_no_fewer_recent_turns(thread: GrowingThread, options: Options) -> None:
    check_doubling(thread, options)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@long
@given(threads(most=600), budgets())
def test_every_older_turn_is_covered_in_ten_thousand_histories(thread: GrowingThread, options: Options) -> None:
    check_coverage(thread, options)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@long
@given(threads(most=600), budgets())
def test_a_larger_budget_shows_no_fewer_turns_in_ten_thousand_histories(
    thread: GrowingThread, options: Options
) -> None:
    check_doubling(thread, options)


@pytest.mark.parametrize("strategy", SUMMARISING)
@pytest.mark.parametrize("policy", COVERING)
def test_twenty_thousand_turns_are_covered_by_the_smallest_budget(strategy: str, policy: str) -> None:
    thread = GrowingThread(strategy)
    thread.say(*[33] * 20_000, 12)
    name = "char_budget" if policy == "recent-chars" else "token_budget"
    size = 4_000 if policy == "recent-chars" else 1_000
    check_coverage(thread, parse_options(policy=policy, **{name: size}))


# ---- the shares ----------------------------------------------------------------------------------------------------


def window_shares(budget: int, *, size: int, turns: int, recall: bool) -> list[float]:
    """A chat with a context at every question: the share of the window, while the thread does not fit as a whole."""
    thread = GrowingThread()
    options = parse_options(token_budget=budget, semantic_recall=recall)
    shares = []
    for _ in range(turns // 2):
        thread.say(size)
        context = thread.settled(options)
        if context.explain().coverage.summarised:
            blocks = context.explain().blocks
            shares.append(sum(one.tokens for one in blocks if one.kind in ("recent", "current")) / budget)
        thread.say(size)
    return shares


@pytest.mark.costly
@pytest.mark.parametrize(("budget", "size"), [(4_000, 33), (4_000, 60), (8_000, 120)])
@pytest.mark.parametrize(("recall", "least", "most", "mean"), [(True, 0.33, 0.6, 0.45), (False, 0.6, 0.9, 0.7)])
def test_the_window_of_a_growing_chat_is_the_largest_block(
    budget: int, size: int, recall: bool, least: float, most: float, mean: float
) -> None:
    shares = window_shares(budget, size=size, turns=int(4 * budget / size), recall=recall)
    assert len(shares) > 50
    assert least <= min(shares)
    assert max(shares) <= most
    assert statistics.mean(shares) >= mean


def test_what_fits_as_a_whole_is_shown_in_order_without_summaries_or_recall() -> None:
    thread = GrowingThread()
    thread.say(*[33] * 100, 10)
    thread.settle()
    assert thread.summaries
    found = tuple(RecalledTurn(thread.turn(n), 1.0) for n in range(5))
    context = thread.pack(parse_options(token_budget=4_000), found)
    assert [block.kind for block in context.explain().blocks] == ["recent", "current"]
    assert list(context.turn_ids[1:]) == [f"T{n}" for n in range(100)]
    assert context.explain().notes == ("nothing is recalled: the whole conversation is shown",)


def test_the_window_does_not_depend_on_the_question_or_on_other_budgets() -> None:
    thread, alone = GrowingThread(), GrowingThread()
    options = parse_options(token_budget=4_000)
    for one in (thread, alone):
        one.say(*[33] * 400, 10)
        one.settled(options)
    for budget in (1_000, 2_000, 16_000):
        thread.settled(parse_options(token_budget=budget))
    found = tuple(RecalledTurn(thread.turn(n), 1.0) for n in range(0, 60, 3))
    assert recent(thread.pack(options, found)) == recent(alone.pack(options))


def test_recall_heavy_gives_to_the_window_what_recall_cannot_use() -> None:
    thread = GrowingThread()
    thread.say(*[33] * 400, 10)
    options = parse_options(token_budget=4_000, policy="recall-heavy")
    found = tuple(RecalledTurn(thread.turn(n), 1.0) for n in range(10))
    context = thread.settled(options, found)
    assert len(recent(context)) > 60
    assert context.tokens > 3_500
    many = tuple(RecalledTurn(thread.turn(n), 1.0) for n in range(300))
    assert len(recent(thread.settled(options, many))) <= 4


def test_explain_says_which_part_of_the_recall_share_was_not_used() -> None:
    thread = GrowingThread()
    thread.say(*[33] * 400, 10)
    (note,) = thread.settled(parse_options(token_budget=4_000)).explain().notes
    assert note.startswith("not used: 1,520 of the tokens for recalled turns")


@pytest.mark.costly
def test_the_prompt_keeps_its_beginning_while_the_window_grows() -> None:
    thread = GrowingThread()
    options = parse_options(token_budget=4_000, semantic_recall=False)
    starts = []
    for _ in range(150):
        thread.say(40)
        context = thread.settled(options)
        if context.explain().coverage.summarised:
            starts.append((context.messages[0]["content"], context.messages[1]["content"]))
        thread.say(80)
    assert len(starts) > 100
    assert len(set(starts)) <= len(starts) / 7, "the head and the first turn stay the same for seven exchanges or more"


def test_recall_over_an_owner_keeps_its_share_of_a_thread_that_would_fit() -> None:
    thread = GrowingThread()
    thread.say(*[33] * 60, 10)
    elsewhere = tuple(
        RecalledTurn(structs.replace(thread.turn(n), id=f"E{n}", conversation="D"), 1.0) for n in range(60)
    )
    options = parse_options(token_budget=4_000, recall_scope="owner")
    blocks = {block.kind: block.tokens for block in thread.pack(options, elsewhere).explain().blocks}
    assert blocks["recalled"] > 0.3 * 4_000
    assert blocks["recent"] > 60 * 33, "the thread is still shown as a whole"
    small = parse_options(token_budget=3_000, recall_scope="owner")
    blocks = {block.kind: block.tokens for block in thread.settled(small, elsewhere).explain().blocks}
    assert blocks["recalled"] > 0.3 * 3_000
    assert blocks["recent"] < 0.6 * 3_000
