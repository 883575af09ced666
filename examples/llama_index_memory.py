"""LlamaIndex memory stored in a Palaver conversation, with a block for recalled turns.

pip install "palaver[llama-index]"
python examples/llama_index_memory.py
"""

import asyncio

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory

import palaver
from palaver.adapters.llama_index import PalaverChatStore, PalaverMemoryBlock


async def main() -> None:
    async with palaver.open("sqlite:///llama-index.db") as store:
        memory = Memory.from_defaults(
            session_id="support/42",
            token_limit=2_000,
            chat_store=PalaverChatStore(store),
            memory_blocks=[PalaverMemoryBlock(store, "support/42", k=3)],
        )
        await memory.aput(ChatMessage(role="user", content="My dog is called Rex."))
        await memory.aput(ChatMessage(role="user", content="What is my dog called?"))
        for message in await memory.aget():
            print(message.role.value, (message.content or "")[:80])


asyncio.run(main())
