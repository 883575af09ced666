"""Reasons for a turn to rank higher, one at a time."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.recall.query import parse
from palaver.recall.ranking import Filter, Ranking
from palaver.recall.scoring import DEFAULT, Lexical, Scores, Weights, aim, rank, score
from palaver.recall.sessions import HOUR
from palaver.recall.terms import passages
from palaver.recall.turn_arrays import Profile, Row
from palaver.recall.vectors import Nearness

NOW = datetime(2026, 11, 15, tzinfo=UTC)
JULY = int(datetime(2023, 7, 3, tzinfo=UTC).timestamp() * 1e6)

Turn = tuple[str, str, str]  # role, actor, text


def profile(turns: list[Turn], pause: int = 1, tokens: int = 10, standing: dict[int, int] | None = None) -> Profile:
    return Profile.build(
        Row(i, 0, i, JULY + i * pause, tokens, role, actor, (standing or {}).get(i, 0), role in ("user", "assistant"))
        for i, (role, actor, _) in enumerate(turns)
    )


def lexical(turns: list[Turn], stems: tuple[str, ...]) -> Lexical:
    found = [(i, one.split(" ")) for i, (_, _, text) in enumerate(turns) for one in passages(text)]
    sizes = [len(words) for _, words in found]
    hits = {}
    for stem in stems:
        held = [(i, len(words), Counter(words)[stem]) for i, words in found if stem in words]
        if held:
            turn, size, tf = zip(*held, strict=True)
            hits[stem] = (np.array(turn), np.array(size, np.int32), np.array(tf, np.int32))
    return Lexical(stems, hits, len(found), float(np.mean(sizes)) if sizes else 0.0)


def scored(
    turns: list[Turn],
    question: str,
    cosines: list[float] | None = None,
    weights: Weights = DEFAULT,
    **options: int | dict[int, int],
) -> Scores:
    about = profile(turns, **options)  # type: ignore[arg-type]
    query = parse(question, about.actors, NOW)
    dense = None if cosines is None else np.array(cosines, np.float32)
    return score(about, query, lexical(turns, query.stems), dense, weights)


def people(*texts: str) -> list[Turn]:
    return [("user", "ann" if i % 2 else "bob", text) for i, text in enumerate(texts)]


# ---- parts ---------------------------------------------------------------------------------------------------------


def test_the_lexical_part_is_the_share_of_what_the_question_could_attain() -> None:
    turns = people("pottery class", "a pottery wheel", "rain")
    part = scored(turns, "pottery class").named["lexical"]
    assert 0.4 < part[0] <= 1
    assert part[0] > part[1] > part[2] == 0
    lost = scored(turns, "pottery class zeppelin airship balloon").named["lexical"]
    assert lost[0] < part[0] / 2  # words that are nowhere to be found count as missed


def test_the_best_passage_of_a_turn_counts_and_not_their_sum() -> None:
    long = "The pottery class was on Monday. " + "We talked about the weather and the harbour for a while. " * 40
    apart = "We liked pottery a lot. " + "It rained and rained and we walked home. " * 40 + "The class was fun."
    part = scored(people(long, apart), "pottery class").named["lexical"]
    assert part[0] > part[1]


def test_meaning_leads_where_no_word_matches() -> None:
    scores = scored(people("alpha", "beta", "gamma"), "zeppelin", [0.1, 0.6, 0.1], pause=HOUR)
    assert rank(scores)[0] == 1


def test_cosines_of_another_scale_rank_the_same() -> None:
    turns = people(*(f"word{i} text" for i in range(200)))
    cosines = np.random.default_rng(1).normal(0.1, 0.1, 200)
    narrow = (0.8 + cosines / 10).tolist()
    first, second = (scored(turns, "word3 text", list(one)) for one in (cosines.tolist(), narrow))
    assert rank(first, 1).tolist() == rank(second, 1).tolist() == [3]
    assert len(set(rank(first, 20).tolist()) & set(rank(second, 20).tolist())) >= 15


def test_a_turn_without_a_vector_is_like_any_other_turn() -> None:
    part = scored(people("a b", "c d", "e f"), "zeppelin", [0.1, float("nan"), 0.5]).named["dense"]
    assert part[0] < part[1] == 0 < part[2]
    assert scored(people("a b"), "zeppelin", [float("nan")]).total[0] == scored(people("a b"), "zeppelin").total[0]


def test_a_date_the_speaker_and_the_neighbours_each_help() -> None:
    turns = [("user", "Ann", "alpha"), ("user", "Bob", "beta"), ("user", "Ann", "gamma")]
    assert scored(turns, "in July 2023?").named["date"].tolist() == [np.float32(0.3)] * 3
    assert rank(scored(turns, "What did Bob say?"))[0] == 1
    near = scored(people("alpha", "pottery", "beta", "gamma"), "pottery").named["neighbour"]
    assert near[0] == near[2] > near[3]
    apart = scored(people("alpha", "pottery"), "pottery", pause=HOUR)
    assert apart.named["session"][1] > apart.named["session"][0]


def test_the_same_persons_next_turn_helps_where_something_is_asked() -> None:
    turns = people("alpha", "pottery", "beta", "gamma", "delta")
    asked = scored(turns, "pottery?").named["neighbour"]
    assert asked[0] == asked[2] > asked[3] > asked[4]
    remark = scored(turns, "pottery").named["neighbour"]
    assert remark[0] == remark[2] > remark[3] == remark[4]
    overview = scored(turns, "Can you summarise the pottery?").named["neighbour"]
    assert overview.tolist() == [0] * 5


@pytest.mark.parametrize(("length", "helps"), [(10, True), (100, False)])
def test_another_request_to_an_assistant_that_writes_at_length_does_not_help(length: int, helps: bool) -> None:
    chat = [("assistant" if i % 2 else "user", "", "pottery" if i == 2 else f"word{i}") for i in range(60)]
    about = Profile.build(
        Row(i, 0, i, JULY + i, length if i % 2 else 10, role, actor, 0, True) for i, (role, actor, _) in enumerate(chat)
    )
    query = parse("pottery?", about.actors, NOW)
    near = score(about, query, lexical(chat, query.stems), None).named["neighbour"]
    assert near[3] > near[4] >= near[10]
    assert (near[4] - near[10] > 0.02) == helps


@pytest.mark.parametrize("text", ["pottery", "pottery?"])
def test_items_of_a_list_have_no_neighbours(text: str) -> None:
    weights = Filter(unrelated=True).weights
    scores = scored(people("alpha", "pottery", "beta"), text, weights=weights)
    assert scores.named["neighbour"].tolist() == [0] * 3


def test_an_assistant_stands_back_unless_asked_for() -> None:
    turns = [("user", "u", "pottery class"), ("assistant", "a", "pottery class")]
    assert rank(scored(turns, "pottery class?"))[0] == 0
    assert scored(turns, "What did you say about pottery?").named["role"].tolist() == [0, 0]


def test_an_assistant_that_writes_as_people_do_does_not_stand_back() -> None:
    turns = [("user", "ann", "pottery class"), ("assistant", "bob", "pottery class")] * 50
    alike = profile(turns)
    longer = replace(alike, tokens=np.where(alike.assistant, 400, 20).astype(np.int32))
    for question, expected in (("pottery?", [-0.03, -0.4]), ("What did Bob say of pottery?", [0, 0])):
        query = parse(question, alike.actors, NOW)
        found = [score(one, query, lexical(turns, query.stems), None) for one in (alike, longer)]
        assert [float(one.named["role"][1]) for one in found] == pytest.approx(expected, abs=0.01)


def test_a_long_turn_must_be_better() -> None:
    assert scored(people("a b"), "x?", tokens=400).named["length"][0] == pytest.approx(-0.15)
    assert scored(people("a b"), "x", tokens=240).named["length"][0] < -0.29  # a remark: shorter turns
    assert scored(people("a b"), "x?", tokens=50).named["length"][0] == 0


def test_standing_instructions_count_only_where_a_model_is_instructed() -> None:
    human = people("Always be brief", "ok")
    assert scored(human, "x", standing={0: 2}).named["standing"].tolist() == [0, 0]
    turns = [("user", "u", "Always be brief"), ("assistant", "a", "ok")]
    assert scored(turns, "x", standing={0: 2}).named["standing"][0] > 0


def test_an_overview_starts_from_how_each_session_began() -> None:
    scores = scored(people("alpha", "beta", "gamma"), "Give me a summary")
    assert scores.named["opening"][0] > scores.named["opening"][1] > scores.named["opening"][2] > 0
    assert scores.named["neighbour"].tolist() == [0, 0, 0]


def test_what_cannot_be_searched_is_never_recalled() -> None:
    turns = [("user", "u", "pottery"), ("tool", "t", "pottery"), ("assistant", "a", "pottery")]
    scores = scored(turns, "pottery", [0.1, 0.9, 0.1])
    assert scores.total[1] == -np.inf
    assert 1 not in rank(scores)


def test_the_parts_add_up() -> None:
    scores = scored(people("pottery class", "beta"), "When was the pottery class of ann in July?", [0.5, 0.1])
    for i in range(2):
        assert sum(scores.parts(i).values()) == pytest.approx(scores.total[i], abs=1e-3)


def test_an_empty_scope_and_an_empty_question() -> None:
    assert len(rank(scored([], "pottery"))) == 0
    assert len(rank(scored([], "pottery", []))) == 0
    assert len(rank(scored(people("alpha"), ""))) == 1


# ---- aiming --------------------------------------------------------------------------------------------------------


def test_aiming_takes_away_what_everything_has_in_common() -> None:
    mean, query = np.array([1, 0], np.float32), np.array([0.6, 0.8], np.float32)
    assert aim(query, mean, 10**6) == pytest.approx([0.3, 0.8], abs=1e-3)
    assert aim(query, mean, 0).tolist() == query.tolist()
    assert aim(query, np.zeros(2, np.float32), 5).tolist() == query.tolist()
    assert aim(query, mean, 1)[0] == pytest.approx(0.6, abs=0.02)  # one turn has nothing in common with others


# ---- choosing ------------------------------------------------------------------------------------------------------


def test_rank_is_best_first_and_newer_first_among_equals() -> None:
    scores = Scores(np.array([1, 3, 2, 3, -np.inf], np.float32))
    assert rank(scores).tolist() == [3, 1, 2, 0]
    assert rank(scores, k=1).tolist() == [3]
    assert rank(scores, k=0).tolist() == []
    assert rank(scores, threshold=2).tolist() == [3, 1, 2]
    assert rank(scores, exclude=[3]).tolist() == [1, 2, 0]
    assert rank(scores, threshold=float("-inf")).tolist() == [3, 1, 2, 0]


@given(st.lists(st.integers(-5, 5), max_size=40), st.integers(0, 45))
def test_the_first_k_are_the_first_k(totals: list[int], k: int) -> None:
    scores = Scores(np.array(totals, np.float32))
    assert rank(scores, k).tolist() == rank(scores).tolist()[:k]


def test_there_are_standing_instructions_only_where_an_assistant_takes_part() -> None:
    alone = people(*"abcdefgh")
    turns: list[Turn] = [*alone, ("assistant", "a", "ok")]
    for said, expected in ((turns, [6, 2]), (alone, [])):
        about = profile(said, standing={2: 2, 4: 1, 6: 2})
        scores = Scores(np.arange(len(said), dtype=np.float32))
        assert Ranking(about, scores, rank(scores), "", Nearness()).standing(5) == expected


# ---- cost ----------------------------------------------------------------------------------------------------------


@pytest.mark.costly
def test_a_hundred_thousand_turns_score_in_a_blink() -> None:
    n = 100_000
    about = Profile.build(
        Row(i, 0, i, i * 40_000_000 + i // 30 * HOUR, 40, "user" if i % 2 else "assistant", "ab"[i % 2], 0, True)
        for i in range(n)
    )
    query = parse("When did the support group meet in July?", about.actors, NOW)
    draw = np.random.default_rng(0)
    hits = {}
    for stem in query.stems:
        turn = np.sort(draw.choice(n, n // 10, replace=False))
        hits[stem] = (turn, draw.integers(5, 60, len(turn)).astype(np.int32), np.ones(len(turn), np.int32))
    cosines = draw.normal(0.1, 0.1, n).astype(np.float32)
    words = Lexical(query.stems, hits, n, 25.0)
    taken = []
    for _ in range(5):
        start = time.perf_counter()
        scores = score(about, query, words, cosines)
        rank(scores, 2000)
        taken.append(time.perf_counter() - start)
    assert min(taken) < 0.15


def test_weights_can_be_changed_one_by_one() -> None:
    assert replace(DEFAULT, dense=0).lexical == DEFAULT.lexical
