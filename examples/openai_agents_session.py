"""The OpenAI Agents SDK with a session in Palaver.

    pip install "palaver[openai-agents]"
    python examples/openai_agents_session.py

It runs offline, with a scripted model.
"""

import asyncio

from agents import Agent, Runner, set_tracing_disabled
from agents.testing import ScriptedModel
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

import palaver
from palaver.adapters.openai_agents import PalaverSession

set_tracing_disabled(True)


def say(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])


async def main() -> None:
    model = ScriptedModel()
    model.enqueue([say("San Francisco")])
    model.enqueue([say("California")])
    async with palaver.open("sqlite:///agents.db") as store:
        session = PalaverSession(store, "support/42")
        agent = Agent(name="guide", model=model)
        for question in ("What city is the Golden Gate Bridge in?", "And the state?"):
            print((await Runner.run(agent, question, session=session)).final_output)
        print(len(await session.get_items()), "items")


asyncio.run(main())
