"""Between values and the rows of the SQL contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaver.core.identity import from_json
from palaver.core.turn_draft import TurnDraft, decode_content, preview, words
from palaver.engines.file_passages import pieces_of
from palaver.engines.postgres.transports import unhex
from palaver.engines.rows import TurnRow, conversation_info, event_from_row
from palaver.model import ConversationInfo, Event, Turn
from palaver.recall.terms import passages, title_terms

Row = Mapping[str, Any]
INFO = (
    "id", "tenant", "owner", "key", "workspace", "agent", "model", "title", "preview", "participants", "metadata",
    "settings", "turn_count", "token_count", "next_seq", "next_n", "ttl", "expires_at", "created", "updated",
)  # fmt: skip
TURN = TurnRow.__struct_fields__
EVENT = ("n", "kind", "turn", "actor", "at", "payload", "content_hash", "hash")
BYTES = frozenset({"salt", "content_hash", "hash", "tip_hash"})
# What an append does not send back: the caller has it.
ECHO = ("content", "tool_calls", "tool_results", "attachments", "sources", "metadata")
DRAFT = TurnDraft.__struct_fields__


def info(row: Row) -> ConversationInfo:
    return conversation_info(
        tuple(row[name] - 1 if name == "next_n" else row[name] for name in INFO)
    )  # the last event's


def turn_row(row: Row) -> TurnRow:
    values: list[Any] = [unhex(row[name]) if name in BYTES else row[name] for name in TURN]
    return TurnRow(*values)


def turn(row: Row, conversation: str) -> Turn:
    return turn_row(row).turn(conversation)


def appended(row: Row, draft: TurnDraft, conversation: str) -> Turn:
    """A turn that was stored just now: the numbers are the database's, the words are ours."""
    found = turn_row(row)
    if found.content is None:
        for name in ECHO:
            setattr(found, name, getattr(draft, name))
    return found.turn(conversation)


def event_of(row: Row, conversation: str) -> Event:
    return event_from_row(tuple(unhex(row[name]) if name in BYTES else row[name] for name in EVENT), conversation)


def portable(row: Row, local: frozenset[str]) -> dict[str, Any]:
    """A row as it is carried elsewhere, without what means something only here."""
    return {name: unhex(value) if name in BYTES else value for name, value in row.items() if name not in local}


# ---- on the way in -------------------------------------------------------------------------------------------------


def draft_json(draft: TurnDraft) -> dict[str, Any]:
    """A draft as a row of `turns`, with the words to find it by."""
    values = {name: value for name in DRAFT if (value := getattr(draft, name)) is not None}
    values["is_parts"] = int(draft.is_parts)
    values["salt"] = hexed(draft.salt)
    values["words"] = found = index_words(words(decode_content(draft.content, draft.is_parts)))
    values["terms"] = sum(size for size, _ in found)
    return values


def row_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """An exported row, in JSON."""
    return {name: hexed(value) if isinstance(value, bytes) else value for name, value in row.items()}


def turn_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """An exported turn, with what is derived from its text."""
    text = words(decode_content(row["content"] or "", bool(row["is_parts"]))) if row["status"] == "complete" else ""
    line = preview(text) if row["role"] == "user" else None
    return {**row_json(row), "words": index_words(text), "preview": line}


def hexed(value: bytes) -> str:
    return "\\x" + value.hex()


def index_words(text: str) -> list[tuple[int, str]]:
    """For each passage of a text: how many stems it has, and the stems with their places."""
    return [_placed(found.split(" ")) for found in passages(text)]


def file_words(text: str) -> list[tuple[str, int, str | None]]:
    """The pieces of what a file says, with their words where there are any."""
    return [(piece, *(_placed(stems.split(" ")) if stems else (0, None))) for piece, stems in pieces_of(text)]


def title_words(title: str | None) -> tuple[int, str | None]:
    stems = title_terms(title) if title else []
    return _placed(stems) if stems else (0, None)


def _placed(stems: list[str]) -> tuple[int, str]:
    """In the notation of `tsvector`; a stem has no quote in it."""
    return len(stems), " ".join([f"'{stem}':{place}" for place, stem in enumerate(stems, 1)])


def decoded(value: Any) -> Any:
    """JSON, however it travelled."""
    return from_json(value) if isinstance(value, str) else value
