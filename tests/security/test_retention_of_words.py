"""With `audit-only` and `ephemeral`, nothing that is made without a model quotes a turn whose words were removed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import Conversation
from palaver.memory.keywords import words_of
from tests.generation import conftest
from tests.generation.conftest import Opener, Traces

opened, provider, traces = conftest.opened, conftest.provider, conftest.traces  # fixtures
RETENTIONS = ("audit-only", "ephemeral")
RUN = 5
NOUNS = "garden fence harbour violin ticket recipe lantern meadow river cottage Berlin Biscuit Postgres".split()
FILLERS = "the a old of near with after really quickly and before under three".split()
PATTERNS = [
    "I live in {0} and I love {1} {2} {3} {4}.",
    "Please always answer in French when we talk about {0} {1} {2}.",
    "Never use {0} {1} in the {2} {3}.",
    "We decided to use {0} for the {1} of the {2} {3}.",
    "My favourite {0} is {1} {2} {3} {4} {1}.",
    "Our goal is to build a {0} {1} near the {2} {3}.",
    "The deadline for the {0} {1} {2} is next Friday at noon.",
    "What should we do with the {0} {1} and the {2} {3}?",
    "My sister's {0} is called {1} and she really likes the {2} {3} {4}.",
    "SECRETWORDep{5} we talked",
]


def sentence(chance: random.Random, number: int) -> str:
    words = [" ".join(chance.choices(NOUNS + FILLERS, k=chance.randint(1, 3))) for _ in range(5)]
    return chance.choice(PATTERNS).format(*words, number)


async def fill(talk: Conversation, turns: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    said = [" ".join(sentence(chance, n) for _ in range(chance.randint(1, 3))) for n in range(turns)]
    await talk.append_many(
        {"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(said)
    )
    return said


def runs_of(text: str) -> set[tuple[str, ...]]:
    words = words_of(text)
    return {tuple(words[at : at + RUN]) for at in range(len(words) - RUN + 1)}


async def derived(talk: Conversation) -> list[str]:
    """Everything that memory has of a conversation, as texts."""
    memory = await talk.working_memory()
    notes = [note.text for name in palaver.model.MEMORY_LISTS for note in getattr(memory, name)]
    facts = [f"{one.subject} {one.predicate} {one.object}" for one in await talk.facts(include_invalidated=True)]
    info = await talk.refresh()
    return [*(one.text for one in await talk.summaries()), *notes, *facts, memory.summary, info.title or ""]


async def retired(talk: Conversation, said: list[str]) -> list[str]:
    """The texts that are gone."""
    left = {turn.text for turn in await talk.history(1_000)}
    gone = [text for text in said if text not in left]
    assert len(gone) > 20
    return gone


@pytest.mark.costly
@pytest.mark.parametrize("retention", RETENTIONS)
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_no_run_of_words_of_a_retired_turn_is_in_memory(
    opened: Opener, traces: Traces, retention: str, seed: int
) -> None:
    settings: Any = {"retention": retention, "facts": True}
    async with opened() as store:
        talk = await store.conversation("k", settings=settings)
        said = await fill(talk, 130, seed)
        await store.settle()
        gone = await retired(talk, said)
        made = await derived(talk)
        assert len([text for text in made if text]) > 5, "there is a memory"
        for text in made:
            for turn in gone:
                assert not runs_of(text) & runs_of(turn), (text, turn)
                assert turn not in text
        await covers_everything(talk)
        await talk.verify()
    for turn in gone[:20]:
        assert await traces(turn) == []


async def covers_everything(talk: Conversation) -> None:
    """Contexts and their explanation work as before."""
    summaries = await talk.summaries()
    assert max(one.through_seq for one in summaries) == (await talk.refresh()).summarized_through
    context = await talk.build_context(2_000)
    assert context.explain().turns_total >= 100
    assert "messages about" in context.text


@pytest.mark.costly
@pytest.mark.parametrize("retention", RETENTIONS)
async def test_sentences_from_before_the_setting_go_as_well(opened: Opener, traces: Traces, retention: Any) -> None:
    async with opened() as store:
        talk = await store.conversation("k")
        said = await fill(talk, 130, 4)
        await store.settle()
        assert any(runs_of(text) & runs_of(turn) for text in await derived(talk) for turn in said), "quoted until now"
        await talk.update(settings={"retention": retention})
        await talk.compact()
        gone = await retired(talk, said)
        for text in await derived(talk):
            for turn in gone:
                assert not runs_of(text) & runs_of(turn), (text, turn)
        await covers_everything_again(talk)
        await talk.verify()


async def covers_everything_again(talk: Conversation) -> None:
    assert max(one.through_seq for one in await talk.summaries()) == (await talk.refresh()).summarized_through
    assert (await talk.build_context(2_000)).text


async def test_an_instruction_in_force_stays_in_its_normal_form(opened: Opener) -> None:
    async with opened() as store:
        talk = await store.conversation("k", settings={"retention": "ephemeral"})
        for language in ("French", "German"):
            await talk.append("user", f"Please always answer in {language} when we talk about the old garden.")
            await talk.append_many({"role": "assistant", "content": f"Day {n}: rain."} for n in range(60))
        await store.settle()
        (note,) = (await talk.working_memory()).instructions
        assert note.text == "language: always, answer, garden, German, old, Please, talk", "the newer one holds"
        assert note.text in (await talk.build_context(2_000)).text


async def test_full_retention_keeps_sentences(opened: Opener) -> None:
    async with opened() as store:
        talk = await store.conversation("k")
        said = await fill(talk, 60, 8)
        await store.settle()
        assert any(text in one.text for one in await talk.summaries() for text in said[0].split(". "))


def test_the_page_says_what_a_model_may_tell() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "retention.md").read_text()
    assert "A summary that a model wrote" in page
