"""Defaults of contexts: what each level may set, which level decides, and what is ignored."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.context.options import POLICIES
from palaver.context.settings import (
    clean_context_settings,
    counts_characters,
    merge_levels,
    stored_context_settings,
)
from palaver.errors import InvalidInput

LEVELS = ("call", "conversation", "agent", "workspace", "store")


@pytest.mark.parametrize("first", range(len(LEVELS)))
def test_the_first_level_that_sets_an_option_decides(first: int) -> None:
    levels: list[dict[str, Any]] = [{} for _ in LEVELS]
    for at in range(first, len(LEVELS)):
        levels[at] = {"recent_turns": at, "token_budget": 1_000 + at}
    assert merge_levels(levels) == {"recent_turns": first, "token_budget": 1_000 + first}


def test_options_of_different_levels_hold_together() -> None:
    levels = ({"recent_turns": 3}, {"policy": "recall-heavy"}, {}, {"recall_scope": "owner"}, {"token_budget": 2_000})
    assert merge_levels(levels) == {
        "recent_turns": 3,
        "policy": "recall-heavy",
        "recall_scope": "owner",
        "token_budget": 2_000,
    }


@pytest.mark.parametrize(("stronger", "weaker"), [("token_budget", "char_budget"), ("char_budget", "token_budget")])
def test_tokens_and_characters_are_one_budget(stronger: str, weaker: str) -> None:
    assert merge_levels([{stronger: 900}, {weaker: 5_000}]) == {stronger: 900}


def test_a_policy_in_characters_does_not_take_tokens_from_a_weaker_level() -> None:
    assert merge_levels([{"policy": "recent-chars"}, {"token_budget": 4_000}]) == {"policy": "recent-chars"}
    assert merge_levels([{"policy": "balanced"}, {"char_budget": 4_000}]) == {"policy": "balanced"}
    same_unit = [{"policy": "recent-chars"}, {"char_budget": 4_000}]
    assert merge_levels(same_unit) == {"policy": "recent-chars", "char_budget": 4_000}
    stronger = [{"token_budget": 900}, {"policy": "recent-chars"}]
    assert merge_levels(stronger) == {"token_budget": 900, "policy": "recent-chars"}


def test_counting_in_characters() -> None:
    assert counts_characters({"char_budget": 1})
    assert counts_characters({"policy": "recent-chars"})
    assert not counts_characters({"policy": "recent-chars", "token_budget": 9})
    assert not counts_characters({})


WRONG = {
    "polcy": ({"polcy": "balanced"}, "did you mean 'policy'"),
    "tokenBudget": ({"tokenBudget": 5}, "did you mean 'token_budget'"),
    "policy": ({"policy": "blanced"}, "must be one of"),
    "token_budget": ({"token_budget": 0}, "one or more"),
    "char_budget": ({"char_budget": 9, "token_budget": 9}, "cannot be combined"),
    "recent_turns": ({"recent_turns": -1}, "zero or more"),
    "semantic_recall.q": ({"semantic_recall": {"q": 1}}, "unknown"),
    "semantic_recall": ({"semantic_recall": "no"}, "true, false or an object"),
    "recall_scope": ({"recall_scope": "world"}, "must be conversation"),
    "include_facts": ({"include_facts": "no"}, "true or false"),
    "shorten": ({"shorten": 1}, "true or false"),
    "query": ({"query": "of one call only"}, "is unknown; the options are"),
}


@pytest.mark.parametrize("field", WRONG)
def test_a_mistake_is_named_with_its_place(field: str) -> None:
    given, words = WRONG[field]
    with pytest.raises(InvalidInput, match=words) as refusal:
        clean_context_settings("settings.context", given)
    assert refusal.value.field == f"settings.context.{field}"


def test_a_policy_object_cannot_be_stored() -> None:
    clean_context_settings("generate", {"policy": POLICIES["balanced"]})
    with pytest.raises(InvalidInput, match="name of a policy"):
        clean_context_settings("settings.context", {"policy": POLICIES["balanced"]}, is_stored=True)


@pytest.mark.parametrize(
    ("stored", "used"),
    [
        ({}, {}),
        ({"context": "mine"}, {}),
        ({"context": {"policy": "of another version", "recent_turns": 3}}, {"recent_turns": 3}),
        ({"context": {"policy": "last-20", "colour": 1}}, {"policy": "last-20"}),
        ({"context": {"token_budget": 9, "char_budget": 9}}, {}),
    ],
)
def test_what_another_version_stored_is_never_an_error(stored: dict[str, Any], used: dict[str, Any]) -> None:
    assert stored_context_settings(stored) == used
