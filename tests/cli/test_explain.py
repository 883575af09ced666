"""palaver explain, recall: what a model would see, what was found, and why."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from palaver.cli.explain import bar
from palaver.context.explain import Block, Explanation

START = datetime(2026, 1, 1, 9, tzinfo=UTC)


@pytest.fixture
def talk(store):
    """Eighty turns about a garden, one of them about peanuts, and a question at the end."""
    talk = store.conversation("support/42")
    said = [f"Day {day}: the garden fence needs paint, and rain is coming." for day in range(80)]
    said[10] = "I'm allergic to peanuts."
    said.append("What am I allergic to?")
    talk.append_many(
        {"role": "user", "content": text, "created": START + timedelta(hours=2 * hour)}
        for hour, text in enumerate(said)
    )
    return talk


def test_explain_shows_each_block_its_cost_and_what_was_left_out(ok, talk):
    shown = ok("explain", "support/42", "--budget", "400")
    assert "of 400 tokens (balanced, counted by o200k_base)" in shown
    assert "the last turns, word for word" in shown
    assert "the message to answer; always included" in shown
    assert "left out" in shown
    assert "Recall: by words" in shown


def test_explain_lists_the_files_of_the_message(ok, store):
    talk = store.conversation("support/42")
    file = talk.attach(b"The gate opens at nine.", filename="note.txt")
    talk.append("user", "Summarise this.", attachments=[file])
    shown = ok("explain", "support/42", "--budget", "400")
    line = next(line for line in shown.splitlines() if line.startswith("note.txt"))
    assert "in full" in line
    assert "its whole text" in line


def test_explain_quotes_the_recalled_turns_with_their_scores(ok, talk):
    shown = ok("explain", "support/42", "--budget", "400").splitlines()
    place = shown.index("    I'm allergic to peanuts.")
    assert shown[place - 1].startswith("#10  2026-01-02")
    assert "lexical +" in shown[place - 1]


def test_explain_recalls_for_a_query(lines, talk):
    for query, found in (("peanuts", True), ("xyzzy", False)):
        (explanation,) = lines("explain", "support/42", "--budget", "300", "--query", query)
        scores = {score["turn"]: score["parts"] for block in explanation["blocks"] for score in block["scores"]}
        lexical = [parts["lexical"] for parts in scores.values()]
        assert (max(lexical, default=0) > 0) is found


def test_explain_says_what_share_of_the_prompt_does_not_depend_on_the_query(ok, lines, talk):
    (explanation,) = lines("explain", "support/42", "--budget", "400")
    assert 0.3 < explanation["identical_prefix"] < 1
    assert f"Identical prefix: {explanation['identical_prefix']:.0%}" in ok("explain", "support/42", "--budget", "400")
    (without,) = lines("explain", "support/42", "--budget", "400", "--no-recall")
    assert without["identical_prefix"] == 1


def test_explain_in_json_is_the_explanation_as_a_value(lines, talk):
    (explanation,) = lines("explain", "support/42", "--budget", "400")
    assert (explanation["budget"], explanation["unit"], explanation["turns"]["total"]) == (400, "tokens", 81)
    assert explanation["tokens"] <= 400
    assert {"recent", "recalled", "current"} <= {block["kind"] for block in explanation["blocks"]}


def test_explain_prints_the_context_itself(ok, lines, talk):
    text = ok("explain", "support/42", "--budget", "400", "--text")
    assert text.rstrip().endswith("What am I allergic to?")
    (explanation,) = lines("explain", "support/42", "--budget", "400", "--text")
    assert explanation["text"].strip() == text.strip()


def test_explain_without_recall_recalls_nothing(lines, talk):
    (explanation,) = lines("explain", "support/42", "--budget", "400", "--no-recall")
    assert "recalled" not in {block["kind"] for block in explanation["blocks"]}
    assert explanation["recall"] == "off"


def test_explain_counts_characters_when_asked(lines, talk):
    (explanation,) = lines("explain", "support/42", "--chars", "2000", "--no-recall")
    assert (explanation["budget"], explanation["unit"]) == (2000, "characters")


def test_explain_takes_a_policy_by_name(ok, cli, talk):
    assert "showing last 20 messages" in ok("explain", "support/42", "--policy", "last-20", "--text")
    result = cli("explain", "support/42", "--policy", "nonsense")
    assert result.exit_code == 1
    assert "recall-heavy" in result.stderr


def test_explain_shows_the_thread_through_a_viewers_eyes(store, ok):
    talk = store.conversation("agents")
    talk.append("user", "Plan the trip.")
    talk.append("assistant", "I book the train.", actor="planner")
    talk.append("user", "And the hotel?")
    assert "assistant: I book the train." in ok("explain", "agents", "--viewer", "planner", "--text")
    assert "assistant: I book the train." not in ok("explain", "agents", "--viewer", "critic", "--text")


def test_a_budget_that_is_too_small_is_an_error_with_both_numbers(cli, talk):
    result = cli("explain", "support/42", "--budget", "5")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "needs 13 tokens, and the budget is 5" in result.stderr
    assert json.loads(cli("explain", "support/42", "--budget", "5", "--json").stderr)["error"] == "BudgetTooSmall"


def test_two_kinds_of_budget_are_refused(cli, talk):
    assert cli("explain", "support/42", "--budget", "400", "--chars", "400").exit_code == 1


def test_explain_says_when_memory_is_behind(cli, ok, talk):
    assert "palaver worker --once" in cli("explain", "support/42").stderr
    ok("worker", "--once")
    assert cli("explain", "support/42").stderr == ""


def test_explain_of_an_empty_conversation_says_so_in_numbers(store, ok):
    store.conversation("empty")
    assert "0 of 0 turns word for word" in ok("explain", "empty")


def test_the_bar_is_as_long_as_the_budget_and_every_block_has_its_share():
    blocks = tuple(Block(kind=kind, reason="", tokens=33) for kind in ("memory", "recent", "current"))
    explanation = Explanation(
        budget=100, tokens=99, unit="tokens", counter="", policy="", blocks=blocks, left_out=(), turns_total=0,
        turns_verbatim=0, recall="",
    )  # fmt: skip
    assert bar(explanation, 10).plain == "[MMMRRRRCCC]"
    assert bar(explanation, 100).plain == f"[{'M' * 33}{'R' * 33}{'C' * 33}·]"
    assert len({span.style for span in bar(explanation, 100).spans}) == 4


def test_the_smallest_block_is_still_seen_in_the_bar(talk, ok):
    assert "C" in ok("explain", "support/42", "--budget", "4000").splitlines()[1]


# ---- recall --------------------------------------------------------------------------------------------------------


def test_recall_shows_date_actor_score_and_its_parts(ok, talk):
    shown = ok("recall", "support/42", "allergic", "to", "peanuts", "-k", "1")
    heading, text, score, *_ = shown.splitlines()
    assert "user  user  2026-01-02" in heading
    assert text == "I'm allergic to peanuts."
    assert "lexical +" in score


def test_recall_in_json_is_one_line_per_hit_best_first(lines, talk):
    hits = lines("recall", "support/42", "peanuts", "-k", "3")
    assert hits[0]["turn"]["content"] == "I'm allergic to peanuts."
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
    assert hits[0]["score"] == pytest.approx(sum(hits[0]["parts"].values()), abs=0.01)
    assert len(hits) == 3


def test_recall_with_a_threshold_says_when_nothing_is_good_enough(ok, talk):
    assert "Nothing found." in ok("recall", "support/42", "xyzzy", "--threshold", "5")


def test_recall_keeps_to_a_time(lines, talk):
    until = lines("recall", "support/42", "garden", "--until", "2026-01-02")
    assert until
    assert all(hit["turn"]["created"] < "2026-01-02" for hit in until)
    since = lines("recall", "support/42", "garden", "--since", "2026-01-07T00:00:00Z")
    assert since
    assert all(hit["turn"]["created"] >= "2026-01-07" for hit in since)


def test_recall_looks_as_far_as_the_scope_says(lines, ok, talk):
    ok("append", "notes", "user", "The zebra is called Zoe.")
    ok("append", "hers", "user", "My zebra is called Zara.", "--user", "ada")

    def found(*args: str) -> set[str]:
        hits = lines("recall", "notes", "zebra", *args)
        return {hit["turn"]["content"] for hit in hits if hit["parts"]["lexical"] > 0}

    assert found() == {"The zebra is called Zoe."}
    assert found("--scope", "owner") == {"The zebra is called Zoe."}
    assert found("--scope", "tenant") == {"The zebra is called Zoe.", "My zebra is called Zara."}


def test_recall_finds_facts_too(ok, lines, store):
    store.conversation("notes").append("user", "I live in Berlin.")
    assert lines("facts", "notes", "--extract")
    facts = [hit["fact"] for hit in lines("recall", "notes", "Berlin") if hit["fact"]]
    assert facts[0]["object"] == "Berlin"
    assert "· Berlin" in ok("recall", "notes", "Berlin")


def test_recall_quotes_what_a_file_says(ok, lines, folder):
    (folder / "lease.txt").write_text("The lease ends in March. Notice is three months.")
    ok("attach", "support/42", "lease.txt")
    ok("worker", "--once")
    assert "lease.txt: The lease ends in March. Notice is three months." in ok("recall", "support/42", "notice")
    (hit,) = lines("recall", "support/42", "notice")
    assert hit["quote"]["text"].endswith("three months.")


def test_recall_says_when_nothing_in_a_turn_fits(ok):
    ok("append", "support/42", "user", "I'm allergic to peanuts.")
    assert "0.00 = no part matches" in ok("recall", "support/42", "zebra")


# ---- what was really sent ------------------------------------------------------------------------------------------


def test_a_prompt_is_explained_also_after_a_turn_that_it_recalled_was_forgotten(ok, talk):
    """By what it was compared with, too: the prompt before it."""
    talk.generate("What am I allergic to?", token_budget=400)
    talk.generate("And what about peanuts?", token_budget=400)
    blocks = talk.requests()[-1].explanation["blocks"]
    found = next(one["turn"] for block in blocks for one in block["scores"] if one["parts"]["lexical"] > 0)
    talk.forget(found)
    shown = ok("requests", "support/42", "--why")
    assert found in shown
    assert "(forgotten since, or in another conversation)" in shown
    assert "of the prompt is the same as in the previous prompt." in shown
