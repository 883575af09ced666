"""Converts turns to items of OpenAI's Responses and Conversations, and back. Pure.

An item's id names its turn: `msg_`, `fc_`, `fco_` or `it_`, the id of the turn, and for `fc_` and `fco_` the number of
the call or result. Items of an unknown type are kept unchanged, in a part that is not sent to models.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from palaver.core.identity import is_id
from palaver.errors import TurnNotFound
from palaver.generation.events import ToolDone
from palaver.model import File, Image, Reasoning, Text, ToolCall, ToolResult, Turn, is_data
from palaver.server.compat.request import (
    ClientMessage,
    Part,
    arguments_text,
    invalid,
    parse_call,
    require_list,
    require_text,
    require_url,
    result_text,
    simplify_parts,
)

Item = dict[str, Any]
VERBATIM = "item"
STATUSES = {"complete": "completed", "pending": "in_progress", "aborted": "incomplete"}
INSTRUCTING = ("system", "developer")
NUMBER = re.compile(r"[0-9]{1,9}")
SERVER_LABEL = "palaver"  # of tools that ran on this server
STORED = ("item_reference",)  # items that are stored already


# ---- from turns ----------------------------------------------------------------------------------------------------


def items_of_turn(turn: Turn) -> list[Item]:
    """Return the items of a turn, in order; at least one."""
    if turn.role == "tool":
        return [_result_item(turn, n, result) for n, result in enumerate(turn.tool_results)]
    if (kept := _verbatim(turn)) is not None:
        return [{**kept, "id": f"it_{turn.id}"}]
    calls = [call_item(turn.id, n, call) for n, call in enumerate(turn.tool_calls)]
    says_something = bool(turn.content) or not calls
    return [message_item(turn), *calls] if says_something else calls


def items_of_turns(turns: Iterable[Turn]) -> list[Item]:
    return [item for turn in turns for item in items_of_turn(turn)]


def message_item(turn: Turn) -> Item:
    role = turn.metadata.get("role") if turn.role == "system" else turn.role
    head = {"id": f"msg_{turn.id}", "type": "message", "status": STATUSES.get(turn.status, "completed")}
    return {**head, "role": role or turn.role, "content": _content(turn)}


def call_item(turn: str, n: int, call: ToolCall, status: str = "completed") -> Item:
    head = {"id": f"fc_{turn}_{n}", "type": "function_call", "status": status}
    return {**head, "call_id": call.id, "name": call.name, "arguments": arguments_text(call.arguments)}


def _result_item(turn: Turn, n: int, result: ToolResult) -> Item:
    head = {"id": f"fco_{turn.id}_{n}", "type": "function_call_output", "status": "completed"}
    return {**head, "call_id": result.id, "output": result_text(result.content)}


def output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _content(turn: Turn) -> list[dict[str, Any]]:
    if turn.role == "assistant":
        return [output_text(turn.text)]
    if isinstance(turn.content, str):
        return [{"type": "input_text", "text": turn.content}]
    return [shown for part in turn.content for shown in _part_of_content(part)]


def _part_of_content(part: object) -> list[dict[str, Any]]:
    if isinstance(part, Text):
        return [{"type": "input_text", "text": part.text}]
    if isinstance(part, Image):
        return [{"type": "input_image", "detail": "auto", "image_url": part.url, "file_id": part.attachment}]
    if isinstance(part, File) and not is_data(part):
        shown = {"type": "input_file", "filename": part.filename, "file_url": part.url, "file_id": part.attachment}
        return [{name: value for name, value in shown.items() if value is not None}]
    return []


def _verbatim(turn: Turn) -> Item | None:
    if isinstance(turn.content, str) or not turn.content:
        return None
    part = turn.content[0]
    kept = part.extra.get(VERBATIM) if isinstance(part, Reasoning) else None
    return dict(kept) if isinstance(kept, Mapping) else None


def parse_item_id(id: str) -> tuple[str, int | None]:
    """Return the turn of an item and the number of the call or result; None for the message."""
    kind, _, rest = id.partition("_")
    turn, _, number = rest.partition("_")
    if kind not in ("msg", "fc", "fco", "it") or not is_id(turn) or (number and not NUMBER.fullmatch(number)):
        raise TurnNotFound(id[:100])
    return turn, int(number) if number else None


def list_page(items: Sequence[Item], limit: int, after: str | None = None) -> dict[str, Any]:
    """Build a page of items, beginning after the one with the id `after`."""
    places = [n for n, item in enumerate(items, 1) if item["id"] == after]
    found = items[places[0] if places else 0 :]
    shown = list(found[:limit])
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": len(found) > limit,
    }


# ---- to messages ---------------------------------------------------------------------------------------------------


def parse_items(items: object, field: str = "input") -> tuple[ClientMessage, ...]:
    """Parse items as messages, without instructions. Adjacent calls are one message, and so are their results."""
    said: list[ClientMessage] = []
    for item in require_list(field, items):
        kind = _item_type(item)
        if kind == "message" and item.get("role") in INSTRUCTING:
            continue
        if kind not in STORED and not is_own_tool(item):
            _add_message(said, _parse_item(item, kind, field))
    return tuple(said)


def tool_item(turn: str, n: int, call: ToolCall, done: ToolDone | None) -> Item:
    """Return a call of a tool that ran on this server: the protocol has items for tools of remote servers."""
    text = None if done is None else result_text(done.content)
    failed = done is not None and done.is_error
    return {
        "id": f"mcp_{turn}_{n}",
        "type": "mcp_call",
        "name": call.name,
        "arguments": arguments_text(call.arguments),
        "server_label": SERVER_LABEL,
        "approval_request_id": None,
        "output": None if failed else text,
        "error": {"type": "mcp_tool_execution_error", "content": text} if failed else None,
        "status": "in_progress" if done is None else "failed" if failed else "completed",
    }


def is_own_tool(item: Mapping[str, object]) -> bool:
    """Return whether an item that a client sends back is a call of a tool of this server, which is stored already."""
    return item.get("type") == "mcp_call" and item.get("server_label") == SERVER_LABEL


def _item_type(item: Mapping[str, object]) -> Any:
    return item.get("type") or "message"


def _parse_item(item: Mapping[str, object], kind: object, field: str) -> ClientMessage:
    if kind == "message":
        return _parse_message(item, field)
    if kind == "function_call":
        call = parse_call(field, item.get("call_id"), item.get("name"), item.get("arguments", "{}"))
        return ClientMessage(role="assistant", calls=(call,))
    if kind == "function_call_output":
        id = require_text(f"{field}.call_id", item.get("call_id"))
        return ClientMessage(role="tool", results=(ToolResult(id, _output_text(item.get("output"), field)),))
    kept = {name: value for name, value in item.items() if name != "id"}
    return ClientMessage(role="assistant", content=({"type": "reasoning", "text": "", VERBATIM: kept},))


def _add_message(said: list[ClientMessage], one: ClientMessage) -> None:
    last = said[-1] if said else None
    if last is not None and one.role == last.role == "tool":
        said[-1] = ClientMessage(role="tool", results=last.results + one.results)
    elif last is not None and one.calls and last.calls:
        said[-1] = ClientMessage(role="assistant", content=last.content, calls=last.calls + one.calls)
    else:
        said.append(one)


def _parse_message(item: Mapping[str, object], field: str) -> ClientMessage:
    role = item.get("role")
    content = parse_content(item.get("content"), field)
    if role == "user":
        return ClientMessage(role="user", content=content)
    if role == "assistant":
        text = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
        return ClientMessage(role="assistant", content=text)
    raise invalid(f"{field}.role", "must be user, assistant, system or developer")


def parse_content(content: object, field: str) -> str | tuple[Part, ...]:
    if isinstance(content, str):
        return content
    return simplify_parts([_parse_part(part, field) for part in require_list(f"{field}.content", content)])


def _parse_part(part: Mapping[str, object], field: str) -> Part:
    kind = part.get("type")
    if kind in ("input_text", "output_text", "text"):
        return {"type": "text", "text": require_text(f"{field}.content.text", part.get("text"))}
    if kind == "refusal":
        return {"type": "text", "text": require_text(f"{field}.content.refusal", part.get("refusal"))}
    if kind == "input_image" and part.get("image_url"):
        return {"type": "image", "url": require_url(f"{field}.content.image_url", part["image_url"])}
    data = part.get("file_data") or part.get("file_url")
    if kind == "input_file" and data:
        name = str(part.get("filename") or "file")
        return {"type": "file", "url": require_url(f"{field}.content.file", data), "filename": name}
    raise invalid(f"{field}.content", "must be text, or an image or a file with its data or URL")


def _output_text(output: object, field: str) -> str:
    if isinstance(output, str):
        return output
    return "\n".join(
        str(part.get("text") or f"[{part.get('type')}]") for part in require_list(f"{field}.output", output)
    )


def collect_instructions(items: object, field: str = "input") -> list[str]:
    """Return the texts of system and developer messages."""
    found = [
        parse_content(item.get("content"), field)
        for item in require_list(field, items)
        if _item_type(item) == "message" and item.get("role") in INSTRUCTING
    ]
    return [one if isinstance(one, str) else "\n".join(part.get("text", "") for part in one) for one in found]
