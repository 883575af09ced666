"""The fakes keep the promises of the ports that they stand in for."""

import math
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest

from palaver.core.identity import CROCKFORD, ID_LENGTH, stamp
from palaver.model import ToolCall
from palaver.ports.clock import Clock, Ids
from palaver.ports.models import CallReady, ChatModel, Embedder, Finished, ModelRequest, TextDelta
from palaver.testing import CountingIds, FakeClock, HashEmbedder, ScriptedModel, UnexpectedCall

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_the_clock_stands_until_it_is_moved() -> None:
    clock: Clock = (fake := FakeClock(NOON))
    assert clock.now() == clock.now() == NOON
    fake.advance(1.5)
    assert clock.now() == NOON + timedelta(seconds=1.5)
    fake.advance(-3600)
    assert clock.now() < NOON


def test_the_clock_is_set_in_any_zone_and_shows_utc() -> None:
    clock = FakeClock()
    clock.set(datetime(2026, 5, 1, 14, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == NOON
    assert clock.now().tzinfo is UTC
    with pytest.raises(ValueError, match="time zone"):
        clock.set(datetime(2026, 5, 1))  # noqa: DTZ001


def test_the_clock_may_tick_at_every_look() -> None:
    clock = FakeClock(NOON, tick=0.5)
    assert [clock.now() - NOON for _ in range(3)] == [timedelta(seconds=n / 2) for n in range(3)]


def test_counted_ids_are_valid_sorted_and_the_same_in_every_run() -> None:
    ids: Ids = CountingIds()
    made = [ids() for _ in range(2_000)]
    other = CountingIds()
    assert made == sorted(set(made)) == [other() for _ in range(2_000)]
    assert {len(id) for id in made} == {ID_LENGTH}
    assert set("".join(made)) <= set(CROCKFORD)


def test_counted_ids_differ_also_after_they_were_stamped() -> None:
    ids = CountingIds(start=5)
    assert len({stamp(ids(), 0) for _ in range(1_000)}) == 1_000


async def test_the_embedder_makes_unit_vectors_by_words() -> None:
    embedder: Embedder = HashEmbedder()
    cat, same, near, far, empty = await embedder.embed(
        ["the cat sat", "SAT the, cat!", "the cat ran", "invoice number seven", ""]
    )
    assert cat == same
    assert _dot(cat, near) > _dot(cat, far)
    for vector in (cat, near, far, empty):
        assert len(vector) == embedder.dimensions == 32
        assert math.isclose(_dot(vector, vector), 1.0)
    assert await embedder.embed([]) == []
    assert len((await HashEmbedder(dimensions=7).embed(["x"]))[0]) == 7


def _dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


async def _answer(model: ChatModel, *messages: dict[str, str]) -> list[str]:
    body = model.body(ModelRequest(messages=messages))
    return [event.text async for event in model.stream(body) if isinstance(event, TextDelta)]


async def test_the_model_follows_its_script_and_remembers_what_it_was_asked() -> None:
    script = ScriptedModel(["You can eat rice.", ["a", "", "b"], ConnectionError("down")])
    question = {"role": "user", "content": "What can I eat?"}
    pieces = await _answer(script, question)
    assert len(pieces) > 1
    assert "".join(pieces) == "You can eat rice."
    question["content"] = "changed later"
    assert await _answer(script, question) == ["a", "", "b"]
    with pytest.raises(ConnectionError):
        await _answer(script)
    assert [call and call[0]["content"] for call in script.calls] == ["What can I eat?", "changed later", []]
    script.assert_finished()


async def test_the_model_calls_tools_where_its_script_says_so() -> None:
    script = ScriptedModel([["I look.", ToolCall("c1", "look", {"q": "nuts"})]])
    events = [event async for event in script.stream(script.body(ModelRequest(messages=())))]
    assert events[-2:] == [CallReady(ToolCall("c1", "look", {"q": "nuts"})), Finished("tool_calls")]


async def test_the_model_notices_a_call_too_many_and_one_too_few() -> None:
    with pytest.raises(UnexpectedCall):
        await _answer(ScriptedModel())
    with pytest.raises(AssertionError, match="1 steps"):
        ScriptedModel(["never asked"]).assert_finished()


def test_the_kit_works_without_pytest() -> None:
    program = "import sys; sys.modules['pytest'] = None; import palaver.testing as t; print(len(t.GUARANTEES))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) >= 70
