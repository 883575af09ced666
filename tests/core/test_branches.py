"""The pure shapes: the tree of versions, the words of an index, and the pages of a list."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palaver.core.branches import LoggedTree, Node, apply_switch, switch
from palaver.core.pagination import decode_cursor, encode_cursor, group_by_date
from palaver.errors import InvalidInput
from palaver.model import ConversationInfo
from palaver.recall.terms import MAX_TERM, PASSAGE_WORDS, STOP_WORDS, english_passages, passages, spans, terms
from tests.support.examples import examples

# ---- the tree ------------------------------------------------------------------------------------------------------

Step = tuple[str, int]
steps = st.lists(
    st.tuples(st.sampled_from(["add", "add", "edit", "regenerate", "switch", "abort", "forget"]), st.integers(0, 99)),
    max_size=25,
)

edits = st.lists(st.tuples(st.sampled_from(["add", "edit", "regenerate", "switch"]), st.integers(0, 99)), max_size=25)


def run(program: list[Step]) -> LoggedTree:
    """A tree that grew by a random program; a step that makes no sense where it stands is left out."""
    path = LoggedTree()
    for verb, pick in program:
        STEPS[verb](path, pick)
    return path


def _add(path: LoggedTree, pick: int) -> None:
    path.add(f"t{path.next_seq}", replaces=None, discard_after=False, status="complete")


def _replace(discard_after: bool) -> Callable[[LoggedTree, int], None]:
    def step(path: LoggedTree, pick: int) -> None:
        if path.active:
            old = path.active[pick % len(path.active)]
            path.add(f"t{path.next_seq}", replaces=old.id, discard_after=discard_after, status="complete")

    return step


def _switch(path: LoggedTree, pick: int) -> None:
    usable = [node for node in path.nodes.values() if node.usable]
    if usable:
        path.switch(usable[pick % len(usable)].id)


def _abort(path: LoggedTree, pick: int) -> None:
    path.add(f"t{path.next_seq}", replaces=None, discard_after=False, status="pending")
    path.abort(f"t{path.next_seq - 1}")


def _forget(path: LoggedTree, pick: int) -> None:
    if path.nodes:
        path.forget(f"t{pick % path.next_seq}")


STEPS: dict[str, Callable[[LoggedTree, int], None]] = {
    "add": _add,
    "edit": _replace(False),
    "regenerate": _replace(True),
    "switch": _switch,
    "abort": _abort,
    "forget": _forget,
}


@given(steps)
def test_the_active_path_has_one_usable_turn_per_place(program: list[Step]) -> None:
    path = run(program)
    positions = [node.position for node in path.active]
    assert positions == sorted(set(positions))
    assert all(node.usable and node.active for node in path.active)
    assert {node.id for node in path.active} == {node.id for node in path.nodes.values() if node.active}


@given(steps)
def test_what_is_shown_is_superseded_by_nothing(program: list[Step]) -> None:
    path = run(program)
    assert all(node.superseded_by is None for node in path.active)
    for node in path.nodes.values():
        assert node.superseded_by is None or node.superseded_by in path.nodes


@given(steps, st.integers(0, 99))
def test_a_switch_shows_its_target_and_does_so_once(program: list[Step], pick: int) -> None:
    path = run(program)
    usable = [node for node in path.nodes.values() if node.usable]
    if not usable:
        return
    target = usable[pick % len(usable)]
    path.switch(target.id)
    assert target in path.active
    again = switch(list(path.nodes.values()), target)
    assert again.off == again.on == []


@given(edits, st.integers(0, 99))
def test_switching_back_turn_by_turn_leaves_the_path_as_it_was(program: list[Step], pick: int) -> None:
    path = run(program)
    before = [node.id for node in path.active]
    others = [node for node in path.nodes.values() if not node.active]
    if not others:
        return
    target = others[pick % len(others)]
    gone = [node.id for node in switch(list(path.nodes.values()), target).off]
    path.switch(target.id)
    for id in gone:
        path.switch(id)
    assert [node.id for node in path.active] == before


def test_a_switch_leaves_earlier_places_alone() -> None:
    path = run([("add", 0), ("edit", 0), ("add", 0), ("forget", 1), ("edit", 0)])
    assert [node.id for node in path.active] == ["t3"]
    path.switch("t2")
    assert [node.id for node in path.active] == ["t2"]  # and not t0, whose edit was forgotten
    path.switch("t3")
    assert [node.id for node in path.active] == ["t3"]


def test_a_switch_back_shows_the_versions_that_were_shown_last() -> None:
    path = run([("add", 0), ("add", 0), ("edit", 1), ("regenerate", 0)])  # t0 t1, t2 for t1, t3 for t0
    path.switch("t1")
    assert [node.id for node in path.active] == ["t0", "t1"]
    path.switch("t3")
    path.switch("t0")
    assert [node.id for node in path.active] == ["t0", "t1"]


@given(steps, st.integers(0, 99))
def test_a_switch_only_needs_the_nodes_from_where_the_paths_part(program: list[Step], pick: int) -> None:
    path = run(program)
    others = [node for node in path.nodes.values() if node.usable and not node.active]
    if not others:
        return
    target = others[pick % len(others)]
    whole = switch(list(path.nodes.values()), target)
    lowest = min(node.position for node in [*whole.on, *whole.off])
    part = switch([node for node in path.nodes.values() if node.position >= lowest], target)
    assert {node.id for node in part.on} == {node.id for node in whole.on}
    assert {node.id for node in part.off} == {node.id for node in whole.off}


@given(steps)
def test_a_switch_flips_two_disjoint_sets_above_one_place(program: list[Step]) -> None:
    path = run(program)
    for target in [node for node in path.nodes.values() if node.usable]:
        nodes: list[Node] = deepcopy(list(path.nodes.values()))
        change = switch(nodes, next(node for node in nodes if node.id == target.id))
        assert not {node.id for node in change.on} & {node.id for node in change.off}
        assert all(node.active for node in change.off)
        assert not any(node.active for node in change.on)
        apply_switch(change)
        shown = [node.position for node in nodes if node.active]
        assert len(shown) == len(set(shown))


@given(steps)
@examples(50)
def test_the_same_program_gives_the_same_tree(program: list[Step]) -> None:
    assert list(run(program).nodes.values()) == list(run(program).nodes.values())


# ---- words ---------------------------------------------------------------------------------------------------------

any_text = st.text(max_size=200)
ascii_words = st.lists(st.text("abcdefghijklmnopqrstuvwxyz", min_size=2, max_size=10), max_size=12)


@given(any_text)
def test_terms_are_short_lower_case_words_without_stop_words(text: str) -> None:
    for term in terms(text):
        assert 0 < len(term) <= 4 * MAX_TERM  # taking an accent off may make a letter longer
        assert " " not in term
        assert term not in STOP_WORDS or term not in text.lower().split()


@given(ascii_words)
def test_case_and_punctuation_do_not_matter(words: list[str]) -> None:
    plain = terms(" ".join(words))
    assert terms(" ".join(words).upper()) == plain
    assert terms(", ".join(words) + "!") == plain
    assert terms("".join(f"({word})\n" for word in words)) == plain


@given(ascii_words, ascii_words)
def test_terms_come_word_by_word_in_order(one: list[str], other: list[str]) -> None:
    assert terms(" ".join(one + other)) == terms(" ".join(one)) + terms(" ".join(other))


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("painted", "paintings"),
        ("cafe", "CAFÉ"),
        ("咖啡", "我在咖啡馆"),
        ("東京", "x" * 10 + "東京タワー"),
        ("naive", "naïve"),
        ("x86_64", "on x86_64."),
    ],
)
def test_what_a_person_would_look_for_is_found(query: str, text: str) -> None:
    assert set(terms(query)) <= set(terms(text))


@given(st.text("雪山咖啡馆東京", min_size=2, max_size=300))
def test_every_pair_of_a_script_without_spaces_is_a_term(text: str) -> None:
    assert {text[i : i + 2] for i in range(len(text) - 1)} <= set(terms(text))


@given(any_text | ascii_words.map(lambda words: ". ".join(words * 40)))
def test_passages_hold_every_term_once_and_in_order(text: str) -> None:
    assert " ".join(english_passages(text)).split() == " ".join(terms(text)).split()


@given(any_text)
@example("Straße und Grüße über Cßœ")
def test_terms_of_another_language_follow_the_english_ones(text: str) -> None:
    english, indexed = english_passages(text), passages(text)
    assert len(english) == len(indexed)
    assert all(one == plain or one.startswith(f"{plain} ") for one, plain in zip(indexed, english, strict=True))


@given(st.lists(st.sampled_from(["word", "stop. ", "\n", "a", "zebra"]), max_size=2_000).map(" ".join))
@examples(30)
def test_no_passage_is_much_longer_than_the_rest(text: str) -> None:
    assert all(0 < len(passage.split()) <= 2 * PASSAGE_WORDS for passage in passages(text))


@given(ascii_words)
def test_spans_point_at_the_words_that_match(words: list[str]) -> None:
    text = " ".join(words)
    for word in words:
        stems = frozenset(terms(word))
        found = [text[start:end] for start, end in spans(text, stems)]
        assert (word in found) == bool(stems)
        assert all(stems.intersection(terms(one)) for one in found)


# ---- lists ---------------------------------------------------------------------------------------------------------

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def conversation(updated: datetime, id: str = "01ARZ3NDEKTSV4RRFFQ69G5FAV") -> ConversationInfo:
    return ConversationInfo(id=id, tenant="t", owner="o", created=updated, updated=updated)


@given(st.datetimes(timezones=st.just(UTC)), st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_cursor_comes_back(updated: datetime, id: str) -> None:
    cursor = encode_cursor(conversation(updated, id))
    since_1970 = (updated - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert decode_cursor(cursor) == (since_1970, id)
    assert cursor.isascii()
    assert not set(cursor) & set("+/= ")


@given(st.text() | st.integers() | st.none() | st.binary())
def test_a_cursor_that_no_page_gave_out_is_refused(cursor: object) -> None:
    try:
        decode_cursor(cursor)  # type: ignore[arg-type]
    except InvalidInput as problem:
        assert problem.field == "cursor"  # noqa: PT017


@pytest.mark.parametrize(
    ("ago", "group"),
    [
        (timedelta(hours=-5), "Today"),
        (timedelta(hours=12), "Today"),
        (timedelta(hours=12, microseconds=1), "Yesterday"),
        (timedelta(hours=36), "Yesterday"),
        (timedelta(days=2), "Previous 7 days"),
        (timedelta(days=7), "Previous 7 days"),
        (timedelta(days=8), "March 2026"),
        (timedelta(days=30), "February 2026"),
        (timedelta(days=365), "March 2025"),
    ],
)
def test_a_conversation_is_grouped_by_its_day(ago: timedelta, group: str) -> None:
    one = conversation(NOW - ago)
    assert group_by_date([one], NOW) == [(group, [one])]


def test_the_day_depends_on_where_the_reader_is() -> None:
    one = conversation(datetime(2026, 3, 9, 23, 30, tzinfo=UTC))
    assert group_by_date([one], NOW)[0][0] == "Yesterday"
    assert group_by_date([one], NOW, timezone(timedelta(hours=1)))[0][0] == "Today"


@given(st.lists(st.timedeltas(timedelta(0), timedelta(days=500)), max_size=30))
def test_groups_keep_every_conversation_in_order(ages: list[timedelta]) -> None:
    listed = [conversation(NOW - age) for age in sorted(ages)]
    groups = group_by_date(listed, NOW)
    assert [one for _, members in groups for one in members] == listed
    assert len({name for name, _ in groups}) == len(groups)
    assert all(members for _, members in groups)
