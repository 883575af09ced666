"""Compares the rows that are derived from turns with the log. Pure.

See core/derived_rows.py for the form of the events. A conversation from a version without these events is *covered*
from one event on; what it had before is taken as it was found then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaver.audit.rows import EventPayload, RecordedEvent, require
from palaver.core.derived_rows import (
    MAY_VANISH,
    NOTES,
    derived_hash,
    fact_key,
    file_key,
    hashed_values,
    item_key,
    kind_of,
    request_keys,
    source_key,
    summary_key,
)
from palaver.ports.queries import RecordKind

EXPORTED = ("notes", "fact")
NAMES = {
    "summary": "summary {0}",
    "notes": "working memory",
    "fact": "fact {0}",
    "file": "the text of attachment {0}",
    "request": "request {0}",
    "body": "the body of request {0}",
    "item": "remembered item {0}",
    "source": "the source of remembered item {0}",
}


class DerivedRows:
    """The derived rows of one conversation: what its events say of them, and which of them were seen."""

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        self.hashes: dict[str, tuple[str, int]] = {}  # by key: the hash, and the number of its event
        self.is_covered = False
        self.proven = self.unproven = 0
        self._seen: set[str] = set()

    # ---- events

    def add(self, row: RecordedEvent, payload: EventPayload) -> None:
        """Apply what an event says of derived rows."""
        if row["kind"] == "reset":
            self.hashes.clear()
        for key, hash in payload.get("rows", {}).items():
            if hash is None:
                self.hashes.pop(key, None)
            else:
                self.hashes[key] = hash, row["n"]
        if payload.get("proof"):
            again = self.is_covered and row["kind"] != "archive"  # after an archive, the events before are not here
            require(not again, self.conversation, f"event {row['n']}", "derived rows were recorded a second time")
            self.is_covered = True

    # ---- rows

    def check(self, kind: RecordKind, row: Mapping[str, Any]) -> None:
        """Compare a record of a derived row with the log."""
        for key, salt, n in keys_of(kind, row):
            self._check_row(key, salt, n, row)

    def _check_row(self, key: str, salt: bytes | None, n: int | None, row: Mapping[str, Any]) -> None:
        self._seen.add(key)
        logged = self.hashes.get(key)
        if logged is None and salt is None and not self.is_covered:
            self.unproven += 1
            return
        self._require(logged is not None, key, "it is not in the log")
        assert logged is not None
        fits = salt is not None and logged == (derived_hash(key, salt, hashed_values(kind_of(key), row)), n)
        self._require(fits, key, "it does not match the log")
        self.proven += 1

    def missing(self) -> list[str]:
        """Return the keys of rows that the log knows and that did not come."""
        return sorted(key for key in self.hashes.keys() - self._seen if kind_of(key) not in MAY_VANISH)

    def finish(self, is_export: bool) -> None:
        """Raise for a row that is missing. An export has no summaries and requests, or nothing of all this."""
        is_bare = not any(kind_of(key) in EXPORTED for key in self._seen)
        for key in self.missing():
            fits = is_export and (is_bare or kind_of(key) not in EXPORTED)
            self._require(fits, key, "it is missing")

    def _require(self, fits: bool, key: str, problem: str) -> None:
        require(fits, self.conversation, name_of(key), problem)


def keys_of(kind: RecordKind, row: Mapping[str, Any]) -> list[tuple[str, bytes | None, int | None]]:
    """Return the keys of a record, each with its salt and the number of its event. A request may have a body, too."""
    proof = row.get("salt"), row.get("proof")
    match kind:
        case "summary":
            return [(summary_key(row["level"], row["from_seq"]), *proof)]
        case "working_memory":
            return [(NOTES, *proof)]
        case "fact":
            return [(fact_key(row["id"]), *proof)]
        case "file_text":
            return [(file_key(row["id"]), *proof)]
        case "item":
            return [(item_key(row["id"]), *proof)]
        case "source":
            return [(source_key(row["item"], row["turn"]), *proof)]
        case "request":
            record, body = request_keys(row["id"])
            sent = [] if row["body"] is None else [(body, row.get("body_salt"), row.get("body_proof"))]
            return [(record, *proof), *sent]
        case _:
            return []


def name_of(key: str) -> str:
    """Return the name of a derived row for an error."""
    kind, _, id = key.partition("/")
    return NAMES.get(kind, "{0}").format(id)
