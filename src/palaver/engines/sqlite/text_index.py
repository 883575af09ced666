"""The text index: turns are entered in batches, shortly after they are stored and always before a search.

FTS5 keeps no copy of the text, and wants to hear the very words that it is to remove. They are derived again from the
turn; where that might come out differently on another machine (any text that is not ASCII), `passages` keeps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from palaver.core.identity import canonical_json, digest
from palaver.core.turn_draft import decode_content, words
from palaver.engines.rows import Row, TurnRow
from palaver.engines.sqlite import jobs
from palaver.engines.sqlite.open_conversation import OpenConversation
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import Tx
from palaver.recall.terms import ANALYZER, passages, title_terms

BATCH = 500


def tenant_word(tenant: str) -> str:
    return "t" + digest((tenant,)).hex()[:16]


def owner_word(tenant: str, owner: str) -> str:
    return "o" + digest((tenant, owner)).hex()[:16]


@lru_cache(maxsize=1_000)
def scope_words(cid: int, tenant: str, owner: str) -> str:
    """The words that cut a search down to a conversation, an owner, a tenant."""
    return f"c{cid} {owner_word(tenant, owner)} {tenant_word(tenant)}"


# ---- entering ------------------------------------------------------------------------------------------------------


def backlog(tx: Tx) -> int:
    """How far the index is behind; zero when it is not."""
    row = tx.one(Q.backlog)
    assert row is not None
    return int(row[0])


def index_batch(tx: Tx) -> int:
    """Enter the next turns, and answer how many there were.

    A pending turn is passed over: the commit that completes it enters it (see `catch_up_with`).
    """
    rows = tx.all(Q.to_index, tid=_indexed_tid(tx), limit=BATCH)
    if not rows:
        return 0
    entries = [
        _turn_entry(cid, tid, scope_words(cid, tenant, owner), words(decode_content(content, bool(is_parts))))
        for tid, cid, status, is_parts, content, tenant, owner in rows
        if status == "complete"
    ]
    _enter(tx, entries)
    tx.run(Q.save_indexed_tid, tid=rows[-1][0])
    jobs.enqueue_for_new_turns(tx, sorted({row[1] for row in rows}))
    return len(rows)


def catch_up_with(conv: OpenConversation, turn: TurnRow) -> None:
    """Enter a turn that the index has passed over because it was still being written."""
    if turn.tid <= _indexed_tid(conv.tx):
        _enter(conv.tx, [_turn_entry(conv.cid, turn.tid, _words(conv), _text(turn))])
        jobs.enqueue_for_new_turns(conv.tx, [conv.cid])


def index_title(conv: OpenConversation, title: str | None) -> int | None:
    """Enter a title, and answer where it stands."""
    return _enter(conv.tx, [_title_entry(conv.cid, _words(conv), title)]) if title else None


def enter_file(conv: OpenConversation, tid: int, first: int, stems: Sequence[str]) -> None:
    """Enter the words of a turn's file. They are kept beside the index: removing them must not need the file."""
    _enter(conv.tx, [Entry(conv.cid, tid, _words(conv), stems, True, first)])


class Entry(NamedTuple):
    """What goes into the index of a turn, or of a title: the stems of each of its passages."""

    cid: int
    tid: int | None
    scope: str
    found: Sequence[str]
    kept: bool
    first: int = 0  # the number of its first passage


def _turn_entry(cid: int, tid: int, scope: str, text: str) -> Entry:
    return Entry(cid, tid, scope, passages(text), not text.isascii())


def _title_entry(cid: int, scope: str, title: str) -> Entry:
    return Entry(cid, None, scope, (_title_terms(title),), not title.isascii())


def _enter(tx: Tx, entries: Sequence[Entry]) -> int:
    """Enter them together, and answer where the first one stands."""
    row = tx.one(Q.last_pid)
    assert row is not None
    first = int(row[0]) + 1
    pids = count(first)
    rows: list[Row] = []
    index: list[Row] = []
    sums: dict[int, tuple[int, int]] = {}
    for cid, tid, scope, found, kept, first_part in entries:
        for part, stems in enumerate(found, first_part):
            if not stems:
                continue
            pid, size = next(pids), stems.count(" ") + 1
            rows.append((pid, cid, tid, part, size, stems if kept else None))
            index.append((pid, scope, stems))
            if tid is not None:
                number, total = sums.get(cid, (0, 0))
                sums[cid] = number + 1, total + size
    tx.db.executemany(Q.add_passage, rows)
    tx.db.executemany(Q.index_passage, index)
    for cid, (number, total) in sums.items():
        tx.run(Q.count_passages, cid=cid, count=number, terms=total)
    return first


# ---- removing ------------------------------------------------------------------------------------------------------


def unindex(conv: OpenConversation, turn: TurnRow) -> None:
    rows = conv.tx.all(Q.passages_of, tid=turn.tid)
    if rows:
        _remove(conv, rows, passages(_text(turn)))
        terms = -sum(size for *_, size in rows)
        conv.tx.run(Q.count_passages, cid=conv.cid, count=-len(rows), terms=terms)


def unindex_title(conv: OpenConversation, pid: int, title: str) -> None:
    _remove(conv, conv.tx.all(Q.title_passage, pid=pid), (_title_terms(title),))


def _remove(conv: OpenConversation, rows: list[Row], derived: Sequence[str]) -> None:
    scope = _words(conv)
    for pid, part, kept, _ in rows:
        stems = derived[part] if kept is None else kept
        conv.tx.run(Q.unindex_passage, pid=pid, scope=scope, terms=stems)
        conv.tx.run(Q.drop_passage, pid=pid)
        conv.tx.removed_terms.update(stems.split(" "))
    conv.tx.run(Q.lower_embedded_pids)


# ---- signposts -----------------------------------------------------------------------------------------------------
# FTS5 keeps, for each leaf of the index, as much of its first term as tells it from the term before. When that term is
# removed, its signpost stays, also with FTS5's own secure-delete.

_SEGMENT_SHIFT = 37  # fts5_dri() in fts5_index.c: the row of a leaf is its segment's number, then its own
_MAIN_INDEX = b"0"


def rewrite_separators(tx: Tx) -> None:
    """Give every leaf that began with a removed term a signpost of the term that it begins with now."""
    terms, tx.removed_terms = sorted(tx.removed_terms), set()
    if not terms:
        return
    tx.run(Q.flush_index)
    for segment, term, page in tx.all(Q.separators, terms=canonical_json(terms)):
        leaf = tx.one(Q.leaf, id=(segment << _SEGMENT_SHIFT) + (page >> 1))
        first = _first_term(leaf[0]) if leaf else None
        if first is not None and not first.startswith(term):
            tx.run(Q.save_separator, segid=segment, term=term, first=first)


def _first_term(leaf: bytes) -> bytes | None:
    """The first term of a leaf: the list behind its contents says where it starts, and it is written out in full."""
    footer = int.from_bytes(leaf[2:4], "big")
    if footer >= len(leaf):
        return None
    start, _ = _varint(leaf, footer)
    size, start = _varint(leaf, start)
    term = leaf[start : start + size]
    return term if term.startswith(_MAIN_INDEX) else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number as SQLite writes it (seven bits to a byte), and where it ends."""
    value = 0
    while True:
        value = value << 7 | data[at] & 0x7F
        at += 1
        if data[at - 1] < 0x80:
            return value, at


# ---- building anew -------------------------------------------------------------------------------------------------


def check(tx: Tx) -> None:
    """Start the index anew when its words were made by other rules than ours. Turns follow in batches."""
    row = tx.one(Q.analyzer)
    if row and row[0] == ANALYZER:
        return
    tx.run(Q.empty_index)
    tx.run(Q.empty_passages)
    tx.run(Q.forget_passage_counts)
    tx.run(Q.save_indexed_tid, tid=0)
    tx.run(Q.save_analyzer, analyzer=ANALYZER)
    tx.run(Q.drop_file_passages)
    tx.run(Q.unread_all)
    tx.run(Q.read_all_again, now=tx.now)
    for cid, tenant, owner, title in tx.all(Q.titles):
        pid = _enter(tx, [_title_entry(cid, scope_words(cid, tenant, owner), title)])
        tx.run(Q.save_title_pid, cid=cid, title_pid=pid)


def _indexed_tid(tx: Tx) -> int:
    row = tx.one(Q.indexed_tid)
    assert row is not None
    return int(row[0])


def _text(turn: TurnRow) -> str:
    return words(decode_content(turn.content or "", bool(turn.is_parts)))


def _title_terms(title: str) -> str:
    return " ".join(title_terms(title))


def _words(conv: OpenConversation) -> str:
    return scope_words(conv.cid, conv.scope.tenant, conv.owner)
