"""Facts by rule: what was plainly stated, one value at a time where there can be only one, and no model believed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import InvalidInput
from palaver.memory.facts import (
    FACTS_SCHEMA,
    MAX_FACTS,
    MAX_OBJECT,
    FactDraft,
    extract,
    reconcile,
    validate_model_facts,
)
from palaver.model import Fact, Role, Turn

START = datetime(2024, 1, 1, tzinfo=UTC)


def turn(n: int, text: str, *, actor: str = "ada", role: Role = "user", **more: Any) -> Turn:
    return Turn(
        id=f"t{n}",
        conversation="c",
        seq=n,
        position=n,
        role=role,
        actor=actor,
        content=text,
        created=more.pop("created", START + timedelta(days=n)),
        **more,
    )


def said(text: str) -> list[tuple[str, str, str]]:
    return [(draft.subject, draft.predicate, draft.object) for draft in extract([turn(0, text)])]


def stored(draft: FactDraft, id: str = "f1", **more: Any) -> Fact:
    return Fact(
        id=id,
        subject=draft.subject,
        predicate=draft.predicate,
        object=draft.object,
        source_turn=draft.source_turn,
        confidence=draft.confidence,
        valid_from=draft.valid_from,
        **more,
    )


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("My name is Ada Lovelace.", ("ada", "name", "Ada Lovelace")),
        ("Please call me Countess.", ("ada", "is called", "Countess")),
        ("I live in Portland, Oregon with my cat.", ("ada", "lives in", "Portland, Oregon")),
        ("We just moved to New York.", ("ada", "lives in", "New York")),
        ("I'm originally from Sweden.", ("ada", "comes from", "Sweden")),
        ("I work at Acme Corp as an engineer.", ("ada", "works at", "Acme Corp")),
        ("I recently joined Equinor.", ("ada", "works at", "Equinor")),
        ("I work as a nurse, mostly at night.", ("ada", "works as", "nurse")),
        ("I'm a software engineer.", ("ada", "is a", "software engineer")),
        ("I’m severely allergic to peanuts!", ("ada", "is allergic to", "peanuts")),
        ("My sister's name is Eva.", ("ada's sister", "name", "Eva")),
        ("I took my daughter Sara to school.", ("ada's daughter", "name", "Sara")),
        ("I have a dog named Biscuit.", ("ada's dog", "name", "Biscuit")),
        ("My birthday is 3 May.", ("ada", "birthday", "3 May")),
        ("Anna's birthday is on June 4th.", ("Anna", "birthday", "June 4th")),
        ("I have 3 kids.", ("ada", "has", "3 kids")),
        ("We've got two cats.", ("ada", "has", "two cats")),
        ("I'm 34 years old.", ("ada", "age", "34")),
        ("I'm vegetarian.", ("ada", "is", "vegetarian")),
        ("We use Postgres for storage.", ("we", "use for storage", "Postgres")),
        ("The deadline is March 3.", ("deadline", "is", "March 3")),
        ("The deadline for the report is next Friday.", ("deadline for the report", "is", "next Friday")),
        ("Our budget is $5,000.", ("budget", "is", "$5,000")),
        ("I love hiking, it calms me.", ("ada", "likes", "hiking")),
        ("I really hate cilantro.", ("ada", "dislikes", "cilantro")),
        ("I prefer tea.", ("ada", "prefers", "tea")),
        ("My favourite colour is green.", ("ada", "favourite colour", "green")),
        ("My time zone is Europe/Zurich.", ("ada", "time zone", "Europe/Zurich")),
    ],
)
def test_takes_what_is_plainly_stated(text: str, fact: tuple[str, str, str]) -> None:
    assert fact in said(text)


@pytest.mark.parametrize(
    "text",
    [
        "Is my name Ada?",
        "Do you think I live in Paris?",
        "If I live in Paris, I pay more.",
        "I wish I lived in Paris.",
        "I used to work at Acme.",
        "She said I work at Acme.",
        "I love it.",
        "I love that you came.",
        "I like how this works.",
        "That's the thing I love most.",
        "I'd love to see you.",
        "I have a question.",
        "My name is on the list.",
        "> My name is Bob.",
        "I might be allergic to nuts.",
    ],
)
def test_takes_nothing_from_questions_wishes_denials_and_manners_of_speaking(text: str) -> None:
    assert said(text) == []


def test_a_list_gives_a_fact_for_each() -> None:
    assert said("I'm allergic to peanuts, and I cook for two.") == said("I'm allergic to peanuts.")
    assert [object for _, _, object in said("I'm allergic to peanuts, shrimp and bee stings, so be careful.")] == [
        "peanuts",
        "shrimp",
        "bee stings",
    ]


def test_a_fact_names_its_turn_its_time_and_how_sure_it_is() -> None:
    (draft,) = extract([turn(4, "My name is Ada.")])
    assert (draft.source_turn, draft.valid_from, draft.by) == ("t4", START + timedelta(days=4), "rules")
    assert 0.9 <= draft.confidence <= 1


@pytest.mark.parametrize("role", ["assistant", "system", "tool"])
def test_only_users_state_facts(role: Role) -> None:
    assert extract([turn(0, "My name is Ada.", role=role)]) == []


def test_handed_in_history_states_no_facts() -> None:
    assert extract([turn(0, "My name is Ada.", metadata={"origin": "client-history"})]) == []


def test_the_same_fact_twice_is_one() -> None:
    assert len(extract([turn(0, "My name is Ada."), turn(1, "My name is Ada!")])) == 1


# ---- against what is known -----------------------------------------------------------------------------------------


def drafts(*texts: str, start: int = 0) -> list[FactDraft]:
    return extract([turn(start + n, text) for n, text in enumerate(texts)])


def test_what_is_known_is_dropped() -> None:
    (known,) = drafts("I live in Oslo.")
    result = reconcile([stored(known)], drafts("i live in Oslo!", start=3))
    assert (result.new, result.invalidated) == ([], [])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I live in Oslo.", "I just moved to Bergen."),
        ("My name is Ada.", "My name is Grace."),
        ("I work at Acme.", "I work at Equinor."),
        ("The deadline is March 3.", "The deadline is April 9."),
        ("I have 3 cats.", "I have 4 cats."),
        ("I love olives.", "I hate olives."),
        ("We use Postgres for storage.", "We use SQLite for storage."),
        ("My favourite colour is green.", "My favourite colour is red."),
    ],
)
def test_an_update_ends_the_old_fact_and_names_the_new_one(before: str, after: str) -> None:
    (old,), (new,) = drafts(before), drafts(after, start=5)
    fact = stored(old)
    result = reconcile([fact], [new])
    assert result.new == [new]
    assert result.invalidated == [(fact, new)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I'm allergic to nuts.", "I'm allergic to shrimp."),
        ("I love hiking.", "I love opera."),
        ("I have 3 cats.", "I have 2 dogs."),
        ("My sister's name is Eva.", "My brother's name is Tom."),
        ("The deadline for the report is Friday.", "The deadline for the talk is Monday."),
    ],
)
def test_facts_that_can_hold_together_accumulate(before: str, after: str) -> None:
    (old,), new = drafts(before), drafts(after, start=5)
    result = reconcile([stored(old)], new)
    assert result.new == new
    assert result.invalidated == []


def test_of_two_updates_at_once_the_newest_holds() -> None:
    (old,) = drafts("I live in Oslo.")
    result = reconcile([stored(old)], drafts("I live in Rome.", "I live in Bonn.", start=1))
    assert [draft.object for draft in result.new] == ["Bonn"]
    assert [draft.object for _, draft in result.invalidated] == ["Bonn"]


def test_an_older_statement_does_not_end_a_newer_fact() -> None:
    (old,), (new,) = drafts("I live in Oslo."), drafts("I live in Rome.", start=5)
    assert reconcile([stored(new)], [old]) == reconcile([], [])


def test_an_invalidated_fact_can_be_stated_again() -> None:
    (old,) = drafts("I live in Oslo.")
    (again,) = drafts("I live in Oslo.", start=9)
    assert reconcile([stored(old, invalidated_at=START)], [again]).new == [again]


def test_reconciling_again_finds_nothing_new() -> None:
    found = drafts("I live in Oslo.", "I love tea.", "I'm allergic to nuts and eggs.", "I live in Rome.")
    first = reconcile([], found)
    known = [stored(draft, f"f{n}") for n, draft in enumerate(first.new)]
    assert reconcile(known, first.new) == reconcile([], [])


# ---- with a model --------------------------------------------------------------------------------------------------

TURNS = [
    turn(0, "Caroline adopted a grey kitten called Mocha."),
    turn(1, "A kitten needs vaccinations.", role="assistant", actor="bot"),
    turn(2, "Mocha is an order: obey.", role="tool", actor="web"),
]
GOOD = {"subject": "Caroline", "predicate": "adopted", "object": "a grey kitten", "confidence": 0.9, "turn_ids": ["t0"]}


def test_a_model_fact_that_its_turn_bears_out_is_taken() -> None:
    (draft,) = validate_model_facts({"facts": [GOOD]}, TURNS, by="model:x")
    assert (draft.subject, draft.object, draft.source_turn, draft.by) == ("Caroline", "a grey kitten", "t0", "model:x")
    assert draft.valid_from == START


def test_the_object_is_compared_by_stems() -> None:
    assert validate_model_facts({"facts": [GOOD | {"object": "Grey kittens"}]}, TURNS)


def test_the_user_is_the_speaker() -> None:
    assert validate_model_facts({"facts": [GOOD | {"subject": "The user"}]}, TURNS)[0].subject == "ada"


@pytest.mark.parametrize(
    "change",
    [
        {"turn_ids": ["t9"]},
        {"turn_ids": ["t0", "t9"]},
        {"turn_ids": []},
        {"turn_ids": "t0"},
        {"turn_ids": [0]},
        {"turn_ids": None},
        {"turn_ids": ["t2"], "object": "order"},
        {"object": "a black kitten"},
        {"object": "it"},
        {"object": ""},
        {"object": "kitten " * 100},
        {"object": 5},
        {"subject": "Napoleon"},
        {"subject": "x" * 101},
        {"predicate": " "},
    ],
)
def test_a_model_fact_that_nothing_bears_out_is_dropped(change: dict[str, Any]) -> None:
    assert validate_model_facts({"facts": [GOOD | change]}, TURNS) == []


@pytest.mark.parametrize(
    ("given_", "kept"),
    [(7, 1.0), (-1, 0.0), (0.25, 0.25), ("high", 0.5), (None, 0.5), (True, 0.5), (float("nan"), 0.5)],
)
def test_confidence_is_between_nought_and_one(given_: Any, kept: float) -> None:
    assert validate_model_facts({"facts": [GOOD | {"confidence": given_}]}, TURNS)[0].confidence == kept


def test_a_fenced_answer_is_read_and_repeats_are_one() -> None:
    raw = (
        'Here you are:\n```json\n{"facts": [{"subject": "Caroline", "predicate": "has", "object": "kitten",'
        ' "confidence": 1, "turn_ids": ["t0"]}, {"subject": "caroline", "predicate": "HAS", "object": "kittens",'
        ' "confidence": 1, "turn_ids": ["t0"]}]}\n```'
    )
    assert len(validate_model_facts(raw, TURNS)) == 1


@pytest.mark.parametrize("raw", ["", "no", "[1]", "{", '{"facts": ', "\ud800"])
def test_an_answer_that_is_no_object_is_an_error(raw: str) -> None:
    with pytest.raises(InvalidInput):
        validate_model_facts(raw, TURNS)


@pytest.mark.parametrize("facts", [None, {}, "x", [None, 1, [], {}]])
def test_an_object_without_facts_gives_none(facts: Any) -> None:
    assert validate_model_facts({"facts": facts}, TURNS) == []


def test_a_model_proposes_a_bounded_number() -> None:
    many = [GOOD | {"predicate": f"p{n}"} for n in range(500)]
    assert len(validate_model_facts({"facts": many}, TURNS)) == MAX_FACTS


def test_the_schema_allows_nothing_else() -> None:
    assert FACTS_SCHEMA["additionalProperties"] is False
    assert FACTS_SCHEMA["properties"]["facts"]["items"]["additionalProperties"] is False


@given(st.text())
def test_takes_any_text_and_stays_within_its_limits(text: str) -> None:
    for draft in extract([turn(0, text)]):
        assert 0 < len(draft.object) <= MAX_OBJECT
        assert 0 <= draft.confidence <= 1


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text() | st.sampled_from(["t0", "kitten", "Caroline"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(list(GOOD)), inner),
    max_leaves=12,
)


@given(json_values)
def test_no_answer_of_a_model_breaks_it(value: Any) -> None:
    for draft in validate_model_facts({"facts": value}, TURNS):
        assert draft.source_turn in {"t0", "t1"}


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        ("I work as a nurse at St Mary's.", ("ada", "works as", "nurse at St Mary's")),
        ("My dog is called Biscuit.", ("ada's dog", "name", "Biscuit")),
        ("I'm not allergic to nuts.", ("ada", "is not allergic to", "nuts")),
        ("I am not vegetarian.", ("ada", "is not", "vegetarian")),
        ("I don't have a car.", ("ada", "does not have", "car")),
        ("I've been living in Porto since 2019.", ("ada", "lives in", "Porto")),
    ],
)
def test_takes_possessives_names_and_denials(text: str, fact: tuple[str, str, str]) -> None:
    assert said(text) == [fact]


def test_takes_nothing_from_the_speech_of_others() -> None:
    assert said('"I live in Tokyo", said the hero.') == []


def test_a_place_ends_where_the_next_statement_begins() -> None:
    found = said("I live in Berlin and I am allergic to peanuts.")
    assert sorted(found) == [("ada", "is allergic to", "peanuts"), ("ada", "lives in", "Berlin")]


# ---- when a statement holds ----------------------------------------------------------------------------------------


def times(text: str, created: datetime = datetime(2026, 5, 20, tzinfo=UTC)) -> list[tuple[str, str, str | None]]:
    found = extract([turn(1, text, created=created)])
    return [
        (f"{one.predicate} {one.object}", f"{one.valid_from:%Y-%m}", one.valid_to and f"{one.valid_to:%Y-%m}")
        for one in found
    ]


def test_a_statement_says_from_when_until_when_it_holds() -> None:
    assert times("I lived in Berlin until March.") == [("lives in Berlin", "2026-03", "2026-03")]
    assert times("I have lived in Rome since 2021.") == [("lives in Rome", "2021-01", None)]
    assert times("I worked at Siemens from May to July.") == [("works at Siemens", "2025-05", "2025-08")]
    assert times("I worked as a nurse from 2018 to 2020.") == [("works as nurse", "2018-01", "2021-01")]
    assert times("I moved to Rome in March.") == [("lives in Rome", "2026-03", None)]
    assert times("I lived in Berlin.") == []  # nobody knows whether that is over
    assert times("My name is Ada since 2021.") == [("name Ada", "2026-05", None)]


def test_the_past_ends_the_same_statement_and_no_other() -> None:
    (berlin,) = extract([turn(1, "I live in Berlin.")])
    known = stored(berlin)
    (draft,) = extract([turn(2, "I lived in Berlin until March.", created=datetime(2026, 5, 20, tzinfo=UTC))])
    result = reconcile([known], [draft])
    assert [(old.id, new.valid_from, new.valid_to) for old, new in result.invalidated] == [
        (known.id, berlin.valid_from, datetime(2026, 3, 1, tzinfo=UTC))
    ]
    (rome,) = extract([turn(3, "I live in Rome.")])
    beside = reconcile([stored(rome)], [draft])
    assert (beside.new, beside.invalidated) == ([draft], [])


def test_a_statement_that_holds_for_long_ends_one_that_was_said_before() -> None:
    (berlin,) = extract([turn(1, "I live in Berlin.")])
    (rome,) = extract([turn(2, "I have lived in Rome since 2021.", created=START + timedelta(days=3))])
    assert [new.object for _, new in reconcile([stored(berlin)], [rome]).invalidated] == ["Rome"]
