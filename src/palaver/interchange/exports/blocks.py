"""Messages as Anthropic's API has them: a list of blocks of text, tool calls, tool results and thinking."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from palaver.interchange.exports.values import ExportedFile, ExportedTurn, objects, text_of


def split_blocks(
    id: str,
    parent: str | None,
    role: str,
    blocks: Sequence[dict[str, Any]],
    *,
    created: datetime | None = None,
    model: str | None = None,
    files: Sequence[ExportedFile] = (),
) -> list[ExportedTurn]:
    """Return the turns of one message: text and calls, then their results, then what follows. Thinking is left out."""
    turns: list[ExportedTurn] = []
    texts: list[str] = []
    calls: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []

    def close(kind: str, **fields: Any) -> None:
        number = len(turns)
        turn_id = id if number == 0 else f"{id}#{number}"
        before = turns[-1].id if turns else parent
        own = files if kind == role and not any(turn.files for turn in turns) else ()
        turns.append(ExportedTurn(turn_id, before, kind, created=created, model=model, files=own, **fields))

    def close_speech(always: bool = False) -> None:
        text = "\n\n".join(one for one in texts if one.strip())
        if text or calls or (always and files):
            close(role, content=text, tool_calls=tuple(calls))
        texts.clear()
        calls.clear()

    def close_results() -> None:
        if results:
            close("tool", tool_results=tuple(results))
            results.clear()

    for block in blocks:
        kind = block.get("type")
        if kind in ("tool_result", "web_search_tool_result", "mcp_tool_result"):
            close_speech()
            results.append(_result(block, turns))
        elif kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            close_results()
            calls.append(_call(block, f"{id}-{len(turns)}-{len(calls)}"))
        elif text_of(block.get("text")):
            close_results()
            if calls:
                close_speech()
            texts.append(text_of(block.get("text")))
    close_results()
    close_speech(always=not turns)
    return turns


def _call(block: dict[str, Any], number: str) -> dict[str, Any]:
    arguments = block.get("input")
    name = text_of(block.get("name")) or "tool"
    return {"id": str(block.get("id") or number), "name": name, "arguments": arguments if arguments else {}}


def _result(block: dict[str, Any], turns: Sequence[ExportedTurn]) -> dict[str, Any]:
    """Return a result. Without the id of its call it belongs to the last call of the message."""
    calls = [call["id"] for turn in turns for call in turn.tool_calls]
    id = block.get("tool_use_id") or (calls[-1] if calls else "unknown")
    result = {"id": str(id), "content": result_text(block.get("content"))}
    return {**result, "is_error": True} if block.get("is_error") else result


def result_text(content: object) -> str:
    """Return the result of a tool as text."""
    if isinstance(content, str):
        return text_of(content)
    texts = [text_of(one.get("text")) for one in objects(content)]
    if any(texts):
        return "\n".join(text for text in texts if text)
    return "" if content in (None, [], {}) else text_of(json.dumps(content, ensure_ascii=False))
