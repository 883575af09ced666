"""The text index: turns are indexed in batches, shortly after they are stored and always before a search.

FTS5 keeps no copy of the text, and to remove a passage it needs exactly the words that were indexed. They are derived
again from the turn, as English. Where another machine might derive them differently (any text that is not ASCII), or
there are terms of another language, `passages` keeps them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from typing import NamedTuple

from palaver.core.identity import canonical_json, digest
from palaver.core.turn_draft import decode_content, words
from palaver.engines.rows import Row, TurnRow
from palaver.engines.sqlite import jobs, table_repair
from palaver.engines.sqlite.open_conversation import OpenConversation
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import Tx
from palaver.engines.sqlite.unindexed import MOST, IndexState
from palaver.recall.terms import ANALYZER, english_passages, index_passages, title_terms

BATCH = 500  # turns indexed in one transaction,
BATCH_CHARACTERS = 100_000  # or fewer, with so much text; a turn that has more is indexed by `TurnIndexer`
INDEX = table_repair.INDEX
TABLES = ("passages", INDEX)


def tenant_word(tenant: str) -> str:
    return "t" + digest((tenant,)).hex()[:16]


def owner_word(tenant: str, owner: str) -> str:
    return "o" + digest((tenant, owner)).hex()[:16]


@lru_cache(maxsize=1_000)
def scope_words(cid: int, tenant: str, owner: str) -> str:
    """Return the words that restrict a search to a conversation, an owner or a tenant."""
    return f"c{cid} {owner_word(tenant, owner)} {tenant_word(tenant)}"


# ---- adding --------------------------------------------------------------------------------------------------------


class IndexProgress(NamedTuple):
    """The numbers of the last turn that is indexed, and of the last one that is stored."""

    indexed: int
    stored: int


def progress(tx: Tx) -> IndexProgress:
    return IndexProgress(*tx.all(Q.index_progress)[0])


def backlog(tx: Tx) -> int:
    """Return how many turns the index is behind, at most."""
    row = tx.one(Q.backlog)
    assert row is not None
    return int(row[0])


def index_batch(tx: Tx) -> int:
    """Index the next turns, up to one that is large. Returns how many there were.

    A pending turn is skipped: the commit that completes it indexes it (see `index_completed_turn`).
    """
    rows, is_end = _next_turns(tx)
    if not rows:
        if is_end and is_rebuilding(tx):
            tx.run(Q.mark_rebuilt)
        return 0
    _add_entries(tx, [turn.entry() for turn in rows if turn.is_ready])
    _save_progress(tx, rows)
    return len(rows)


def next_large_turn(tx: Tx) -> UnindexedTurn | None:
    """Return the next turn, if it is a large one."""
    row = tx.one(Q.to_index, tid=_indexed_tid(tx), limit=1)
    turn = UnindexedTurn(*row) if row else None
    return turn if turn is not None and turn.is_large else None


def index_part(tx: Tx, turn: UnindexedTurn, entry: IndexEntry, first: int, most: int) -> bool:
    """Index some passages of a large turn, beginning with the number `first`. True when it has all of them."""
    _add_entries(tx, [entry._replace(passages=entry.passages[first : first + most], first=first)])
    is_whole = first + most >= len(entry.passages)
    if is_whole:
        _save_progress(tx, [turn])
    return is_whole


def _next_turns(tx: Tx) -> tuple[list[UnindexedTurn], bool]:
    """Read the next turns, up to one that is large, and say whether they are the last ones."""
    found: list[UnindexedTurn] = []
    characters = 0
    for row in tx.each(Q.to_index, tid=_indexed_tid(tx), limit=BATCH):
        turn = UnindexedTurn(*row)
        characters += len(turn.content)
        if turn.is_large or (found and characters > BATCH_CHARACTERS):
            return found, False
        found.append(turn)
    return found, len(found) < BATCH


def _save_progress(tx: Tx, turns: Sequence[UnindexedTurn]) -> None:
    tx.run(Q.save_indexed_tid, tid=turns[-1].tid)
    jobs.enqueue_for_new_turns(tx, sorted({turn.cid for turn in turns}))


def index_completed_turn(conv: OpenConversation, turn: TurnRow) -> None:
    """Index a turn that `index_batch` skipped because it was still being written."""
    if turn.tid <= _indexed_tid(conv.tx):
        _add_entries(conv.tx, [_turn_entry(conv.cid, turn.tid, _words(conv), text_of(turn))])
        jobs.enqueue_for_new_turns(conv.tx, [conv.cid])


def index_title(conv: OpenConversation, title: str | None) -> int | None:
    """Index a title. Returns the number of its passage."""
    return _add_entries(conv.tx, [_title_entry(conv.cid, _words(conv), title)]) if title else None


def index_file(conv: OpenConversation, tid: int, first: int, stems: Sequence[str]) -> None:
    """Index the words of a turn's file. `passages` keeps them, so that removing them does not need the file."""
    _add_entries(conv.tx, [IndexEntry(conv.cid, tid, _words(conv), stems, True, first)])


class UnindexedTurn(NamedTuple):
    """A turn that the index does not have yet. `is_hidden`: its conversation is being deleted."""

    tid: int
    cid: int
    id: str
    status: str
    is_parts: int
    content: str
    tenant: str
    owner: str
    is_hidden: int

    @property
    def is_ready(self) -> bool:
        return self.status == "complete" and not self.is_hidden

    @property
    def is_large(self) -> bool:
        return self.is_ready and len(self.content) > BATCH_CHARACTERS

    def entry(self) -> IndexEntry:
        """Find its words. The time grows with its length."""
        scope = scope_words(self.cid, self.tenant, self.owner)
        return _turn_entry(self.cid, self.tid, scope, words(decode_content(self.content, bool(self.is_parts))))


class IndexEntry(NamedTuple):
    """A turn, title or file to index. `passages` are the stems of each passage; `kept`: they are stored as well."""

    cid: int
    tid: int | None
    scope: str
    passages: Sequence[str]
    kept: bool
    first: int = 0  # the number of its first passage


def _turn_entry(cid: int, tid: int, scope: str, text: str) -> IndexEntry:
    found = index_passages(text)
    return IndexEntry(cid, tid, scope, found.stems, not (found.is_plain and text.isascii()))


def _title_entry(cid: int, scope: str, title: str) -> IndexEntry:
    return IndexEntry(cid, None, scope, (_title_terms(title),), not title.isascii())


def _add_entries(tx: Tx, entries: Sequence[IndexEntry]) -> int:
    """Index entries together. Returns the number of the first passage."""
    row = tx.one(Q.last_pid)
    assert row is not None
    first = int(row[0]) + 1
    pids = count(first)
    rows: list[Row] = []
    index: list[Row] = []
    sums: dict[int, tuple[int, int]] = {}
    for cid, tid, scope, texts, kept, first_part in entries:
        for part, stems in enumerate(texts, first_part):
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


# ---- other languages -----------------------------------------------------------------------------------------------
# An index of an earlier version has the terms of English only. It stays in use while others are added.


def complete_batch(tx: Tx) -> int:
    """Add the terms of other languages to the next turns that were indexed without. Returns how many were read."""
    progress = _languages_progress(tx)
    if progress is None or progress[0] >= progress[1]:
        return 0
    tid, through = progress
    rows = tx.all(Q.to_complete, tid=tid, through=through, limit=BATCH)
    for tid, cid, is_parts, content, tenant, owner in rows:
        text = words(decode_content(content or "", bool(is_parts)))
        if not (found := index_passages(text)).is_plain:
            _complete(tx, cid, tid, scope_words(cid, tenant, owner), found.stems, english_passages(text))
    tx.run(Q.save_languages_progress, tid=rows[-1][0] if rows else through, through=through)
    return len(rows)


def _complete(tx: Tx, cid: int, tid: int, scope: str, stems: Sequence[str], english: Sequence[str]) -> None:
    """Index the passages of a turn again under their numbers, so that their vectors stay theirs."""
    more = 0
    for pid, part, kept, size in tx.all(Q.passages_of, tid=tid):
        if part >= len(stems) or kept == stems[part]:
            continue
        new = stems[part].count(" ") + 1
        tx.run(Q.unindex_passage, pid=pid, scope=scope, terms=english[part] if kept is None else kept)
        tx.run(Q.index_passage_again, pid=pid, scope=scope, terms=stems[part])
        tx.run(Q.save_passage_terms, pid=pid, terms=stems[part], size=new)
        more += new - size
    if more:
        tx.run(Q.count_passages, cid=cid, count=0, terms=more)


def _languages_progress(tx: Tx) -> tuple[int, int] | None:
    tid, through = tx.all(Q.languages_progress)[0]
    return None if tid is None or through is None else (int(tid), int(through))


# ---- removing ------------------------------------------------------------------------------------------------------


def unindex(conv: OpenConversation, turns: Sequence[TurnRow]) -> None:
    """Remove turns from the index. If some of their passages were lost, the whole index is rebuilt."""
    others = unindex_known(conv, turns)
    if any(should_be_indexed(conv, turn) for turn in others) and has_lost_passages(conv.tx, conv.cid):
        rebuild_damaged(conv.tx)  # their words may be in the index, though nothing says where


def unindex_known(conv: OpenConversation, turns: Sequence[TurnRow], *, merged_later: bool = False) -> list[TurnRow]:
    """Remove the passages of turns. Returns the turns that had none. `merged_later`: see `removal_before_merge`."""
    count = terms = 0
    others = []
    for turn in turns:
        rows = conv.tx.all(Q.passages_of, tid=turn.tid)
        if not rows:
            others.append(turn)
            continue
        _remove(conv, rows, english_passages(text_of(turn)), keep_terms=not merged_later)
        count, terms = count + len(rows), terms + sum(size for *_, size in rows)
    if count:
        conv.tx.run(Q.count_passages, cid=conv.cid, count=-count, terms=-terms)
        conv.tx.run(Q.lower_embedded_pids)  # once: FTS5 flushes its changes before a statement such as this one
    return others


def unindex_last(
    conv: OpenConversation, turn: TurnRow, derived: Sequence[str], most: int, *, merged_later: bool = False
) -> bool:
    """Remove the last passages of a turn, `most` of them. False when it had none.

    `derived` are its `english_passages`; `merged_later`: see `removal_before_merge`.
    """
    rows = conv.tx.all(Q.last_passages_of, tid=turn.tid, limit=most)
    if rows:
        _remove(conv, rows, derived, keep_terms=not merged_later)
        conv.tx.run(Q.count_passages, cid=conv.cid, count=-len(rows), terms=-sum(size for *_, size in rows))
        conv.tx.run(Q.lower_embedded_pids)
    return bool(rows)


def should_be_indexed(conv: OpenConversation, turn: TurnRow) -> bool:
    """Return whether the index has, or had, passages of a turn."""
    if turn.status != "complete" or turn.tid > _indexed_tid(conv.tx):
        return False
    text = text_of(turn)
    return len(text) > BATCH_CHARACTERS or any(english_passages(text))


def has_lost_passages(tx: Tx, cid: int) -> bool:
    """Return whether passages of a conversation were lost. Reads all of its turns."""
    return tx.one(Q.lost_passages, cid=cid) is not None


def unindex_title(conv: OpenConversation, pid: int, title: str) -> None:
    _remove(conv, conv.tx.all(Q.title_passage, pid=pid), (_title_terms(title),))
    conv.tx.run(Q.lower_embedded_pids)


def _remove(conv: OpenConversation, rows: list[Row], derived: Sequence[str], *, keep_terms: bool = True) -> None:
    scope = _words(conv)
    for pid, part, kept, _ in rows:
        stems = derived[part] if kept is None else kept
        conv.tx.run(Q.unindex_passage, pid=pid, scope=scope, terms=stems)
        conv.tx.run(Q.drop_passage, pid=pid)
        if keep_terms:
            conv.tx.removed_terms.update(stems.split(" "))


# ---- removing many passages ----------------------------------------------------------------------------------------
# FTS5's secure-delete rewrites a page of the index for each word of each passage. For a large share of the index it is
# faster to note the deletions in new pages and to merge the whole index afterwards, which leaves out what is deleted.


@contextmanager
def removal_before_merge(tx: Tx) -> Iterator[None]:
    """Remove passages without secure-delete. Their words are in the index until `merge_some` has finished.

    The setting is back in place before the commit, so that no other connection ever works without it. If the
    transaction is rolled back, FTS5 reads the setting again.
    """
    tx.run(Q.set_secure_delete, on=0)
    yield
    tx.run(Q.flush_index)
    tx.run(Q.set_secure_delete, on=1)
    tx.run(Q.mark_unmerged)


def unmerged(tx: Tx) -> int | None:
    """Return the mark that `removal_before_merge` left, if the index was not merged since."""
    row = tx.one(Q.unmerged)
    return int(row[0]) if row else None


def merge_some(tx: Tx, pages: int, first: bool) -> bool:
    """Write up to `pages` pages of the merged index. False when it is complete."""
    before = tx.db.total_changes()
    tx.run(Q.merge_index, pages=-pages if first else pages)  # the sign says to begin a merge of everything
    return tx.db.total_changes() - before >= 2  # as the documentation of FTS5 says


def merged(tx: Tx, mark: int) -> None:
    """Remove the mark, unless passages were removed since the merge began."""
    tx.run(Q.drop_unmerged, mark=mark)


# ---- separators ----------------------------------------------------------------------------------------------------
# FTS5 keeps a separator for each leaf of the index: the shortest prefix of its first term that differs from the term
# before. When that term is removed, the separator stays, even with FTS5's own secure-delete.

_SEGMENT_SHIFT = 37  # fts5_dri() in fts5_index.c: the row id of a leaf is its segment's number, then its own
_MAIN_INDEX = b"0"


def rewrite_separators(tx: Tx) -> None:
    """Replace the separator of every leaf that began with a removed term."""
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
    """Return the first term of a leaf. The footer says where it starts, and it is stored in full."""
    footer = int.from_bytes(leaf[2:4], "big")
    if footer >= len(leaf):
        return None
    start, _ = _varint(leaf, footer)
    size, start = _varint(leaf, start)
    term = leaf[start : start + size]
    return term if term.startswith(_MAIN_INDEX) else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number in SQLite's encoding (seven bits to a byte). Returns it and the position after it."""
    value = 0
    while True:
        value = value << 7 | data[at] & 0x7F
        at += 1
        if data[at - 1] < 0x80:
            return value, at


# ---- rebuilding ----------------------------------------------------------------------------------------------------


def rebuild_if_outdated(tx: Tx) -> None:
    """Empty the index if its words were made by another version of our rules. Turns are indexed again in batches."""
    row = tx.one(Q.analyzer)
    if row and row[0] == ANALYZER:
        if _languages_progress(tx) is None:
            tx.run(Q.save_languages_progress, tid=0, through=_indexed_tid(tx))
        return
    tx.run(Q.empty_index)
    tx.run(Q.empty_passages)
    _start_again(tx)


def rebuild_damaged(tx: Tx) -> None:
    """Empty an index that is damaged, whatever is left of it. Until it is full again, searches do not wait for it."""
    tx.run(Q.empty_index)
    tx.run(Q.empty_passages)
    _start_again(tx)
    tx.run(Q.mark_rebuilding)


def is_rebuilding(tx: Tx) -> bool:
    """Return whether the index was damaged, and not every turn is in it again."""
    return tx.one(Q.rebuilding) is not None


class IndexEnds(NamedTuple):
    """The last numbers of the two halves of the index, and whether it is being filled again."""

    passage: int
    entry: int
    is_rebuilding: bool


def ends(tx: Tx) -> IndexEnds:
    passage, entry, rebuilding = tx.all(Q.index_ends)[0]
    return IndexEnds(passage, entry, bool(rebuilding))


def state(tx: Tx, why: str) -> IndexState:
    """Return how far an index can be used that is not up to date."""
    behind = backlog(tx)
    if behind <= 0:
        return IndexState()
    problem = f"{why}: of {behind:,} turns that are not in it, the newest {MOST:,} were searched"
    return IndexState(_indexed_tid(tx), True, problem)


def _start_again(tx: Tx) -> None:
    tx.run(Q.forget_passage_counts)
    tx.run(Q.save_indexed_tid, tid=0)
    tx.run(Q.save_analyzer, analyzer=ANALYZER)
    tx.run(Q.save_languages_progress, tid=0, through=0)
    tx.run(Q.restart_embedders)
    tx.run(Q.drop_file_passages)
    tx.run(Q.unread_all)
    tx.run(Q.read_all_again, now=tx.now)
    for cid, tenant, owner, title in tx.all(Q.titles):
        pid = _add_entries(tx, [_title_entry(cid, scope_words(cid, tenant, owner), title)])
        tx.run(Q.save_title_pid, cid=cid, title_pid=pid)


def _indexed_tid(tx: Tx) -> int:
    row = tx.one(Q.indexed_tid)
    assert row is not None
    return int(row[0])


def text_of(turn: TurnRow) -> str:
    return words(decode_content(turn.content or "", bool(turn.is_parts)))


def _title_terms(title: str) -> str:
    return " ".join(title_terms(title))


def _words(conv: OpenConversation) -> str:
    return scope_words(conv.cid, conv.scope.tenant, conv.owner)
