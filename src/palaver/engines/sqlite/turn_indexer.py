"""Brings the text index up to date, in transactions that are short however long the turns are.

The words of a large turn are found in a thread: neither the writer nor other processes wait for that. They are stored
some passages at a time. The table `passages` says how far that has come, so that any process continues there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple

from palaver.core.concurrency import start_in_strides
from palaver.engines.file_passages import FILE_PARTS
from palaver.engines.sqlite import text_index
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.text_index import IndexEntry
from palaver.engines.sqlite.transaction import Tx

PASSAGES = 200  # of a large turn, stored in one transaction


class _Analysis(NamedTuple):
    """The words of a large turn, as soon as they are found. Numbers of rows are used again, so it has the turn's id."""

    turn: str
    entry: Future[IndexEntry]


class TurnIndexer:
    """Indexes turns. `chores` runs in the writer's thread."""

    def __init__(self, request_chores: Callable[[], None]) -> None:
        """`request_chores` is called from another thread, when the words of a large turn were found."""
        self._request_chores = request_chores
        self._analysis: _Analysis | None = None
        self._is_stopped = False

    def stop(self) -> None:
        """Begin no more large turns: they are indexed when the file is opened again."""
        self._is_stopped = True

    def chores(self, tx: Tx) -> int:
        """Do work that waits for a quiet moment. Returns 0 if there is nothing to do now."""
        return text_index.index_batch(tx) or self._index_large(tx) or text_index.complete_batch(tx)

    async def wait(self) -> bool:
        """Wait until the words of a large turn are found. False if none is being read."""
        analysis = self._analysis
        if analysis is None:
            return False
        await asyncio.shield(asyncio.wrap_future(analysis.entry))
        return True

    def _index_large(self, tx: Tx) -> int:
        """Store some passages of the next turn, which is large. Returns 0 if there is none, or it is being read."""
        turn = text_index.next_large_turn(tx)
        if turn is None:
            self._analysis = None
            return 0
        if self._analysis is None or self._analysis.turn != turn.id:
            if self._is_stopped:
                return 0
            self._analysis = _Analysis(turn.id, start_in_strides(turn.entry))
            self._analysis.entry.add_done_callback(lambda _: self._request_chores())
        if not self._analysis.entry.done():
            return 0
        row = tx.one(Q.next_part, tid=turn.tid, files=FILE_PARTS)
        assert row is not None
        if text_index.index_part(tx, turn, self._analysis.entry.result(), int(row[0]), PASSAGES):
            self._analysis = None
        return 1
