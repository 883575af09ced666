"""Tool calls with ids and names that a provider accepts.

Turns keep the ids and names that a model or a client chose, such as `functions.get_weather:0`, or `call_0` in every
round. Providers accept letters, digits, `_` and `-`, up to a length, and each id once per prompt.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from palaver.context.render.neutral import Message

LONGEST = 64  # characters of a tool's name everywhere, and of a call's id where a provider sets no lower limit
_REFUSED = re.compile(r"[^a-zA-Z0-9_-]")
_MARK = 9  # characters of the mark that keeps shortened names apart


class MappedCalls(NamedTuple):
    """Messages with mapped tool calls. `ids` has the new id of each original one; of a repeated id, the last."""

    messages: list[Message]
    ids: dict[str, str]


def provider_name(name: str, longest: int = LONGEST) -> str:
    """Return a name of a tool that providers accept. Accepted names are kept; others are changed, and end in a hash.

    The result depends on the name alone, so the tools of a request and the calls of its history agree.
    """
    if name and len(name) <= longest and not _REFUSED.search(name):
        return name
    mark = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[: _MARK - 1]
    return f"{_REFUSED.sub('_', name)[: longest - _MARK]}_{mark}"


def original_names(names: Collection[str]) -> dict[str, str]:
    """Return the names of tools by what a provider calls them, where the two differ."""
    mapped = {provider_name(name): name for name in names}
    return {new: name for new, name in mapped.items() if new != name}


def map_tool_calls(messages: Sequence[Message], longest: int = LONGEST) -> MappedCalls:
    """Give every tool call an id that is accepted and unique in the prompt, and its result the same one."""
    mapping = _Mapping(_ids_in(messages), longest)
    mapped = [mapping.map_message(message) for message in messages]
    return MappedCalls(mapped, mapping.ids)


def _ids_in(messages: Sequence[Message]) -> frozenset[str]:
    return frozenset(call["id"] for message in messages for call in message.get("tool_calls", ()))


class _Mapping:
    def __init__(self, originals: frozenset[str], longest: int) -> None:
        self.ids: dict[str, str] = {}
        self._originals, self._longest = originals, longest
        self._taken: set[str] = set()
        self._waiting: list[tuple[str, str]] = []  # original and new id of the calls that have no result yet

    def map_message(self, message: Message) -> Message:
        if message["role"] == "tool":
            return {**message, "tool_call_id": self._result_id(message["tool_call_id"])}
        if "tool_calls" not in message:
            return message
        self._waiting = [(call["id"], self._new_id(call["id"])) for call in message["tool_calls"]]
        self.ids.update(self._waiting)
        calls = [
            {**call, "id": new, "name": provider_name(call["name"])}
            for call, (_, new) in zip(message["tool_calls"], self._waiting, strict=True)
        ]
        return {**message, "tool_calls": calls}

    def _new_id(self, id: str) -> str:
        base = candidate = provider_name(id, self._longest)
        number = 1
        # An id that another call has by itself is not given away: that call may come later and keeps it.
        while candidate in self._taken or (candidate != id and candidate in self._originals):
            number += 1
            ending = f"-{number}"
            candidate = base[: self._longest - len(ending)] + ending
        self._taken.add(candidate)
        return candidate

    def _result_id(self, id: str) -> str:
        """Return the id of the call that a result belongs to: the first of the last calls that has none yet."""
        for index, (original, new) in enumerate(self._waiting):
            if original == id:
                del self._waiting[index]
                return new
        return self.ids.get(id) or provider_name(id, self._longest)
