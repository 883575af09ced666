"""Google ADK with sessions and memory in Palaver.

    pip install "palaver[google-adk]"
    python examples/google_adk_runner.py

It runs offline: the agent does not call a model.
"""

import asyncio
from collections.abc import AsyncGenerator

from google.adk.agents import BaseAgent
from google.adk.agents.invocation_context import InvocationContext
from google.adk.events import Event
from google.adk.runners import Runner
from google.genai import types

import palaver
from palaver.adapters.google_adk import PalaverMemoryService, PalaverSessionService


class Counter(BaseAgent):
    async def _run_async_impl(self, ctx: InvocationContext) -> AsyncGenerator[Event]:
        part = types.Part(text=f"This session has {len(ctx.session.events)} events.")
        yield Event(
            author=self.name, invocation_id=ctx.invocation_id, content=types.Content(role="model", parts=[part])
        )


async def main() -> None:
    async with palaver.open("sqlite:///adk.db") as store:
        sessions, memory = PalaverSessionService(store), PalaverMemoryService(store)
        session = await sessions.create_session(app_name="app", user_id="ada")
        runner = Runner(agent=Counter(name="counter"), app_name="app", session_service=sessions, memory_service=memory)
        for text in ("My dog is called Rex.", "And now?"):
            message = types.Content(role="user", parts=[types.Part(text=text)])
            async for event in runner.run_async(user_id="ada", session_id=session.id, new_message=message):
                print(event.content.parts[0].text)
        stored = await sessions.get_session(app_name="app", user_id="ada", session_id=session.id)
        await memory.add_session_to_memory(stored)
        found = await memory.search_memory(app_name="app", user_id="ada", query="dog")
        print(found.memories[0].content.parts[0].text)


asyncio.run(main())
