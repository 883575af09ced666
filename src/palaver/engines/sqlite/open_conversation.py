"""A conversation open for writing inside one transaction: its clock, its log and its turns."""

from __future__ import annotations

import re
from collections.abc import Mapping
from operator import attrgetter

from palaver.core.branches import Node
from palaver.core.derived_rows import ROWS
from palaver.core.identity import canonical_json, event_hash, from_json, key_hash, stamp, stamped_seq
from palaver.core.turn_draft import TurnDraft, content_hash, decode_content, preview, words
from palaver.engines.erasing import RESETTING
from palaver.engines.rows import Row, TurnRow, scope_params
from palaver.engines.sqlite import proof
from palaver.engines.sqlite.queries import NEW_TURN_COLUMNS, Q
from palaver.engines.sqlite.transaction import Tx
from palaver.engines.wakeup import JOBS
from palaver.errors import (
    AttachmentNotFound,
    ConversationBusy,
    ConversationGone,
    ConversationNotFound,
    RowUnreadable,
    TurnGone,
    TurnNotFound,
)
from palaver.model import Scope

MINUTE = 60_000_000  # microseconds
CLOCK_WAS_WRONG = 1_440 * MINUTE  # how far ahead of the clock the time of a conversation may be
NO_LIMIT = 2**62  # a bound that no position, number or time of a row reaches
ADD_TURN, LOG, SAVE = Q.add_turn, Q.log, Q.save_conversation
# `require_row` passes its values by position, because every verb runs it: the order must be that of first mention.
FIND = Q.find
assert tuple(dict.fromkeys(re.findall(r":(\w+)", FIND))) == ("id", "tenant", "sight", "user", "workspace", "now")
NEW_TURN_VALUES = attrgetter(*NEW_TURN_COLUMNS)


class OpenConversation:
    """One conversation inside a write transaction. Changes are kept here until `save`."""

    def __init__(self, tx: Tx, scope: Scope, row: Row) -> None:
        self.tx, self.scope = tx, scope
        self.updated: int
        (
            self.cid,
            self.id,
            self.owner,
            self.next_seq,
            self.next_n,
            self.tip_hash,
            self.tip_position,
            self.tip_slot,
            self.updated,
            self.minute,
            self.turn_count,
            self.token_count,
            self.preview,
            self.ttl,
        ) = row
        self.changed_rows: set[str] = set()  # keys of derived rows that the next event is to prove
        tx.touched.add(self.id)

    # ---- clock and log

    def tick(self) -> int:
        """Return the next time of this conversation, which is later than every earlier one even if the clock is not.

        If it is far ahead of the clock, an earlier clock was wrong: then time continues from now.
        """
        ahead = self.updated - self.tx.now
        self.updated = self.tx.now if ahead < 0 or ahead > CLOCK_WAS_WRONG else self.updated + 1
        return self.updated

    def log(
        self,
        kind: str,
        at: int,
        *,
        actor: str | None = None,
        turn: str | None = None,
        payload: Mapping[str, object] | None = None,
        content_hash: bytes | None = None,
    ) -> None:
        by = self.scope.user or ""
        if actor is None:
            actor = by
        elif by and actor != by:
            payload = {**(payload or {}), "by": by}
        if self.changed_rows:
            payload = {**(payload or {}), **self._prove()}
        text = canonical_json(payload) if payload else None
        self.tip_hash = event_hash(self.tip_hash, self.next_n, kind, turn, actor, at, text, content_hash)
        self.tx.put(LOG, self.cid, self.next_n, kind, turn, actor, at, text, content_hash, self.tip_hash)
        self.next_n += 1

    def changed(self, *keys: str) -> None:
        """Note that derived rows were written or deleted: the next event, or `save`, has their hashes."""
        self.changed_rows.update(keys)

    def fits(self, *keys: str) -> list[str]:
        """Return those of some derived rows that match the log: only they are proved again after a change."""
        proofs = proof.Proofs(self.tx, self.cid)
        return [key for key in keys if proofs.fits(key)]

    def _prove(self) -> dict[str, object]:
        rows = proof.prove(self.tx, self.cid, self.next_n, self.changed_rows)
        self.changed_rows.clear()
        if rows and not proof.is_covered(self.tx, self.cid):
            self.tx.run(Q.add_job, cid=self.cid, kind="prove", argument=None, now=self.tx.now)
        return {ROWS: rows} if rows else {}

    def save(self) -> None:
        """Store the changed fields. Called once, at the end of every write."""
        if self.changed_rows and (payload := self._prove()):
            self.log("prove", self.updated, payload=payload)
        self.tx.put(
            SAVE,
            self.next_seq,
            self.next_n,
            self.tip_hash,
            self.tip_position,
            self.tip_slot,
            self.updated,
            self.turn_count,
            self.token_count,
            self.preview,
            self.cid,
        )
        if self.updated // MINUTE != self.minute:
            self.tx.run(Q.save_minute, cid=self.cid, minute=self.updated // MINUTE)
        if self.ttl is not None:
            self.tx.run(Q.save_expiry, cid=self.cid, expires_at=self.updated + self.ttl)

    # ---- turns

    def turn(self, id: str) -> TurnRow:
        return turn_row(self.tx, self.cid, id)

    def is_active(self, id: str) -> bool:
        row = self.tx.one(Q.turn, cid=self.cid, id=id, seq=stamped_seq(id))
        return row is not None and bool(TurnRow(*row).active)

    def is_retired(self, id: str) -> bool:
        """True if only the words of a turn are deleted. (A turn that was forgotten has no notes left to ask for.)"""
        row = self.tx.one(Q.turn, cid=self.cid, id=id, seq=stamped_seq(id))
        return row is not None and TurnRow(*row).status == "forgotten"

    def require_turn(self, id: str) -> TurnRow:
        turn = self.turn(id)
        if turn.status == "forgotten":
            raise TurnGone(id)
        return turn

    def turn_by_key(self, key: str) -> TurnRow | None:
        row = self.tx.one(Q.turn_by_key, cid=self.cid, key=key, hashed=key_hash(self.id, key))
        return TurnRow(*row) if row else None

    def next_id(self, draft: TurnDraft) -> str:
        """Return the id that the next turn will have."""
        return stamp(draft.id, self.next_seq)

    def insert(self, draft: TurnDraft, position: int, parent: str | None, slot: str | None, status: str) -> TurnRow:
        """Store a turn at a position. The caller logs the event."""
        now = self.tick()
        created = now if draft.created is None else draft.created
        id = self.next_id(draft)
        # In the order of TurnRow. Positional arguments take a fifth of the time of keywords; every append does this.
        row = TurnRow(
            0,
            id,
            self.next_seq,
            position,
            parent,
            slot,
            1,
            None,
            status,
            draft.role,
            draft.actor,
            int(draft.is_parts),
            draft.content,
            draft.tool_calls,
            draft.tool_results,
            draft.attachments,
            draft.sources,
            draft.prompt_tokens,
            draft.completion_tokens,
            draft.token_count,
            draft.model,
            draft.adapter,
            draft.finish_reason,
            draft.metadata,
            draft.idempotency_key,
            draft.salt,
            content_hash(id, draft, created) if status == "complete" else None,
            created,
        )
        self.tx.put(ADD_TURN, self.cid, *NEW_TURN_VALUES(row))
        row.tid = self.tx.db.last_insert_rowid()
        if draft.attachments:
            self._bind_attachments(row.tid, draft.attachments)
            if draft.role != "tool":
                self.enqueue_text_extraction()
        self.next_seq += 1
        self.turn_count += 1
        self.token_count += draft.token_count
        if position > self.tip_position:
            self.tip_position, self.tip_slot = position, slot or id
        if status == "complete" and self.preview is None:
            self.preview = draft.preview
        return row

    def _bind_attachments(self, tid: int, attachments: str) -> None:
        for one in from_json(attachments):
            if not self.tx.all(Q.bind_attachment, cid=self.cid, tid=tid, id=one["id"]):
                raise AttachmentNotFound(one["id"])

    def enqueue_text_extraction(self) -> None:
        """Enqueue a job that extracts the text of attached files."""
        self.tx.run(Q.add_job, cid=self.cid, kind="files", argument=None, now=self.tx.now)
        self.tx.touched.add(JOBS)

    def deactivate(self, turn: TurnRow | Node, *, by: str) -> None:
        """Take a turn out of the active branch, displaced by another."""
        for (tokens,) in self.tx.all(Q.deactivate, cid=self.cid, seq=turn.seq, by=by):
            self.turn_count -= 1
            self.token_count -= tokens

    def activate(self, turn: Node) -> None:
        """Put a turn back into the active branch."""
        for (tokens,) in self.tx.all(Q.activate, cid=self.cid, seq=turn.seq):
            self.turn_count += 1
            self.token_count += tokens

    def find_tip(self) -> None:
        """Look up the last turn of the active branch again, after turns left it or came back."""
        self.tip_position, self.tip_slot = self.tx.one(Q.tip, cid=self.cid) or (-1, None)

    def refresh_preview(self) -> None:
        """Set the preview to the first line of the first user turn with text, after the active branch changed."""
        contents = self.tx.each(Q.said_by_users, cid=self.cid)
        lines = (preview(words(decode_content(content, bool(is_parts)))) for is_parts, content in contents)
        self.preview = next((line for line in lines if line), None)


def turn_row(tx: Tx, cid: int, id: str) -> TurnRow:
    row = tx.one(Q.turn, cid=cid, id=id, seq=stamped_seq(id))
    if row is None:
        raise TurnNotFound(id)
    return TurnRow(*row)


def require_row(tx: Tx, scope: Scope, id: str) -> Row:
    """Return the row of a conversation that the scope may see, or raise. Every verb on a conversation starts here."""
    try:
        rows = tx.db.execute(FIND, (id, scope.tenant, scope.visibility, scope.user, scope.workspace, tx.now)).fetchall()
    except UnicodeDecodeError:
        raise RowUnreadable("conversation", id) from None
    if rows:
        return rows[0]
    found = tx.one(Q.find_gone, id=id, now=tx.now, **scope_params(scope))
    if found is not None:
        raise ConversationBusy(id, RESETTING) if found[0] else ConversationGone(id)
    raise ConversationNotFound(id)


def require_cid(tx: Tx, scope: Scope, id: str) -> int:
    """Return the number of a conversation that the scope may see, or raise."""
    return int(require_row(tx, scope, id)[0])


def open_conversation(tx: Tx, scope: Scope, id: str) -> OpenConversation:
    return OpenConversation(tx, scope, require_row(tx, scope, id))
