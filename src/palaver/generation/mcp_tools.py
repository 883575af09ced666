"""Tools of MCP servers: a command on this machine, an endpoint by its URL, or a server object in this process.

async with MCPTools("https://mcp.example.org/mcp", headers={"Authorization": "Bearer …"}) as search:
    await talk.generate("…", tools=[search])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from palaver.errors import MissingExtra
from palaver.generation.tools import Tool, ToolOutput

MOST_PAGES = 100  # of a list of tools: one that never ends cannot hang us


class MCPTools:
    """The tools of one MCP server, for as long as the block lasts.

    `server` is a URL, a command with its arguments, or an object of the SDK. `prefix` stands before each name, so that
    two servers may have tools of the same name; `only` names the tools that are wanted.
    """

    def __init__(
        self,
        server: str | Sequence[str] | Any,
        *,
        prefix: str = "",
        only: Iterable[str] | None = None,
        headers: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        self.tools: list[Tool] = []
        self._server, self._prefix, self._timeout = server, prefix, timeout
        self._only = None if only is None else frozenset(only)
        self._headers, self._environment = dict(headers or {}), dict(environment or {})
        self._stack = AsyncExitStack()

    def __repr__(self) -> str:
        return f"<MCPTools {len(self.tools)} tools>"

    async def __aenter__(self) -> Self:
        try:
            from mcp.client.client import Client
        except ImportError as problem:
            raise MissingExtra("mcp", "Tools of an MCP server") from problem
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(Client(await self._target(stack)))
            self.tools = [self._tool(client, one) for one in await _listed(client) if self._wants(one)]
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tools = []
        await self._stack.aclose()

    async def _target(self, stack: AsyncExitStack) -> Any:
        """What the SDK's client connects to."""
        if isinstance(self._server, str):
            return await self._endpoint(stack, self._server) if self._headers else self._server
        if isinstance(self._server, Sequence):
            from mcp.client.stdio import StdioServerParameters

            command, *arguments = self._server
            return StdioServerParameters(command=command, args=arguments, env=self._environment or None)
        return self._server

    async def _endpoint(self, stack: AsyncExitStack, url: str) -> Any:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        http = await stack.enter_async_context(httpx2.AsyncClient(headers=self._headers))
        return streamable_http_client(url, http_client=http)

    def _tool(self, client: Any, one: Any) -> Tool:
        async def run(arguments: dict[str, Any]) -> ToolOutput:
            result = await client.call_tool(one.name, arguments)
            return ToolOutput(content=_content(result), sources=_sources(result), is_error=bool(result.is_error))

        return Tool(
            name=f"{self._prefix}{one.name}",
            description=one.description or one.title or one.name,
            parameters=one.input_schema,
            run=run,
            timeout=self._timeout,
        )

    def _wants(self, one: Any) -> bool:
        return self._only is None or one.name in self._only


async def _listed(client: Any) -> list[Any]:
    found: list[Any] = []
    cursor = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


def _content(result: Any) -> Any:
    """The text of a result; what is no text is named. A structured result without text is given as it is."""
    pieces = [_piece(block) for block in result.content]
    if not pieces and result.structured_content is not None:
        return result.structured_content
    return "\n".join(pieces)


def _piece(block: Any) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type == "resource" and getattr(block.resource, "text", None) is not None:
        return str(block.resource.text)
    return f"[{block.type} {getattr(block, 'uri', '') or getattr(block, 'mime_type', '') or ''}]".replace(" ]", "]")


def _sources(result: Any) -> list[dict[str, Any]]:
    links = [block for block in result.content if block.type == "resource_link"]
    return [{"url": str(link.uri), "title": link.title or link.name} for link in links]
