"""Questions of one's own: files, figures, reasons of misses, drafts."""

from __future__ import annotations

import random

import pytest

import palaver
from palaver.errors import InvalidInput
from palaver.evaluation.drafting import draft_questions
from palaver.evaluation.measure import NOT_FOUND, TOO_SMALL, Result, Setup, measure
from palaver.evaluation.questions import Question, read_questions


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 1: is not JSON"),
        ("[]", "must be an object"),
        ('{"question": "q", "conversation": "c"}', "needs turns"),
        ('{"question": "q", "conversation": "c", "turns": []}', "needs turns"),
        ('{"question": "", "conversation": "c", "turns": ["1"]}', "question must be a text"),
        ('{"question": "q", "conversation": "c", "turn": "1"}', "'turn' is unknown"),
        ('{"question": "q", "conversation": "c", "texts": "x"}', "texts must be a list"),
    ],
)
def test_a_bad_line_is_named(line: str, problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        list(read_questions([line]))


def test_a_question_goes_to_a_line_and_back() -> None:
    question = Question(question="Wo?", conversation="k", turns=("1",), texts=("über",))
    assert list(read_questions([question.to_line(), "\n"])) == [question]


async def long_talk(store: palaver.Store) -> tuple[palaver.Conversation, palaver.Turn]:
    talk = await store.conversation("k")
    gold = await talk.append("user", "My sister Magda keeps bees near Freiburg, and sells chestnut honey.")
    turns = [{"role": "user", "content": f"Small talk number {n} about the weather. " * 6} for n in range(200)]
    await talk.append_many(turns)  # type: ignore[arg-type]
    await store.settle()
    return talk, gold


async def test_evidence_that_is_found_and_evidence_that_is_not() -> None:
    async with palaver.open("memory:", embedder=None) as store:
        talk, gold = await long_talk(store)
        found = Question(question="Who keeps bees?", conversation="k", turns=(gold.id,), texts=("chestnut  HONEY",))
        lost = Question(question="Which colour has the car?", conversation="k", turns=(gold.id,))
        result = Result(Setup(policy="balanced", budget=2_000), 10)
        small = Result(Setup(policy="balanced", budget=5), 10)
        for question in (found, lost):
            await measure(talk, question, [result, small])
        before = 201
        assert (result.questions, result.in_context) == (2, 1)
        assert result.eic == 0.5
        assert len(result.misses) == 1
        assert result.misses[0].reason == NOT_FOUND or "below the floor" in result.misses[0].reason
        assert {miss.reason for miss in small.misses} == {TOO_SMALL}
        assert (await talk.refresh()).turn_count == before, "measuring stores nothing"


async def test_a_floor_is_the_reason() -> None:
    async with palaver.open("memory:", embedder=None) as store:
        talk, gold = await long_talk(store)
        result = Result(Setup(policy="balanced", budget=2_000, floor=1.0), 10)
        await measure(talk, Question(question="Who keeps bees?", conversation="k", turns=(gold.id,)), [result])
        assert "below the floor" in result.misses[0].reason


async def test_drafts_ask_about_turns_that_are_there() -> None:
    async with palaver.open("memory:", embedder=None) as store:
        talk, gold = await long_talk(store)
        drafts = await draft_questions(talk, 300, random=random.Random(1))
        about = next(draft for draft in drafts if draft.turns == (gold.id,))
        assert "chestnut" in about.question

        async def ask(prompt: str) -> str:
            return f"Asked of {len(prompt)}\n"

        (draft,) = await draft_questions(talk, 1, ask, random=random.Random(1))
        assert draft.question.startswith("Asked of ")
