"""The rules that each provider checks before it reads a prompt, as its documentation and its errors state them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
CHAT_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")


def check_chat(messages: Sequence[Mapping[str, Any]]) -> None:
    """OpenAI's Chat Completions: every call has its result right behind it; only users send images."""
    assert messages, "an empty list"
    waiting: list[str] = []
    made: list[str] = []
    for message in messages:
        assert message["role"] in ("system", "user", "assistant", "tool")
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, "a result without its call"
            waiting.remove(message["tool_call_id"])
            continue
        assert not waiting, "a call without its result"
        assert isinstance(message["content"], str) or (message["role"] == "user" and message["content"])
        calls = message.get("tool_calls", ())
        assert not calls or message["role"] == "assistant"
        for call in calls:
            assert CHAT_ID.fullmatch(call["id"])
            assert NAME.fullmatch(call["function"]["name"])
            assert isinstance(call["function"]["arguments"], str)
        waiting = [call["id"] for call in calls]
        made += waiting
    assert not waiting, "a call without its result"
    assert len(set(made)) == len(made), "an id twice"


def check_responses(items: Sequence[Mapping[str, Any]]) -> None:
    """OpenAI's Responses: calls and outputs in pairs; only users send images."""
    assert items, "an empty list"
    calls = [item for item in items if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    ids = [call["call_id"] for call in calls]
    assert sorted(ids) == sorted(outputs)
    assert len(set(ids)) == len(ids), "an id twice"
    for call in calls:
        assert NAME.fullmatch(call["call_id"])
        assert NAME.fullmatch(call["name"])
    for item in items:
        if "role" in item:
            assert item["role"] in ("system", "user", "assistant")
            assert isinstance(item["content"], str) or (item["role"] == "user" and item["content"])


def check_anthropic(prompt: Mapping[str, Any]) -> None:
    """Anthropic's Messages: a user first, roles in turn, results first in the message behind their calls."""
    messages = prompt["messages"]
    assert messages, "an empty list"
    assert messages[0]["role"] == "user"
    assert all(one["role"] != other["role"] for one, other in pairwise(messages))
    waiting: list[str] = []
    made: list[str] = []
    for message in messages:
        kinds = [block["type"] for block in message["content"]]
        assert kinds, "an empty message"
        results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        assert sorted(results) == sorted(waiting)
        assert kinds[: len(results)] == ["tool_result"] * len(results), "something before the results"
        uses = [block for block in message["content"] if block["type"] == "tool_use"]
        for use in uses:
            assert NAME.fullmatch(use["id"])
            assert NAME.fullmatch(use["name"])
            assert isinstance(use["input"], dict)
        for block in message["content"]:
            assert block["type"] != "text" or block["text"].strip(), "an empty text"
        if message["role"] == "assistant":
            assert set(kinds) <= {"text", "tool_use", "thinking", "redacted_thinking"}
        else:
            assert not uses
        waiting = [use["id"] for use in uses]
        made += waiting
    assert not waiting, "a call without its result"
    assert len(set(made)) == len(made), "an id twice"
