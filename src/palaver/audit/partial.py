"""Logs whose first events are in an archive that is not available: what can be proved without them. Pure.

The events that are left form a chain. It begins at a hash that a later event of the same chain names: archiving logs
it. So nothing of it can be changed or removed; but the places of older turns are not proved, only their text.
"""

from __future__ import annotations

from palaver.audit.replay import LogReplay, hash_of
from palaver.audit.rows import EventPayload, RecordedEvent
from palaver.core.identity import from_json
from palaver.errors import VerificationFailed


class PartialReplay(LogReplay):
    """The hashes of the turns that the events after an archive name; their places are not known."""

    def __init__(self, conversation: str, archived: int) -> None:
        super().__init__(conversation)
        self.archived = self.count = archived
        self.first: RecordedEvent | None = None
        self.is_anchored = False

    def add(self, row: RecordedEvent) -> None:
        """Check that an event is the next one and unchanged, then keep its hash. The first one is checked later."""
        if self.first is None:
            self.first = row
            self.count += 1
            self.last_hash, self.updated = row["hash"], row["at"]
        else:
            self._check_next(row, self.last_hash)
        payload: EventPayload = from_json(row["payload"]) if row["payload"] else {}
        self.derived.add(row, payload)
        match row["kind"]:
            case "create" | "update":
                self.details_hash = row["content_hash"]
            case "append" | "commit" | "abort":
                self.content_hashes[row["turn"]] = row["content_hash"]
            case "forget" | "retire":
                self._forget_hash(row, payload)
            case "archive":
                self._anchor(payload)
            case "erase":
                self._erase(row, payload)

    def _forget_hash(self, row: RecordedEvent, payload: EventPayload) -> None:
        self.stub_hashes[row["turn"]] = row["content_hash"]
        self.salted.discard(row["turn"])
        if row["kind"] == "retire" and payload.get("salt"):
            self.salted.add(row["turn"])

    def _anchor(self, payload: EventPayload) -> None:
        """Check the first event after the hash that archiving has kept."""
        if payload.get("through") != self.archived or self.first is None:
            return
        previous = bytes.fromhex(payload["hash"])
        name = f"event {self.first['n']}"
        fits = hash_of(self.first, previous) == self.first["hash"] or self._note_tombstone(self.first, previous)
        self._require(fits, name, "it does not follow the archive")
        self.is_anchored = True

    def require_anchor(self) -> None:
        if not self.is_anchored:
            problem = "event 1 is missing, and no event says that earlier events were archived"
            raise VerificationFailed(self.conversation, f"event {self.archived + 1}", problem)
