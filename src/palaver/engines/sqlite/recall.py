"""The data that recall ranks by: turn arrays, postings of stems, vectors. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.filters import Interval
from palaver.core.identity import canonical_json
from palaver.engines.rows import Row, TurnRow, scope_params
from palaver.engines.sqlite.derived_rows import BROKEN_PAGES, read_derived
from palaver.engines.sqlite.filters import interval_params
from palaver.engines.sqlite.open_conversation import NO_LIMIT, require_cid
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.text_index import owner_word, tenant_word
from palaver.engines.sqlite.transaction import SqlValue, Tx
from palaver.engines.sqlite.unindexed import IndexState, scan_postings
from palaver.model import Scope, Turn
from palaver.ports.recall import Postings, ProfileRows, RecallScope, VectorRows

FEW_NEW_TURNS = 1_000  # up to this many new turns in the file, they are scanned instead of the conversations


def _params(tx: Tx, scope: Scope, where: RecallScope) -> dict[str, SqlValue]:
    if where.conversation is not None:
        require_cid(tx, scope, where.conversation)  # a conversation that is not found is an error, not an empty result
    return {**scope_params(scope), "now": tx.now, "conversation": where.conversation, "owner": where.owner}


def profile(
    tx: Tx, scope: Scope, where: RecallScope, known: tuple[int, ...] | None, after: int, suspect: bool = False
) -> ProfileRows:
    """Read the turns after `after`, and the marked ones if there are new marks.

    Read all of them when anything else changed since the stamp `known`. Then, or if the text index is suspect, its
    passages are counted.
    """
    params = _params(tx, scope, where)
    passages, terms, *rest, marked = tx.all(Q.recall_stamp, **params)[0]
    stamp = (*rest, marked)
    fresh = known is None or known[:-1] != stamp[:-1]
    newest = int(tx.all(Q.newest_turn)[0][0])  # of the file: whatever is in scope up to there is read now
    few = not fresh and newest - after < FEW_NEW_TURNS
    rows = _shapes(tx, Q.profile_news if few else Q.profile, after=0 if fresh else after, **params)
    if not fresh and known != stamp:
        rows += read_derived(tx, "marks", Q.profile_marked, after=after, **params).rows
    pending = tx.all(Q.first_pending, end=NO_LIMIT, **params)[0][0]
    return ProfileRows(
        stamp=stamp,
        fresh=fresh,
        rows=rows,
        through=min(newest, pending - 1),
        passages=passages,
        terms=terms,
        missing=passages - _count_passages(tx, params) if fresh or suspect else None,
    )


def _shapes(tx: Tx, sql: str, **params: SqlValue) -> list[Row]:
    """Read the shapes of turns; without their marks, where those are damaged."""
    try:
        return tx.all(sql, **params)
    except BROKEN_PAGES:
        no_marks = "LEFT JOIN (SELECT NULL AS tid, 0 AS standing) m ON m.tid = t.tid"
        return tx.all(sql.replace("LEFT JOIN marks m ON m.tid = t.tid", no_marks), **params)


def _count_passages(tx: Tx, params: dict[str, SqlValue]) -> int:
    try:
        return int(tx.all(Q.count_passages_there, **params)[0][0])
    except BROKEN_PAGES:
        return 0


def postings(
    tx: Tx, scope: Scope, where: RecallScope, stems: Sequence[str], limit: int, state: IndexState
) -> dict[str, Postings]:
    """Find, for each stem, the newest `limit` passages that contain it."""
    found = _indexed_postings(tx, scope, where, stems, limit) if state.usable else {}
    if state.after is None:
        return found
    import numpy as np

    for stem, more in scan_postings(tx, scope, where, stems, state).items():
        old = found.get(stem, Postings((), ()))
        arrays = (
            np.concatenate((np.array(new, np.int64), np.array(had, np.int64)))
            for new, had in zip(more, old, strict=True)
        )
        found[stem] = Postings(*arrays)
    return found


def turns_where(tx: Tx, scope: Scope, where: RecallScope, metadata: Sequence[Interval]) -> list[int]:
    """Find the turns whose metadata meets all conditions, by their row numbers."""
    params = {**_params(tx, scope, where), **interval_params(metadata)}
    listed = tx.all(Q.turns_where, **params)[0][0]
    return [int(tid) for tid in listed.split(",")] if listed else []


def _indexed_postings(
    tx: Tx, scope: Scope, where: RecallScope, stems: Sequence[str], limit: int
) -> dict[str, Postings]:
    params = _params(tx, scope, where)
    if where.conversation is not None:
        own = f"c{require_cid(tx, scope, where.conversation)}"
        return {
            stem: _to_arrays(tx.all(Q.conversation_postings, match=_match(own, stem), limit=limit)) for stem in stems
        }
    word = _tenant_word(tx, scope) if where.owner is None else owner_word(scope.tenant, where.owner)
    return {stem: _to_arrays(tx.all(Q.postings, match=_match(word, stem), limit=limit, **params)) for stem in stems}


def _to_arrays(rows: list[Row]) -> Postings:
    import numpy as np

    tids, sizes = (np.fromstring(text or "", np.int64, sep=",") for text in rows[0])
    return Postings(tids, sizes)


def _tenant_word(tx: Tx, scope: Scope) -> str | None:
    """Return the word of the tenant. None if the file has no other: to look for it would take most of the time."""
    return None if tx.all(Q.has_one_tenant)[0][0] else tenant_word(scope.tenant)


def _match(word: str | None, stem: str) -> str:
    return f'terms : "{stem}"' if word is None else f'(scope : {word}) AND (terms : "{stem}")'


def vectors(
    tx: Tx, scope: Scope, where: RecallScope, model: str, known: dict[int, tuple[int, ...]], most: int | None = None
) -> list[VectorRows]:
    """Read the vectors of each conversation that are not known yet, or all of them when known ones were deleted.

    Stop after the conversation with the vector number `most`. Vectors are counted only when a conversation's revision
    changed: appends alone delete none.
    """
    found: list[VectorRows] = []
    count_rows = 0
    for cid, revision, expected in tx.all(Q.conversations_where, **_params(tx, scope, where)):
        had, last, seen = known.get(cid, (0, 0, revision))
        added, newest = tx.all(Q.vector_stamp, cid=cid, after=last)[0]
        count = had + added if revision == seen else tx.all(Q.vector_stamp, cid=cid, after=0)[0][0]
        stamp = (count, max(newest, last), revision)
        missing = max(0, expected - count)
        if stamp == known.get(cid, (0, 0, revision)) and not missing:
            continue
        fresh = had + added != count
        rows: list[tuple[int, int, bytes]] = tx.all(Q.vectors, cid=cid, after=0 if fresh else last, model=model)
        found.append(VectorRows(conversation=cid, fresh=fresh, rows=rows, stamp=stamp, missing=missing))
        count_rows += len(rows)
        if most is not None and count_rows >= most:
            break
    return found


def turns_by_number(tx: Tx, scope: Scope, tids: Sequence[int]) -> dict[int, Turn]:
    """Read turns by row number, as far as they are in the active branch and the scope may see them.

    Row numbers are used again after a deletion, so a number may mean another turn than when the caller learned it.
    """
    params = {**scope_params(scope), "now": tx.now, "tids": canonical_json(list(tids))}
    found = {row[0]: TurnRow(*row[:-1]).turn(row[-1]) for row in tx.all(Q.turns_by_number, **params)}
    return {tid: found[tid] for tid in tids if tid in found}
