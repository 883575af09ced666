"""Microsoft Agent Framework's history provider, with the framework's own agent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agent_framework")

from agent_framework import Agent, AgentSession, BaseChatClient, ChatResponse, Content, Message

import palaver
from palaver import Store
from palaver.adapters.agent_framework import PalaverHistoryProvider
from tests.support.memory import url

PICTURE = Content.from_uri("data:image/png;base64,AA==", media_type="image/png")
MESSAGES = [
    Message("system", ["Be brief."]),
    Message("user", ["I'm allergic to peanuts.", PICTURE],
            author_name="ada", additional_properties={"unknown": [1, {"a": None}]}),
    Message("assistant", [Content.from_function_call("c1", "look", arguments={"at": "left"})], message_id="m1"),
    Message("tool", [Content.from_function_result("c1", result="a \x00 cat")]),
    Message("assistant", ["A cat."]),
]  # fmt: skip


class Echo(BaseChatClient):  # type: ignore[misc]
    """Return the number of messages that it was given."""

    async def _inner_get_response(self, *, messages: Sequence[Message], **options: Any) -> ChatResponse:
        return ChatResponse(messages=[Message("assistant", [f"I see {len(messages)}"])])


def plain(messages: Sequence[Message]) -> list[dict[str, Any]]:
    return [message.to_dict() for message in messages]


@pytest.mark.both_engines
async def test_messages_come_back_as_they_were(store: Store) -> None:
    provider = PalaverHistoryProvider(store)
    assert await provider.get_messages("s/1") == []
    await provider.save_messages("s/1", [])
    await provider.save_messages("s/1", MESSAGES)
    assert plain(await PalaverHistoryProvider(store).get_messages("s/1")) == plain(MESSAGES)
    await provider.save_messages(None, MESSAGES[:1])
    assert plain(await provider.get_messages(None)) == plain(MESSAGES[:1])
    talk = await store.find("s/1")
    assert len(await talk.search("peanuts")) == 1
    assert [turn.role for turn in await talk.history()] == ["system", "user", "assistant", "tool", "assistant"]
    await talk.verify()


async def test_an_agent_remembers(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path)) as store:
        for expected in ("I see 1", "I see 3"):
            agent = Agent(Echo(), context_providers=[PalaverHistoryProvider(store)])
            result = await agent.run("hello", session=AgentSession(session_id="s/1"))
            assert result.text == expected
        assert (await store.find("s/1")).info.turn_count == 4
