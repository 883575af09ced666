"""Conversion between values and the rows of the SQL functions."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import Any

from palaver.core.filters import Interval, TurnFilter
from palaver.core.identity import from_json
from palaver.core.turn_draft import TurnDraft, decode_content, preview, words
from palaver.engines.file_passages import split_into_passages, stored_passages
from palaver.engines.postgres.transports import Json, Row, as_json, unhex
from palaver.engines.rows import TurnRow, conversation_info, event_from_row
from palaver.model import ConversationInfo, Event, Turn
from palaver.ports.queries import AppendBatch
from palaver.recall.terms import passages, title_terms

EXACT = 2**53  # up to here, a double holds every whole number
INFO = (
    "id", "tenant", "owner", "key", "workspace", "agent", "model", "title", "preview", "participants", "metadata",
    "settings", "turn_count", "token_count", "summarized_position", "next_seq", "next_n", "ttl", "expires_at",
    "created", "updated",
)  # fmt: skip
TURN = TurnRow.__struct_fields__
EVENT = ("n", "kind", "turn", "actor", "at", "payload", "content_hash", "hash")
BYTES = frozenset({"salt", "content_hash", "hash", "tip_hash"})
DRAFT = tuple(name for name in TurnDraft.__struct_fields__ if name not in ("is_parts", "salt", "hash_key"))
_turn_values, _draft_values = itemgetter(*TURN), attrgetter(*DRAFT)


# ---- from rows to values -------------------------------------------------------------------------------------------


def read_info(row: Row) -> ConversationInfo:
    # The value has the number of the last event, the row that of the next one.
    return conversation_info(tuple(row[name] - 1 if name == "next_n" else row[name] for name in INFO))


def read_turn_row(row: Row) -> TurnRow:
    read = TurnRow(*_turn_values(row))
    read.salt, read.content_hash = unhex(read.salt), unhex(read.content_hash)
    return read


def read_turn(row: Row, conversation: str) -> Turn:
    return read_turn_row(row).turn(conversation)


def read_appended(row: Row, draft: TurnDraft, conversation: str) -> Turn:
    """Read a turn that was stored just now: numbers come from the database, content from the draft."""
    turn_row = read_turn_row(row)
    if turn_row.content is None:  # these columns are not sent back: the caller has them in the draft
        turn_row.content, turn_row.metadata, turn_row.sources = draft.content, draft.metadata, draft.sources
        turn_row.tool_calls, turn_row.tool_results = draft.tool_calls, draft.tool_results
        turn_row.attachments = draft.attachments
    return turn_row.turn(conversation)


def read_event(row: Row, conversation: str) -> Event:
    return event_from_row(tuple(unhex(row[name]) if name in BYTES else row[name] for name in EVENT), conversation)


def export_row(row: Row, local: frozenset[str]) -> dict[str, object]:
    """Return a row for an export, without the columns that are local to this database."""
    return {name: unhex(value) if name in BYTES else value for name, value in row.items() if name not in local}


def read_hex(value: bytes | str) -> str:
    return (unhex(value) or b"").hex()


def decode_json(value: Any) -> Any:
    """Decode JSON that arrives as text over asyncpg, and decoded over HTTP."""
    return from_json(value) if isinstance(value, str) else value


# ---- from values to rows -------------------------------------------------------------------------------------------


def draft_json(draft: TurnDraft) -> dict[str, object]:
    """Return a draft as a row of `turns`, with the stems for the text index."""
    given = zip(DRAFT, _draft_values(draft), strict=True)
    values: dict[str, object] = {name: value for name, value in given if value is not None}
    values["is_parts"] = int(draft.is_parts)
    values["salt"] = to_hex(draft.salt)
    if draft.hash_key:
        values["hash_key"] = True
    values["words"] = index_words(words(decode_content(draft.content, draft.is_parts)))
    return values


def append_place(batch: AppendBatch) -> dict[str, object]:
    """Return the arguments that say where the turns of an append go."""
    return {"expected_seq": batch.expected_seq, "replaces": batch.replaces, "discard_after": batch.discard_after}


def row_json(row: Row) -> dict[str, object]:
    """Return an exported row as JSON takes it."""
    return {name: to_hex(value) if isinstance(value, bytes) else value for name, value in row.items()}


def turn_json(row: Row) -> dict[str, object]:
    """Return an exported turn as JSON takes it, with its preview and its stems."""
    text = words(decode_content(row["content"] or "", bool(row["is_parts"]))) if row["status"] == "complete" else ""
    line = preview(text) if row["role"] == "user" else None
    return {**row_json(row), "words": index_words(text), "preview": line}


def file_text_json(row: Row) -> dict[str, object]:
    """Return the text of a file as JSON takes it, in the passages that it has, each with its stems."""
    first, passages = stored_passages(row)
    return {**row_json(row), "first": first, "passages": [(one.text, *_indexed(one.stems)) for one in passages]}


def to_hex(value: bytes) -> str:
    return "\\x" + value.hex()


def list_or_none(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(names)


def index_words(text: str) -> list[tuple[int, str]]:
    """Return, for each passage of a text, how many stems it has and its tsvector."""
    return [_tsvector(found.split(" ")) for found in passages(text)]


def file_words(text: str) -> list[tuple[str, int, str | None]]:
    """Return the pieces of a file's text, each with its number of stems and its tsvector (None without stems)."""
    return [(piece, *_indexed(stems)) for piece, stems in split_into_passages(text)]


def _indexed(stems: str) -> tuple[int, str | None]:
    return _tsvector(stems.split(" ")) if stems else (0, None)


def title_words(title: str | None) -> tuple[int, str | None]:
    stems = title_terms(title) if title else []
    return _tsvector(stems) if stems else (0, None)


def _tsvector(stems: list[str]) -> tuple[int, str]:
    """Return the number of stems and their places in the notation of `tsvector`. A stem contains no quote."""
    return len(stems), " ".join([f"'{stem}':{place}" for place, stem in enumerate(stems, 1)])


def filter_json(intervals: Sequence[Interval]) -> Json | None:
    """Write the conditions on metadata for the functions that take a filter."""
    return as_json([[_unrounded(value) for value in one] for one in intervals]) if intervals else None


def _unrounded(value: object) -> object:
    """Return a large whole number as text: gateways that read JSON with doubles would round it."""
    return str(value) if isinstance(value, int) and abs(value) > EXACT else value


def filter_args(wanted: TurnFilter) -> dict[str, Any]:
    """Write a filter as arguments."""
    return {
        "filter": filter_json(wanted.metadata),
        "roles": list_or_none(wanted.roles),
        "actors": list_or_none(wanted.actors),
        "since": wanted.since,
        "until": wanted.until,
    }
