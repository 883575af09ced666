"""Items of OpenAI's Responses API as turns: messages, function calls, their outputs, reasoning."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from palaver.interchange.exports.blocks import result_text
from palaver.interchange.exports.values import ExportedConversation, ExportedTurn, objects, text_of

EMPTY, OTHER, REASONING = "empty message", "an item of another kind", "the model's reasoning"
CALLS = ("function_call", "custom_tool_call", "local_shell_call", "computer_call", "shell_call", "apply_patch_call")
ROLES = {"developer": "system", "user": "user", "assistant": "assistant", "system": "system", "tool": "tool"}


@dataclass(frozen=True, slots=True)
class Item:
    """An item with its number in the file and its time."""

    id: str
    data: dict[str, Any]
    created: datetime | None = None
    model: str | None = None


@dataclass(slots=True)
class Thread:
    """A thread without branches, while it is read. Calls in a row are one turn, and so are their outputs."""

    result: ExportedConversation
    turns: list[ExportedTurn] = field(default_factory=list)

    def add(self, item: Item) -> None:
        """Add an item as a turn or to the turn before it, or count why it is left out."""
        data, kind = item.data, str(item.data.get("type") or "message")
        if kind in CALLS:
            self._add_call(item, _call(item))
        elif kind.endswith("_output") and data.get("call_id"):
            content = result_text(data.get("output"))
            self._add_result(item, {"id": str(data["call_id"]), "content": content})
        elif kind == "reasoning":
            self.result.left_out[REASONING] += 1
        elif kind == "message" and data.get("role") in ROLES:
            self._add_message(item, ROLES[data["role"]])
        else:
            self.result.left_out[OTHER] += 1

    def _add_message(self, item: Item, role: str) -> None:
        text = message_text(item.data.get("content"))
        calls = [nested_call(one) for one in objects(item.data.get("tool_calls"))]
        if role == "tool":  # of the older Chat Completions form
            self._add_result(item, {"id": str(item.data.get("tool_call_id") or "unknown"), "content": text})
        elif text.strip() or calls:
            self._append(item, role, content=text, tool_calls=tuple(calls))
        else:
            self.result.left_out[EMPTY] += 1

    def _add_call(self, item: Item, call: dict[str, Any]) -> None:
        last = self.turns[-1] if self.turns else None
        if last is not None and last.role == "assistant":
            self.turns[-1] = replace(last, tool_calls=(*last.tool_calls, call))
            self.result.merged += 1
        else:
            self._append(item, "assistant", tool_calls=(call,))

    def _add_result(self, item: Item, result: dict[str, Any]) -> None:
        last = self.turns[-1] if self.turns else None
        if last is not None and last.role == "tool" and result["id"] not in [one["id"] for one in last.tool_results]:
            self.turns[-1] = replace(last, tool_results=(*last.tool_results, result))
            self.result.merged += 1
        else:
            self._append(item, "tool", tool_results=(result,))

    def _append(self, item: Item, role: str, **fields: Any) -> None:
        before = self.turns[-1].id if self.turns else None
        model = item.model if role == "assistant" else None
        self.turns.append(ExportedTurn(item.id, before, role, created=item.created, model=model, **fields))


def read_thread(result: ExportedConversation, items: Iterable[Item]) -> ExportedConversation:
    """Fill a conversation with items in order."""
    thread = Thread(result)
    for item in items:
        result.records += 1
        thread.add(item)
    result.turns = thread.turns
    result.current = thread.turns[-1].id if thread.turns else None
    return result


def message_text(content: object) -> str:
    """Return the text of a content: a string, or parts with a text each."""
    if isinstance(content, str):
        return text_of(content)
    return "\n\n".join(text for one in objects(content) if (text := text_of(one.get("text") or one.get("refusal"))))


def _call(item: Item) -> dict[str, Any]:
    data = item.data
    given: object = next((data[name] for name in ("arguments", "input", "action", "operation") if name in data), {})
    id = data.get("call_id") or data.get("id") or item.id
    return {"id": str(id), "name": text_of(data.get("name")) or str(data["type"]), "arguments": arguments_of(given)}


def nested_call(one: dict[str, Any]) -> dict[str, Any]:
    inner = one["function"] if isinstance(one.get("function"), dict) else one
    given: object = next((inner[name] for name in ("arguments", "args", "input") if name in inner), {})
    return {
        "id": str(one.get("id") or "unknown"),
        "name": text_of(inner.get("name")) or "tool",
        "arguments": arguments_of(given),
    }


def arguments_of(given: object) -> object:
    """Return arguments as an object: many formats hold them as JSON in a string."""
    if not isinstance(given, str):
        return given if isinstance(given, dict) else {"input": given}
    try:
        found = json.loads(given)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"input": given}
