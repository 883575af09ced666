"""LlamaIndex's chat stores and memory, with LlamaIndex itself."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("llama_index.core")

from llama_index.core.base.llms.types import ChatMessage, ImageBlock, MessageRole, TextBlock
from llama_index.core.memory import ChatMemoryBuffer, Memory
from llama_index.core.storage.chat_store.base_db import MessageStatus

import palaver
from palaver import Store
from palaver.adapters.llama_index import PalaverChatStore, PalaverMemoryBlock, PalaverSimpleChatStore
from tests.support.memory import url

MESSAGES = [
    ChatMessage(role=MessageRole.SYSTEM, content="Be brief."),
    ChatMessage(
        role=MessageRole.USER,
        blocks=[TextBlock(text="I'm allergic to peanuts."), ImageBlock(url="http://x/y.png")],
        additional_kwargs={"unknown": {"a": [1]}},
    ),
    ChatMessage(role=MessageRole.ASSISTANT, content="", additional_kwargs={"tool_calls": [{"id": "c1"}]}),
    ChatMessage(role=MessageRole.TOOL, content="a \x00 cat", additional_kwargs={"tool_call_id": "c1"}),
    ChatMessage(role=MessageRole.CHATBOT, content="A cat."),
]


@pytest.mark.both_engines
async def test_the_store_of_memory(store: Store) -> None:
    chats = PalaverChatStore(store)
    assert await chats.get_messages("s/1") == []
    await chats.add_message("s/1", MESSAGES[0])
    await chats.add_messages("s/1", MESSAGES[1:])
    assert await PalaverChatStore(store).get_messages("s/1") == MESSAGES
    assert await chats.get_messages("s/1", limit=2, offset=1) == MESSAGES[1:3]
    assert await chats.archive_oldest_messages("s/1", 2) == MESSAGES[:2]
    assert await chats.get_messages("s/1") == MESSAGES[2:]
    assert await chats.get_messages("s/1", MessageStatus.ARCHIVED) == MESSAGES[:2]
    assert await chats.get_messages("s/1", None) == MESSAGES
    assert await chats.count_messages("s/1") == 3
    assert await chats.delete_oldest_messages("s/1", 1) == [MESSAGES[2]]
    assert await chats.delete_message("s/1", 3) == MESSAGES[4]
    assert await chats.delete_message("s/1", 99) is None
    await chats.add_message("s/1", MESSAGES[4], MessageStatus.ARCHIVED)
    assert await chats.count_messages("s/1", MessageStatus.ARCHIVED) == 3
    await chats.set_messages("s/1", [MESSAGES[1]])
    assert await chats.get_messages("s/1") == [MESSAGES[1]]
    assert await chats.get_keys() == ["s/1"]
    await chats.delete_messages("s/1")
    assert await chats.get_messages("s/1", None) == []
    assert await chats.get_keys() == []


async def test_memory_with_a_block_that_recalls(tmp_path: Path) -> None:
    """Messages that no longer fit are archived, and recalled when they are asked for."""
    async with palaver.open(url(tmp_path), worker=False) as store:
        memory = Memory.from_defaults(
            session_id="s/1",
            chat_store=PalaverChatStore(store),
            token_limit=300,
            token_flush_size=80,
            chat_history_token_ratio=0.5,
            memory_blocks=[PalaverMemoryBlock(store, "s/1", k=2)],
        )
        await memory.aput(ChatMessage(role="user", content="My dog is called Rex."))
        for number in range(40):
            await memory.aput(ChatMessage(role="user", content=f"Remark {number} about the weather in town today."))
            await memory.aput(ChatMessage(role="assistant", content="I see."))
        await store.settle()
        await memory.aput(ChatMessage(role="user", content="What is my dog called?"))
        shown = await memory.aget()
        assert len(shown) < 30
        assert "Rex" in str([one.content for one in shown])
        assert (
            len(await memory.aget_all(MessageStatus.ARCHIVED)) + len(await memory.aget_all(MessageStatus.ACTIVE)) == 82
        )
        assert await PalaverMemoryBlock(store, "none").aget([ChatMessage(role="user", content="dog")]) == ""


def test_the_older_store(tmp_path: Path) -> None:
    with palaver.sync.open(url(tmp_path)) as store:
        chats = PalaverSimpleChatStore(store)
        buffer = ChatMemoryBuffer.from_defaults(chat_store=chats, chat_store_key="s/1", token_limit=10_000)
        for message in MESSAGES:
            buffer.put(message)
        assert buffer.get_all() == MESSAGES
        assert chats.delete_message("s/1", 0) == MESSAGES[0]
        assert chats.delete_last_message("s/1") == MESSAGES[-1]
        assert asyncio.run(chats.aget_messages("s/1")) == MESSAGES[1:-1]
        chats.set_messages("s/1", MESSAGES[:2])
        assert chats.get_messages("s/1") == MESSAGES[:2]
        assert chats.get_keys() == ["s/1"]
        assert chats.delete_messages("s/1") == MESSAGES[:2]
        assert chats.delete_messages("s/1") is None
