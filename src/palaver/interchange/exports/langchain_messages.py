"""Messages of LangChain: objects, or the JSON form `{"type": "human", "data": {…}}` that its tables hold."""

from __future__ import annotations

from typing import Any

from palaver.interchange.exports.values import mapping, objects

ROLES = {"human": "user", "ai": "assistant", "system": "system", "tool": "tool", "function": "tool"}
FIELDS = ("content", "tool_calls", "tool_call_id", "id", "name", "response_metadata", "additional_kwargs")


def message_fields(message: object) -> dict[str, Any]:
    """Return a message as a role, a content, tool calls and the id of the call that it answers."""
    if isinstance(message, dict):
        data = {**mapping(message.get("data")), **{key: message[key] for key in FIELDS if key in message}}
        kind = message.get("type")
    else:
        data = {name: getattr(message, name, None) for name in FIELDS}
        kind = getattr(message, "type", None)
    kind = data.get("role") if kind == "chat" else kind
    calls = [
        {"id": call.get("id"), "name": call.get("name"), "arguments": call.get("args", {})}
        for call in objects(data.get("tool_calls"))
    ]
    return {
        "role": ROLES.get(str(kind), kind),
        "content": data.get("content"),
        "tool_calls": calls,
        "tool_call_id": data.get("tool_call_id"),
        "model": mapping(data.get("response_metadata")).get("model_name"),
    }
