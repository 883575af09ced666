"""Budgets over HTTP: each protocol refuses in its own words, before a model is asked; operators see what is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from palaver.testing.providers import LoopbackProvider, Say
from tests.server.conftest import Running, ok, running

EVERYTHING = "read write generate system act_for admin"
QUESTION: Any = [{"role": "user", "content": "b"}]
UI_MESSAGE = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "b"}]}
PRICE = {"input": 1_000_000.0, "output": 1_000_000.0}  # a dollar per token


@pytest.fixture
def provider() -> Iterator[LoopbackProvider]:
    with LoopbackProvider() as found:
        found.script(*[Say("fine")] * 9)
        yield found


@pytest.fixture
def server(settings: Any, provider: LoopbackProvider) -> Iterator[Running]:
    models = {"chat": provider.models()["chat"], "dear": {**provider.models()["chat"], "price": PRICE}}
    chosen = settings(
        model="chat",
        models=models,
        require_auth=True,
        jwt_secret="x" * 32,
        generate={"titles": False},
        budgets={"key": {"requests_per_day": 1}},
    )
    with running(chosen) as found:
        yield found


def spent_key(server: Running, provider: LoopbackProvider) -> str:
    """A key whose one request was made."""
    key = server.key(rights=EVERYTHING)
    with server.client(key) as client:
        ok(client.post("/v1/chat/completions", json={"model": "chat", "messages": [{"role": "user", "content": "a"}]}))
    assert len(provider.received) == 1
    return key


def test_rest_refuses_with_a_problem_document_and_headers(server: Running, provider: LoopbackProvider) -> None:
    with server.client(spent_key(server, provider)) as client:
        talk = ok(client.post("/api/conversations", json={}))["id"]
        for streamed in (False, True):
            reply = client.post(f"/api/conversations/{talk}/generate", json={"message": "b", "stream": streamed})
            assert reply.status_code == 429
            problem = reply.json()
            assert problem["type"] == "urn:palaver:problem:budget-exceeded"
            assert (problem["kind"], problem["measure"], problem["period"]) == ("key", "requests", "day")
            assert (problem["limit"], problem["used"]) == (1, 1)
            assert 0 < int(reply.headers["Retry-After"]) <= 86_400
            assert reply.headers["RateLimit-Policy"] == '"key-requests-day";q=1;w=86400'
            assert reply.headers["RateLimit"].startswith('"key-requests-day";r=0;t=')
        assert ok(client.get(f"/api/conversations/{talk}/turns"))["items"] == []
    assert len(provider.received) == 1


def test_every_protocol_refuses_in_its_own_format(server: Running, provider: LoopbackProvider) -> None:
    key = spent_key(server, provider)
    chat = openai.OpenAI(base_url=f"{server.url}/v1", api_key=key)
    with pytest.raises(openai.RateLimitError) as refused:
        chat.chat.completions.create(model="chat", messages=QUESTION)
    assert refused.value.code == "insufficient_quota"
    with pytest.raises(openai.RateLimitError):
        chat.chat.completions.create(model="chat", messages=QUESTION, stream=True)
    with pytest.raises(openai.RateLimitError):
        chat.responses.create(model="chat", input="b", store=True)
    messages = anthropic.Anthropic(base_url=server.url, auth_token=key)
    with pytest.raises(anthropic.RateLimitError) as told:
        messages.messages.create(model="chat", max_tokens=10, messages=QUESTION)
    assert "this key's budget allows 1 requests per day" in str(told.value)
    with server.client(key) as client:
        reply = client.post(
            "/api/chat",
            json={"id": "c", "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "b"}]}]},
        )
        assert reply.status_code == 429
        assert ok(client.get("/api/conversations"))["items"] == []
    assert len(provider.received) == 1  # none of the SDKs came again


def test_money_is_refused_with_402_and_an_unknown_price_too(settings: Any, provider: LoopbackProvider) -> None:
    models = {"chat": provider.models()["chat"], "dear": {**provider.models()["chat"], "price": PRICE}}
    limits = {"tenant": {"dollars_per_month": 50}}
    with running(settings(model="dear", models=models, budgets=limits)) as server, server.client() as client:
        talk = ok(client.post("/api/conversations", json={}))["id"]
        unknown = client.post(f"/api/conversations/{talk}/generate", json={"message": "b", "model": "chat"})
        assert (unknown.status_code, unknown.json()["type"]) == (402, "urn:palaver:problem:price-unknown")
        assert unknown.json()["model"]
        dear = client.post(f"/api/conversations/{talk}/generate", json={"message": "b", "settings": {"max_tokens": 60}})
        assert (dear.status_code, dear.json()["measure"]) == (402, "dollars")
        client.headers["X-Conversation-Id"] = "other"
        through = client.post(
            "/v1/messages", json={"model": "chat", "max_tokens": 5, "messages": [{"role": "user", "content": "b"}]}
        )
        assert (through.status_code, through.json()["error"]["type"]) == (402, "billing_error")
    assert provider.received == []


def test_budgets_are_seen_and_set_over_http_and_in_metrics(server: Running, provider: LoopbackProvider) -> None:
    key = spent_key(server, provider)
    with server.client(key) as client:
        (line,) = ok(client.get("/api/budgets"))["items"]
        assert (line["kind"], line["limit"], line["used"], line["left"]) == ("key", 1, 1, 0)
        assert line["resets_at"].endswith("00:00:00Z")
        set_ = client.put("/api/budgets", json={"kind": "key", "name": line["name"], "limits": {"requests_per_day": 2}})
        assert ok(set_)["items"][0]["left"] == 1
        ok(client.post("/v1/chat/completions", json={"model": "chat", "messages": [{"role": "user", "content": "b"}]}))
        refused = client.put("/api/budgets", json={"kind": "tenant", "limits": {"requests_per_day": 2}})
        assert (refused.status_code, refused.json()["field"]) == (422, "kind")
    user = server.key(user="bob")
    with server.client(user) as client:
        assert client.put("/api/budgets", json={"kind": "user", "name": "bob", "limits": {}}).status_code == 403
        assert client.get("/api/budgets", params={"user": "ada"}).status_code == 403
    told = server.app.state.services.metrics.render(None).decode()
    assert 'palaver_budget_spent_total{measure="requests"} 2.0' in told


def test_embeddings_count_too(settings: Any) -> None:
    limits = {"tenant": {"tokens_per_day": 8}}
    with running(settings(embedder="local", budgets=limits)) as server, server.client() as client:
        embed = {"model": "local", "input": "a few words here"}
        ok(client.post("/v1/embeddings", json=embed))
        assert client.post("/v1/embeddings", json={**embed, "input": "many words " * 9}).status_code == 429
        assert ok(client.get("/api/budgets"))["items"][0]["used"] == 5
