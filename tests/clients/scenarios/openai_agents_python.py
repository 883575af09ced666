"""The openai-agents package: runs, tools, handoffs, sessions kept on this server."""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from pydantic import BaseModel

from tests.clients.scenarios.harness import KEY, URL, main, scenario

set_tracing_disabled(True)


class Person(BaseModel):
    name: str
    age: int


@function_tool
def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"Sunny in {city}"


def client_of() -> AsyncOpenAI:
    return AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=60)


def agent_of(client: AsyncOpenAI, **more: Any) -> Agent:
    model = more.pop("kind", OpenAIResponsesModel)("chat", client)
    return Agent("Helper", instructions="Be brief.", model=model, **more)


@scenario
async def run() -> None:
    async with client_of() as client:
        assert (await Runner.run(agent_of(client), "Say hello")).final_output == "hello"


@scenario
async def run_with_chat_completions() -> None:
    async with client_of() as client:
        agent = agent_of(client, kind=OpenAIChatCompletionsModel, tools=[get_weather])
        assert (await Runner.run(agent, "the weather in Rome")).final_output == "Tools: Sunny in Rome"


@scenario
async def streamed() -> None:
    async with client_of() as client:
        running = Runner.run_streamed(agent_of(client), "Count to 5")
        kinds = {event.type async for event in running.stream_events()}
        assert "raw_response_event" in kinds
        assert running.final_output == "1 2 3 4 5 "


@scenario
async def tools() -> None:
    async with client_of() as client:
        agent = agent_of(client, tools=[get_weather], model_settings=ModelSettings(temperature=0))
        done = await Runner.run(agent, "the weather in Rome and Oslo")
        assert done.final_output == "Tools: Sunny in Rome; Sunny in Oslo"


@scenario
async def handoff() -> None:
    async with client_of() as client:
        other = Agent("Expert", model=OpenAIResponsesModel("chat", client))
        done = await Runner.run(agent_of(client, handoffs=[other]), "Hand over, then Say nothing")
        assert done.last_agent.name == "Expert"


@scenario
async def output_type() -> None:
    async with client_of() as client:
        done = await Runner.run(agent_of(client, output_type=Person), "Ada as JSON")
        assert done.final_output == Person(name="Ada", age=36)


@scenario
async def session_is_a_conversation() -> None:
    async with client_of() as client:
        session = OpenAIConversationsSession(openai_client=client)
        agent = agent_of(client, tools=[get_weather])
        await Runner.run(agent, "the weather in Rome", session=session)
        done = await Runner.run(agent, "What did I say?", session=session)
        assert "the weather in Rome" in done.final_output
        assert len(await session.get_items()) == 6
        await session.pop_item()
        assert len(await session.get_items()) == 5
        await session.clear_session()


@scenario
async def conversation_id() -> None:
    async with client_of() as client:
        talk = (await client.conversations.create()).id
        await Runner.run(agent_of(client), "My name is Ada.", conversation_id=talk)
        done = await Runner.run(agent_of(client), "What did I say?", conversation_id=talk)
        assert "My name is Ada." in done.final_output


@scenario
async def previous_response() -> None:
    async with client_of() as client:
        first = await Runner.run(agent_of(client), "My name is Ada.")
        done = await Runner.run(agent_of(client), "What did I say?", previous_response_id=first.last_response_id)
        assert "My name is Ada." in done.final_output


if __name__ == "__main__":
    main("openai-agents")
