"""Deletion again: what was derived from a turn goes with it, and no background job brings it back."""

from __future__ import annotations

from pathlib import Path

import pytest

import palaver
from palaver import Conversation, Store, Turn
from palaver.conversations.internals import engine_of
from palaver.memory.compaction import FAN_OUT
from palaver.testing import HashEmbedder
from tests.support.memory import Gate, spans, talk_on, traces, url

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

WORD = "zqvblxkmtrwp"


async def say_it(talk: Conversation) -> list[Turn]:
    """Turns whose one rare word ends up in a summary, a note, a fact, a mark and a vector."""
    turns = [
        await talk.append("user", f"Always call the dog {WORD}."),
        await talk.append("user", f"My name is {WORD.capitalize()} and I live in {WORD.capitalize()}."),
        await talk.append("user", f"We decided on 3 May 2026 to buy the {WORD} for 500 euros."),
        await talk.append("assistant", "", tool_calls=[{"id": "c1", "name": "buy", "arguments": {"what": WORD}}]),
        await talk.append("tool", "", tool_results=[{"id": "c1", "content": f"bought {WORD}"}]),
    ]
    await talk_on(talk, 25 * FAN_OUT + 60)
    return turns


async def everywhere(talk: Conversation) -> dict[str, bool]:
    """Return where the word is, as far as the methods show it."""
    facts = await talk.facts(include_invalidated=True)
    held = {
        "summaries": [one.text for one in await talk.summaries()],
        "notes": [str(await talk.working_memory())],
        "facts": [f"{fact.subject} {fact.object}" for fact in facts],
        "recall": [hit.turn.text for hit in await talk.recall(WORD, k=50) if hit.turn],
        "search": [match.turn.text for match in await talk.search(WORD)],
        "context": [(await talk.build_context(6_000, query=WORD)).text],
    }
    return {where: any(WORD in text.lower() for text in texts) for where, texts in held.items()}


@pytest.fixture
async def known(tmp_path: Path):
    async with palaver.open(url(tmp_path), embedder=HashEmbedder(), worker=False) as store:
        talk = await store.conversation(settings={"facts": True})
        turns = await say_it(talk)
        await store.settle()
        assert all((await everywhere(talk)).values()), "the test must be able to see it"
        yield store, talk, turns


async def test_a_forgotten_turn_is_in_no_byte_and_no_job_brings_it_back(
    known: tuple[Store, Conversation, list[Turn]], tmp_path: Path
) -> None:
    store, talk, turns = known
    before = {one.id for one in await talk.summaries() if one.from_seq >= 25}
    for turn in turns[:4]:  # the call takes its result along
        await talk.forget(turn)
    assert traces(tmp_path, WORD) == traces(tmp_path, WORD.capitalize()) == []
    assert not any((await everywhere(talk)).values())
    assert spans(await talk.summaries(), 0)[0][0] == 25, "what stood for it is gone at once"
    for _ in range(3):
        await store.settle()
        await talk.compact()
        await talk.extract_facts()
    assert traces(tmp_path, WORD) == traces(tmp_path, WORD.capitalize()) == []
    assert not any((await everywhere(talk)).values())
    after = await talk.summaries()
    assert spans(after, 0)[0] == (0, 25), "and written anew without it"
    assert spans(after, 1)[0] == (0, 25 * FAN_OUT)
    assert before <= {one.id for one in after if one.from_seq >= 25}, "the others are as they were"
    await talk.verify()


@pytest.mark.sqlite_file
async def test_a_forgotten_turn_leaves_no_vector_and_no_mark(
    known: tuple[Store, Conversation, list[Turn]], tmp_path: Path
) -> None:
    store, talk, turns = known
    import apsw

    def counts() -> tuple[int, int]:
        db = apsw.Connection(f"{tmp_path}/chat.db")
        db.set_busy_timeout(10_000)
        found = [db.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0] for table in ("embeddings", "marks")]
        db.close()
        return found[0], found[1]

    vectors, marks = counts()
    assert marks == 2
    for turn in turns[:3]:
        await talk.forget(turn)
    await store.settle()
    assert counts() == (vectors - 3, 0)


async def test_a_reset_and_the_end_of_the_conversation_leave_nothing_either(
    known: tuple[Store, Conversation, list[Turn]], tmp_path: Path
) -> None:
    store, talk, _ = known
    await talk.reset()
    await store.settle()
    assert traces(tmp_path, WORD) == traces(tmp_path, WORD.capitalize()) == []
    assert await talk.summaries() == []
    assert await talk.working_memory() == palaver.WorkingMemory()
    await say_it(talk)
    await store.settle()
    await talk.verify()
    await talk.forget()
    await store.settle()
    assert traces(tmp_path, WORD) == traces(tmp_path, WORD.capitalize()) == []


async def test_after_an_edit_the_old_words_are_in_no_derived_memory(
    known: tuple[Store, Conversation, list[Turn]],
) -> None:
    store, talk, turns = known
    for turn in turns[:3]:
        await talk.append("user", "Nothing of that.", replaces=turn)
    await talk.forget(turns[3])
    await store.settle()
    held = await everywhere(talk)
    assert not any(held.values()), held
    kept = await talk.history(limit=1_000, include_superseded=True)
    assert sum(WORD in turn.text.lower() for turn in kept) == 3, "the record of what was said keeps it"


async def test_a_turn_that_is_forgotten_while_it_is_summarised_is_not_remembered(tmp_path: Path) -> None:
    gate = Gate()
    async with palaver.open(url(tmp_path), embedder=HashEmbedder(), summarizer=gate) as store:
        talk = await store.conversation(settings={"facts": True})
        turns = await say_it(talk)
        await gate.asked.wait()
        for turn in turns[:4]:
            await talk.forget(turn)
        gate.open.set()
        await store.settle()
        assert traces(tmp_path, WORD) == traces(tmp_path, WORD.capitalize()) == []
        assert not any((await everywhere(talk)).values())


async def test_a_frozen_recall_does_not_show_what_was_forgotten_since(store: Store) -> None:
    talk = await store.conversation()
    secret = await talk.append("user", f"The {WORD} is in the blue box.")
    await talk_on(talk, 100, "Turn {n} goes on and on, for as long as it takes to fill the window with it.")
    await talk.append("user", f"Where is the {WORD}?")
    assert "blue box" in (await talk.build_context(1_000)).text
    await talk.append("assistant", "", tool_calls=[{"id": "c", "name": "look", "arguments": {}}])
    await talk.append("tool", "", tool_results=[{"id": "c", "content": "nothing"}])
    assert "blue box" in (await talk.build_context(1_000)).text
    await talk.forget(secret)
    assert "blue box" not in (await talk.build_context(1_000)).text


@pytest.mark.sqlite_file
async def test_numbers_that_are_given_out_again_are_embedded_again(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=HashEmbedder(), worker=False) as store:
        talk = await store.conversation(title="A title")
        for n in range(5):
            turn = await talk.append("user", f"Always greet me with llama{n}.")
            await store.settle()
            await talk.recall("warm up the caches")
            if n < 4:
                await talk.forget(turn)
                await talk.rename(f"Title {n}")
        hit = (await talk.recall("llama4"))[0]
        assert hit.parts["standing"] == 0  # there is no assistant in this conversation
        assert await engine_of(store).embedding_backlog("hash-32") == 0
        (row,) = await engine_of(store).vectors(
            store.scope, palaver.ports.RecallScope(conversation=talk.id), "hash-32", {}
        )
        assert len(row.rows) == 1
