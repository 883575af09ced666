"""A conversation as one store has it, read into memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaver.audit.derived import keys_of
from palaver.audit.verifier import Verifier
from palaver.core.derived_rows import ROWS
from palaver.core.identity import from_json
from palaver.core.turn_draft import STORED_FIELDS, TurnDraft
from palaver.model import Tip
from palaver.ports.queries import Record

Row = dict[str, Any]
NEW_TURN = ("append", "open")  # kinds of events


@dataclass(slots=True)
class Copy:
    """The rows of a conversation, by kind. `derived` are those that are made from turns, by their key in the log."""

    conversation: Row
    events: list[Row] = field(default_factory=list)
    turns: list[Row] = field(default_factory=list)
    attachments: list[Row] = field(default_factory=list)
    derived: dict[str, Record] = field(default_factory=dict)

    @property
    def tip(self) -> Tip:
        row = self.conversation
        return Tip(conversation=row["id"], n=row["next_n"] - 1, hash=row["tip_hash"].hex())

    @property
    def is_pending(self) -> bool:
        """Whether a turn is still being written."""
        return any(turn["status"] == "pending" for turn in self.turns)

    def events_after(self, n: int) -> list[Row]:
        return [event for event in self.events if event["n"] > n]

    def turns_at(self, n: int) -> int:
        """Return how many turns there were after event `n`."""
        later = sum(event["kind"] in NEW_TURN for event in self.events_after(n))
        return int(self.conversation["next_seq"]) - later

    def records(self) -> list[Record]:
        """Return the rows in the order that `Verifier` and the engines need."""
        return [
            Record("conversation", self.conversation),
            *(Record("event", row) for row in self.events),
            *(Record("turn", row) for row in self.turns),
            *(Record("attachment", row) for row in self.attachments),
            *self.derived.values(),
        ]

    def verify(self) -> None:
        """Raise `VerificationFailed` if a row is not what the log says."""
        verifier = Verifier()
        verifier.feed(self.records())
        verifier.finish()


async def read_copy(pages: AsyncIterator[Sequence[Record]]) -> Copy:
    """Collect the pages that `LogStore.records` yields."""
    copy = Copy({})
    async for page in pages:
        add_records(copy, page)
    return copy


def add_records(copy: Copy, records: Iterable[Record]) -> None:
    for record in records:
        match record.kind:
            case "conversation":
                copy.conversation = {name: value for name, value in record.row.items() if name != "members"}
                copy.conversation["title_made"] = bool(record.row.get("title_made"))  # one engine has a number
            case "event":
                copy.events.append(record.row)
            case "turn":
                copy.turns.append(record.row)
            case "attachment":
                copy.attachments.append(record.row)
            case _:
                record = without_body(record)
                copy.derived[keys_of(record.kind, record.row)[0][0]] = record


def without_body(record: Record) -> Record:
    """Return the record of a request without its body, which stays where the request was sent."""
    if record.kind != "request":
        return record
    return Record("request", {**record.row, "body": None, "body_salt": None, "body_proof": None})


def payload_of(event: Mapping[str, Any]) -> dict[str, Any]:
    return from_json(event["payload"]) if event["payload"] else {}


def changed_keys(events: Iterable[Mapping[str, Any]]) -> dict[str, str | None]:
    """Return the derived rows that events say were changed, with the last hash of each; None: it was deleted."""
    found: dict[str, str | None] = {}
    for event in events:
        found.update(payload_of(event).get(ROWS) or {})
    return found


def origins(events: Iterable[Row]) -> dict[str, str]:
    """Return the turns that came from elsewhere, by the id that they had there."""
    found = ((payload_of(event).get("origin"), event["turn"]) for event in events if event["kind"] in NEW_TURN)
    return {origin: turn for origin, turn in found if origin is not None}


def draft_of(row: Mapping[str, Any], **changes: str) -> TurnDraft:
    """Return the fields of a turn from which its hash is made."""
    return TurnDraft(**{name: row[name] for name in STORED_FIELDS} | changes)
