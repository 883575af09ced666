"""Commands for assistants: mcp."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import creating
from palaver.errors import MissingExtra
from palaver.model import SYSTEM, Scope

PANEL = "Assistants"

AllowForget = Annotated[bool, typer.Option("--allow-forget", help="Also offer the tools that delete permanently.")]
AllowSystem = Annotated[bool, typer.Option("--allow-system", help="Allow the assistant to store system turns.")]


@command("mcp", PANEL)
async def mcp(call: Call, allow_forget: AllowForget = False, allow_system: AllowSystem = False) -> None:
    """Serve MCP over stdin and stdout: memory for an assistant on this machine, in one database file, without a key.

    The assistant starts this command itself. docs/how-to/mcp.md has the configuration of common assistants.

    Examples:

      palaver mcp --db ~/memory.db
      claude mcp add palaver -- palaver mcp --db ~/memory.db
    """
    try:
        from mcp.server.stdio import stdio_server

        from palaver.server.live.channel import ChannelHub
        from palaver.server.mcp.protocol import Host, RequestContext, create_server
        from palaver.server.ops import logs
        from palaver.server.settings import ServerSettings
    except ModuleNotFoundError as problem:
        raise MissingExtra("mcp", "MCP") from problem
    logs.set_up(ServerSettings(log_level="warning"))  # to stderr, without a word of what was said
    # The assistant writes under the name of its user alone.
    scope = Scope.of(call.tenant, call.user)
    scope = scope.with_rights(SYSTEM) if allow_system else scope
    async with creating(call, worker=True, scope=scope) as store:
        # Over Supabase no connection may read for everybody, so changes to a conversation are not announced.
        hub = None if call.url.startswith("supabase+") else ChannelHub(store)
        allowed = {"with_forget": allow_forget, "with_system": allow_system}
        host = Host(lambda _: RequestContext(store), hub, asyncio.Event(), **allowed)
        server = create_server(host)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
