"""Whole conversations, row by row: for verify, export and import."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import apsw

from palaver.core.derived_rows import COVERED, NOTES, PROOF, fact_key
from palaver.core.identity import from_json
from palaver.engines.sqlite import jobs
from palaver.engines.sqlite.conversations import get
from palaver.engines.sqlite.open_conversation import OpenConversation, require_cid
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.text_index import index_title
from palaver.engines.sqlite.transaction import Tx
from palaver.engines.sqlite.unreadable_rows import unreadable
from palaver.errors import AlreadyImported, ConversationGone, InvalidInput, RowUnreadable
from palaver.memory import working_memory
from palaver.model import ConversationInfo, Scope
from palaver.ports.queries import Record, RecordKind

PAGE_ROWS = 1_000
# Columns that mean something only in this file: row numbers, and the progress of its index and its summaries.
LOCAL = frozenset(
    {"cid", "tid", "aid", "title_pid", "title_made", "revision", "passage_count", "passage_terms"}
    | {"characters", "problem"}  # of attachments: the text is extracted again after an import
    | {"summarized_position", "summarized_turns", "summarized_tokens", "fact_count", "vector_count", "has_memory"}
)
DERIVED = ("summary", "file_text", "request", "item", "source")
FACT_LOCAL = frozenset({"fid", "model", "vector"})


def pages(tx: Tx, scope: Scope, conversation: str, derived: bool = False) -> Iterator[list[Record]]:
    """Read the rows of a conversation in the order that `Verifier` needs.

    With `derived`, also those that an export does not have: they can be made again from the others.
    """
    cid = require_cid(tx, scope, conversation)
    sources: list[tuple[RecordKind, str]] = [
        ("conversation", Q.conversation_record),
        ("event", Q.event_records),
        ("turn", Q.turn_records),
        ("attachment", Q.attachment_records),
        ("working_memory", Q.working_memory_records),
        ("fact", Q.fact_records),
    ]
    if derived:
        sources += [("summary", Q.summary_records), ("file_text", Q.file_records), ("request", Q.request_records)]
        sources += [("item", Q.item_records), ("source", Q.source_records)]
    for kind, sql in sources:
        try:
            yield from _pages(tx, kind, sql, cid)
        except RowUnreadable as problem:
            raise RowUnreadable(problem.row, conversation) from None


def _pages(tx: Tx, kind: RecordKind, sql: str, cid: int) -> Iterator[list[Record]]:
    """Read the rows of one kind. The rows before an unreadable one come first, as one of them may be wrong as well."""
    cursor = tx.db.execute(sql, {"cid": cid})
    page: list[Record] = []
    problem = None
    try:
        for row in cursor:
            names = [column[0] for column in cursor.description]
            whole = dict(zip(names, row, strict=True))
            page.append(Record(kind, whole if kind in DERIVED else _portable(whole)))
            if len(page) == PAGE_ROWS:
                yield page
                page = []
    except UnicodeDecodeError:
        problem = unreadable(tx.db, sql, {"cid": cid})
    if page:
        yield page
    if problem:
        raise problem


def _portable(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in LOCAL}


# ---- import --------------------------------------------------------------------------------------------------------


def restore(tx: Tx, scope: Scope, records: Sequence[Record]) -> ConversationInfo | None:
    """Store a conversation exactly as it was exported. None when it is stored already, with the same last event."""
    row = _portable(records[0].row)
    known = tx.one(Q.known, tenant=scope.tenant, id=row["id"])
    if known is not None:
        if known[2]:
            raise ConversationGone(row["id"])
        if known[:2] != (row["next_n"], row["tip_hash"]):
            raise AlreadyImported(row["id"])
        return None
    if row["key"] is not None and tx.one(Q.find_key, tenant=scope.tenant, owner=row["owner"], key=row["key"]):
        raise InvalidInput("key", "another conversation of this owner has the same key")
    row["tenant"] = scope.tenant
    cid = _insert(tx, "conversations", row)
    found = tx.one(Q.find_expired, tenant=scope.tenant, id=row["id"])
    if found is None:
        raise ConversationGone(row["id"])
    conv = OpenConversation(tx, scope, found)
    for actor in from_json(row["participants"]):
        tx.run(Q.add_participant, actor=actor, cid=cid)
    if pid := index_title(conv, row["title"]):
        tx.run(Q.save_title_pid, cid=cid, title_pid=pid)
    turns: dict[str, int] = {}
    for record in records[1:]:
        _restore_row(conv, record, turns)
    if covered := covering_event(records):
        tx.run(Q.save_proof, cid=cid, key=COVERED, n=covered, salt=b"")
    if any(record.kind == "attachment" for record in records):
        conv.enqueue_text_extraction()
    if any(record.kind == "fact" for record in records):
        jobs.enqueue_embed_job(tx)
    return get(tx, scope, row["id"])


def covering_event(records: Sequence[Record]) -> int | None:
    """Return the event from which on the log knows every derived row; None if there is none."""
    marks = [one.row["n"] for one in records if one.kind == "event" and _payload(one).get(PROOF)]
    return marks[-1] if marks else None


def _payload(record: Record) -> dict[str, Any]:
    return from_json(record.row["payload"]) if record.row["payload"] else {}


def _restore_row(conv: OpenConversation, record: Record, turns: dict[str, int]) -> None:
    row = {**_portable(record.row), "cid": conv.cid}
    if record.kind == "event":
        _insert(conv.tx, "events", row)
    elif record.kind == "attachment":
        turn = row.pop("turn")
        _insert(conv.tx, "attachments", {**row, "tid": turns[turn] if turn else None})
    elif record.kind == "turn":
        tid = turns[row["id"]] = _insert(conv.tx, "turns", row)
        if row["status"] == "pending":
            length = len(row["content"] or "")
            conv.tx.run(Q.open_stream, tid=tid, cid=conv.cid, lease_until=conv.tx.now, length=length)
    elif record.kind == "working_memory":
        read = working_memory.from_json(row["memory"]).through_seq
        read = row.get("through_seq", read)
        _insert(conv.tx, "working_memory", {**row, "through_seq": read, "updated": conv.tx.now})
        conv.tx.run(Q.mark_memory, cid=conv.cid, has=1)
        _restore_proof(conv, NOTES, record)
    elif record.kind == "fact":
        _insert(conv.tx, "facts", {name: row[name] for name in row if name not in FACT_LOCAL})
        conv.tx.run(Q.count_facts, cid=conv.cid, count=1)
        _restore_proof(conv, fact_key(row["id"]), record)


def _restore_proof(conv: OpenConversation, key: str, record: Record) -> None:
    if record.row.get("salt") is not None:
        conv.tx.run(Q.save_proof, cid=conv.cid, key=key, n=record.row["proof"], salt=record.row["salt"])


def _insert(tx: Tx, table: str, row: dict[str, Any]) -> int:
    """Insert an imported row. Column names come from our own schema, never from the file."""
    known = [column[1] for column in tx.all(f"PRAGMA table_info({table})")]
    names = [name for name in known if name in row]
    sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(':' + name for name in names)})"
    try:
        return tx.insert(sql, **row)
    except (apsw.ConstraintError, TypeError, OverflowError):
        raise InvalidInput("file", f"a row for {table} does not have the form that an export writes") from None
