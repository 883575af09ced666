"""Odd and invalid requests of clients: each is answered, or refused by its field, and never a fault."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx

from palaver.testing.providers import LoopbackProvider
from tests.server.compat.conftest import conversations, thread
from tests.server.conftest import Running

HI = {"role": "user", "content": "Hi"}
SAYS: Any = {"model": "chat", "messages": [HI]}
ASKS: Any = {"model": "chat", "input": "Hi"}
WRITES: Any = {"model": "chat", "max_tokens": 64, "messages": [HI]}
SHOWS: Any = {"id": "ui", "messages": [{"role": "user", "parts": [{"type": "text", "text": "Hi"}]}]}
PNG = "data:image/png;base64,@@@"


def user(*parts: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}]}


def given(*parts: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": list(parts)}]}


# A change to a valid request, and the field that the refusal names.
REFUSED: dict[str, tuple[Any, list[tuple[dict[str, Any], str]]]] = {
    "/v1/chat/completions": (
        SAYS,
        [
            ({"messages": None}, "messages"),
            ({"messages": []}, "messages"),
            ({"messages": [{"role": "user", "content": 5}]}, "messages.content"),
            ({"messages": [{"role": "robot", "content": "Hi"}]}, "messages.role"),
            ({"messages": [HI, {"role": "assistant", "content": "I"}]}, "messages"),
            ({"messages": [{"role": "tool", "tool_call_id": "c", "content": "r"}]}, "messages"),
            (user({"type": "input_audio", "input_audio": {}}), "messages.content"),
            (user({"type": "image_url", "image_url": {"url": ""}}), "messages.content.image_url.url"),
            (
                user({"type": "image_url", "image_url": {"url": "javascript:1"}}),
                "messages.content.image_url.url",
            ),
            (user({"type": "image_url", "image_url": {"url": PNG}}), "data"),
            (user({"type": "file", "file": {"file_data": "aGVsbG8="}}), "messages.content.file.file_data"),
            ({"model": None}, "model"),
            ({"n": 2}, "n"),
            ({"logprobs": True}, "logprobs"),
            ({"top_logprobs": 2}, "top_logprobs"),
            ({"audio": {"voice": "alloy"}}, "audio"),
            ({"functions": [{"name": "f"}]}, "functions"),
            ({"stream": "false"}, "stream"),
            ({"stream": True, "stream_options": "all"}, "stream_options"),
            ({"stream": True, "stream_options": {"include_usage": "no"}}, "stream_options.include_usage"),
            ({"store": "no"}, "store"),
            ({"metadata": ["x"]}, "metadata"),
            ({"metadata": {"conversation_id": ""}}, "metadata.conversation_id"),
            ({"metadata": {"conversation_id": 5}}, "metadata.conversation_id"),
            ({"tools": "all"}, "tools"),
            ({"tool_choice": ["f"]}, "tool_choice"),
        ],
    ),
    "/v1/responses": (
        ASKS,
        [
            ({"input": None}, "input"),
            ({"input": 5}, "input"),
            ({"input": [{"type": "item_reference", "id": "msg_x"}]}, "input"),
            ({"input": [{"type": "reasoning", "summary": []}]}, "input"),
            ({"input": [{"type": "function_call_output", "call_id": "c", "output": "r"}]}, "input"),
            (given({"type": "input_file", "file_data": "aGVsbG8="}), "input.content.file"),
            ({"conversation": {}}, "conversation"),
            ({"conversation": ""}, "conversation"),
            ({"conversation": 5}, "conversation"),
            ({"metadata": "x"}, "metadata"),
            ({"instructions": 5}, "instructions"),
            ({"store": "false"}, "store"),
            ({"stream": 1}, "stream"),
            ({"store": False, "background": True}, "background"),
            ({"store": False, "previous_response_id": "resp_x"}, "store"),
            ({"prompt": {"id": "pmpt_1"}}, "prompt"),
            ({"top_logprobs": 2}, "top_logprobs"),
            ({"tools": [{"type": "web_search"}]}, "tools"),
            ({"previous_response_id": 5}, "previous_response_id"),
        ],
    ),
    "/v1/messages": (
        WRITES,
        [
            ({"messages": []}, "messages"),
            ({"messages": [{"role": "user", "content": []}]}, "messages"),
            ({"messages": [{"role": "user", "content": None}]}, "messages.content"),
            ({"messages": [{"role": "system", "content": "Hi"}]}, "messages.role"),
            ({"messages": [HI, {"role": "assistant", "content": "I"}]}, "messages"),
            (user({"type": "image", "source": {"type": "file", "file_id": "f"}}), "messages.content.source"),
            (user({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "@"}}), "data"),
            ({"system": 5}, "system"),
            ({"stream": "true"}, "stream"),
            ({"metadata": {"conversation_id": ""}}, "metadata.conversation_id"),
            ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ],
    ),
    "/v1/messages/count_tokens": (WRITES, [({"messages": [{"role": "user", "content": []}]}, "messages")]),
    "/api/chat": (
        SHOWS,
        [
            ({"id": ""}, "id"),
            ({"id": None}, "id"),
            ({"messages": [{"role": "user"}]}, "messages.parts"),
            ({"messages": [{"role": "user", "parts": [{"type": "file", "url": "x.png"}]}]}, "messages.parts.url"),
            ({"trigger": "resume"}, "trigger"),
            ({"tools": []}, "tools"),
        ],
    ),
}


def test_what_is_wrong_is_refused_by_its_field(server: Running, provider: LoopbackProvider) -> None:
    wrong = []
    with server.client() as client:
        client.headers["X-Conversation-Id"] = "odd"
        for path, (right, changes) in REFUSED.items():
            for change, field in changes:
                answer = client.post(path, json={**right, **change})
                status = 422 if path.startswith("/api") else 400
                if answer.status_code != status or _field(path, answer) != field:
                    wrong.append((path, change, answer.status_code, answer.text))
    assert wrong == []
    assert provider.received == [], "and no model was asked"


def _field(path: str, answer: httpx.Response) -> str | None:
    """As each kind of client reads it; Anthropic's errors have it in their words."""
    body = answer.json()
    if path.startswith("/v1/messages"):
        return str(body["error"]["message"].partition(":")[0])
    found = body.get("field") if path.startswith("/api") else body["error"]["param"]
    return None if found is None else str(found)


ODD: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "/v1/chat/completions": (
        SAYS,
        [
            {"messages": [{"role": "system", "content": "A"}, {"role": "developer", "content": None}, HI]},
            {"messages": [{"role": "user", "content": ""}]},
            user(),
            user({"type": "text", "text": "a"}, {"type": "text", "text": "b"}),
            {"tools": [], "tool_choice": "none"},
            {
                "stop": ["x"],
                "max_completion_tokens": 5,
                "response_format": {"type": "json_object"},
                "unheard": {"of": 1},
            },
            {"seed": 2**70},
            {"metadata": None, "stream": None, "store": None, "stream_options": None, "n": None},
        ],
    ),
    "/v1/responses": (
        ASKS,
        [
            {"conversation": {"id": "mine"}},
            {"input": [{"type": None, "role": "user", "content": "Hi"}]},
            {"text": {"format": {"type": "json_object"}}, "reasoning": {"effort": "low"}, "include": ["unheard.of"]},
            {"store": False, "input": [HI, {"type": "reasoning", "id": "rs_1", "summary": []}, HI]},
            given({"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGVsbG8="}),
        ],
    ),
    "/v1/messages": (
        WRITES,
        [
            {"max_tokens": None},
            {"system": [{"type": "text", "text": "A", "cache_control": {"type": "ephemeral"}}]},
            {"stop_sequences": ["x"], "metadata": {"user_id": "u"}},
            {"messages": [HI, {"role": "user", "content": "Hello?"}]},
            user({"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "100 % né"}}),
        ],
    ),
    "/v1/messages/count_tokens": (WRITES, [{"max_tokens": None}, {"tools": [{"name": "f", "input_schema": {}}]}]),
    "/api/chat": (SHOWS, [{"trigger": "regenerate-message"}, {"messages": [{"role": "user", "parts": []}]}]),
}


def test_what_is_only_odd_is_answered_with_memory_and_without(server: Running) -> None:
    wrong = []
    with server.client() as client:
        for path, (right, changes) in ODD.items():
            for n, change in enumerate(changes):
                for headers in ({}, {"X-Conversation-Id": f"odd {n}"}):
                    answer = client.post(path, json={**right, **change}, headers=headers)
                    if answer.status_code != 200:
                        wrong.append((path, change, headers, answer.status_code, answer.text))
    assert wrong == []


def test_no_body_is_a_fault(server: Running) -> None:
    """Too deep, half a character, no text, no object."""
    deep, deeper = ("[" * depth + "]" * depth for depth in (500, 100_000))
    nested = [f'{{"model": "chat", "messages": [], "input": "Hi", "id": "x", "more": {one}}}' for one in (deep, deeper)]
    bodies = (*nested, '{"model": "\\ud800"}', b'{"model": "\xff"}', "[1]", "nul")
    paths = ("chat/completions", "responses", "responses/input_tokens", "conversations", "messages")
    with server.client() as client:
        for path in (*(f"/v1/{one}" for one in paths), "/v1/messages/count_tokens", "/api/chat"):
            for body in bodies:
                assert client.post(path, content=body).status_code == 400, (path, body[:40])
        for one in (deep, deeper):
            call = {"name": "f", "arguments": f'{{"a": {one}}}'}
            history = [HI, {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": call}]}]
            history.append({"role": "tool", "tool_call_id": "c", "content": "r"})
            answer = client.post("/v1/chat/completions", json={"model": "chat", "messages": history})
            assert answer.is_success, "arguments are the model's own affair"
        for name in ("msg_x", "fc_01K00000000000000000000000_²", "fc_01K00000000000000000000000_" + "9" * 400, "²"):
            talk = client.post("/v1/conversations", json={}).json()["id"]
            for method in ("GET", "DELETE"):
                assert client.request(method, f"/v1/conversations/{talk}/items/{name}").status_code == 404
            assert client.get(f"/v1/conversations/{talk}/items", params={"after": name}).status_code == 404


def test_odd_metadata_of_a_turn_is_not_a_fault_either(server: Running) -> None:
    """The marks of an exchange are metadata, and every client that stores a turn can set metadata."""
    with server.client() as client:
        marks = ({"own": "x"}, {"own": -3}, {"own": 10**9}, {"response": "x"}, {"shape": 3, "mark": []}, "x", [])

        def ask(mark: object) -> None:
            talk = client.post("/api/conversations", json={}).json()["id"]
            said = {**HI, "metadata": {"exchange": mark}}
            turn = client.post(f"/api/conversations/{talk}/turns", json=said).json()["id"]
            for path in ("", "/input_items", "/cancel"):
                method = "POST" if path == "/cancel" else "GET"
                answer = client.request(method, f"/v1/responses/resp_{talk}{turn}{path}")
                assert answer.status_code in (200, 404), (mark, path, answer.text)

        with ThreadPoolExecutor(len(marks)) as pool:  # cancelling waits for an answer that never comes
            assert list(pool.map(ask, marks)) == [None] * len(marks)


def test_a_request_that_is_refused_leaves_nothing(server: Running) -> None:
    with server.client() as client:
        assert client.post("/v1/responses", json={**ASKS, "conversation": {}}).status_code == 400
        assert client.post("/v1/chat/completions", json={**SAYS, "store": "no"}).status_code == 400
        assert conversations(server) == 0
        named = {**SAYS, "metadata": {"conversation_id": "mine"}}
        assert client.post("/v1/chat/completions", json=named).is_success
        assert client.post("/v1/chat/completions", json={**named, "stream_options": "x"}).status_code == 400
    assert thread(server, "mine") == [("user", "Hi"), ("assistant", "Yes.")]
