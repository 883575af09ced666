"""Archives of logs: lines of JSON with the old events and requests of conversations. Pure.

One line per row: `{"kind": "event" | "request", "conversation": id, "row": {…}}`. The events of a conversation carry
their hash chain, so the file needs no other proof. Requests are without their bodies, which quote turns: forgetting a
turn could not reach them in a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from palaver.core.identity import canonical_json, micros
from palaver.errors import InvalidInput
from palaver.model import Request
from palaver.ports.queries import Record

HASHES = ("content_hash", "hash")


def event_line(conversation: str, row: Mapping[str, Any]) -> str:
    shown = {name: value.hex() if isinstance(value, bytes) else value for name, value in row.items()}
    return canonical_json({"kind": "event", "conversation": conversation, "row": shown})


def request_line(request: Request) -> str:
    row = {
        "id": request.id,
        "at": micros(request.at),
        "turn": request.turn,
        "purpose": request.purpose,
        "model": request.model,
        "adapter": request.adapter,
        "explanation": request.explanation,
        "response": request.response,
    }
    return canonical_json({"kind": "request", "conversation": request.conversation, "row": row})


def read_events(lines: Iterable[str], conversation: str) -> list[Record]:
    """Return the events of one conversation, in order. The same event may be in several files."""
    found: dict[int, Record] = {}
    for line in lines:
        if line.strip():
            record = _read(line)
            if record.get("kind") == "event" and record.get("conversation") == conversation:
                row = _row(record)
                found[row["n"]] = Record("event", row)
    return [found[n] for n in sorted(found)]


def _read(line: str) -> Mapping[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise InvalidInput("archive", "is not what `palaver archive` writes")
    return record


def _row(record: Mapping[str, Any]) -> dict[str, Any]:
    try:
        row = dict(record["row"])
        hashes = {name: bytes.fromhex(row[name]) for name in HASHES if row[name] is not None}
        return {**row, **hashes, "n": int(row["n"])}
    except (KeyError, TypeError, ValueError):
        raise InvalidInput("archive", "is not what `palaver archive` writes") from None
