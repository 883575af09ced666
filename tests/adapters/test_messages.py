"""Messages of other protocols as turns, and back."""

from __future__ import annotations

from typing import Any

import pytest

import palaver
from palaver import InvalidInput, Store

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

PIXEL = "data:image/png;base64,iVBORw0KGgo="
OPENAI: list[dict[str, Any]] = [
    {"role": "user", "content": "What is in this picture?"},
    {"role": "user", "content": [{"type": "text", "text": "Here"}, {"type": "image_url", "image_url": {"url": PIXEL}}]},
    {
        "role": "assistant",
        "content": "I look it up.",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at":"left"}'}},
            {"id": "call_2", "type": "function", "function": {"name": "look", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "a cat"},
    {"role": "tool", "tool_call_id": "call_2", "content": '{"animals":["dog"]}'},
    {"role": "assistant", "content": "A cat and a dog."},
    {"role": "user", "content": "Thanks"},
]
ANTHROPIC: dict[str, Any] = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Look"}, {
            "type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}]},
        {"role": "assistant", "content": [
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "left"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "nothing", "is_error": True}]},
        {"role": "assistant", "content": "Nothing there."},
        {"role": "user", "content": "Thanks"},
    ]
}  # fmt: skip


async def test_what_to_openai_gives_can_be_appended_again(store: Store) -> None:
    one, two = await store.conversation("one"), await store.conversation("two")
    await one.append_many(palaver.from_openai(OPENAI))
    shown = (await one.build_context(20_000)).to_openai()
    assert shown == OPENAI
    await two.append_many(palaver.from_openai(shown))
    assert (await two.build_context(20_000)).to_openai() == shown
    assert [turn.role for turn in await two.history()] == [turn.role for turn in await one.history()]


async def test_what_to_anthropic_gives_can_be_appended_again(store: Store) -> None:
    one, two = await store.conversation("one"), await store.conversation("two")
    await one.append_many(palaver.from_anthropic(ANTHROPIC))
    shown = (await one.build_context(20_000)).to_anthropic()
    await two.append_many(palaver.from_anthropic({**shown}))
    again = (await two.build_context(20_000)).to_anthropic()
    assert again == shown
    result = (await two.history())[2].tool_results[0]
    assert (result.id, result.content, result.is_error) == ("toolu_1", "nothing", True)
    assert (await two.history())[1].tool_calls[0].arguments == {"at": "left"}


async def test_between_the_protocols(store: Store) -> None:
    talk = await store.conversation("one")
    await talk.append_many(palaver.from_anthropic(ANTHROPIC))
    other = await store.conversation("two")
    await other.append_many(palaver.from_openai((await talk.build_context(20_000)).to_openai()))
    assert [turn.text for turn in await other.history()] == [turn.text for turn in await talk.history()]


async def test_unknown_fields_are_kept(store: Store) -> None:
    talk = await store.conversation()
    message = {"role": "user", "content": [{"type": "text", "text": "hi", "x": 1}], "name": "ada", "new": {"a": [1]}}
    await talk.append_many(palaver.from_openai([message]))
    (turn,) = await talk.history()
    assert turn.metadata["openai"] == {"name": "ada", "new": {"a": [1]}}
    assert turn.content[0].extra == {"x": 1}  # type: ignore[union-attr]


async def test_odd_messages(store: Store) -> None:
    talk = await store.conversation()
    await talk.append_many(
        palaver.from_openai(
            [
                {"role": "developer", "content": "Be brief."},
                {"role": "user", "content": ["plain text", {"type": "input_text", "text": "and a part"}]},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": "not json"}}]},
                {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "done"}]},
                {"role": "user", "content": [{"type": "file", "file": {"filename": "a.pdf", "file_data": PIXEL}}]},
            ]
        )
    )  # fmt: skip
    turns = await talk.history()
    assert [turn.role for turn in turns] == ["system", "user", "assistant", "tool", "user"]
    assert turns[2].tool_calls[0].arguments == "not json"
    assert turns[3].tool_results[0].content == "done"
    with pytest.raises(InvalidInput) as refusal:
        palaver.from_openai([{"role": "narrator", "content": "once"}])
    assert refusal.value.field == "role"
    assert palaver.from_openai([]) == [] == palaver.from_anthropic({"messages": []})
