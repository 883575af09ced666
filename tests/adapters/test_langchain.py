"""LangChain's message history and retriever, with langchain-core itself."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

import palaver
from palaver import Store
from palaver.adapters.langchain import PalaverChatMessageHistory, PalaverRetriever
from palaver.errors import WrongEventLoop
from tests.support.memory import url

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning")]

PIXEL = "data:image/png;base64,AA=="
EVERY_TYPE: list[BaseMessage] = [
    SystemMessage("Be brief.", id="s"),
    HumanMessage("I'm allergic to peanuts.", name="ada", additional_kwargs={"unknown": {"a": [1, None]}}),
    HumanMessage([{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": PIXEL}}]),
    AIMessage(
        "I look it up.",
        tool_calls=[{"id": "c1", "name": "look", "args": {"at": "left"}}],
        usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        response_metadata={"model": "x", "finish_reason": "tool_calls"},
        id="a",
    ),
    ToolMessage("a cat \x00 and \ud800 half", tool_call_id="c1", artifact={"raw": [1, 2]}, status="error"),
    AIMessage([{"type": "text", "text": "A cat."}, {"type": "reasoning", "reasoning": "because"}]),
    FunctionMessage(content="42", name="old"),
    ChatMessage(role="critic", content="Not bad."),
]  # fmt: skip


@pytest.mark.both_engines
async def test_every_type_of_message_comes_back_as_it_was(store: Store) -> None:
    history = PalaverChatMessageHistory(store, "s/1")
    assert await history.aget_messages() == []
    await history.aadd_messages(EVERY_TYPE)
    found = await PalaverChatMessageHistory(store, "s/1").aget_messages()
    assert found == EVERY_TYPE
    assert [type(one) for one in found] == [type(one) for one in EVERY_TYPE]
    assert found is not await history.aget_messages()
    await history.aclear()
    assert await history.aget_messages() == []
    await history.aadd_messages([HumanMessage("again")])
    assert [one.content for one in await history.aget_messages()] == ["again"]


@pytest.mark.both_engines
async def test_what_is_kept_is_also_talk(store: Store) -> None:
    """The words are found, and a context shows them, with the tool call and its result."""
    history = PalaverChatMessageHistory(store, "s/1")
    await history.aadd_messages(EVERY_TYPE[1:5])
    talk = await store.find("s/1")
    await talk.append("user", "What can I eat?")
    await store.settle()
    assert len(await talk.search("peanuts")) == 1
    context = await talk.build_context(4_000, query="peanuts")
    assert [one["role"] for one in context.to_openai() if one["role"] != "system"] == [
        "user", "user", "assistant", "tool", "user",
    ]  # fmt: skip
    assert "base64" not in str(context.to_openai())
    assert (await history.aget_messages())[-1].content == "What can I eat?"
    await talk.verify()


@pytest.mark.both_engines
async def test_a_redacted_conversation_keeps_no_copy_of_a_secret(store: Store) -> None:
    await store.conversation("s/1", settings={"redact": True})
    history = PalaverChatMessageHistory(store, "s/1")
    await history.aadd_messages([HumanMessage("my card is 4111 1111 1111 1111", id="x")])
    (found,) = await history.aget_messages()
    assert "4111" not in str(found.content)


async def test_a_large_result_of_a_tool(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path)) as store:
        history = PalaverChatMessageHistory(store, "s")
        text = "row " * 200_000
        await history.aadd_messages([ToolMessage(text, tool_call_id="c")])
        assert (await history.aget_messages())[0].content == text


@pytest.fixture
def blocking(tmp_path: Path) -> Iterator[palaver.sync.Store]:
    with palaver.sync.open(url(tmp_path)) as store:
        yield store


def test_synchronous_use(blocking: palaver.sync.Store) -> None:
    history = PalaverChatMessageHistory(blocking, "s/1")
    history.add_user_message("hello")
    history.add_ai_message("hi")
    assert [one.content for one in history.messages] == ["hello", "hi"]
    history.messages = [HumanMessage("only this")]
    assert [one.content for one in history.messages] == ["only this"]
    assert [one.content for one in asyncio.run(history.aget_messages())] == ["only this"]
    history.clear()
    assert history.messages == []


async def test_a_store_of_this_loop_is_not_blocked_for(store_of_this_loop: Store) -> None:
    with pytest.raises(WrongEventLoop, match=r"palaver\.sync"):
        PalaverChatMessageHistory(store_of_this_loop, "s/1").add_user_message("hello")


@pytest.fixture
async def store_of_this_loop(tmp_path: Path):  # type: ignore[no-untyped-def]
    async with palaver.open(url(tmp_path)) as store:
        yield store


def test_a_runnable_with_history(blocking: palaver.sync.Store) -> None:
    from langchain_core.runnables.history import RunnableWithMessageHistory

    model = GenericFakeChatModel(messages=iter([AIMessage("one"), AIMessage("two")]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chain = RunnableWithMessageHistory(model, lambda session_id: PalaverChatMessageHistory(blocking, session_id))
        for question in ("first?", "second?"):
            chain.invoke([HumanMessage(question)], {"configurable": {"session_id": "s/1"}})
    kept = PalaverChatMessageHistory(blocking, "s/1").messages
    assert [one.content for one in kept] == ["first?", "one", "second?", "two"]


@pytest.mark.both_engines
async def test_the_retriever_returns_what_recall_finds(store: Store) -> None:
    talk = await store.conversation("s/1")
    for text in ("I'm allergic to peanuts.", "My dog is called Rex.", "It rains."):
        await talk.append("user", text)
    await store.settle()
    for name in ("s/1", talk.id):
        found = await PalaverRetriever(store=store, conversation=name, k=1).ainvoke("which dog?")
        assert [one.page_content for one in found] == ["My dog is called Rex."]
        assert isinstance(found[0], Document)
        assert (found[0].metadata["role"], found[0].metadata["conversation"]) == ("user", talk.id)


def test_the_retriever_in_synchronous_code(blocking: palaver.sync.Store) -> None:
    blocking.conversation("s/1").append("user", "My dog is called Rex.")
    assert len(PalaverRetriever(store=blocking, conversation="s/1").invoke("dog")) == 1
