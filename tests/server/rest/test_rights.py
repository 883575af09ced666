"""A request is refused before it changes anything, or it is not refused at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from palaver.server.settings import ServerSettings
from palaver.testing.providers import LoopbackProvider, Say
from tests.server.conftest import Running, events, ok, running


@pytest.fixture
def server_url(database_url: str) -> str:
    """On each engine in turn."""
    return database_url


@pytest.fixture
def provider() -> Iterator[LoopbackProvider]:
    with LoopbackProvider() as one:
        yield one


@pytest.fixture
def guarded(settings: Callable[..., ServerSettings], provider: LoopbackProvider) -> Iterator[Running]:
    """A server that requires authentication, and has a model."""
    secret = "a-secret-of-at-least-thirty-two-bytes"
    models: Any = {"model": "chat", "models": provider.models(), "generate": {"titles": False}}
    with running(settings(require_auth=True, jwt_secret=secret, **models)) as one:
        yield one


@pytest.fixture
def group(guarded: Running) -> Iterator[tuple[httpx.Client, str]]:
    """A participant of a conversation that another user owns, and its path."""
    with guarded.client(guarded.key(user="ada")) as ada, guarded.client(guarded.key(user="bob")) as bob:
        yield (
            bob,
            f"/api/conversations/{ok(ada.post('/api/conversations', json={'participants': ['ada', 'bob']}))['id']}",
        )


def test_a_participant_gets_the_answer(group: tuple[httpx.Client, str], provider: LoopbackProvider) -> None:
    bob, talk = group
    provider.script(Say("Hello Bob.", prompt_tokens=40), Say("Hello again."))
    answer = ok(bob.post(f"{talk}/generate", json={"message": "Hello"}))
    assert answer["turn"]["content"] == "Hello Bob."
    assert answer["usage"]["prompt"] == 40
    assert answer["request"] is None, "the record of a request is for the owner"
    again = ok(bob.post(f"{talk}/turns/{answer['turn']['id']}/regenerate", json={}))
    assert again["turn"]["content"] == "Hello again."
    assert bob.get(f"{talk}/requests").status_code == 403


def test_a_participant_gets_the_streamed_answer(group: tuple[httpx.Client, str], provider: LoopbackProvider) -> None:
    bob, talk = group
    provider.script(Say("Hello Bob."))
    with bob.stream("POST", f"{talk}/generate", json={"message": "Hello", "stream": True}) as response:
        told = list(events(response))
    assert told[-1].kind == "done"
    assert told[-1].data["turn"]["content"] == "Hello Bob."


def test_items_with_a_system_message_leave_no_empty_conversation(guarded: Running) -> None:
    with guarded.client(guarded.key()) as client:
        items = [{"type": "message", "role": "system", "content": "obey"}]
        assert client.post("/v1/conversations", json={"items": items}).status_code == 403
        assert ok(client.get("/api/conversations"))["items"] == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "store": True}),
        ("/v1/responses", {"input": "hi"}),
    ],
)
def test_a_key_that_cannot_read_asks_no_model_and_stores_nothing(
    guarded: Running, provider: LoopbackProvider, path: str, body: dict[str, Any]
) -> None:
    with guarded.client(guarded.key(rights="write")) as client:
        assert client.post(path, json={"model": "chat", **body}).status_code == 403
    with guarded.client(guarded.key()) as client:
        assert ok(client.get("/api/conversations"))["items"] == []
    assert provider.received == []


def test_a_response_is_deleted_by_one_who_does_not_own_its_conversation(
    guarded: Running, provider: LoopbackProvider
) -> None:
    provider.script(Say("Hello Ada."))
    with guarded.client(guarded.key(user="ada")) as ada:
        made = ok(ada.post("/v1/responses", json={"model": "chat", "input": "Hello"}))
        with guarded.client(guarded.key(user="bob", visibility="tenant")) as bob:
            assert ok(bob.delete(f"/v1/responses/{made['id']}"))["deleted"] is True
        assert ada.get(f"/v1/responses/{made['id']}").status_code == 404


def test_a_user_writes_under_the_own_name(group: tuple[httpx.Client, str], guarded: Running) -> None:
    bob, talk = group
    refused = bob.post(f"{talk}/turns", json={"role": "user", "content": "I am Ada", "actor": "ada"})
    assert refused.status_code == 403
    assert refused.json()["right"] == "act_for"
    assert ok(bob.post(f"{talk}/turns", json={"role": "user", "content": "I am Bob"}))["actor"] == "bob"
    answer = ok(bob.post(f"{talk}/turns", json={"role": "assistant", "content": "Hi", "actor": "helper"}))
    assert answer["actor"] == "helper"
    with guarded.client(guarded.key(user="ada")) as ada:
        first = ok(ada.post(f"{talk}/turns", json={"role": "user", "content": "I am Ada"}))
    edited = ok(bob.post(f"{talk}/turns/{first['id']}/edit", json={"content": "I was Ada"}))
    assert edited["actor"] == "bob", "the editor signs"
