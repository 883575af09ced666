"""Whole conversations, row by row: for verify, export and import."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import apsw

from palaver.audit.derived import keys_of
from palaver.core.derived_rows import COVERED, PROOF, item_key
from palaver.core.identity import from_json, stamped_seq
from palaver.engines.file_passages import stored_passages
from palaver.engines.sqlite import jobs, memory_invalidation
from palaver.engines.sqlite.conversations import get
from palaver.engines.sqlite.open_conversation import OpenConversation, require_cid
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.text_index import index_file, index_title
from palaver.engines.sqlite.transaction import Tx
from palaver.engines.sqlite.unreadable_rows import unreadable
from palaver.errors import AlreadyImported, ConversationGone, InvalidInput, RowUnreadable
from palaver.memory import working_memory
from palaver.model import ConversationInfo, Scope
from palaver.ports.queries import ALL_RECORDS, Record, RecordKind, RecordRange

PAGE_ROWS = 1_000
# Columns that mean something only in this file: row numbers, and the progress of its index and its summaries.
LOCAL = frozenset(
    {"cid", "tid", "aid", "title_pid", "revision", "passage_count", "passage_terms"}
    | {"characters", "problem"}  # of attachments: the text is extracted again after an import
    | {"summarized_position", "summarized_turns", "summarized_tokens", "fact_count", "vector_count", "has_memory"}
)
DERIVED = ("summary", "file_text", "request", "item", "source")
FACT_LOCAL = frozenset({"fid", "model", "vector"})


def pages(
    tx: Tx, scope: Scope, conversation: str, derived: bool = False, part: RecordRange = ALL_RECORDS
) -> Iterator[list[Record]]:
    """Read the rows of a conversation in the order that `Verifier` needs.

    With `derived`, also those that an export does not have, because they can be rebuilt from the others.
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
            yield from _pages(tx, kind, sql, cid, part)
        except RowUnreadable as problem:
            raise RowUnreadable(problem.row, conversation) from None


def _pages(tx: Tx, kind: RecordKind, sql: str, cid: int, part: RecordRange) -> Iterator[list[Record]]:
    """Read the rows of one kind. The rows before an unreadable one come first, as one of them may be wrong as well."""
    cursor = tx.db.execute(sql, {"cid": cid, **asdict(part)})
    page: list[Record] = []
    problem = None
    try:
        for row in cursor:
            names = [column[0] for column in cursor.description]
            whole = dict(zip(names, row, strict=True))
            page.append(Record(kind, whole if kind in DERIVED else portable(whole)))
            if len(page) == PAGE_ROWS:
                yield page
                page = []
    except UnicodeDecodeError:
        problem = unreadable(tx.db, sql, {"cid": cid, **asdict(part)})
    if page:
        yield page
    if problem:
        raise problem


def portable(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in LOCAL}


# ---- import --------------------------------------------------------------------------------------------------------


def restore(tx: Tx, scope: Scope, records: Sequence[Record]) -> ConversationInfo | None:
    """Store a conversation exactly as it was exported. None when it is stored already, with the same last event."""
    row = portable(records[0].row)
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
    _insert(tx, "conversations", row)
    found = tx.one(Q.find_expired, tenant=scope.tenant, id=row["id"])
    if found is None:
        raise ConversationGone(row["id"])
    conv = OpenConversation(tx, scope, found)
    restore_details(conv, row)
    restore_rows(conv, records[1:], {})
    return get(tx, scope, row["id"])


def restore_details(conv: OpenConversation, row: Mapping[str, Any]) -> None:
    """Store what the row of a conversation says a second time: the participants, and the title in the text index."""
    for actor in from_json(row["participants"]):
        conv.tx.run(Q.add_participant, actor=actor, cid=conv.cid)
    if pid := index_title(conv, row["title"]):
        conv.tx.run(Q.save_title_pid, cid=conv.cid, title_pid=pid)


def restore_rows(conv: OpenConversation, records: Sequence[Record], turns: dict[str, int]) -> None:
    """Store the other rows of a conversation. `turns` are the numbers of its turns that are stored already, by id."""
    tx = conv.tx
    for record in records:
        _restore_row(conv, record, turns)
    if covered := covering_event(records):
        tx.run(Q.save_proof, cid=conv.cid, key=COVERED, n=covered, salt=b"")
    kinds = {record.kind for record in records}
    if "attachment" in kinds:
        conv.enqueue_text_extraction()
    if "fact" in kinds:
        jobs.enqueue_embed_job(tx)
    if "item" in kinds:
        for (item,) in tx.all(Q.drop_unsaid_items, cid=conv.cid):
            tx.run(Q.drop_proof, cid=conv.cid, key=item_key(item))
    if "summary" in kinds:
        tx.run(Q.reset_summarized, cid=conv.cid)
        memory_invalidation.recount_summarized(conv)


def covering_event(records: Sequence[Record]) -> int | None:
    """Return the event from which on the log knows every derived row; None if there is none."""
    marks = [one.row["n"] for one in records if one.kind == "event" and _payload(one).get(PROOF)]
    return marks[-1] if marks else None


def _payload(record: Record) -> dict[str, Any]:
    return from_json(record.row["payload"]) if record.row["payload"] else {}


def _restore_row(conv: OpenConversation, record: Record, turns: dict[str, int]) -> None:
    row = {**portable(record.row), "cid": conv.cid}
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
    else:
        _restore_derived(conv, record, row)


def _restore_derived(conv: OpenConversation, record: Record, row: dict[str, Any]) -> None:
    tx, kind = conv.tx, record.kind
    if kind == "working_memory":
        read = working_memory.from_json(row["memory"]).through_seq
        read = row.get("through_seq", read)
        _insert(tx, "working_memory", {**row, "through_seq": read, "updated": tx.now})
        tx.run(Q.mark_memory, cid=conv.cid, has=1)
    elif kind == "fact":
        _insert(tx, "facts", {name: row[name] for name in row if name not in FACT_LOCAL})
        tx.run(Q.count_facts, cid=conv.cid, count=1)
    elif kind == "summary":
        _insert(tx, "summaries", row)
    elif kind == "request":
        _insert(tx, "requests", {**row, "body": None})  # nothing here says which turns of other conversations it quotes
    elif kind == "file_text":
        if not _restore_file_text(conv, record.row):
            return
    elif not _restore_memory_of_subject(conv, kind, row):
        return
    for key, salt, n in keys_of(kind, {**record.row, "body": None}):
        if salt is not None and n is not None:
            tx.run(Q.save_proof, cid=conv.cid, key=key, n=n, salt=salt)


def _restore_file_text(conv: OpenConversation, row: Mapping[str, Any]) -> bool:
    """Store and index the text of a file, in the pieces that it had. False when there is no such file."""
    found = conv.tx.one(Q.file_to_read, cid=conv.cid, id=row["id"])
    if found is None:
        return False
    aid, tid, _ = found
    conv.tx.run(Q.save_read, aid=aid, characters=row["characters"], problem=row["problem"])
    first, passages = stored_passages(row)
    for part, passage in enumerate(passages, first):
        conv.tx.run(Q.add_file_passage, aid=aid, tid=tid, part=part, text=passage.text)
    index_file(conv, tid, first, [passage.stems for passage in passages])
    if passages:
        jobs.enqueue_embed_job(conv.tx)
    return True


def _restore_memory_of_subject(conv: OpenConversation, kind: RecordKind, row: dict[str, Any]) -> bool:
    """Store an item or a source. False for a source whose turn is not here, or was forgotten here."""
    if kind == "item":
        _insert(conv.tx, "items", {name: value for name, value in row.items() if name != "iid"})
        return True
    place = {"conversation": row["conversation"], "turn": row["turn"], "seq": stamped_seq(row["turn"])}
    if conv.tx.one(Q.is_said, tenant=conv.scope.tenant, **place) is None:
        return False
    _insert(conv.tx, "item_sources", row)
    return True


def _insert(tx: Tx, table: str, row: dict[str, Any]) -> int:
    """Insert an imported row. Column names come from our own schema, never from the file."""
    names = _columns(tx, table, row)
    sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(':' + name for name in names)})"
    return _write(tx, table, sql, row)


def update_row(tx: Tx, table: str, row: dict[str, Any]) -> None:
    """Change the row of a conversation to that of a copy."""
    names = ", ".join(f"{name} = :{name}" for name in _columns(tx, table, row))
    _write(tx, table, f"UPDATE {table} SET {names} WHERE cid = :cid", row)


def _columns(tx: Tx, table: str, row: dict[str, Any]) -> list[str]:
    return [column[1] for column in tx.all(f"PRAGMA table_info({table})") if column[1] in row]


def _write(tx: Tx, table: str, sql: str, row: dict[str, Any]) -> int:
    try:
        return tx.insert(sql, **row)
    except (apsw.ConstraintError, TypeError, OverflowError):
        raise InvalidInput("file", f"a row for {table} is not in the format of an export") from None
