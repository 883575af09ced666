"""Rows of other programs' message tables as fields of a turn.

Columns of a known meaning become fields. A value that has no field, or not the form of one, is kept in the turn's
metadata under the name of its column, so that nothing that a row says is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from palaver.core.identity import canonical_json, from_json
from palaver.errors import InvalidInput

# The names that columns usually have, best first.
CONVERSATIONS = (("project_id", "agent"), ("session_id",), ("conversation_id",), ("thread_id",), ("chat_id",))
USUAL: Mapping[str, tuple[str, ...]] = {
    "role": ("role", "sender", "author", "type"),
    "content": ("content", "text", "body", "message"),
    "created": ("created_at", "timestamp", "inserted_at", "created", "sent_at"),
    "order": ("sequence", "seq", "position", "message_index"),
    "metadata": ("metadata",),
    "images": ("images",),
    "id": ("id", "message_id", "uuid"),
    "attachments": ("attachments", "files"),
    "sources": ("sources", "citations"),
    "model": ("model", "model_name"),
    "tool_calls": ("tool_calls",),
    "tool_results": ("tool_results",),
    "tool_call_id": ("tool_call_id",),
    "token_count": ("token_count", "tokens"),
    "prompt_tokens": ("prompt_tokens", "input_tokens"),
    "completion_tokens": ("completion_tokens", "output_tokens"),
    "finish_reason": ("finish_reason", "stop_reason"),
    "owner": ("user_id", "owner", "owner_id"),
    "workspace": ("workspace_id", "workspace"),
    "agent": ("agent_id", "agent"),
}
REQUIRED = ("role", "content")
# The columns of a table of conversations.
USUAL_DETAILS: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "conversation_id", "session_id", "thread_id", "chat_id"),
    "owner": USUAL["owner"],
    "workspace": USUAL["workspace"],
    "agent": USUAL["agent"],
    "model": USUAL["model"],
    "title": ("title", "name"),
    "metadata": ("metadata",),
}
ROLES = {"human": "user", "ai": "assistant", "bot": "assistant", "model": "assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The meaning of a table's columns. Several may form the conversation's key, joined with slashes.

    `fields` maps what `USUAL` names to columns; the columns in `keep` go into the metadata. `json` are those whose
    values are JSON as text.
    """

    conversation: tuple[str, ...]
    fields: Mapping[str, str]
    keep: tuple[str, ...] = ()
    json: frozenset[str] = frozenset()

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.conversation, *self.fields.values(), *self.keep)))

    @property
    def sorting(self) -> tuple[str, ...]:
        order = (self.fields.get(name) for name in ("order", "created", "id"))
        return tuple(dict.fromkeys((*self.conversation, *(name for name in order if name))))

    def value(self, raw: Mapping[str, Any], name: str) -> Any:
        column = self.fields.get(name)
        return None if column is None else raw[column]


def layout_of(columns: Mapping[str, str], *, keep: Sequence[str] = (), **chosen: str | None) -> Layout:
    """Return the layout that was chosen, completed by the usual names. `conversation` may be several, with commas."""
    for name, column in (*chosen.items(), *(("keep", column) for column in keep)):
        for part in (column or "").split(",") if name == "conversation" else [column]:
            if part and part not in columns:
                raise InvalidInput(f"--{name}", f"the table has no column {part!r}; it has {', '.join(columns)}")
    named = chosen.pop("conversation", None)
    if unknown := chosen.keys() - USUAL.keys():
        raise InvalidInput("--column", f"{sorted(unknown)[0]!r} is not one of {', '.join(USUAL)}")
    keys = tuple(named.split(",")) if named else next((k for k in CONVERSATIONS if all(c in columns for c in k)), ())
    taken = {column for column in chosen.values() if column}
    found = usual_columns(USUAL, columns, taken) | {name: column for name, column in chosen.items() if column}
    if "through_sequence" in columns and not any(name in found for name in REQUIRED):
        raise InvalidInput(
            "table", "has no messages; copy HAL's summaries and working memory in SQL: docs/how-to/tables.md"
        )
    for name, value in (("conversation", keys), *((name, found.get(name)) for name in REQUIRED)):
        if not value:
            raise InvalidInput(f"--{name}", f"is needed: name one of the columns {', '.join(columns)}")
    json = frozenset(name for name, kind in columns.items() if kind in ("json", "jsonb"))
    return Layout(conversation=keys, fields=found, keep=tuple(keep), json=json)


def usual_columns(
    usual: Mapping[str, Sequence[str]], columns: Mapping[str, str], taken: set[str] | frozenset[str] = frozenset()
) -> dict[str, str]:
    """Return the columns that have one of the usual names, and no other meaning already."""
    found = {name: next((c for c in names if c in columns and c not in taken), None) for name, names in usual.items()}
    return {name: column for name, column in found.items() if column}


# ---- one row -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class TableRow:
    """A row as a turn: its fields, its files, and the columns whose values went into the metadata."""

    turn: dict[str, Any]
    said: str  # the content as the row has it
    files: list[tuple[str, Any]] = field(default_factory=list)  # the column, and a data URL or something else
    in_metadata: set[str] = field(default_factory=set)

    def keep(self, column: str, value: Any) -> None:
        """Keep a value that has no field of its own."""
        self.turn["metadata"] = {**self.turn.get("metadata", {}), column: plain(value)}
        self.in_metadata.add(column)


def read_row(raw: Mapping[str, Any], layout: Layout, owner: str | None) -> TableRow:
    """Return a row as a turn. `owner` is the owner of its conversation."""
    role = ROLES.get(str(layout.value(raw, "role")), layout.value(raw, "role"))
    row = TableRow({"role": role}, said="")
    metadata = decode_json(layout.value(raw, "metadata"))
    if isinstance(metadata, dict):
        row.turn["metadata"] = metadata
    elif metadata is not None:
        row.keep(layout.fields["metadata"], metadata)
    created = layout.value(raw, "created")
    if isinstance(created, datetime):
        row.turn["created"] = created if created.tzinfo else created.replace(tzinfo=UTC)  # a column without zones
    elif created is not None:
        row.keep(layout.fields["created"], created)
    _read_tools(row, raw, layout)
    _read_content(row, raw, layout)
    _read_model(row, raw, layout)
    _read_lists(row, raw, layout)
    _read_speaker(row, raw, layout, owner)
    for column in layout.keep:
        if raw[column] is not None:
            row.keep(column, decode_json(raw[column]) if column in layout.json else raw[column])
    return row


def _read_content(row: TableRow, raw: Mapping[str, Any], layout: Layout) -> None:
    content = layout.value(raw, "content")
    if content is None and not row.turn.get("tool_calls") and not row.turn.get("tool_results"):
        raise InvalidInput("content", "is missing")
    row.said = content if isinstance(content, str) else canonical_json(plain(content)) if content is not None else ""
    row.turn["content"] = row.said
    call = layout.value(raw, "tool_call_id")
    if call is None and row.turn["role"] == "tool":
        call = _take_metadata(row, "tool_call_id")
    if row.turn["role"] == "tool" and call is not None and "tool_results" not in row.turn:
        row.turn |= {"content": "", "tool_results": [{"id": str(call), "content": row.said}]}
    elif call is not None:
        row.keep(layout.fields.get("tool_call_id", "tool_call_id"), call)


def _read_tools(row: TableRow, raw: Mapping[str, Any], layout: Layout) -> None:
    """Take tool calls and results from their columns or from the metadata, if they have a form that is known."""
    for name, role, convert in (("tool_calls", "assistant", _call), ("tool_results", "tool", _result)):
        given = decode_json(layout.value(raw, name))
        where = "column" if given else "metadata"
        given = given or row.turn.get("metadata", {}).get(name)
        found = [convert(one) for one in given] if isinstance(given, list) else []
        if found and None not in found and row.turn["role"] == role and _distinct(found):
            row.turn[name] = found
            if where == "metadata":
                _take_metadata(row, name)
        elif given and where == "column":
            row.keep(layout.fields[name], given)


def _distinct(items: Sequence[Any]) -> bool:
    return len({one["id"] for one in items}) == len(items)


def _call(one: Any) -> dict[str, Any] | None:
    """Return a tool call of Palaver's, OpenAI's or the AI SDK's form; None when it is another."""
    if not isinstance(one, dict):
        return None
    inner = one["function"] if isinstance(one.get("function"), dict) else one
    id, name = one.get("id", one.get("toolCallId")), inner.get("name", inner.get("toolName"))
    known = {"id", "toolCallId", "name", "toolName", "arguments", "args", "input", "type", "function"}
    if not isinstance(id, str) or not isinstance(name, str) or {*one, *inner} - known:
        return None
    arguments: Any = next((inner[key] for key in ("arguments", "args", "input") if key in inner), {})
    return {"id": id, "name": name, "arguments": _arguments(arguments)}


def _arguments(given: Any) -> Any:
    found = decode_json(given)
    return found if isinstance(found, dict) else given


def _result(one: Any) -> dict[str, Any] | None:
    known = {"id", "content", "is_error"}
    return one if isinstance(one, dict) and {"id", "content"} <= one.keys() <= known else None


def _read_model(row: TableRow, raw: Mapping[str, Any], layout: Layout) -> None:
    """Take model, token counts and finish reason. A single count is the program's own, and goes to the metadata."""
    for name in ("model", "finish_reason"):
        value = layout.value(raw, name)
        if value is None and name == "model" and isinstance(row.turn.get("metadata", {}).get("model"), str):
            value = _take_metadata(row, "model")
        if value is not None:
            row.turn[name] = str(value)
    counts = {kind: layout.value(raw, f"{kind}_tokens") for kind in ("prompt", "completion")}
    tokens = row.turn.get("metadata", {}).get("tokens")
    if all(count is None for count in counts.values()) and _is_usage(tokens):
        counts = _take_metadata(row, "tokens")
    if any(count is not None for count in counts.values()):
        row.turn["tokens"] = {kind: None if count is None else int(count) for kind, count in counts.items()}
    count = layout.value(raw, "token_count")
    if count is not None:
        row.keep(layout.fields["token_count"], count)


def _is_usage(tokens: Any) -> bool:
    return (
        isinstance(tokens, dict)
        and bool(tokens)
        and tokens.keys() <= {"prompt", "completion"}
        and all(isinstance(count, int) for count in tokens.values())
    )


def _read_lists(row: TableRow, raw: Mapping[str, Any], layout: Layout) -> None:
    """Take sources and files. Sources must be objects; a file is stored if it is a data URL, see `tables`."""
    sources = decode_json(layout.value(raw, "sources"))
    if isinstance(sources, list) and sources and all(isinstance(one, dict) for one in sources):
        row.turn["sources"] = sources
    elif sources:
        row.keep(layout.fields["sources"], sources)
    for name in ("images", "attachments"):
        files = decode_json(layout.value(raw, name))
        if isinstance(files, list):
            row.files += [(layout.fields[name], one) for one in files]
        elif files:
            row.keep(layout.fields[name], files)


def _read_speaker(row: TableRow, raw: Mapping[str, Any], layout: Layout, owner: str | None) -> None:
    """A user other than the owner of the conversation is the speaker of a user turn."""
    user = layout.value(raw, "owner")
    if user is None or str(user) == owner:
        return
    if row.turn["role"] == "user":
        row.turn["actor"] = str(user)
    else:
        row.keep(layout.fields["owner"], user)


def _take_metadata(row: TableRow, name: str) -> Any:
    metadata = dict(row.turn.get("metadata", {}))
    value = metadata.pop(name, None)
    if name in row.turn.get("metadata", {}):
        row.turn["metadata"] = metadata
    return value


# ---- values --------------------------------------------------------------------------------------------------------


def decode_json(value: Any) -> Any:
    """Decode JSON, which the driver returns as text. Text that is not JSON stays as it is."""
    if not isinstance(value, str):
        return value
    try:
        return from_json(value)
    except ValueError:
        return value


def plain(value: Any) -> Any:
    """Return a value of any column as JSON has it."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, date | datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
