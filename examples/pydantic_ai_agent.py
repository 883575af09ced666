"""Pydantic AI with contexts from Palaver.

    pip install "palaver[pydantic-ai]"
    python examples/pydantic_ai_agent.py

It runs offline: the model is a function.
"""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import palaver
from palaver.adapters.pydantic_ai import PalaverHistory


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    parts = [part for message in messages for part in message.parts]
    return ModelResponse(parts=[TextPart(f"I was shown {len(parts)} parts.")])


async def main() -> None:
    async with palaver.open("sqlite:///pydantic-ai.db") as store:
        history = PalaverHistory(store, "support/42")
        agent = Agent(FunctionModel(answer), capabilities=[ProcessHistory(history.processor(token_budget=4_000))])
        for question in ("I'm allergic to peanuts.", "What can I eat?"):
            result = await agent.run(question)
            await history.append(result.new_messages())
            print(result.output)


asyncio.run(main())
