"""Proves what happened: replays the log, and compares every stored row with it. Pure.

`Verifier` is fed the records of one conversation, in order: the conversation, its events, its turns, its attachments,
then what is derived from them.
It raises `VerificationFailed` at the first row that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from palaver.audit.partial import PartialReplay
from palaver.audit.replay import LogReplay
from palaver.audit.rows import RecordedAttachment, RecordedConversation, RecordedEvent, RecordedTurn, require
from palaver.core.branches import Node
from palaver.core.conversation_details import DETAIL_FIELDS, ConversationDetails, details_hash
from palaver.core.identity import digest, from_json
from palaver.core.turn_draft import (
    FORGOTTEN_FIELDS,
    STORED_FIELDS,
    STUB_FIELDS,
    TurnDraft,
    chunk_hash,
    content_hash,
    decode_content,
    preview,
    stub_hash,
    words,
)
from palaver.errors import VerificationFailed
from palaver.model import Verified
from palaver.ports.queries import Record

MINUTE = 60_000_000  # microseconds


class Verifier:
    """Compares the rows of one conversation with its log."""

    row: RecordedConversation
    log: LogReplay

    def __init__(self, *, is_export: bool = False) -> None:
        """With `is_export`, summaries and requests may be missing: an export does not have them."""
        self.is_export = is_export
        self.turns = self.attachments = 0
        self.turn_count = self.token_count = 0
        self.preview: tuple[int, str] | None = None  # position and first line of the first user turn with text
        self.files: dict[str, dict[str, object]] = {}  # files that turns name and whose rows have not come yet

    def feed(self, records: Iterable[Record]) -> None:
        for record in records:
            match record.kind:
                case "conversation":
                    self.row = cast(RecordedConversation, record.row)
                    self.log = LogReplay(self.row["id"])
                case "event":
                    self._add_event(cast(RecordedEvent, record.row))
                case "turn":
                    self._check_turn(cast(RecordedTurn, record.row))
                case "attachment":
                    self._check_attachment(cast(RecordedAttachment, record.row))
                case _:
                    self.log.derived.check(record.kind, record.row)

    def _add_event(self, row: RecordedEvent) -> None:
        if not self.log.count and isinstance(row["n"], int) and row["n"] > 1:  # the events before are in an archive
            self.log = PartialReplay(self.row["id"], row["n"] - 1)
        self.log.add(row)

    def finish(self) -> Verified:
        """Compare the conversation itself, after all its records."""
        self.log.require_tombstones()
        if isinstance(self.log, PartialReplay):
            return self._finish_partial(self.log)
        self._check_totals()
        self._check_times()
        self._check_resets()
        self._check_details()
        self._require(not self.files, "attachments", "the row of a turn's file is missing")
        return self._verified(self.log, 0)

    def _finish_partial(self, log: PartialReplay) -> Verified:
        log.require_anchor()
        self._check_ends()
        self._require(self.row["next_seq"] == self.turns, "conversation", "turns are missing at the end")
        self._check_counts()
        log.created = self.row["created"]  # its first event is in the archive
        self._check_times()
        self._check_details()
        self._require(not self.files, "attachments", "the row of a turn's file is missing")
        return self._verified(log, log.archived)

    def _verified(self, log: LogReplay, archived: int) -> Verified:
        log.derived.finish(self.is_export)
        return Verified(
            conversation=log.conversation,
            events=log.count - archived,
            turns=self.turns,
            attachments=self.attachments,
            tip=log.last_hash.hex(),
            archived=archived,
            derived=log.derived.proven,
            unproven=log.derived.unproven,
        )

    def _require(self, fits: bool, name: str, problem: str) -> None:
        require(fits, self.log.conversation, name, problem)

    # ---- the conversation

    def _check_totals(self) -> None:
        row, log = self.row, self.log
        tip = log.tree.active[-1] if log.tree.active else None
        place = (tip.position, tip.slot) if tip else (-1, None)
        self._check_ends()
        for fits, problem in (
            (row["next_seq"] == log.tree.next_seq, "next_seq does not match the log"),
            (self.turns == len(log.tree.nodes), "turns are missing at the end"),
        ):
            self._require(fits, "conversation", problem)
        self._check_counts()
        self._require((row["tip_position"], row["tip_slot"]) == place, "conversation", "its tip does not match the log")

    def _check_ends(self) -> None:
        row, log = self.row, self.log
        self._require(row["tip_hash"] == log.last_hash, "conversation", "its tip is not the last event of the log")
        self._require(row["next_n"] == log.count + 1, "conversation", "events are missing at the end of the log")

    def _check_counts(self) -> None:
        row = self.row
        line = self.preview[1] if self.preview else None
        for fits, problem in (
            (row["turn_count"] == self.turn_count, "turn_count does not match its turns"),
            (row["token_count"] == self.token_count, "token_count does not match its turns"),
            (row["preview"] == line, "its preview is not the first line of the first user turn"),
        ):
            self._require(fits, "conversation", problem)

    def _check_times(self) -> None:
        row, updated = self.row, self.log.updated
        stored = (row["created"], row["updated"], row["minute"])
        fits = stored == (self.log.created, updated, updated // MINUTE)
        self._require(fits, "conversation", "its times do not match its first and last event")
        ends = None if row["ttl"] is None else updated + row["ttl"]
        self._require(row["expires_at"] == ends, "conversation", "its expiry time does not match its time to live")

    def _check_resets(self) -> None:
        for reset in set(self.log.resets.values()):
            self._require(digest(reset.stubs) == reset.hash, reset.name, "the turns that it reset were changed")

    def _check_details(self) -> None:
        row = self.row
        hash = details_hash(row["salt"], _details(row))
        logged = self.log.details_hash
        if logged is None and isinstance(self.log, PartialReplay):
            logged = hash
        fits = hash == row["content_hash"] == logged
        self._require(fits, "conversation", "its title, owner, settings or other details were changed")
        if "members" in row:
            fits = sorted(from_json(row["participants"])) == sorted(from_json(row["members"]))
            self._require(fits, "conversation", "users other than its participants may see it")

    # ---- turns

    def _check_turn(self, row: RecordedTurn) -> None:
        name = f"turn {row['id']} (seq {row['seq']})"
        self._require(row["seq"] == self.turns, name, f"the turn with seq {self.turns} should be here")
        if isinstance(self.log, PartialReplay):
            self._check_text_alone(name, row)
        else:
            self._check_logged(name, row)
        self.turns += 1
        if row["active"]:
            self.turn_count += 1
            self.token_count += row["token_count"]
            self._update_preview(row)
        for file in from_json(row["attachments"]) if row["attachments"] else ():
            self.files[file["id"]] = {**file, "turn": row["id"]}

    def _check_logged(self, name: str, row: RecordedTurn) -> None:
        node = self.log.tree.nodes.get(row["id"])
        if node is None:
            raise VerificationFailed(self.log.conversation, name, "it is not in the log")
        self._check_place(name, row, node)
        if node.status == "forgotten":
            self._check_stub(name, row)
        else:
            self._check_text(name, row, node)

    def _check_text_alone(self, name: str, row: RecordedTurn) -> None:
        """Check a turn whose event may be in an archive: by its own hash, and by the one in the log if it is there."""
        id, log, values = row["id"], self.log, cast(Mapping[str, Any], row)
        if row["status"] == "forgotten":
            left = [one for one, empty in FORGOTTEN_FIELDS.items() if values.get(one) != empty and one != "salt"]
            self._require(not left, name, f"it was forgotten, but still has {', '.join(left)}")
            stub = log.stub_before_erasure(id, stub_hash(*(values[one] for one in STUB_FIELDS)))
            self._require(stub == log.stub_hashes.get(id, stub), name, "the record that is left of it was changed")
        elif row["status"] != "pending":
            hash = content_hash(id, _draft(row), row["created"])
            fits = hash == row["content_hash"] == log.content_hashes.get(id, hash)
            self._require(fits, name, "its content is not the content that was stored")

    def _check_place(self, name: str, row: RecordedTurn, node: Node) -> None:
        stored = (
            row["seq"], row["position"], row["parent"], row["slot"] or row["id"], row["active"],
            row["superseded_by"], row["status"],
        )  # fmt: skip
        logged = (node.seq, node.position, node.parent, node.slot, int(node.active), node.superseded_by, node.status)
        self._require(stored == logged, name, "its position in the thread does not match the log")

    def _check_stub(self, name: str, row: RecordedTurn) -> None:
        """Check that forgetting left only a stub, and that it is unchanged."""
        id, log = row["id"], self.log
        values: Mapping[str, Any] = row
        kept = ("salt",) if id in log.salted else ()
        left = [one for one, empty in FORGOTTEN_FIELDS.items() if values.get(one) != empty and one not in kept]
        self._require(not left, name, f"it was forgotten, but still has {', '.join(left)}")
        self._require(row["content_hash"] == log.content_hashes.get(id), name, "its hash is not the one in the log")
        stub = log.stub_before_erasure(id, stub_hash(*(values[one] for one in STUB_FIELDS)))
        if id in log.resets:
            self._require(stub is not None, name, "the record that is left of it was changed")
            log.resets[id].stubs.append(stub or b"")
        else:
            self._require(stub == log.stub_hashes[id], name, "the record that is left of it was changed")

    def _check_text(self, name: str, row: RecordedTurn, node: Node) -> None:
        if node.status == "pending":
            self._check_opening(name, row)
        else:
            hash = content_hash(row["id"], _draft(row), row["created"])
            fits = hash == row["content_hash"] == self.log.content_hashes.get(row["id"])
            self._require(fits, name, "its content is not the content that was stored")
        text = row["content"] or ""
        for chunk in self.log.chunks.pop(row["id"], ()):
            fits = chunk_hash(row["salt"], text[chunk.start : chunk.end]) == chunk.hash
            self._require(fits, name, f"letters {chunk.start} to {chunk.end} differ from what was written")

    def _check_opening(self, name: str, row: RecordedTurn) -> None:
        """Check that a pending turn is as it was opened, and that its text is as long as its chunks."""
        length = len(row["content"] or "")
        self._require(length == self.log.lengths[row["id"]], name, "its text does not match its chunks")
        hash = content_hash(row["id"], _draft(row, content=""), row["created"])
        fits = row["content_hash"] is None and hash == self.log.opening_hashes[row["id"]]
        self._require(fits, name, "it does not match the turn that was opened")

    def _update_preview(self, row: RecordedTurn) -> None:
        if row["role"] == "user" and row["status"] == "complete":
            line = preview(words(decode_content(row["content"] or "", bool(row["is_parts"]))))
            if line and (self.preview is None or row["position"] < self.preview[0]):
                self.preview = (row["position"], line)

    # ---- attachments

    def _check_attachment(self, row: RecordedAttachment) -> None:
        self.attachments += 1
        if row["turn"] is None:
            return
        name, values = f"attachment {row['id']}", cast(Mapping[str, object], row)
        stored = self.files.pop(row["id"], None)
        if stored is None:
            raise VerificationFailed(self.log.conversation, name, "no turn refers to it")
        fits = all(values[one] == stored[one] for one in stored)
        self._require(fits, name, "it does not match its turn")


def _details(row: Mapping[str, Any]) -> ConversationDetails:
    return ConversationDetails(**{name: row[name] for name in DETAIL_FIELDS})


def _draft(row: Mapping[str, Any], **changes: str) -> TurnDraft:
    """Return the draft that a row was stored from."""
    return TurnDraft(**{name: row[name] for name in STORED_FIELDS} | changes)
