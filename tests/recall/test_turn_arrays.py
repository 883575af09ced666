"""Sessions and neighbours, however the turns come in."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from palaver.recall.sessions import FEW, HOUR
from palaver.recall.turn_arrays import Profile, Row


def row(tid: int, conversation: int, position: int, created: int, role: str = "user", searchable: bool = True) -> Row:
    return Row(tid, conversation, position, created, 10, role, f"{role} {conversation}", 0, searchable)


def test_a_pause_of_an_hour_or_another_conversation_starts_a_session() -> None:
    moments = [(0, 0), (0, HOUR - 1), (0, 2 * HOUR - 1), (0, 0), (1, 1)]  # the fourth clock went back
    found = Profile.build(row(n, talk, n, at) for n, (talk, at) in enumerate(moments))
    assert found.session.tolist() == [0, 0, 1, 2, 3]


def test_neighbours_are_searchable_and_in_the_same_session() -> None:
    rows = [row(0, 0, 0, 0), row(1, 0, 1, 1, "tool", False), row(2, 0, 2, 2, "assistant"), row(3, 0, 3, HOUR * 3)]
    found = Profile.build(rows)
    assert found.before.tolist() == [-1, -1, 0, -1]
    assert found.after.tolist() == [2, -1, -1, -1]
    assert found.nth.tolist() == [0, -1, -1, 0]
    assert found.has_assistant


def test_actors_are_coded() -> None:
    found = Profile.build([row(0, 0, 0, 0), row(1, 0, 1, 1, "assistant")])
    found = found.extend([row(2, 0, 2, 2), row(3, 1, 0, 3)])
    assert [found.actors[code] for code in found.actor] == ["user 0", "assistant 0", "user 0", "user 1"]


def test_an_empty_scope() -> None:
    found = Profile.build([])
    assert len(found) == 0
    found = found.extend([]).extend([row(0, 0, 0, 0)])
    assert len(found) == 1
    assert found.session.tolist() == [0]


def named_alike(session: np.ndarray) -> list[int]:
    """The sessions by the order in which they come up: their names mean nothing else."""
    return [list(dict.fromkeys(session.tolist())).index(one) for one in session.tolist()]


MOMENTS = st.tuples(st.integers(0, 2), st.integers(0, 3 * HOUR), st.sampled_from(["user", "assistant", "tool"]))


@given(st.lists(MOMENTS, max_size=30), st.lists(st.integers(0, 30), max_size=3), st.booleans())
def test_extending_is_the_same_as_building(moments: list[tuple[int, int, str]], cuts: list[int], late: bool) -> None:
    """Even when the newer turns belong to an earlier conversation of the scope, or in between."""
    rows = [
        row(n, talk, -n if late and n % 5 == 4 else n, created, role, role != "tool")
        for n, (talk, created, role) in enumerate(moments)
    ]
    whole, grown = Profile.build(rows), Profile.build([])
    for start, end in itertools.pairwise([0, *sorted(cuts), len(rows)]):
        before = grown
        kept = [column.copy() for column in before.links]
        grown = grown.extend(rows[start:end])
        assert all(np.array_equal(one, other) for one, other in zip(kept, before.links, strict=True))
    for name in ("tid", "before", "after", "nth", "actor"):
        assert np.array_equal(getattr(whole, name), getattr(grown, name)), name
    assert named_alike(whole.session) == named_alike(grown.session)
    linked = whole.after >= 0
    assert (whole.before[whole.after[linked]] == np.flatnonzero(linked)).all()
    assert (whole.session[whole.after[linked]] == whole.session[linked]).all()


def test_many_more_turns_are_the_same_too() -> None:
    rows = [row(n, n % 3, n, n * HOUR // 7) for n in range(3 * FEW)]
    whole, grown = Profile.build(rows), Profile.build(rows[:FEW]).extend(rows[FEW:])
    assert np.array_equal(whole.after, grown.after)
    assert np.array_equal(whole.session, grown.session)
