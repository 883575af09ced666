"""Several clients ask at once in one conversation, through every protocol: each gets the answer to its own question."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from palaver.testing.providers import LoopbackProvider, Say
from tests.server.compat.conftest import gpt_of, on_each_engine
from tests.server.conftest import Running

ASKERS = (2, 6, 12)
QUESTION = re.compile(r"question-\d+")
TOOL: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


def echo(body: dict[str, Any]) -> Say:
    """Say the question that the prompt ends with."""
    asked = [one for one in body["messages"] if one["role"] == "user"][-1]
    return Say(f"about {QUESTION.findall(json.dumps(asked))[-1]}")


def rest(client: httpx.Client, talk: str, text: str) -> httpx.Response:
    return client.post(f"/api/conversations/{talk}/generate", json={"message": text})


def chat(client: httpx.Client, talk: str, text: str) -> httpx.Response:
    body = {"model": "chat", "messages": [{"role": "user", "content": text}]}
    return client.post("/v1/chat/completions", json=body, headers={"X-Conversation-Id": talk})


def responses(client: httpx.Client, talk: str, text: str) -> httpx.Response:
    return client.post("/v1/responses", json={"model": "chat", "input": text, "conversation": f"conv_{talk}"})


def messages(client: httpx.Client, talk: str, text: str) -> httpx.Response:
    body = {"model": "chat", "max_tokens": 100, "messages": [{"role": "user", "content": text}]}
    return client.post("/v1/messages", json=body, headers={"X-Conversation-Id": talk})


def ai_sdk(client: httpx.Client, talk: str, text: str) -> httpx.Response:
    message = {"id": text, "role": "user", "parts": [{"type": "text", "text": text}]}
    return client.post("/api/chat", json={"id": talk, "message": message})


@on_each_engine
@pytest.mark.parametrize("ask", [rest, chat, responses, messages, ai_sdk])
def test_each_asker_gets_the_answer_to_its_own_question(
    server: Running, provider: LoopbackProvider, ask: Callable[[httpx.Client, str, str], httpx.Response]
) -> None:
    provider.otherwise = echo
    with server.client() as client, ThreadPoolExecutor(max(ASKERS)) as pool:
        talk = client.post("/api/conversations", json={"key": "k"}).json()["id"]
        for askers in ASKERS:
            numbers = range(10 * askers, 11 * askers)
            told = list(pool.map(lambda n: ask(client, talk, f"question-{n}"), numbers))
            assert [one.status_code for one in told] == [200] * askers
            for n, one in zip(numbers, told, strict=True):
                said = re.sub(r'"}\s*data: {"type":"text-delta","id":"[^"]*","delta":"', "", one.text)
                assert f"about question-{n}" in said


@on_each_engine
def test_results_of_a_clients_tools_go_on_with_their_own_question(server: Running, provider: LoopbackProvider) -> None:
    """Another client asks something else before the results come."""
    provider.script(Say(calls=[("look", {})]), echo)
    provider.otherwise = echo
    with gpt_of(server) as gpt:
        first = _ask(gpt, [{"role": "user", "content": "question-1"}], tools=[TOOL])
        (call,) = first.tool_calls
        assert _ask(gpt, [{"role": "user", "content": "question-2"}]).content == "about question-2"
        results: list[Any] = [{"role": "tool", "tool_call_id": call.id, "content": "seen"}]
        assert _ask(gpt, results, tools=[TOOL]).content == "about question-1"
    sent = provider.bodies[-1]["messages"]
    assert "question-2" not in json.dumps(sent)
    assert [one["role"] for one in sent] == ["user", "assistant", "tool"]


def _ask(gpt: openai.OpenAI, messages: list[Any], **options: Any) -> Any:
    headers = {"X-Conversation-Id": "k"}
    made = gpt.chat.completions.create(model="chat", messages=messages, extra_headers=headers, **options)
    return made.choices[0].message
