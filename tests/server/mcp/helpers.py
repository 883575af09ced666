"""Clients of the protocol's own SDK, against a server in this process, one over HTTP, and one over stdin and stdout."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from palaver.conversations.store import Store
from palaver.server.live.channel import ChannelHub
from palaver.server.mcp.protocol import Host, RequestContext, create_server

PATIENCE = 120.0  # seconds, for a machine that has much else to do
ERAS = ("2026-07-28", "legacy")


@asynccontextmanager
async def in_process(store: Store, **host: Any) -> AsyncIterator[Client]:
    server = create_server(Host(lambda _: RequestContext(store), ChannelHub(store), asyncio.Event(), **host))
    async with Client(server, read_timeout_seconds=PATIENCE) as client:
        yield client


class Calls:
    """The client's methods, each on a client of its own: one that a fixture opens would be closed by another task."""

    def __init__(self, store: Store, **host: Any) -> None:
        self.store, self.host = store, host

    def __getattr__(self, name: str) -> Any:
        async def method(*arguments: Any, **options: Any) -> Any:
            refused: MCPError | None = None
            async with in_process(self.store, **self.host) as client:
                try:
                    return await getattr(client, name)(*arguments, **options)
                except MCPError as problem:  # raised from within, it would come out wrapped by the client's tasks
                    refused = problem
            raise refused

        return method


@asynccontextmanager
async def over_http(url: str, key: str | None = None, era: str = "2026-07-28", **options: Any) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http:
        transport = streamable_http_client(f"{url}/mcp", http_client=http)
        async with Client(transport, mode=era, read_timeout_seconds=PATIENCE, **options) as client:
            yield client


@asynccontextmanager
async def over_stdio(
    url: str, folder: Path, *arguments: str, era: str = "auto", **options: Any
) -> AsyncIterator[Client]:
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "palaver.cli", "mcp", "--db", url, *arguments],
        env={**os.environ},
        cwd=folder,
    )
    async with Client(command, mode=era, read_timeout_seconds=PATIENCE, **options) as client:
        yield client


async def call(client: Client | Calls, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the result of a tool, as data."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def refusal(client: Client | Calls, tool: str, **arguments: Any) -> str:
    """Return the message of a tool that refuses."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    return str(result.content[0].text)
