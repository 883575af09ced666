"""Which of the recalled turns are quoted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from palaver.context.explain import Block
from palaver.context.inputs import Context, Material, RecalledTurn
from palaver.context.options import POLICIES, Options
from palaver.context.pack import Candidate, pack_context, pick
from palaver.context.pack.recalled import SMALLEST
from palaver.model import Turn
from palaver.models.tokens import BpeCounter

COUNT = BpeCounter()
START = datetime(2026, 1, 1, tzinfo=UTC)


def turn(index: int, text: str, role: str = "user", actor: str = "ada") -> Turn:
    return Turn(
        id=f"T{index}",
        conversation="C",
        seq=index,
        position=index,
        role=role,
        actor=actor,
        content=text,
        created=START + timedelta(minutes=index),
        token_count=COUNT(text),
    )


def pack(*tail: Turn, current: Turn, recalled: list[Turn], budget: int) -> Context:
    found = tuple(RecalledTurn(one, 1 - n / 1_000, place=n) for n, one in enumerate(recalled))
    material = Material(
        turn_count=500, owner="ada", conversation="C", tail=tail, current=current, recalled=found, counter=COUNT.name
    )
    return pack_context(material, Options(policy=POLICIES["recall-heavy"], token_budget=budget), COUNT)


def block(context: Context, kind: str) -> Block:
    return next(one for one in context.explanation.blocks if one.kind == kind)


def cost_of(candidates: list[Candidate], costs: list[int], chosen: list[int], header: int) -> int:
    return sum(costs[i] for i in chosen) + header * len({candidates[i].group for i in chosen})


@given(
    st.lists(st.tuples(st.integers(1, 400), st.integers(0, 4), st.booleans()), max_size=40),
    st.integers(0, 2000),
    st.integers(0, 20),
)
def test_what_is_picked_fits_and_nothing_that_fits_is_left(
    found: list[tuple[int, int, bool]], room: int, header: int
) -> None:
    costs = [cost for cost, _, _ in found]
    candidates = [Candidate(group, standing) for _, group, standing in found]
    chosen = pick(candidates, costs.__getitem__, room, standing_room=room // 10, header_cost=header)
    left = room - cost_of(candidates, costs, chosen, header)
    groups = {candidates[i].group for i in chosen}
    assert len(set(chosen)) == len(chosen)
    assert left >= 0
    for i in set(range(len(found))) - set(chosen):
        assert costs[i] + (0 if candidates[i].group in groups else header) > left or left < SMALLEST


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 300))
def test_standing_instructions_come_first_and_the_order_is_that_of_the_ranking(standing: list[bool], room: int) -> None:
    candidates = [Candidate(0, one) for one in standing]
    chosen = pick(candidates, lambda _: 10, room, standing_room=room // 10)
    assert chosen == sorted(chosen, key=lambda i: (not standing[i], i))


def test_a_standing_instruction_gets_in_before_better_turns() -> None:
    candidates = [*(Candidate(0) for _ in range(9)), Candidate(0, standing=True)]
    chosen = pick(candidates, lambda _: 10, 50, standing_room=10, header_cost=0)
    assert chosen == [9, 0, 1, 2, 3]
    assert pick(candidates, lambda _: 10, 50, standing_room=9, header_cost=0) == [0, 1, 2, 3, 4]


def test_picks_are_limited_and_the_rest_is_not_counted() -> None:
    counted: list[int] = []

    def cost(index: int) -> int:
        counted.append(index)
        return 10

    assert pick([Candidate(0)] * 50, cost, 1_000, standing_room=100, most=3) == [0, 1, 2]
    assert counted == [0, 1, 2]


def test_the_room_of_names_that_are_not_repeated_goes_to_the_next_best_turns() -> None:
    current = turn(900, "What is new?")
    names = ["ada.lovelace@analytical-engines.example", "charles.babbage@analytical-engines.example"]
    for people in (names[:1], names):
        said = [turn(n, f"Sentence {n} says something new.", actor=people[n * len(people) // 200]) for n in range(200)]
        context = pack(current, current=current, recalled=said, budget=1_000)
        quoted = block(context, "recalled").turn_ids
        assert sorted(quoted) == sorted(one.id for one in said[: len(quoted)])  # the best, without a gap
        assert context.tokens + COUNT("+ Sentence 100 says something new.\n") >= 1_000 - SMALLEST
        assert context.tokens <= 1_000
        assert COUNT(context.text) <= 1_000


def test_a_complete_answer_takes_no_more_than_recent_turns() -> None:
    question = turn(900, "What is new?")
    answer = turn(901, "A long answer. " * 200, role="assistant", actor="bot")
    said = [turn(n, f"Sentence {n} says something new.") for n in range(400)]
    context = pack(question, answer, current=question, recalled=said, budget=2_000)
    assert block(context, "rounds").tokens <= 60
    assert block(context, "recalled").tokens > 1_800
