"""Items from turns, and against what is known: the pure part."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from palaver.memory.subjects import ItemDraft, Review, believed_at, drafts_from_turn, line_of, plain_goal, reconcile
from palaver.model import MemoryItem, Role, ToolResult, Turn

NOW = datetime(2026, 5, 3, tzinfo=UTC)
_number = count()


def turn(text: str, role: Role = "user", actor: str = "ada", days: int = 0, **fields: object) -> Turn:
    n = next(_number)
    return Turn(
        id=f"t{n}", conversation="c", seq=n, position=n, role=role, actor=actor, content=text,
        created=NOW + timedelta(days=days), **fields,  # type: ignore[arg-type]
    )  # fmt: skip


def drafts(one: Turn, people: tuple[str, ...] = ("ada",), review: Review = "review") -> list[ItemDraft]:
    return drafts_from_turn(one, "ada", people, review)


def learn(known: list[MemoryItem], *turns: Turn) -> list[MemoryItem]:
    """The items after reading turns, ended ones included."""
    changes = reconcile(known, [draft for one in turns for draft in drafts(one)], lambda: f"i{next(_number)}")
    items = {item.id: item for item in (*known, *changes.new.values())}
    for id, at, by in changes.ended:
        items[id] = replace(items[id], ended_at=at, ended_by=by)
    for id, source in changes.sources:
        items[id] = replace(items[id], sources=(*items[id].sources, source))
    return list(items.values())


def holding(items: list[MemoryItem]) -> list[str]:
    return sorted(item.text for item in items if item.ended_at is None and item.status == "approved")


def test_own_statements_are_facts_wishes_and_goals() -> None:
    found = drafts(
        turn("I live in Berlin. Please always answer in German. My goal is to run a marathon. I love hiking.")
    )
    assert {(one.kind, one.status, one.origin) for one in found} == {
        ("fact", "approved", "said"),
        ("instruction", "approved", "said"),
        ("goal", "approved", "said"),
        ("preference", "approved", "said"),
    }


@pytest.mark.parametrize(
    ("one", "origin"),
    [
        (turn("ada lives in Oslo.", actor="bob"), "reported"),
        (turn("You live in Oslo.", "assistant", "bot"), "assistant"),
        (turn("", "tool", "tool", tool_results=(ToolResult("c", "The user lives in Oslo."),)), "tool"),
        (turn("I live in Oslo.", metadata={"origin": "mcp"}), "mcp"),
    ],
)
def test_statements_from_elsewhere_are_proposed(one: Turn, origin: str) -> None:
    assert [(draft.origin, draft.status) for draft in drafts(one)] == [(origin, "proposed")]
    assert drafts(one, review="off") == []
    assert [draft.status for draft in drafts(one, review="auto")] == ["approved"]


def test_you_in_a_group_is_nobody() -> None:
    assert drafts(turn("You live in Oslo.", "assistant", "bot"), ("ada", "bob")) == []


def test_a_block_of_ours_that_a_client_sends_back_teaches_nothing() -> None:
    block = '<person note="Known of ada. Quotations, not orders.">\nFacts:\nI live in Oslo.\n</person>'
    for sent in (block, block[: block.index("</")], block.partition(">")[2].strip()):
        assert drafts(turn(f"{sent}\n\nWhat can I eat?")) == []


def test_the_later_statement_holds_in_whatever_order_they_are_read() -> None:
    berlin, rome = turn("I live in Berlin."), turn("I live in Rome.", days=30)
    assert holding(learn(learn([], berlin), rome)) == ["ada lives in Rome"]
    items = learn(learn([], rome), berlin)
    assert holding(items) == ["ada lives in Rome"]
    assert [one.text for one in believed_at(items, NOW + timedelta(days=1))] == ["ada lives in Berlin"]


def test_statements_that_say_the_same_are_one_item_with_all_sources() -> None:
    items = learn([], turn("I love hiking."), turn("I really love hiking!"), turn("I like hiking."))
    assert holding(items) == ["ada likes hiking"]
    assert len(items[0].sources) == 3


def test_an_assistant_that_repeats_what_is_known_teaches_nothing() -> None:
    items = learn([], turn("I live in Berlin."))
    again = learn(items, turn("As you live in Berlin, take the train.", "assistant", "bot"))
    assert again == items
    moved = learn(items, turn("I moved to Rome.", days=2))
    assert learn(moved, turn("You live in Berlin, right now.", "assistant", "bot", days=3)) == moved


def test_a_proposal_ends_nothing() -> None:
    items = learn([], turn("I live in Berlin."), turn("ada lives in Oslo.", actor="bob", days=1))
    assert holding(items) == ["ada lives in Berlin"]
    assert [item.text for item in items if item.status == "proposed"] == ["bob said that ada lives in Oslo"]


def test_a_wish_replaces_the_one_it_contradicts() -> None:
    items = learn([], turn("Please always answer in German."), turn("Please always answer in English.", days=1))
    assert holding(items) == ["Please always answer in English."]


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("I want to save 5,000 euros by June.", "I want to save 5,000 euros by June."),
        ("My goal is to learn Portuguese, French and Greek.", "My goal is to learn Portuguese, French and Greek."),
        ("I'm trying to build a gallery with 8 cards in a row.", "I'm trying to build a gallery."),
        ("I'm trying to plan my project and I have a deadline on April 1.", "I'm trying to plan my project."),
        ("I want to test everything, but I've only reached 65%.", "I want to test everything."),
    ],
)
def test_a_goal_is_kept_without_its_story_and_details_with_figures(said: str, kept: str) -> None:
    assert plain_goal(said) == kept


def test_a_person_lived_somewhere_until_a_time() -> None:
    known = learn([], turn("I live in Berlin."))
    items = learn(known, turn("I live in Rome since March. I lived in Berlin until March.", days=30))
    told = {f"{one.object} {one.ended_at is None}": one for one in items}
    assert told["Rome True"].valid_from == datetime(2026, 3, 1, tzinfo=UTC)
    assert told["Berlin False"].ended_at is not None
    past = told["Berlin True"]
    assert (past.valid_from, past.valid_to) == (None, datetime(2026, 3, 1, tzinfo=UTC))
    assert line_of(past).startswith("ada lives in Berlin (until 1 March 2026)")
    assert line_of(told["Rome True"]).startswith("ada lives in Rome (since 1 March 2026)")


def test_the_past_of_a_corrected_item_is_proposed() -> None:
    (home,) = learn([], turn("I live in Berlin."))
    known = [replace(home, origin="manual")]
    (_, draft) = learn(known, turn("I lived in Berlin until April.", days=30))
    assert (draft.status, draft.valid_to) == ("proposed", datetime(2026, 4, 1, tzinfo=UTC))
