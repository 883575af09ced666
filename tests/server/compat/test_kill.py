"""kill -9 in the middle of an answer: clients of every shape find their way back, and nothing is doubled."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from palaver.testing.providers import LoopbackProvider, Say
from tests.server.conftest import ok
from tests.server.processes import serving, wait_until

WORDS = [f"word{n} " for n in range(60)]
HALF = "".join(WORDS[:30])
ASKED: Any = {"model": "chat", "input": "Go on", "stream": True}


def on_disk(client: httpx.Client, talk: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ok(client.get(f"/api/conversations/{talk}/turns"))["items"]
    return found


@pytest.mark.parametrize("server_url", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True)
def test_a_server_that_is_killed_in_the_middle_of_a_response(tmp_path: Path, server_url: str) -> None:
    never = threading.Event()
    with LoopbackProvider() as provider:
        provider.script(Say(WORDS, hold_after=(30, never)), Say("Again: all of it."), Say("Yes."))
        with serving(server_url, tmp_path, provider=provider) as server:
            client, gpt = server.client(), openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)
            talk = ok(client.post("/api/conversations", json={}))["id"]
            stream = gpt.responses.create(**ASKED, conversation=talk)
            seen = [next(stream) for _ in range(34)]
            wait_until(lambda: on_disk(client, talk)[-1]["content"] == HALF, "the text to reach the disk")
            os.kill(server.child.pid, signal.SIGKILL)
            server.child.wait()
        never.set()
        assert "".join(event.delta for event in seen if event.type == "response.output_text.delta") == HALF
        id: str = seen[0].response.id  # type: ignore[union-attr]
        with serving(server_url, tmp_path, provider=provider) as server:
            client, gpt = server.client(), openai.OpenAI(base_url=f"{server.url}/v1", api_key="any", max_retries=0)
            rest = list(gpt.responses.retrieve(id, stream=True, starting_after=seen[-1].sequence_number))
            assert rest[-1].type == "response.failed"
            assert rest[-1].response.output_text == HALF
            assert [event.sequence_number for event in rest] == list(range(34, 34 + len(rest)))
            assert client.get(f"/api/chat/{talk}/stream").status_code == 204
            count = {"x-stainless-retry-count": "1"}
            *_, last = gpt.responses.create(**ASKED, conversation=talk, extra_headers=count)
            assert last.type == "response.completed"
            assert last.response.id == id, "the same exchange, answered at last"
            assert gpt.responses.retrieve(id).output_text == "Again: all of it."
            assert [one["content"] for one in on_disk(client, talk)] == ["Go on", "Again: all of it."]
            said = [("user", "Go on"), ("assistant", "Again: all of it."), ("user", "Thanks")]
            messages = [{"id": "x", "role": role, "parts": [{"type": "text", "text": text}]} for role, text in said]
            assert client.post("/api/chat", json={"id": talk, "messages": messages}).status_code == 200
            assert [one["content"] for one in on_disk(client, talk)][2:] == ["Thanks", "Yes."]
            assert ok(client.post(f"/api/conversations/{talk}/verify"))["ok"]
