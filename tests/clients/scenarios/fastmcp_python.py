"""FastMCP's client: tools, resources and prompts over HTTP with a key."""

from __future__ import annotations

from uuid import uuid4

from fastmcp import Client
from fastmcp.client.auth import BearerAuth
from fastmcp.exceptions import ToolError

from tests.clients.scenarios.harness import KEY, URL, main, scenario


def client_of() -> Client:
    return Client(f"{URL}/mcp", auth=BearerAuth(KEY))


@scenario
async def tools_are_listed() -> None:
    async with client_of() as client:
        assert {"recall", "append", "history"} <= {one.name for one in await client.list_tools()}


@scenario
async def append_and_recall() -> None:
    word, talk = uuid4().hex[:8], f"mcp/{uuid4()}"
    async with client_of() as client:
        await client.call_tool("append", {"conversation": talk, "role": "user", "text": f"My boat is called {word}."})
        found = await client.call_tool("recall", {"query": f"boat {word}"})
        assert word in str(found.structured_content)


@scenario
async def history_is_structured() -> None:
    talk = f"mcp/{uuid4()}"
    async with client_of() as client:
        await client.call_tool("append", {"conversation": talk, "role": "user", "text": "I like rice."})
        assert "I like rice." in str((await client.call_tool("history", {"conversation": talk})).structured_content)


@scenario
async def wrong_arguments_are_an_error_of_the_tool() -> None:
    async with client_of() as client:
        try:
            await client.call_tool("append", {"role": "user"})
        except ToolError:
            return
    raise AssertionError("the call succeeded")


@scenario
async def resources_and_prompts() -> None:
    async with client_of() as client:
        await client.call_tool("append", {"conversation": f"mcp/{uuid4()}", "role": "user", "text": "A boat."})
        listed = await client.list_resources()
        assert await client.read_resource(listed[0].uri)
        assert [one.name for one in await client.list_prompts()]


if __name__ == "__main__":
    main("fastmcp")
