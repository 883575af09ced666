"""The Agents SDK's Runner: with its own session over our conversations, and with conversations that we keep for it."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)

from palaver.testing.providers import LoopbackProvider, Say
from tests.server.compat.conftest import on_each_engine, turns_of
from tests.server.conftest import Running


@pytest.fixture(autouse=True)
def nothing_leaves_this_machine() -> None:
    set_tracing_disabled(True)


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"Sunny in {city}."


def agent_of(client: openai.AsyncOpenAI, **settings: Any) -> Agent[Any]:
    model = OpenAIResponsesModel("chat", openai_client=client)
    return Agent("Forecaster", "Be brief.", model=model, tools=[weather], model_settings=ModelSettings(**settings))


def client_of(server: Running) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="sk-any", max_retries=0)


@on_each_engine
async def test_a_session_keeps_what_the_runner_says(server: Running, provider: LoopbackProvider) -> None:
    provider.script(
        Say(calls=[("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"})]), Say("Sunny."), Say("I said so.")
    )
    async with client_of(server) as client:
        session = OpenAIConversationsSession(openai_client=client)
        agent = agent_of(client, store=False)
        first = await Runner.run(agent, "Weather in Rome and Oslo?", session=session)
        assert first.final_output == "Sunny."
        streamed = Runner.run_streamed(agent, "Really?", session=session)
        async for _ in streamed.stream_events():
            pass
        assert streamed.final_output == "I said so."
        items = await session.get_items()
        kinds: list[Any] = [item.get("type") for item in items]
        assert kinds == ["message", *["function_call"] * 2, *["function_call_output"] * 2, *["message"] * 3]
        stored = turns_of(server, session.session_id.removeprefix("conv_"))
        assert [turn.role for turn in stored] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
        assert "Sunny in Oslo." in json.dumps(provider.bodies[-1]["messages"])
        assert await session.get_items(limit=2) == items[-2:]
        assert await session.pop_item() == items[-1]
        await session.add_items([{"role": "user", "content": str(n)} for n in range(45)])
        assert len(await session.get_items()) == len(items) - 1 + 45
        await session.clear_session()


async def test_a_conversation_of_the_server_needs_no_session(server: Running, provider: LoopbackProvider) -> None:
    """The Runner sends only what is new."""
    provider.script(Say(calls=[("weather", {"city": "Rome"})]), Say("Sunny."), Say("I said so."))
    async with client_of(server) as client:
        talk = (await client.conversations.create()).id
        agent = agent_of(client)
        for text, answer in (("Weather in Rome?", "Sunny."), ("Really?", "I said so.")):
            assert (await Runner.run(agent, text, conversation_id=talk)).final_output == answer
    stored = turns_of(server, talk.removeprefix("conv_"), include_superseded=True)
    assert [turn.role for turn in stored] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert "Sunny in Rome." in json.dumps(provider.bodies[-1]["messages"])
