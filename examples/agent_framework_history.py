"""Microsoft Agent Framework with history in Palaver.

    pip install "palaver[agent-framework]"
    python examples/agent_framework_history.py

It runs offline, with a stand-in for the model.
"""

import asyncio
from collections.abc import Sequence

from agent_framework import Agent, AgentSession, BaseChatClient, ChatResponse, Message

import palaver
from palaver.adapters.agent_framework import PalaverHistoryProvider


class Echo(BaseChatClient):
    async def _inner_get_response(self, *, messages: Sequence[Message], **options: object) -> ChatResponse:
        return ChatResponse(messages=[Message("assistant", [f"I was shown {len(messages)} messages."])])


async def main() -> None:
    async with palaver.open("sqlite:///agent-framework.db") as store:
        agent = Agent(Echo(), context_providers=[PalaverHistoryProvider(store)])
        for text in ("Hello", "Are you there?"):
            print((await agent.run(text, session=AgentSession(session_id="support/42"))).text)


asyncio.run(main())
