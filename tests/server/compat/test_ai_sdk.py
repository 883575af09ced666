"""The AI SDK's own transport under Node, and what it would not show."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

import palaver
from palaver.testing.providers import Fail, LoopbackProvider, Say
from tests.server.compat.conftest import on_each_engine, thread, turns_of
from tests.server.conftest import Running, running
from tests.support import node

SDK = ("ai@7.0.169",)
SCRIPT = Path(__file__).with_name("ai_sdk.mjs")


@pytest.fixture(scope="session")
def packages() -> Path:
    try:
        return node.installed("ai-sdk", *SDK)
    except node.NoNode as reason:
        pytest.skip(f"the AI SDK is not tested: {reason}")


def scene(server: Running, packages: Path, name: str, chat: str, **more: Any) -> Any:
    told = node.run(packages, SCRIPT, PALAVER_URL=server.url, PALAVER_SCENE=name, PALAVER_CHAT=chat, **more)
    return json.loads(told)


def text_of(message: Any) -> str:
    return "".join(part["text"] for part in message["parts"] if part["type"] == "text")


@on_each_engine
def test_a_conversation_with_memory(server: Running, provider: LoopbackProvider, packages: Path) -> None:
    provider.script(Say("Noted."), Say("Rice."), Say("Bread."))
    told = scene(server, packages, "conversation", "page/1")
    assert [text_of(told[name]) for name in ("first", "answer", "again")] == ["Noted.", "Rice.", "Bread."]
    assert [text for _, text in thread(server, "page/1")] == [
        "I am allergic to peanuts.", "Noted.", "What can I eat?", "Bread.",
    ]  # fmt: skip
    assert "peanuts" in json.dumps(provider.bodies[1]["messages"])
    (memory,) = [part for part in told["answer"]["parts"] if part["type"] == "data-memory"]
    assert memory["data"]["tokens"] > 0


@on_each_engine
def test_a_client_that_hangs_up_comes_back_to_all_of_it(
    server: Running, provider: LoopbackProvider, packages: Path, switch: tuple[str, threading.Event]
) -> None:
    url, go_on = switch
    words = [f"word{n} " for n in range(20)]
    provider.script(Say(words, hold_after=(10, go_on)))
    told = scene(server, packages, "resume", "page-2", PALAVER_GO_ON=url)
    assert told["idle"] is None
    assert text_of(told["answer"]) == "".join(words)
    assert told["after"] is None
    assert len(turns_of(server, "page-2")) == 2


@pytest.fixture
def switch() -> Iterator[tuple[str, threading.Event]]:
    """Yield an address. A request to it lets the model continue."""
    called = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            called.set()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as one:
        threading.Thread(target=one.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{one.server_port}/", called
        one.shutdown()


def test_tools_that_the_page_runs(server: Running, provider: LoopbackProvider, packages: Path) -> None:
    provider.script(Say("Let me look.", calls=[("weather", {})]), Say("No."))
    told = scene(server, packages, "tools", "page-3")
    assert told["called"]["parts"][-1] | {"toolCallId": ""} == {
        "type": "tool-weather", "toolCallId": "", "state": "input-available", "input": {},
    }  # fmt: skip
    assert text_of(told["answer"]) == "No."
    assert [turn.role for turn in turns_of(server, "page-3")] == ["user", "assistant", "tool", "assistant"]
    assert provider.bodies[-1]["messages"][-1]["content"] == '{"sky":"blue"}'


# ---- frames --------------------------------------------------------------------------------------------------------


def user(text: str) -> dict[str, Any]:
    return {"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]}


def frames(response: httpx.Response) -> list[Any]:
    assert response.status_code == 200, response.text
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def look_up(word: str) -> Any:
    """Look a word up."""
    return palaver.ToolOutput(content=f"{word}: page 7", sources=[{"url": "https://example.org/7", "title": "Seven"}])


def test_tools_and_sources_of_the_server_are_shown_and_not_taken_for_the_page_s(
    settings: Any, provider: LoopbackProvider
) -> None:
    provider.script(Say("First.", calls=[("look_up", {"word": "rain"})]), Say("Page 7."), Say("Yes."))
    with running(settings(generate={"tools": [look_up]})) as server, server.client() as client:
        response = client.post("/api/chat", json={"id": "x", "messages": [user("Rain?")]})
        told = frames(response)
        assert response.headers["x-vercel-ai-ui-message-stream"] == "v1"
        assert [one["type"] for one in told] == [
            "start", "data-memory", "start-step", "text-start", "text-delta", "text-end", "tool-input-available",
            "tool-output-available", "finish-step", "start-step", "text-start", "text-delta", "text-delta", "text-end",
            "source-url", "finish-step", "finish",
        ]  # fmt: skip
        call = told[6]["toolCallId"]
        assert told[7] == {"type": "tool-output-available", "toolCallId": call, "output": "rain: page 7"}
        tool = {"type": "tool-look_up", "toolCallId": call, "state": "output-available"}
        parts = [
            {"type": "step-start"},
            {"type": "text", "text": "First."},
            {**tool, "input": {"word": "rain"}, "output": "rain: page 7"},
            {"type": "step-start"},
            {"type": "text", "text": "Page 7."},
        ]
        again = [user("Rain?"), {"id": "a", "role": "assistant", "parts": parts}, user("Sure?")]
        frames(client.post("/api/chat", json={"id": "x", "messages": again}))
        stored = turns_of(server, "x", include_superseded=True)
    assert [turn.text for turn in stored if turn.role == "user"] == ["Rain?", "Sure?"]
    assert all(turn.active for turn in stored)


def test_what_was_recalled_is_told_with_its_words(server: Running, provider: LoopbackProvider) -> None:
    with server.client() as client:
        talk = client.post("/api/conversations", json={"key": "long"}).json()["id"]
        old = [{"role": "user", "content": "My blood type is AB negative."}]
        old += [{"role": "user", "content": f"Filler {n} about the garden. " * 40} for n in range(60)]
        client.post(f"/api/conversations/{talk}/turns/batch", json={"turns": old})
        told = frames(client.post("/api/chat", json={"id": talk, "message": user("Which blood type do I have?")}))
    memory = next(one["data"] for one in told if one["type"] == "data-memory")
    assert "My blood type is AB negative." in [one["text"] for one in memory["recalled"]]


def test_only_the_last_message_may_be_sent_and_an_edit_replaces(server: Running) -> None:
    with server.client() as client:
        for text in ("One", "Two"):
            frames(client.post("/api/chat", json={"id": "short", "message": user(text)}))
        assert [text for _, text in thread(server, "short")] == ["One", "Yes.", "Two", "Yes."]
        edited = {"id": "short", "messages": [user("Uno")], "trigger": "submit-message", "messageId": "u"}
        frames(client.post("/api/chat", json=edited))
    assert [text for _, text in thread(server, "short")] == ["Uno", "Yes."]


def test_refusals_and_failures(server: Running, provider: LoopbackProvider) -> None:
    with server.client() as client:
        assert client.post("/api/chat", json={"id": "x", "messages": []}).status_code == 422
        assert client.post("/api/chat?own=1", content=b"{").status_code == 400  # the client's own parameter is ignored
        assert client.get("/api/chat/nowhere/stream?own=1").status_code == 204
        assert client.post("/api/chat", content=b"{").status_code == 400
        assert client.get("/api/chat/nowhere/stream").status_code == 204
        provider.script(Say("One two three", cut_after=2), *[Fail(400)] * 3)
        broken = frames(client.post("/api/chat", json={"id": "x", "messages": [user("Hi")]}))
        assert [one["type"] for one in broken][-2:] == ["text-end", "error"]
        refused = frames(client.post("/api/chat", json={"id": "x", "messages": [user("Hi")]}))
        assert [one["type"] for one in refused] == ["start", "data-memory", "error"]
        assert refused[-1]["errorText"] == "openai:test refused the request (status 400)"


def test_another_process_tells_an_answer_from_the_log(server: Running, provider: LoopbackProvider) -> None:
    """Clear the memory of this server, as if the answer had never been here."""
    held = threading.Event()
    words = [f"word{n} " for n in range(20)]
    provider.script(Say(words, hold_after=(10, held)))
    with server.client() as client, server.client() as other:
        body = {"id": "elsewhere", "messages": [user("Go on")]}
        with client.stream("POST", "/api/chat", json=body) as asked:
            for line in asked.iter_lines():
                if '"word3 "' in line:
                    break
            server.app.state.services.recent_exchanges.clear()
            with other.stream("GET", "/api/chat/elsewhere/stream") as resumed:
                assert resumed.status_code == 200
                held.set()
                lines = [line.removeprefix("data: ") for line in resumed.iter_lines() if line.startswith("data: ")]
    told = [json.loads(line) for line in lines[:-1]]
    assert "".join(one["delta"] for one in told if one["type"] == "text-delta") == "".join(words)
    assert [one["type"] for one in told if one["type"] != "text-delta"][-3:] == ["text-end", "finish-step", "finish"]
