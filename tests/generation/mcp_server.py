"""A small MCP server, made with the protocol's own SDK, for the tests to start."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

server = MCPServer("weather", version="1")


@server.tool()
def weather(city: str) -> str:
    """The weather in a city."""
    return f"Sunny in {city}."


@server.tool()
def broken() -> str:
    """Always fails."""
    raise RuntimeError("no forecast today")


if __name__ == "__main__":
    server.run("stdio")
