"""Conversations as resources, and prompts to continue them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference

from palaver.conversations.store import Store
from palaver.server.mcp import resources
from tests.server.mcp.helpers import Calls

ON_BOTH = pytest.mark.usefixtures("database_url")


async def read(client: Calls, uri: str) -> Any:
    (content,) = (await client.read_resource(uri)).contents
    assert (content.uri, content.mime_type) == (uri, "application/json")
    return json.loads(content.text)


@ON_BOTH
async def test_conversations_are_listed_page_by_page(client: Calls, store: Store) -> None:
    made = [(await store.conversation(f"talk/{n}")).id for n in range(resources.LISTED + 7)]
    first = await client.list_resources()
    assert len(first.resources) == resources.LISTED
    rest = await client.list_resources(cursor=first.next_cursor)
    assert rest.next_cursor is None
    listed = [one.uri for one in first.resources + rest.resources]
    assert sorted(listed) == sorted(f"palaver://conversations/{id}" for id in made)
    assert first.resources[0].name.startswith("talk/")
    with pytest.raises(MCPError):
        await client.list_resources(cursor="not one of ours")


@ON_BOTH
async def test_a_conversation_is_read_as_messages_and_its_pages_join(client: Calls, store: Store) -> None:
    talk = await store.conversation("trip", title="Lisbon")
    await talk.append_many([{"role": "user", "content": f"turn {n}"} for n in range(120)])
    await talk.append("assistant", "", tool_calls=[{"id": "c", "name": "look", "arguments": {"q": "x"}}])
    await talk.append("tool", "", tool_results=[{"id": "c", "content": "found"}])
    uri: str | None = f"palaver://conversations/{talk.id}"
    seen: list[str] = []
    while uri is not None:
        page = await read(client, uri)
        assert page["conversation"]["title"] == "Lisbon"
        seen = [one["content"] for one in page["messages"]] + seen
        uri = page["older"]
    assert seen[:120] == [f"turn {n}" for n in range(120)]
    assert seen[120:] == ['[calls look {"q":"x"}]', "[result found]"]


async def test_one_turn_is_read_whole(client: Calls, store: Store) -> None:
    talk = await store.conversation("trip")
    turn = await talk.append("user", "peanuts " * 50_000)
    whole = await read(client, f"palaver://conversations/{talk.id}/turns/{turn.id}")
    assert whole["content"] == turn.content


async def test_the_tokens_of_a_page_are_limited_but_it_has_at_least_one_turn(
    store: Store,
) -> None:
    client = Calls(store, page_tokens=50)
    talk = await store.conversation("trip")
    assert (await read(client, f"palaver://conversations/{talk.id}"))["messages"] == []
    await talk.append_many([{"role": "user", "content": "word " * n} for n in (10, 100, 20, 25)])
    sizes: list[int] = []
    uri: str | None = f"palaver://conversations/{talk.id}"
    while uri is not None:
        page = await read(client, uri)
        sizes.append(len(page["messages"]))
        uri = page["older"]
    assert sizes == [2, 1, 1]


@pytest.mark.parametrize(
    "uri",
    [
        "palaver://conversations/00000000000000000000000000",
        "palaver://conversations/",
        "palaver://conversations/../secrets",
        "palaver://conversations/{id}/turns/00000000000000000000000000",
        "palaver://conversations/{id}?limit=many",
        "palaver://conversations/{id}?offset=3",
        "file:///etc/passwd",
    ],
)
async def test_what_is_not_there_is_not_found(client: Calls, store: Store, uri: str) -> None:
    talk = await store.conversation("trip")
    with pytest.raises(MCPError) as refused:
        await client.read_resource(uri.replace("{id}", talk.id))
    assert refused.value.error.code == -32602  # what 2026-07-28 calls it


async def test_templates_are_those_that_are_read(client: Calls) -> None:
    listed = (await client.list_resource_templates()).resource_templates
    assert [one.uri_template for one in listed] == list(resources.TEMPLATES)


# ---- prompts -------------------------------------------------------------------------------------------------------


async def test_a_prompt_continues_a_conversation(client: Calls, store: Store) -> None:
    talk = await store.conversation("trip")
    await talk.append("user", "We leave for Lisbon on Friday.")
    await talk.append("assistant", "Have a good trip!")
    named = [one.name for one in (await client.list_prompts()).prompts]
    assert named == ["continue_conversation", "continue_latest"]
    for name, given in (("continue_conversation", {"conversation": "trip"}), ("continue_latest", {})):
        prompt = await client.get_prompt(name, {**given, "message": "When do we leave?"})
        assert [one.role for one in prompt.messages][-3:] == ["user", "assistant", "user"]
        assert prompt.messages[-1].content.text.endswith("When do we leave?")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("continue_conversation", {}),
        ("continue_conversation", {"conversation": "nowhere"}),
        ("continue_conversation", {"conversation": "trip", "tokens": "9"}),
        ("continue_conversation", {"conversation": "trip", "token_budget": "many"}),
        ("continue_conversation", {"conversation": "trip", "token_budget": "1"}),
        ("continue_conversation", {"conversation": "trip", "token_budget": "00000000199999999999999"}),
        ("no_such_prompt", {}),
    ],
)
async def test_a_prompt_that_cannot_be_made_says_why(
    client: Calls, store: Store, name: str, given: dict[str, str]
) -> None:
    await (await store.conversation("trip")).append("user", "Hello.")
    with pytest.raises(MCPError) as refused:
        await client.get_prompt(name, given)
    assert refused.value.error.code == -32602


async def test_names_are_completed(client: Calls, store: Store) -> None:
    ids = {key: (await store.conversation(key)).id for key in ("trip/7", "trip/8", "work")}
    prompt = PromptReference(name="continue_conversation")
    found = await client.complete(prompt, {"name": "conversation", "value": "tri"})
    assert sorted(found.completion.values) == ["trip/7", "trip/8"]
    template = ResourceTemplateReference(uri="palaver://conversations/{id}")
    assert (await client.complete(template, {"name": "id", "value": ids["work"]})).completion.values == [ids["work"]]
