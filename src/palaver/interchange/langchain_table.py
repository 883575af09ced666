"""LangChain's table of messages: `session_id` and one column `message` with `{"type": "human", "data": {…}}`.

It is shown as a table with a column for each field, which `tables` imports like any other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaver.core.identity import canonical_json
from palaver.interchange.exports.langchain_messages import message_fields
from palaver.interchange.exports.response_items import message_text
from palaver.interchange.table_rows import decode_json
from palaver.interchange.tables import Source

MESSAGE = "message"
FIELDS = ("role", "content", "tool_calls", "tool_call_id", "model", "metadata")


def is_langchain_table(columns: Mapping[str, str]) -> bool:
    """Return whether a table has LangChain's columns."""
    return "session_id" in columns and columns.get(MESSAGE) in ("json", "jsonb") and "role" not in columns


@dataclass(frozen=True, slots=True)
class LangChainTable:
    """A table of LangChain's, with the fields of its messages as columns."""

    table: Source

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def columns(self) -> Mapping[str, str]:
        others = {name: kind for name, kind in self.table.columns.items() if name != MESSAGE}
        return {**others, **dict.fromkeys(FIELDS, "text")}

    async def rows(self, columns: Sequence[str], order: Sequence[str]) -> AsyncIterator[Mapping[str, Any]]:
        own = [name for name in columns if name not in FIELDS]
        async for row in self.table.rows([*own, MESSAGE], [name for name in order if name not in FIELDS]):
            yield {**row, **_fields(decode_json(row[MESSAGE]))}

    async def row(self, columns: Sequence[str], id: str, value: str) -> Mapping[str, Any] | None:
        return await self.table.row(columns, id, value)

    async def filled(self, columns: Sequence[str]) -> Mapping[str, int]:
        own = [name for name in columns if name not in FIELDS]
        return await self.table.filled(own) if own else {}


def _fields(message: object) -> dict[str, Any]:
    """Return the columns of a message. Parts that are not text, and other fields, are kept in the metadata."""
    fields = message_fields(message) if isinstance(message, dict) else {"role": None, "content": None}
    content = fields["content"]
    data = message.get("data") if isinstance(message, dict) else None
    metadata = {"content": content} if isinstance(content, list) and _has_other_parts(content) else {}
    extra = data.get("additional_kwargs") if isinstance(data, dict) else None
    metadata |= {"additional_kwargs": extra} if extra else {}
    return {
        "role": fields["role"],
        "content": message_text([{"text": one} if isinstance(one, str) else one for one in content])
        if isinstance(content, list)
        else content,
        "tool_calls": canonical_json(fields["tool_calls"]) if fields.get("tool_calls") else None,
        "tool_call_id": fields.get("tool_call_id"),
        "model": fields.get("model"),
        "metadata": canonical_json(metadata) if metadata else None,
    }


def _has_other_parts(content: Sequence[object]) -> bool:
    return any(isinstance(part, dict) and part.get("type") not in (None, "text") for part in content)
