"""Tools of MCP servers: a command on this machine, an endpoint by its URL, or a server object in this process.

async with MCPTools("https://mcp.example.org/mcp", headers={"Authorization": "Bearer …"}) as search:
    await talk.generate("…", tools=[search])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from palaver.errors import MissingExtra
from palaver.generation.tools import Tool, ToolOutput
from palaver.ports.models import JsonObject

if TYPE_CHECKING:
    from mcp.client.client import Client
    from mcp.types import CallToolResult, ContentBlock
    from mcp.types import Tool as McpTool

MAX_PAGES = 100  # of a list of tools, so that an endless list cannot hang the caller


class MCPTools:
    """The tools of one MCP server, which is connected for the duration of an `async with` block.

    - `server`: a URL, a command with its arguments, or a server object of the SDK.
    - `prefix`: a text to put before each name, so that two servers can have tools of the same name.
    - `only`: the names of the tools to include; by default all.
    - `headers`: HTTP headers for a URL. `environment`: variables for a command.
    - `timeout`: the seconds that a call may take.
    """

    def __init__(
        self,
        server: str | Sequence[str] | object,
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
            self.tools = [self._make_tool(client, spec) for spec in await _list_tools(client) if self._wants(spec)]
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tools = []
        await self._stack.aclose()

    async def _target(self, stack: AsyncExitStack) -> Any:
        """Return what the SDK's client connects to: a URL, a transport, a command or a server object."""
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

    def _make_tool(self, client: Client, spec: McpTool) -> Tool:
        async def run(arguments: JsonObject) -> ToolOutput:
            result = await client.call_tool(spec.name, arguments)
            return ToolOutput(content=_content(result), sources=_sources(result), is_error=bool(result.is_error))

        return Tool(
            name=f"{self._prefix}{spec.name}",
            description=spec.description or spec.title or spec.name,
            parameters=spec.input_schema,
            run=run,
            timeout=self._timeout,
        )

    def _wants(self, spec: McpTool) -> bool:
        return self._only is None or spec.name in self._only


async def _list_tools(client: Client) -> list[McpTool]:
    tools: list[McpTool] = []
    cursor = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return tools


def _content(result: CallToolResult) -> object:
    """Return the text of a result, with a placeholder for parts that are not text; or its structured content."""
    pieces = [_describe(block) for block in result.content]
    if not pieces and result.structured_content is not None:
        return result.structured_content
    return "\n".join(pieces)


def _describe(block: ContentBlock) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type == "resource" and (text := getattr(block.resource, "text", None)) is not None:
        return str(text)
    return f"[{block.type} {getattr(block, 'uri', '') or getattr(block, 'mime_type', '') or ''}]".replace(" ]", "]")


def _sources(result: CallToolResult) -> list[dict[str, object]]:
    links = [block for block in result.content if block.type == "resource_link"]
    return [{"url": str(link.uri), "title": link.title or link.name} for link in links]
