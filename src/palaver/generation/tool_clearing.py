"""Clears old tool results from a prompt, so that a long chain of calls does not fill it. Pure.

Stored turns keep their results: only the messages that a model gets are shortened.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CLEARED = "[cleared to save space]"
CLEARED_INPUT = "{}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolClearing:
    """Replaces old tool results in the prompt with a short note: when, and which.

    - `tokens`, `uses`: clear if the prompt has at least this many tokens, or this many calls with a result. If both are
      given, `uses` decides.
    - `keep`: the number of latest calls to keep.
    - `at_least`: clear nothing if it saves fewer tokens than this.
    - `exclude`: the names of tools whose calls are never cleared.
    - `inputs`: whether to clear the arguments as well; `True` for all tools, or the names of tools.
    """

    tokens: int | None = None
    uses: int | None = None
    keep: int = 3
    at_least: int = 0
    exclude: frozenset[str] = frozenset()
    inputs: bool | frozenset[str] = False


@dataclass(frozen=True, slots=True)
class Cleared:
    """The result of a clearing: how many calls were cleared, and how many tokens that saved."""

    uses: int = 0
    tokens: int = 0


NOTHING = Cleared()


def clear_tool_uses(
    messages: Sequence[Mapping[str, Any]], clearing: ToolClearing, total: int, count: Callable[[str], int]
) -> tuple[list[dict[str, Any]], Cleared]:
    """Replace the results of old calls with a short note. `total` is the number of tokens of the prompt."""
    unchanged = [dict(one) for one in messages]
    names = {call["id"]: str(call["name"]) for one in messages for call in one.get("tool_calls") or ()}
    done = [str(one["tool_call_id"]) for one in messages if one["role"] == "tool"]
    if not _is_due(clearing, total, len(done)):
        return unchanged, NOTHING
    old = done[: max(0, len(done) - clearing.keep)]
    ids = {id for id in old if names.get(id) not in clearing.exclude}
    changed = [_clear_message(one, ids, names, clearing.inputs) for one in messages]
    saved = _count_all(messages, count) - _count_all(changed, count)
    uses = sum(old != new for old, new in zip(messages, changed, strict=True) if old["role"] == "tool")
    if not uses or saved < max(1, clearing.at_least):
        return unchanged, NOTHING
    return changed, Cleared(uses, saved)


def _is_due(clearing: ToolClearing, total: int, uses: int) -> bool:
    if clearing.uses is not None:
        return uses >= clearing.uses
    return clearing.tokens is None or total >= clearing.tokens


def _clear_message(
    message: Mapping[str, Any], ids: Collection[str], names: Mapping[str, str], inputs: bool | frozenset[str]
) -> dict[str, Any]:
    if message["role"] == "tool":
        return {**message, "content": CLEARED} if message["tool_call_id"] in ids else dict(message)
    if not message.get("tool_calls") or not inputs:
        return dict(message)
    calls = [
        {**call, "arguments": CLEARED_INPUT}
        if call["id"] in ids and (inputs is True or names[call["id"]] in inputs)
        else call
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _count_all(messages: Sequence[Mapping[str, Any]], count: Callable[[str], int]) -> int:
    results = [one["content"] for one in messages if one["role"] == "tool"]
    arguments = [call["arguments"] for one in messages for call in one.get("tool_calls") or ()]
    return sum(count(text) for text in (*results, *arguments) if isinstance(text, str))
