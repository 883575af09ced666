"""What recall asks of the database: shapes of turns, postings of stems, vectors. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palaver.engines.sqlite.connection import Tx
from palaver.engines.sqlite.rows import TurnRow, who
from palaver.engines.sqlite.text_index import owner_word, tenant_word
from palaver.engines.sqlite.thread import Q, find
from palaver.model import Scope, Turn
from palaver.ports import ProfileRows, Where

END = 2**62


def _params(tx: Tx, scope: Scope, where: Where) -> dict[str, Any]:
    if where.conversation is not None:
        find(tx, scope, where.conversation)  # not found is an error, not an empty answer
    return {**who(scope), "now": tx.now, "conversation": where.conversation, "owner": where.owner}


def profile(tx: Tx, scope: Scope, where: Where, known: tuple[int, int] | None, after: int) -> ProfileRows:
    """The turns that came after `after`; all of them when something else changed since the stamp `known`."""
    params = _params(tx, scope, where)
    count, revision, passages, terms = tx.all(Q.recall_stamp, **params)[0]
    fresh = known != (count, revision)
    end = tx.all(Q.first_pending, end=END, **params)[0][0]
    rows = tx.all(Q.profile, after=0 if fresh else after, **params)
    rows = [row for row in rows if row[0] < end]
    return ProfileRows(stamp=(count, revision), fresh=fresh, rows=rows, passages=passages, terms=terms)


def postings(tx: Tx, scope: Scope, where: Where, stems: Sequence[str], limit: int) -> dict[str, list[tuple[int, int]]]:
    """For each stem, the turn and the length of every passage that holds it; the newest `limit` of them."""
    params = _params(tx, scope, where)
    if where.conversation is not None:
        cid = find(tx, scope, where.conversation)[0]
        return {stem: tx.all(Q.conversation_postings, match=_match(f"c{cid}", stem), limit=limit) for stem in stems}
    word = tenant_word(scope.tenant) if where.owner is None else owner_word(scope.tenant, where.owner)
    return {stem: tx.all(Q.postings, match=_match(word, stem), limit=limit, **params) for stem in stems}


def _match(word: str, stem: str) -> str:
    return f'(scope : {word}) AND (terms : "{stem}")'


def vectors(
    tx: Tx, scope: Scope, where: Where, model: str, known: dict[int, tuple[int, int]]
) -> list[tuple[int, bool, list[tuple[int, int, bytes]]]]:
    """Per conversation: its number, whether to start anew, and the vectors that are not known yet."""
    found = []
    for cid, _ in tx.all(Q.conversations_where, **_params(tx, scope, where)):
        count, newest = tx.all(Q.vector_stamp, cid=cid, model=model)[0]
        had, last = known.get(cid, (0, 0))
        rows: list[Any] = tx.all(Q.vectors, cid=cid, after=last, model=model) if newest > last else []
        fresh = had + len(rows) != count
        if fresh:
            rows = tx.all(Q.vectors, cid=cid, after=0, model=model)
        if rows or fresh:
            found.append((cid, fresh, rows))
    return found


def turns_numbered(tx: Tx, scope: Scope, tids: Sequence[int]) -> list[Turn]:
    """Turns by their numbers in this file. The caller has them from a profile of the same scope."""
    found = []
    for tid in tids:
        row = tx.one(Q.turn_by_tid, tid=tid)
        if row is not None and row[8] == "complete":
            found.append(TurnRow(*row[:-1]).turn(row[-1]))
    return found
