"""Turns that the text index cannot find: it is damaged, is being filled again, or could not be brought up to date.

The newest of them are searched word by word, so that a search finds what was said last in any case.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from palaver.core.turn_draft import decode_content, words
from palaver.engines.rows import scope_params
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import Tx
from palaver.model import Scope
from palaver.ports.recall import Postings, RecallScope
from palaver.recall.terms import passages

MOST = 2_000  # turns that are searched word by word


@dataclass(frozen=True, slots=True)
class IndexState:
    """How far the text index can be used. Turns after `after` are not in it; None: all of them are.

    `usable` is false when it cannot be read at all. `problem` says why something is missing.
    """

    after: int | None = None
    usable: bool = True
    problem: str | None = None


WHOLE = IndexState()
DAMAGED = IndexState(0, False, f"the text index is damaged and being rebuilt; the newest {MOST:,} turns were searched")


class Passage(NamedTuple):
    """A passage of a turn that is not in the index: its terms, in order."""

    tid: int
    cid: int
    terms: Sequence[str]


def scan(tx: Tx, scope: Scope, where: RecallScope, state: IndexState) -> Iterator[Passage]:
    """Yield the passages of the newest turns that are not in the index, newest first."""
    if state.after is None:
        return
    params = {**scope_params(scope), "now": tx.now, "conversation": where.conversation, "owner": where.owner}
    for tid, cid, is_parts, content in tx.all(Q.unindexed, after=state.after, limit=MOST, **params):
        for stems in passages(words(decode_content(content or "", bool(is_parts)))):
            if stems:
                yield Passage(tid, cid, stems.split(" "))


def scan_postings(
    tx: Tx, scope: Scope, where: RecallScope, stems: Sequence[str], state: IndexState
) -> dict[str, Postings]:
    """Return the postings of stems in those turns."""
    wanted = frozenset(stems)
    found: dict[str, tuple[list[int], list[int]]] = {stem: ([], []) for stem in stems}
    for passage in scan(tx, scope, where, state):
        for stem in wanted.intersection(passage.terms):
            found[stem][0].append(passage.tid)
            found[stem][1].append(len(passage.terms))
    return {stem: Postings(*lists) for stem, lists in found.items()}
