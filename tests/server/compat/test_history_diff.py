"""Clients may send any histories in any order: the thread stays whole, and says what the last of them said."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import palaver
from palaver.context.tool_rounds import units
from palaver.model import ToolCall, ToolResult, Turn
from palaver.server.compat.client_history import HistoryWriter
from palaver.server.compat.exchanges import Exchanges
from palaver.server.compat.history_diff import plan_history, view_of_messages, view_of_turns
from palaver.server.compat.request import ClientMessage, ClientRequest


def user(text: str) -> ClientMessage:
    return ClientMessage(role="user", content=text)


def bot(text: str, *calls: str) -> ClientMessage:
    return ClientMessage(role="assistant", content=text, calls=tuple(ToolCall(id, "look", {"q": id}) for id in calls))


def results(*ids: str) -> ClientMessage:
    return ClientMessage(role="tool", results=tuple(ToolResult(id, f"found {id}") for id in ids))


NOW = datetime(2026, 11, 15, tzinfo=UTC)
WORDS = st.sampled_from(["yes", "no", "go on", "what else?", "and then?", "hello"])


@dataclass
class Client:
    """One that keeps its own thread, and sends all of it, or a window, or only what is new."""

    said: list[ClientMessage] = field(default_factory=list)
    calls: int = 0

    def step(self, data: st.DataObject) -> list[ClientMessage]:
        """Return its next request. A thread that ends with calls continues with their results."""
        move = data.draw(st.sampled_from(["grow", "grow", "grow", "edit", "cut", "again", "window"]))
        last = self.said[-1] if self.said else None
        if last is not None and last.calls:
            self.said.append(results(*(call.id for call in last.calls)))
            return list(self.said)
        if move in ("edit", "cut", "again") and self.said:
            places = [n for n, one in enumerate(self.said) if one.role == "user"]
            place = data.draw(st.sampled_from(places))
            old = self.said[place]
            del self.said[place:]
            self.said.append(old if move == "again" else user(data.draw(WORDS) + " edited"))
            return list(self.said)
        self.said.append(user(data.draw(WORDS)))
        if move == "window":
            size = data.draw(st.integers(1, len(self.said)))
            return self.said[-size:] if self.said[-size].role == "user" else list(self.said)
        return list(self.said)

    def hear(self, data: st.DataObject) -> ClientMessage:
        """The answer, with calls for this client now and then."""
        if data.draw(st.integers(0, 4)):
            answer = bot(data.draw(WORDS))
        else:
            self.calls += 2
            answer = bot("Let me see.", f"c{self.calls}", f"c{self.calls + 1}")
        self.said.append(answer)
        return answer


@dataclass
class Thread:
    """The stored view as a list, for the pure part."""

    turns: list[Turn] = field(default_factory=list)
    count: int = 0

    def take(self, said: Sequence[ClientMessage]) -> None:
        plan = plan_history(self.turns, said)
        if plan.replaces is not None:
            del self.turns[self.turns.index(plan.replaces) :]
        for one in plan.new:
            self.add(one)

    def add(self, one: ClientMessage) -> None:
        self.count += 1
        self.turns.append(
            Turn(
                id=str(self.count),
                conversation="c",
                seq=self.count,
                position=len(self.turns),
                role=one.role,
                actor=one.role,
                content=one.text,
                created=NOW,
                tool_calls=one.calls,
                tool_results=one.results,
                metadata={"client_calls": [call.id for call in one.calls]} if one.calls else {},
            )
        )


def keys(said: Sequence[ClientMessage]) -> list[Any]:
    return [one.key for one in view_of_messages(said)]


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_the_view_ends_as_the_client_says(data: st.DataObject) -> None:
    _hold(data)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=5_000, deadline=None)
def test_the_view_ends_as_the_client_says_the_long_form(data: st.DataObject) -> None:
    _hold(data)


def _hold(data: st.DataObject) -> None:
    client, thread = Client(), Thread()
    for _ in range(data.draw(st.integers(1, 12))):
        sent = client.step(data)
        thread.take(sent)
        stored = [one.key for one in view_of_turns(thread.turns)]
        # One message alone is an addition, also where the client meant the start of a new thread.
        assert stored[-len(keys(sent)) :] == keys(sent)
        assert all(unit.whole for unit in units(thread.turns)), "no call is parted from its results"
        thread.add(client.hear(data))


def test_a_summary_of_the_client_s_own_is_not_taken_for_an_edit() -> None:
    thread = Thread()
    for one in (user("one"), bot("1"), user("two"), bot("2"), user("three"), bot("3")):
        thread.add(one)
    plan = plan_history(thread.turns, [user("In short: one and two."), user("three"), bot("3"), user("four")])
    assert (plan.replaces, [one.text for one in plan.new]) == (None, ["four"])


def test_white_space_is_no_edit_and_words_are() -> None:
    thread = Thread()
    thread.add(user("one"))
    thread.add(bot("An  answer.\n"))
    assert plan_history(thread.turns, [user("one "), bot("An answer."), user("two")]).replaces is None
    plan = plan_history(thread.turns, [user("one"), bot("Another answer."), user("two")])
    assert plan.replaces is thread.turns[1]
    assert [one.text for one in plan.new] == ["Another answer.", "two"]


def test_what_was_forgotten_does_not_come_back_with_a_client_s_history() -> None:
    thread = Thread()
    said = [user("one"), bot("1"), user("two"), bot("2"), user("three"), bot("3")]
    for one in said:
        thread.add(one)
    for gone in ([2], [2, 3], [0], [0, 1], [4, 5], [5], [1, 4]):
        left = [turn for turn in thread.turns if turn.position not in gone]
        behind = sum(place > left[-1].position for place in gone)
        plan = plan_history(left, [*said, user("four")], forgotten=behind)
        assert (plan.replaces, [one.text for one in plan.new]) == (None, ["four"]), gone
    assert [one.text for one in plan_history([], [*said, user("four")], forgotten=6).new] == ["four"]
    assert len(plan_history([], [*said, user("four")]).new) == 7, "a new conversation takes all of it"


def test_what_is_said_behind_the_last_answer_is_new() -> None:
    thread = Thread()
    for one in (user("one"), bot("1", "c1")):
        thread.add(one)
    plan = plan_history(thread.turns, [results("c1"), user("two")])
    assert (plan.own, [one.role for one in plan.new]) == (2, ["tool", "user"])
    plan = plan_history(thread.turns, [user("from elsewhere"), bot("I see."), user("two"), user("three")])
    assert [one.text for one in plan.new] == ["two", "three"]
    assert [one.text for one in plan.unknown] == ["from elsewhere", "I see."]
    assert [one.text for one in plan_history([], [user("forgotten"), user("two")], forgotten=1).new] == ["two"]


# ---- in a database -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("retries", [False, True])
async def test_any_histories_leave_a_stored_thread_that_verifies(
    database_url: str, tmp_path: Any, retries: bool
) -> None:
    """Even when a retry of an earlier request comes late, or twice."""
    async with palaver.open(database_url, user="ada", worker=False, embedder="none", files=tmp_path / "f") as store:
        exchanges = Exchanges(SimpleNamespace(), store, None)  # type: ignore[arg-type]
        for round_ in range(3):
            talk = await store.conversation(f"t{round_}")
            await _program(exchanges, talk, seed=round_ + 10 * retries, retries=retries)
            await talk.verify()


async def _program(exchanges: Exchanges, talk: Any, seed: int, retries: bool) -> None:
    chance = random.Random(seed)
    said: list[ClientMessage] = []
    sent: list[tuple[str, list[ClientMessage]]] = []
    for n in range(14):
        if said and chance.random() < 0.3:
            places = [place for place, one in enumerate(said) if one.role == "user"]
            del said[chance.choice(places) :]
        said.append(user(chance.choice(["yes", "no", "go on"]) + (" !" if chance.random() < 0.3 else "")))
        mark = f"{seed}-{n}"
        sent.append((mark, list(said)))
        await _take(exchanges, talk, *sent[-1])
        view: list[Turn] = await talk.history(1_000)
        assert [one.key for one in view_of_turns(view)][-len(said) :] == keys(said)
        answer = f"answer {n}"
        await talk.append("assistant", answer)
        said.append(bot(answer))
        if retries:
            before = await talk.history(1_000, include_superseded=True)
            await _take(exchanges, talk, *chance.choice(sent), again=True)
            assert await talk.history(1_000, include_superseded=True) == before, "a retry stores nothing"


async def _take(exchanges: Exchanges, talk: Any, mark: str, said: list[ClientMessage], again: bool = False) -> None:
    ask = ClientRequest(shape="openai-chat", model="x", said=tuple(said))
    if again:
        assert await exchanges.find_first_attempt(talk, mark) is not None
    else:
        await HistoryWriter(exchanges.store, {}).store_history(ask, talk, mark)
