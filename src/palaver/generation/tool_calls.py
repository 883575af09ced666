"""Tool calls on stored turns: who runs them, their deadline, and whether they were interrupted."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from palaver.core.process_identity import is_gone, this_process
from palaver.model import ToolCall, Turn

# Keys in the metadata of a turn with tool calls.
CLIENT_CALLS = "client_calls"  # ids of the calls that the client runs
TOOLS_UNTIL, TOOLS_IN = "tools_until", "tools_in"  # deadline and process of the calls that run on the server


def client_calls(turn: Turn) -> tuple[ToolCall, ...]:
    """Return the calls of a turn that its client runs."""
    ids = turn.metadata.get(CLIENT_CALLS, ())
    return tuple(call for call in turn.tool_calls if call.id in ids)


def server_calls(turn: Turn) -> tuple[ToolCall, ...]:
    """Return the calls of a turn that run on the server."""
    ids = turn.metadata.get(CLIENT_CALLS, ())
    return tuple(call for call in turn.tool_calls if call.id not in ids)


def client_calls_metadata(calls: Sequence[ToolCall], client_tools: Collection[str]) -> dict[str, object]:
    """Mark the calls that the client runs."""
    ids = [call.id for call in calls if call.name in client_tools]
    return {CLIENT_CALLS: ids} if ids else {}


def lease_metadata(deadline: datetime) -> dict[str, object]:
    """Mark calls as running in this process until `deadline`, so that others can tell when they were interrupted."""
    return {TOOLS_UNTIL: deadline.isoformat(), TOOLS_IN: this_process()}


def is_abandoned(turn: Turn, now: datetime) -> bool:
    """Return whether the process that ran these calls has exited, or their deadline has passed."""
    until, process = turn.metadata.get(TOOLS_UNTIL), turn.metadata.get(TOOLS_IN)
    try:
        is_over = isinstance(until, str) and datetime.fromisoformat(until) < now
    except (ValueError, TypeError):  # metadata that another program wrote
        is_over = False
    return is_over or (isinstance(process, str) and is_gone(process))
