"""Pydantic AI: agents over Chat Completions, Responses and Messages."""

from __future__ import annotations

from typing import Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.scenarios.harness import KEY, URL, main, scenario


class Person(BaseModel):
    name: str
    age: int


def openai_provider() -> OpenAIProvider:
    return OpenAIProvider(openai_client=AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0))


def models() -> dict[str, Any]:
    claude = AnthropicProvider(anthropic_client=AsyncAnthropic(base_url=URL, api_key=KEY, max_retries=0))
    return {
        "chat": OpenAIChatModel("chat", provider=openai_provider()),
        "responses": OpenAIResponsesModel("chat", provider=openai_provider()),
        "messages": AnthropicModel("messages", provider=claude),
    }


def agent_of(kind: str, **more: Any) -> Agent[None, Any]:
    return Agent(models()[kind], instructions="Be brief.", **more)


async def _runs(kind: str) -> None:
    agent = agent_of(kind)
    first = await agent.run("Say hello")
    assert first.output == "hello"
    again = await agent.run("What did I say?", message_history=first.all_messages())
    assert "Say hello" in again.output


async def _streams(kind: str) -> None:
    async with agent_of(kind).run_stream("Count to 5") as running:
        pieces = [piece async for piece in running.stream_text(delta=True)]
    assert "".join(pieces).split() == ["1", "2", "3", "4", "5"]


async def _calls_tools(kind: str) -> None:
    agent = agent_of(kind)

    @agent.tool_plain
    def get_weather(city: str) -> str:
        """Return the weather of a city."""
        return f"Sunny in {city}"

    done = await agent.run("the weather in Rome and Oslo")
    assert done.output == "Tools: Sunny in Rome; Sunny in Oslo"


async def _has_an_output_type(kind: str) -> None:
    assert (await agent_of(kind, output_type=Person).run("Ada as JSON")).output == Person(name="Ada", age=36)


def _register(kind: str, work: Any) -> None:
    async def run() -> None:
        await work(kind)

    run.__name__ = f"{kind}{work.__name__}"
    scenario(run)


for _kind in ("chat", "responses", "messages"):
    for _work in (_runs, _streams, _calls_tools, _has_an_output_type):
        _register(_kind, _work)


if __name__ == "__main__":
    main("pydantic-ai-slim")
