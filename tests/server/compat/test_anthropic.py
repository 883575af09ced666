"""Anthropic's own client, with one URL changed."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest

from palaver.testing.providers import Fail, LoopbackProvider, Say
from tests.server.compat.conftest import claude_of, conversations, on_each_engine, thread, turns_of
from tests.server.compat.test_openai_chat import PIXEL, look_up
from tests.server.conftest import Running, events, running

WEATHER: Any = {"name": "weather", "description": "The weather", "input_schema": {"type": "object", "properties": {}}}


def asked(*said: Any, name: str | None = None, **more: Any) -> Any:
    roles = ("user", "assistant")
    messages = [one if isinstance(one, dict) else {"role": roles[n % 2], "content": one} for n, one in enumerate(said)]
    headers = {"X-Conversation-Id": name} if name else {}
    return {"model": "messages", "max_tokens": 99, "messages": messages, "extra_headers": headers, **more}


@on_each_engine
def test_a_conversation_with_memory_streamed_and_not(
    server: Running, claude: anthropic.Anthropic, provider: LoopbackProvider
) -> None:
    provider.script(Say("Noted."), Say(["You can", " eat rice."]), Say("Yes."))
    claude.messages.create(**asked("I am allergic to peanuts.", name="a"))
    with claude.messages.stream(**asked("What can I eat?", name="a")) as stream:
        assert list(stream.text_stream) == ["You can", " eat rice."]
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn"
    assert final.usage.input_tokens > 0
    assert final.usage.output_tokens > 0
    claude.messages.create(
        **asked("I am allergic to peanuts.", "Noted.", "What can I eat?", "You can eat rice.", "Sure?", name="a")
    )
    assert [text for _, text in thread(server, "a")] == [
        "I am allergic to peanuts.", "Noted.", "What can I eat?", "You can eat rice.", "Sure?", "Yes.",
    ]  # fmt: skip
    assert "peanuts" in json.dumps(provider.bodies[1]["messages"])
    assert provider.bodies[1]["max_tokens"] == 99


def test_what_a_block_does_not_have_is_left_out(server: Running, provider: LoopbackProvider) -> None:
    """The AI SDK refuses `citations: null`; the service itself has no such field in a text without citations."""
    provider.script(Say("Yes."), Say("Yes."))
    body = {"model": "messages", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
    with server.client() as client:
        whole = client.post("/v1/messages", json=body).json()
        assert whole["content"] == [{"type": "text", "text": "Yes."}]
        with client.stream("POST", "/v1/messages", json={**body, "stream": True}) as response:
            starts = [one.data["content_block"] for one in events(response) if one.kind == "content_block_start"]
    assert starts == [{"type": "text", "text": ""}]


@pytest.mark.parametrize("name", ["a", None])
def test_the_client_s_wish_to_cache_its_system_prompt_reaches_the_provider(
    claude: anthropic.Anthropic, provider: LoopbackProvider, name: str | None
) -> None:
    """With memory behind it, the mark stays on the client's own part: memory changes, and would spoil the cache."""
    wish = {"type": "ephemeral", "ttl": "1h"}
    system = [{"type": "text", "text": "Be kind."}, {"type": "text", "text": "Be brief.", "cache_control": wish}]
    claude.messages.create(**asked("Always answer in French, please.", name=name, system=system))
    claude.messages.create(**asked("Hello", name=name, system=system))
    for body in provider.bodies:
        first, *rest = body["system"]
        assert first == {"type": "text", "text": "Be kind.\nBe brief.", "cache_control": wish}
        assert all("cache_control" not in one for one in rest)
    claude.messages.create(**asked("Hello", name=name, tools=[{**WEATHER, "cache_control": wish}], system="Be kind."))
    assert provider.bodies[-1]["system"][0] == {"type": "text", "text": "Be kind.", "cache_control": wish}


def test_every_frame_has_its_name(server: Running, provider: LoopbackProvider) -> None:
    provider.script(Say(["One", " two"], calls=[("weather", {"city": "Rome"})]))
    body = {"model": "messages", "max_tokens": 9, "stream": True, "tools": [WEATHER]}
    with server.client() as client:
        json_body = {**body, "messages": [{"role": "user", "content": "Hi"}]}
        with client.stream("POST", "/v1/messages", json=json_body) as response:
            told = list(events(response))
    assert [one.kind for one in told] == [
        "message_start", "ping", "content_block_start", "content_block_delta", "content_block_delta",
        "content_block_stop", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
        "message_stop",
    ]  # fmt: skip
    assert all(one.kind == one.data["type"] for one in told)


@pytest.mark.parametrize(("name", "stream"), [(None, True), ("tools", False)], ids=["unbound and streamed", "bound"])
def test_tools_of_the_client(
    server: Running, claude: anthropic.Anthropic, provider: LoopbackProvider, name: str | None, stream: bool
) -> None:
    provider.script(Say("Let me see.", calls=[("weather", {"city": "Rome"})]), Say("Sunny."))
    first = said(claude, stream, **asked("Rain?", name=name, tools=[WEATHER], tool_choice={"type": "any"}))
    assert first.stop_reason == "tool_use"
    assert provider.bodies[0]["tool_choice"] == {"type": "any"}
    text, call = first.content
    assert (text.text, call.name, call.input) == ("Let me see.", "weather", {"city": "Rome"})
    blocks = [block.model_dump(exclude_none=True) for block in first.content]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "25 degrees"}]}
    messages = ("Rain?", {"role": "assistant", "content": blocks}, {"role": "user", "content": [result]})
    second = said(claude, stream, **asked(*messages, name=name, tools=[WEATHER]))
    assert second.content[0].text == "Sunny."
    assert provider.bodies[-1]["messages"][-1]["content"][0]["content"] == "25 degrees"
    if name:
        assert [turn.role for turn in turns_of(server, name)] == ["user", "assistant", "tool", "assistant"]


def said(claude: anthropic.Anthropic, stream: bool, **given: Any) -> Any:
    if not stream:
        return claude.messages.create(**given)
    with claude.messages.stream(**given) as events:
        return events.get_final_message()


def test_a_result_alone_is_enough_and_tools_of_the_server_run_there(settings: Any, provider: LoopbackProvider) -> None:
    provider.script(
        Say("First.", calls=[("look_up", {"word": "rain"})]),
        Say("Then.", calls=[("look_up", {"word": "sun"}), ("weather", {})]),
        Say("Sunny."),
    )
    with running(settings(generate={"tools": [look_up]})) as server, claude_of(server) as claude:
        first = claude.messages.create(**asked("Rain?", name="r", tools=[WEATHER]))
        assert [block.type for block in first.content] == ["text", "text", "tool_use"]
        id: Any = first.content[-1].id  # type: ignore[union-attr]
        result = {"type": "tool_result", "tool_use_id": id, "content": "blue sky"}
        answer = claude.messages.create(**asked({"role": "user", "content": [result]}, name="r", tools=[WEATHER]))
        assert answer.content[0].text == "Sunny."  # type: ignore[union-attr]
        roles = [turn.role for turn in turns_of(server, "r")]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "tool", "assistant"]


@pytest.mark.parametrize("name", [None, "thinking"], ids=["unbound", "bound"])
def test_thoughts_go_back_to_where_they_came_from(
    server: Running, claude: anthropic.Anthropic, provider: LoopbackProvider, name: str | None
) -> None:
    """With their signatures: the provider requires them. They are not stored."""
    provider.script(Say("Hm.", calls=[("weather", {})], thinking="Rome, perhaps."), Say("Sunny."))
    first = said(claude, True, **asked("Rain?", name=name, tools=[WEATHER]))
    assert [block.type for block in first.content] == ["thinking", "text", "tool_use"]
    blocks = [block.model_dump(exclude_none=True) for block in first.content]
    result = {"type": "tool_result", "tool_use_id": first.content[-1].id, "content": "blue sky"}
    messages = ("Rain?", {"role": "assistant", "content": blocks}, {"role": "user", "content": [result]})
    said(claude, False, **asked(*messages, name=name, tools=[WEATHER]))
    assert provider.bodies[-1]["messages"][1]["content"][0] == blocks[0]
    assert blocks[0]["signature"]
    if name:
        assert "perhaps" not in "".join(str(turn) for turn in turns_of(server, name))


def test_images_instructions_and_counting(
    server: Running, claude: anthropic.Anthropic, provider: LoopbackProvider
) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    content = [{"type": "text", "text": "What is it?"}, {"type": "image", "source": source}]
    claude.messages.create(**asked({"role": "user", "content": content}, name="i", system="Be brief."))
    sent = provider.bodies[-1]
    assert sent["messages"][-1]["content"][1]["source"] == source
    assert sent["system"] == "Be brief."
    counts = [
        claude.messages.count_tokens(
            model="messages", messages=[{"role": "user", "content": "How many?"}], extra_headers=headers
        ).input_tokens
        for headers in ({}, {"X-Conversation-Id": "i"})
    ]
    assert 3 < counts[0] < counts[1]
    assert [len(turn.attachments) for turn in turns_of(server, "i")] == [1, 0]


def test_without_a_conversation_nothing_is_stored(
    server: Running, claude: anthropic.Anthropic, provider: LoopbackProvider
) -> None:
    answer = claude.messages.create(**asked("One", "Two", "Three", stop_sequences=["STOP"]))
    assert answer.content[0].text == "Yes."  # type: ignore[union-attr]
    assert provider.bodies[-1]["stop_sequences"] == ["STOP"]
    assert conversations(server) == 0


def test_errors_have_the_provider_s_own_shape(
    server: Running, claude: anthropic.Anthropic, provider: LoopbackProvider
) -> None:
    with pytest.raises(anthropic.NotFoundError) as missing:
        claude.messages.create(**asked("Hi") | {"model": "claude-none"})
    assert missing.value.type == "not_found_error"
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.create(**asked())
    provider.script(*[Fail(529, kind="overloaded_error")] * 3, Say("One two three", cut_after=2))
    with pytest.raises(anthropic.APIStatusError) as busy:
        claude.messages.create(**asked("Hi"))
    assert (busy.value.status_code, busy.value.type) == (503, "overloaded_error")
    with pytest.raises(anthropic.APIStatusError), claude.messages.stream(**asked("Hi")) as stream:
        list(stream)


def test_models_are_those_that_are_configured(claude: anthropic.Anthropic) -> None:
    found = list(claude.models.list())
    assert [one.id for one in found] == ["chat", "messages", "responses"]
    assert claude.models.retrieve("chat") == found[0]


def test_keys_in_either_header(settings: Any) -> None:
    with running(settings(require_auth=True, jwt_secret="s" * 32)) as server:
        key = server.key()
        body = {"model": "messages", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
        with server.client() as client:
            assert client.post("/v1/messages", json=body, headers={"x-api-key": key}).status_code == 200
            refused = client.post("/v1/messages", json=body, headers={"x-api-key": "sk-ant-no"})
        assert refused.status_code == 401
        assert refused.json()["error"]["type"] == "authentication_error"
        assert claude_of(server, key).messages.create(**asked("Hi")).role == "assistant"


def test_a_retry_is_told_again(server: Running, provider: LoopbackProvider) -> None:
    provider.script(*[Fail(503)] * 3, Say("At last."))
    with claude_of(server, max_retries=1) as claude:
        answer = claude.messages.create(**asked("Hi", name="again"))
    assert answer.content[0].text == "At last."  # type: ignore[union-attr]
    assert [text for _, text in thread(server, "again")] == ["Hi", "At last."]
