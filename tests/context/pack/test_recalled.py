"""Which of the recalled turns are quoted."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palaver.context.pack import Candidate, pick
from palaver.context.pack.recalled import SMALLEST


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
