"""`palaver append`: store one turn."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from palaver.cli.app import Call, Name, command
from palaver.cli.database import creating, find_or_create
from palaver.cli.output import emit, note, say, wire
from palaver.errors import InvalidInput

PANEL = "Write"


class Role(StrEnum):
    user = "user"
    assistant = "assistant"
    system = "system"
    tool = "tool"


@command("append", PANEL)
async def append(
    call: Call,
    conversation: Name,
    role: Annotated[Role, typer.Argument(help="Role of the speaker.", show_default=False)],
    text: Annotated[
        str | None, typer.Argument(help="Text of the turn. Without it, or with -, it is read from stdin.")
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Key of this request. A retry with the same key stores nothing.")
    ] = None,
    expected_seq: Annotated[int | None, typer.Option(min=0, help="Fail unless the new turn gets this number.")] = None,
    actor: Annotated[str | None, typer.Option(help="Name of the speaker.")] = None,
    metadata: Annotated[
        str | None, typer.Option(metavar="JSON", help="JSON object to store with the turn, at most 64 KB.")
    ] = None,
    attach: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE", exists=True, dir_okay=False, readable=True, help="File to attach. May be repeated."
        ),
    ] = None,
    tool_calls: Annotated[
        str | None, typer.Option(metavar="JSON", help="JSON list of tool calls, each with id, name and arguments.")
    ] = None,
    tool_results: Annotated[
        str | None, typer.Option(metavar="JSON", help="JSON list of tool results, each with id and content.")
    ] = None,
) -> None:
    """Store one turn. It is on disk when the command returns.

    If no conversation has this id or key, one is created with this key. One newline at the end of stdin is removed.

    Examples:

      palaver append support/42 user "I'm allergic to peanuts."
      git log -1 | palaver append notes user
      palaver append support/42 user "See this." --attach bill.pdf
      palaver append support/42 user Hello --metadata '{"channel": "mail"}'
    """
    fields: dict[str, Any] = {
        "idempotency_key": idempotency_key,
        "expected_seq": expected_seq,
        "actor": actor,
        "metadata": _json_option("--metadata", metadata, dict),
        "tool_calls": _json_option("--tool-calls", tool_calls, list),
        "tool_results": _json_option("--tool-results", tool_results, list),
    }
    content = _text(text, optional=tool_calls is not None or tool_results is not None)
    async with creating(call) as store:
        talk, new = await find_or_create(store, conversation)
        files = [await talk.attach(path) for path in attach or ()]
        turn = await talk.append(role.value, content, attachments=files, **fields)
    if call.as_json:
        emit(wire(turn))
    else:
        say(f"Stored turn {turn.seq} ({turn.id}) in {'the new conversation ' if new else ''}{conversation}.")


def _json_option(name: str, text: str | None, kind: type) -> Any:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        raise typer.BadParameter("is not JSON", param_hint=name) from None
    if not isinstance(value, kind):
        raise typer.BadParameter(f"must be a JSON {'object' if kind is dict else 'list'}", param_hint=name)
    return value


def _text(given: str | None, *, optional: bool) -> str:
    """Return the argument, or stdin without the newline that echo adds."""
    if given is None and optional:
        return ""
    if given is not None and given != "-":
        return given
    if sys.stdin.isatty():
        note("Reading from the terminal; Ctrl-D ends the text.")
    try:
        text = sys.stdin.buffer.read().decode()
    except UnicodeDecodeError:
        raise InvalidInput("stdin", "is not UTF-8 text; --attach stores a file as it is") from None
    return text.removesuffix("\n").removesuffix("\r")
