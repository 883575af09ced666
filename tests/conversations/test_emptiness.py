"""Nothing is silently empty: a recall, search, list or context without memory says why."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver.conversations.emptiness import why_no_files
from palaver.conversations.store import Store
from palaver.telemetry import Meter

WORD = "zqxvbnmkjhgf"


class Counting(Meter):
    def __init__(self) -> None:
        self.empties: list[tuple[str, str]] = []
        self.lags: list[float] = []

    def empty(self, what: str, reason: str) -> None:
        self.empties.append((what, reason))

    def recallable(self, seconds: float) -> None:
        self.lags.append(seconds)


class Letters:
    """An embedder by letters: fast, and present on every machine. It can be switched off."""

    name, dimensions, works = "letters", 26, True

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if not self.works:
            raise ConnectionError
        return [[float(text.lower().count(chr(97 + n))) + 0.01 for n in range(26)] for text in texts]


@pytest.fixture
def meter() -> Counting:
    return Counting()


@pytest.fixture
def embedder() -> Letters:
    return Letters()


@pytest.fixture
async def store(database_url: str, meter: Counting, embedder: Letters, tmp_path: Path) -> AsyncIterator[Store]:
    options: Any = {"embedder": embedder, "meter": meter, "worker": False, "files": tmp_path / "files"}
    async with palaver.open(database_url, tenant="acme", user="ada", **options) as one:
        yield one


def reason(results: Any) -> str | None:
    return None if results.empty is None else str(results.empty.reason)


async def test_a_recall_says_why_it_is_empty(store: Store, meter: Counting, embedder: Letters) -> None:
    talk = await store.conversation("a")
    assert reason(await talk.recall("")) == "nothing asked"
    assert reason(await talk.recall("peanuts")) == "nothing stored"
    other = await store.conversation("b")
    await other.append("user", "I like rice.")
    assert reason(await talk.recall("peanuts")) == "other scope"
    assert reason(await other.recall("quarks", threshold=1.5)) == "not ready"
    await store.settle()
    assert reason(await other.recall("quarks", threshold=1.5)) == "nothing relevant"
    assert reason(await other.recall("rice")) is None
    embedder.works = False
    assert reason(await other.recall("quarks", threshold=1.5)) == "not ready"
    state = await store.conversation("c", settings={"kind": "state"})
    assert reason(await state.recall("peanuts")) == "switched off"
    assert ("recall", "not ready") in meter.empties


async def test_searches_and_lists_say_why_they_are_empty(store: Store, meter: Counting) -> None:
    assert reason(await store.conversations()) == "nothing stored"
    assert reason(await store.search("peanuts")) == "nothing stored"
    talk = await store.conversation("a")
    assert reason(await talk.search("peanuts")) == "nothing stored"
    await talk.append("user", "I like rice.")
    assert reason(await store.search(" ")) == "nothing asked"
    assert reason(await store.search("peanuts")) == "nothing relevant"
    assert reason(await talk.search("peanuts")) == "nothing relevant"
    assert reason(await store.conversations(agent="nobody")) == "other scope"
    assert reason(await store.conversations()) is None
    assert reason(await store.search("rice")) is None
    assert {what for what, _ in meter.empties} == {"search", "list"}


async def test_a_context_without_recalled_turns_says_why(store: Store) -> None:
    talk = await store.conversation("a")
    off = (await talk.build_context(token_budget=1_000, query="Rice?", semantic_recall=False)).explain()
    assert reason(off) == "switched off"
    assert "nothing recalled: switched off" in str(off)
    assert off.to_dict()["empty"]["reason"] == "switched off"
    assert palaver.Explanation.from_dict(off.to_dict()) == off
    assert reason((await talk.build_context(token_budget=1_000, query="Rice?")).explain()) == "nothing stored"
    await talk.append("user", "I like rice.")
    await store.settle()
    shown = (await talk.build_context(token_budget=1_000, query="rice")).explain()
    assert reason(shown) in ("all shown", "nothing relevant")


async def test_a_context_with_the_whole_conversation_gives_one_reason_for_recalling_nothing(store: Store) -> None:
    """The table used to say "not ready" as well, as if something were missing."""
    talk = await store.conversation("a")
    await talk.append("user", "I like rice.")
    table = str((await talk.build_context(token_budget=1_000)).explain())
    assert "nothing is recalled: the whole conversation is shown" in table
    assert "nothing recalled:" not in table


async def test_the_log_has_the_reason_and_no_content(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "palaver.recall")
    talk = await store.conversation(WORD)
    await talk.recall(WORD)
    await talk.search(WORD)
    await talk.build_context(token_budget=500, query=WORD)
    said = [one.getMessage() for one in caplog.records if one.name == "palaver.recall"]
    assert [one.partition(" is empty: ")[0] for one in said] == ["recall", "search", "context"]
    assert all("nothing stored" in one and WORD not in one for one in said)


async def test_the_lag_until_a_turn_can_be_recalled_is_measured(store: Store, meter: Counting) -> None:
    talk = await store.conversation("a")
    await talk.append("user", "I like rice.")
    assert meter.lags == []
    await store.settle()
    (lag,) = meter.lags
    assert 0 <= lag < 120


async def test_lists_of_facts_and_summaries_say_why_they_are_empty(store: Store, meter: Counting) -> None:
    talk = await store.conversation("a")
    assert (reason(await talk.facts()), reason(await talk.summaries())) == ("nothing stored", "nothing stored")
    await talk.append("user", "I like rice.")
    assert (reason(await talk.facts()), reason(await talk.summaries())) == ("switched off", "not ready")
    await talk.update(settings={"facts": True, "compaction": {"strategy": "never"}})
    assert (reason(await talk.facts()), reason(await talk.summaries())) == ("not ready", "switched off")
    await talk.extract_facts()
    assert reason(await talk.facts()) is None
    assert reason(await talk.facts(as_of="2001-01-01T00:00:00Z")) == "other scope"
    state = await store.conversation("c", settings={"kind": "state"})
    assert (reason(await state.facts()), reason(await state.summaries())) == ("switched off", "switched off")
    assert {("facts", "not ready"), ("summaries", "switched off")} <= set(meter.empties)


async def test_notes_and_lists_of_files_say_why_they_are_empty(store: Store, meter: Counting) -> None:
    talk = await store.conversation("a")
    assert (reason(await talk.working_memory()), reason(await talk.attachments())) == ("nothing stored",) * 2
    turn = await talk.append("user", "Rice.")
    assert reason(await talk.working_memory()) == "not ready"
    await talk.summarize(through=turn)
    assert reason(await talk.working_memory()) == "nothing relevant"
    notes = await talk.remember("goals", "Cook rice")
    assert reason(notes) is None
    assert reason(await talk.working_memory()) is None
    assert reason(await talk.drop_note("goals", 0)) == reason(await talk.working_memory())
    file = await talk.attach(b"Rice.", filename="rice.txt")
    assert reason(await talk.attachments()) is None
    assert "older" in str((await talk.attachments(before=file)).empty)
    assert why_no_files(None, has_place=False).reason == "switched off"
    state = await store.conversation("c", settings={"kind": "state"})
    assert reason(await state.working_memory()) == "switched off"
    assert {("notes", "not ready"), ("files", "nothing stored")} <= set(meter.empties)
