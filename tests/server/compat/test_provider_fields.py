"""Fields of a request reach the provider only if they are on the list of their protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from palaver.server.settings import ServerSettings
from palaver.testing.providers import LoopbackProvider
from tests.server.conftest import ok, running

HI = {"role": "user", "content": "Hi"}
PROTOCOLS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": [HI]}),
    "responses": ("/v1/responses", {"input": "Hi", "store": False}),
    "messages": ("/v1/messages", {"messages": [HI], "max_tokens": 9}),
}
# Fields that cost more, name an account, or choose where the provider sends the request.
IGNORED: dict[str, dict[str, Any]] = {
    "chat": {
        "service_tier": "priority", "user": "ada", "safety_identifier": "ada", "prompt_cache_key": "k",
        "prompt_cache_retention": "24h", "prediction": {"type": "content", "content": "x"}, "moderation": {"a": 1},
        "models": ["a", "b"], "provider": {"order": ["x"]}, "route": "fallback", "transforms": ["middle-out"],
        "plugins": [{"id": "web"}], "guided_json": {}, "metadata": {"team": "a"}, "extra_headers": {"a": "b"},
    },
    "responses": {
        "service_tier": "priority", "user": "ada", "safety_identifier": "ada", "prompt_cache_key": "k",
        "max_tool_calls": 9, "moderation": {"a": 1}, "access_programs": ["x"], "image": {"a": 1},
        "metadata": {"team": "a"}, "include": ["reasoning.encrypted_content"], "truncation": "auto",
    },
    "messages": {
        "service_tier": "auto", "inference_geo": "us", "speed": "fast", "fallbacks": ["x"], "betas": ["x"],
        "user_profile_id": "x", "workspace_id": "x", "diagnostics": {"a": 1}, "metadata": {"user_id": "ada"},
        "fallback_credit_token": "x", "thread": {"id": "x"},
    },
}  # fmt: skip
PASSED: dict[str, dict[str, Any]] = {
    "chat": {
        "temperature": 0.5, "top_p": 0.5, "max_completion_tokens": 9, "stop": ["x"], "seed": 7, "logit_bias": {"1": 1},
        "frequency_penalty": 0.1, "presence_penalty": 0.1, "reasoning_effort": "low", "verbosity": "low",
    },
    "responses": {
        "temperature": 0.5, "top_p": 0.5, "max_output_tokens": 9, "reasoning": {"effort": "low"},
        "text": {"verbosity": "low"},
    },
    "messages": {
        "temperature": 0.5, "top_p": 0.5, "top_k": 5, "stop_sequences": ["x"],
        "thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "low"},
    },
}  # fmt: skip
# Tools that the provider would run, on the operator's account.
REFUSED: dict[str, list[dict[str, Any]]] = {
    "chat": [
        {"web_search_options": {}},
        {"tools": [{"type": "web_search"}]},
        {"modalities": ["text", "audio"]},
    ],
    "responses": [
        *({"tools": [{"type": kind}]} for kind in ("web_search", "code_interpreter", "computer_use_preview", "mcp")),
        {"tools": [{"type": "file_search", "vector_store_ids": ["vs_1"]}]},
        {"tools": [{"type": "image_generation"}]},
        {"prompt": {"id": "pmpt_1"}},
    ],
    "messages": [
        {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
        {"tools": [{"type": "computer_20250124", "name": "computer"}]},
        {"mcp_servers": [{"type": "url", "url": "https://example.org", "name": "x"}]},
        {"container": {"skills": []}},
    ],
}
EACH = pytest.mark.parametrize("protocol", list(PROTOCOLS))
NAMED = pytest.mark.parametrize("name", [None, "kept"])


def post(client: httpx.Client, protocol: str, name: str | None, model: str | None = None, **more: Any) -> Any:
    path, body = PROTOCOLS[protocol]
    headers = {"X-Conversation-Id": name} if name else {}
    return client.post(path, json={"model": model or protocol, **body, **more}, headers=headers)


@EACH
@NAMED
def test_fields_that_are_not_on_the_list_do_not_reach_the_provider(
    client: httpx.Client, provider: LoopbackProvider, protocol: str, name: str | None
) -> None:
    ok(post(client, protocol, name))
    ok(post(client, protocol, name and "another", **IGNORED[protocol], **PASSED[protocol]))
    plain, sent = provider.bodies
    wanted = {**plain, **PASSED[protocol]}
    assert sent == wanted


@EACH
def test_the_answer_names_the_fields_that_were_ignored(client: httpx.Client, protocol: str) -> None:
    answer = post(client, protocol, None, service_tier="priority", models=["x"])
    assert answer.headers["X-Ignored-Fields"] == "models, service_tier"
    assert "X-Ignored-Fields" not in post(client, protocol, None, temperature=0.5).headers


@EACH
def test_unknown_parts_of_a_known_field_do_not_reach_the_provider(
    client: httpx.Client, provider: LoopbackProvider, protocol: str
) -> None:
    given = {
        "chat": {"response_format": {"type": "json_object", "tier": "x"}},
        "responses": {"reasoning": {"effort": "low", "pro": 1}, "text": {"verbosity": "low", "tier": "x"}},
        "messages": {"thinking": {"type": "disabled", "tier": "x"}, "output_config": {"effort": "low", "tier": "x"}},
    }
    ok(post(client, protocol, None, **given[protocol]))
    for field, parts in given[protocol].items():
        kept = {name: value for name, value in parts.items() if name not in ("tier", "pro")}
        assert provider.bodies[0][field] == kept


@EACH
@NAMED
def test_tools_that_a_provider_runs_are_refused(
    client: httpx.Client, provider: LoopbackProvider, protocol: str, name: str | None
) -> None:
    for given in REFUSED[protocol]:
        answer = post(client, protocol, name, **given)
        assert answer.status_code == 400, given
        assert next(iter(given)) in answer.json()["error"]["message"], answer.text
    assert provider.received == []
    assert ok(client.get("/api/conversations"))["items"] == []


def test_the_operator_can_add_fields(settings: Callable[..., ServerSettings], provider: LoopbackProvider) -> None:
    with running(settings(provider_fields=("service_tier", "user"))) as server, server.client() as client:
        for name in (None, "kept"):
            answer = post(client, "chat", name, service_tier="flex", user="ada", route="x")
            assert answer.headers["X-Ignored-Fields"] == "route"
            assert (provider.bodies[-1]["service_tier"], provider.bodies[-1]["user"]) == ("flex", "ada")
            assert "route" not in provider.bodies[-1]


def test_what_palaver_decides_cannot_be_passed(settings: Callable[..., ServerSettings]) -> None:
    with pytest.raises(ValueError, match="provider_fields"):
        settings(provider_fields=("tools",)).check()


@pytest.mark.parametrize("model", ["responses", "messages"])
def test_another_protocols_model_gets_common_fields_only(
    client: httpx.Client, provider: LoopbackProvider, model: str
) -> None:
    ok(post(client, "chat", None, model, **IGNORED["chat"]))
    ok(post(client, "chat", None, model))
    assert provider.bodies[0] == provider.bodies[1]


def test_rest_settings_hold_nothing_else(client: httpx.Client, provider: LoopbackProvider) -> None:
    talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
    for settings in ({"service_tier": "priority"}, {"reasoning": {"effort": "low", "tier": "x"}}, {"tools": []}):
        assert client.post(f"{talk}/generate", json={"message": "Hi", "settings": settings}).status_code == 422
    assert provider.received == []
    ok(client.post(f"{talk}/generate", json={"message": "Hi", "settings": {"reasoning": {"effort": "low"}}}))
    assert provider.bodies[-1]["reasoning"] == {"effort": "low"}


def test_blocks_of_reasoning_hold_only_their_own_fields(client: httpx.Client, provider: LoopbackProvider) -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s", "tier": "x"}
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    said = [
        HI,
        {"role": "assistant", "content": [thinking, call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]},
    ]
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    ok(post(client, "messages", None, messages=said, tools=tools))
    assert "Hm." in str(provider.bodies[0])
    assert "tier" not in str(provider.bodies[0])


def test_items_of_a_provider_run_tool_do_not_reach_the_provider(
    client: httpx.Client, provider: LoopbackProvider
) -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "secret-query"}}
    ok(post(client, "responses", None, input=[HI, search, {"role": "user", "content": "And?"}]))
    assert "web_search_call" not in str(provider.bodies[0])
