"""Tools of a real MCP server, over stdio, over HTTP and in this process."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
import uvicorn

from palaver import MCPTools, ToolCall
from palaver.generation.tools import Toolbox
from palaver.testing.providers import LoopbackProvider, Say
from tests.generation.conftest import Opener
from tests.generation.mcp_server import server

SERVER = [sys.executable, str(Path(__file__).with_name("mcp_server.py"))]


@pytest.mark.process
async def test_tools_of_a_program_are_offered_and_called(opened: Opener, provider: LoopbackProvider, name: str) -> None:
    provider.script(Say(calls=[("weather", {"city": "Rome"}), ("broken", {})]), Say("Sunny."))
    async with opened(model=name) as store, MCPTools(SERVER) as tools:
        talk = await store.conversation("x")
        answer = await talk.generate("How is it in Rome?", tools=[tools])
        assert answer.text == "Sunny."
        good, bad = (await talk.history())[2].tool_results
        assert (good.content, good.is_error) == ("Sunny in Rome.", False)
        assert bad.is_error
    offered = str(provider.bodies[0]["tools"])
    assert "The weather in a city" in offered
    assert "city" in offered


async def test_a_prefix_and_a_choice_of_tools() -> None:
    async with MCPTools(server, prefix="eu_", only=["weather"]) as tools:
        assert [one.name for one in tools.tools] == ["eu_weather"]
        box = Toolbox.of([tools], {})
        (ran,) = await box.run([ToolCall("1", "eu_weather", {"city": "Oslo"})], 10, lambda _: None)
        assert ran.content == "Sunny in Oslo."
    assert tools.tools == []


async def test_an_endpoint_gets_the_headers_that_it_wants() -> None:
    seen: list[str | None] = []
    app = server.streamable_http_app()

    async def looking(scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        if scope["type"] == "http":
            seen.append(dict(scope["headers"]).get(b"authorization", b"").decode())
        await app(scope, receive, send)

    config = uvicorn.Config(looking, host="127.0.0.1", port=0, log_level="error")
    running = uvicorn.Server(config)
    serving = asyncio.create_task(running.serve())
    while not running.started:  # noqa: ASYNC110  # uvicorn has no event for it
        await asyncio.sleep(0.01)
    port = running.servers[0].sockets[0].getsockname()[1]
    async with MCPTools(f"http://127.0.0.1:{port}/mcp", headers={"Authorization": "Bearer key"}) as tools:
        box = Toolbox.of([tools], {})
        (ran,) = await box.run([ToolCall("1", "weather", {"city": "Oslo"})], 10, lambda _: None)
        assert ran.content == "Sunny in Oslo."
    running.should_exit = True
    await serving
    assert set(seen) == {"Bearer key"}
