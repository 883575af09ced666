"""Memory for a coding assistant over MCP. The program acts as the assistant, in two sessions. The second one remembers.

    pip install "palaver[mcp]"
    python examples/mcp_coding_assistant.py

The program first prints JSON. For a real assistant, add it to the assistant's `mcpServers`. For Claude Code, run
`claude mcp add palaver -- palaver mcp --db ~/memory.db`. Codex has the same command: `codex mcp add …`.
"""

import asyncio
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

DECISION = "We decided to use Postgres 18 for the billing service, because it needs row level security."


async def call(command: list[str], tool: str, arguments: dict[str, str]) -> str:
    """Start the server as an assistant does, call one tool, and stop the server."""
    server = StdioServerParameters(command=command[0], args=command[1:])
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        result = await session.call_tool(tool, arguments)
        return "\n".join(part.text for part in result.content if part.type == "text")


async def main(database: Path) -> None:
    config = {"command": "palaver", "args": ["mcp", "--db", str(database), "--user", "ada"]}
    print(json.dumps({"mcpServers": {"palaver": config}}, indent=2))
    command = [sys.executable, "-m", "palaver.cli", *config["args"]]
    print("\nFirst session, remember:", await call(command, "remember", {"text": DECISION}))
    print("\nSecond session, recall:", await call(command, "recall", {"query": "Which database for billing?"}))


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        asyncio.run(main(Path(folder, "memory.db")))
