"""`kill -9` in the middle of an answer and of a tool round: nothing acknowledged is lost, the state is explained."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import palaver
from palaver.testing import FakeClock
from palaver.testing.providers import LoopbackProvider, Say

TALKER = Path(__file__).with_name("talker.py")
PATIENCE = 30.0


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with LoopbackProvider() as provider:
        yield provider


async def kill_when(folder: Path, provider: LoopbackProvider, seen: Callable[[list[str]], bool]) -> list[str]:
    """Let the talker run until it has said enough, and kill it. Returns its output."""
    arguments = (f"sqlite:///{folder}/chat.db", provider.url, str(folder / "marks"))
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(TALKER), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    said: list[str] = []
    try:
        async with asyncio.timeout(PATIENCE):
            while not seen(said):
                line = await child.stdout.readline()
                assert line, (await child.stderr.read()).decode() if child.stderr else ""
                said.append(line.decode().strip("\n"))
    finally:
        child.kill()
    rest, _ = await child.communicate()
    assert child.returncode == -9
    return said + rest.decode().splitlines()


@asynccontextmanager
async def restarted(
    folder: Path, provider: LoopbackProvider, seconds: float = 60
) -> AsyncIterator[palaver.Conversation]:
    """In another process, some time later."""
    clock = FakeClock(datetime.now(UTC) + timedelta(seconds=seconds), tick=0.001)
    url = f"sqlite:///{folder}/chat.db"
    async with palaver.open(
        url, user="ada", model="chat", models=provider.models(), clock=clock, worker=False
    ) as store:
        yield await store.conversation("x")


async def test_killed_in_the_middle_of_a_stream(provider: LoopbackProvider, tmp_path: Path) -> None:
    gate = threading.Event()
    provider.script(Say(["Once", " upon", " a time"], hold_after=(2, gate)))
    said = await kill_when(tmp_path, provider, lambda said: "stored Once upon" in said)
    gate.set()
    assert "MessageStored" in said
    async with restarted(tmp_path, provider) as talk:
        asked, cut = await talk.history(include_superseded=True)
        assert (asked.text, cut.text, cut.status) == ("Work, please.", "Once upon", "aborted")
        assert [turn.id for turn in await talk.history()] == [asked.id]
        for request in await talk.requests():  # the row may not have made it; if it did, it has no end
            assert request.response is None
            assert request.body is not None
        await talk.verify()
        again = await talk.generate("Work, please.", idempotency_key="k1")
        assert again.text == "Yes."
        assert [turn.text for turn in await talk.history()] == ["Work, please.", "Yes."]
        await talk.verify()


@pytest.mark.parametrize("seconds", [0, 60])
async def test_killed_in_the_middle_of_a_tool_round(provider: LoopbackProvider, tmp_path: Path, seconds: float) -> None:
    """At once as well: the process that ran it is seen to be gone."""
    provider.script(Say("I work.", calls=[("work", {"what": "hard"})]))
    said = await kill_when(tmp_path, provider, lambda said: "working" in said)
    assert "ToolsPlanned" in said or "working" in said

    def work(what: str) -> str:
        """Works."""
        with (tmp_path / "marks").open("a") as file:
            file.write(what + "\n")
        return "done"

    async with restarted(tmp_path, provider, seconds) as talk:
        asked, calls = await talk.history()
        assert calls.status == "complete"
        assert [call.name for call in calls.tool_calls] == ["work"]
        (request,) = await talk.requests()
        assert request.response is not None
        assert request.response["calls"] == ["work"]
        answer = await talk.generate("Work, please.", tools=[work], idempotency_key="k1")
        assert answer.text == "Yes."
        roles = [turn.role for turn in await talk.history()]
        assert roles == ["user", "assistant", "tool", "assistant"]
        cut = (await talk.history())[2]
        assert cut.metadata == {"interrupted": True}
        assert "was not run again" in str(cut.tool_results[0].content)
        assert "was not run again" in str(provider.bodies[-1])  # the model knows, too
        assert (tmp_path / "marks").read_text() == "hard\n"
        assert asked.idempotency_key == "k1"
        await talk.verify()
