"""A conversation that is open for writing, inside one transaction: its clock, its log, its place in the text index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaver.drafts import Draft, content_hash, decode_content, preview, words
from palaver.engines.sql import Queries
from palaver.engines.sqlite.connection import Tx
from palaver.engines.sqlite.rows import Row, TurnRow, who
from palaver.errors import AttachmentNotFound, ConversationGone, ConversationNotFound, TurnGone, TurnNotFound
from palaver.identity import canonical_json, digest, event_hash, from_json, key_hash
from palaver.model import Scope

Q = Queries("palaver.engines.sqlite")


class Thread:
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
            self.updated,
            self.turn_count,
            self.token_count,
            self.preview,
            self.ttl,
        ) = row
        tx.touched.add(self.id)

    # ---- clock and log

    def tick(self) -> int:
        """The next moment of this conversation: later than every one before, whatever the clock says."""
        self.updated = max(self.tx.now, self.updated + 1)
        return self.updated

    def log(
        self,
        kind: str,
        at: int,
        *,
        actor: str | None = None,
        turn: str | None = None,
        payload: Mapping[str, Any] | None = None,
        content_hash: bytes | None = None,
    ) -> None:
        by = self.scope.user or ""
        if actor is None:
            actor = by
        elif by and actor != by:
            payload = {**(payload or {}), "by": by}
        text = canonical_json(payload) if payload else None
        self.tip_hash = event_hash(self.tip_hash, self.next_n, kind, turn, actor, at, text, content_hash)
        self.tx.run(
            Q.log,
            cid=self.cid,
            n=self.next_n,
            kind=kind,
            turn=turn,
            actor=actor,
            at=at,
            payload=text,
            content_hash=content_hash,
            hash=self.tip_hash,
        )
        self.next_n += 1

    def save(self) -> None:
        """Once, at the end of every write."""
        self.tx.run(
            Q.save_thread,
            cid=self.cid,
            next_seq=self.next_seq,
            next_n=self.next_n,
            tip_hash=self.tip_hash,
            updated=self.updated,
            turn_count=self.turn_count,
            token_count=self.token_count,
            preview=self.preview,
            expires_at=None if self.ttl is None else self.updated + self.ttl,
        )

    # ---- turns

    def turn(self, id: str) -> TurnRow:
        row = self.tx.one(Q.turn, cid=self.cid, id=id)
        if row is None:
            raise TurnNotFound(id)
        return TurnRow(*row)

    def kept_turn(self, id: str) -> TurnRow:
        turn = self.turn(id)
        if turn.status == "forgotten":
            raise TurnGone(id)
        return turn

    def turn_by_key(self, key: str) -> TurnRow | None:
        row = self.tx.one(Q.turn_by_key, cid=self.cid, key=key, hashed=key_hash(self.id, key))
        return TurnRow(*row) if row else None

    def insert(self, draft: Draft, position: int, parent: str | None, slot: str | None, status: str) -> TurnRow:
        """Store a turn at a place. Its event is the caller's to log."""
        created = self.tick() if draft.created is None else draft.created
        if draft.created is not None:
            self.tick()
        hash = content_hash(draft, created) if status == "complete" else None
        first_pid = None
        values: dict[str, Any] = {
            "cid": self.cid,
            "id": draft.id,
            "seq": self.next_seq,
            "position": position,
            "parent": parent,
            "slot": slot,
            "status": status,
            "role": draft.role,
            "actor": draft.actor,
            "is_parts": int(draft.is_parts),
            "content": draft.content,
            "tool_calls": draft.tool_calls,
            "tool_results": draft.tool_results,
            "attachments": draft.attachments,
            "sources": draft.sources,
            "prompt_tokens": draft.prompt_tokens,
            "completion_tokens": draft.completion_tokens,
            "token_count": draft.token_count,
            "model": draft.model,
            "adapter": draft.adapter,
            "finish_reason": draft.finish_reason,
            "metadata": draft.metadata,
            "idempotency_key": draft.idempotency_key,
            "salt": draft.salt,
            "content_hash": hash,
            "created": created,
        }
        if draft.passages and status == "complete":
            first_pid = self.next_pid()
        rows = self.tx.all(Q.add_turn, **values, first_pid=first_pid, passages=len(draft.passages) if first_pid else 0)
        tid = rows[0][0]
        if first_pid:
            self.index(first_pid, tid, draft.passages)
        if draft.attachments:
            self._bind(tid, draft.attachments)
        self.next_seq += 1
        self.turn_count += 1
        self.token_count += draft.token_count
        if status == "complete" and self.preview is None:
            self.preview = draft.preview
        values.update(tid=tid, active=1, superseded_by=None, first_pid=first_pid, passages=len(draft.passages))
        del values["cid"]
        return TurnRow(**values)

    def _bind(self, tid: int, attachments: str) -> None:
        for one in from_json(attachments):
            if not self.tx.all(Q.bind_attachment, cid=self.cid, tid=tid, id=one["id"]):
                raise AttachmentNotFound(one["id"])

    def tip(self) -> tuple[int, str | None]:
        """Position and slot of the last turn in the active view."""
        row = self.tx.one(Q.tip, cid=self.cid)
        return (row[0], row[1]) if row else (-1, None)

    def shelve(self, id: str, *, by: str) -> None:
        """Take a turn out of the active view, displaced by another."""
        for (tokens,) in self.tx.all(Q.shelve, cid=self.cid, id=id, by=by):
            self.turn_count -= 1
            self.token_count -= tokens

    def unshelve(self, id: str) -> None:
        """Put a turn back into the active view."""
        for (tokens,) in self.tx.all(Q.unshelve, cid=self.cid, id=id):
            self.turn_count += 1
            self.token_count += tokens

    def refresh_preview(self) -> None:
        """After the active view changed: the first line of the first thing that a person said."""
        first = self.tx.one(Q.first_words, cid=self.cid)
        self.preview = preview(words(decode_content(first[1], bool(first[0])))) if first else None

    # ---- the text index

    @property
    def index_scope(self) -> str:
        """The words that cut a search down to this conversation, this owner, this tenant."""
        return f"c{self.cid} {owner_word(self.scope.tenant, self.owner)} {tenant_word(self.scope.tenant)}"

    def next_pid(self) -> int:
        row = self.tx.one(Q.last_pid)
        assert row is not None
        return int(row[0]) + 1

    def index(self, first_pid: int, tid: int | None, passages: Sequence[str]) -> None:
        scope = self.index_scope
        for pid, terms in enumerate(passages, first_pid):
            self.tx.run(Q.add_passage, pid=pid, cid=self.cid, tid=tid, terms=terms)
            self.tx.run(Q.index_passage, pid=pid, scope=scope, terms=terms)

    def unindex(self, first_pid: int, count: int) -> None:
        scope, end = self.index_scope, first_pid + count
        for pid, terms in self.tx.all(Q.passage_range, first=first_pid, end=end):
            self.tx.run(Q.unindex_passage, pid=pid, scope=scope, terms=terms)
        self.tx.run(Q.drop_passages, first=first_pid, end=end)


def tenant_word(tenant: str) -> str:
    return "t" + digest((tenant,)).hex()[:16]


def owner_word(tenant: str, owner: str) -> str:
    return "o" + digest((tenant, owner)).hex()[:16]


def find(tx: Tx, scope: Scope, id: str) -> Row:
    """The conversation's row, or the reason why there is none. Every verb comes through here."""
    params = who(scope)
    row = tx.one(Q.find, id=id, now=tx.now, **params)
    if row is None:
        if tx.one(Q.find_gone, id=id, now=tx.now, **params):
            raise ConversationGone(id)
        raise ConversationNotFound(id)
    return row


def open_thread(tx: Tx, scope: Scope, id: str) -> Thread:
    return Thread(tx, scope, find(tx, scope, id))
