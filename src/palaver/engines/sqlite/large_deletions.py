"""Deletion of a large conversation in slices, between which other writers get the lock.

1. `begin` hides the conversation, in one short transaction: nobody reads or writes it any more.
2. Its turns leave the text index (`unindex_slice`). If they are a large share of the index, that is done without
   FTS5's secure-delete, and the index is merged afterwards (`text_index.removal_before_merge`). A step of the merge is
   limited by the pages that it writes, not by those that it reads; so where nearly everything goes, the turns leave in
   rounds, each time every second one that is left, and every step writes about half of what it reads.
3. Its rows are deleted (`rows_slice`); a reset leaves the stubs of the turns, and logs an event per slice.
4. `finish` deletes the rest and ends the log, or shows a conversation again that was reset.

Each slice is a transaction of about `SLICE_SECONDS`. After a crash the conversation stays hidden, and the next process
that opens the file, expires, sweeps, or calls `forget` again continues at step 2.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import starmap
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from palaver.core.concurrency import run_in_strides
from palaver.core.identity import digest
from palaver.core.rights import require_owner
from palaver.engines.erasing import CODES, KINDS, ErasureKind
from palaver.engines.rows import Row, TurnRow, scope_params
from palaver.engines.sqlite import deletion, requests, text_index
from palaver.engines.sqlite.details import drop_generated_title, info
from palaver.engines.sqlite.open_conversation import OpenConversation, open_conversation
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.readers import Readers
from palaver.engines.sqlite.transaction import Tx
from palaver.engines.sqlite.writer import Writer
from palaver.errors import ConversationGone, NotFound
from palaver.model import Scope
from palaver.recall.terms import english_passages

P = ParamSpec("P")
T = TypeVar("T")

PAUSE_SECONDS = 0.006  # between two slices; longer than another process waits before it looks for the lock again
CHUNK, CHUNK_CHARACTERS = 20, 20_000  # turns between two looks at the clock, and of how much text, at most
PASSAGES, PASSAGES_TO_MERGE = 4, 100  # of one turn that leave in one slice: with secure-delete, and without
MANY_PASSAGES = 20  # of a turn: with more, they leave the index before it is forgotten,
VERY_MANY_PASSAGES = 500  # and before the other turns of a conversation that is deleted as a whole
MERGE_PAGES = 24  # that one slice writes
BULK_SHARE = 16  # with more than this part of the index, merging it is faster than overwriting each word
TURN_SHARE = 128  # the same for one turn, whose words are overwritten a few passages at a time
LAST_ROUND = 2_000  # passages that one step of a merge may leave out altogether


@dataclass(frozen=True, slots=True)
class HiddenConversation:
    """A hidden conversation, and how its deletion ends."""

    scope: Scope
    id: str
    cid: int
    kind: ErasureKind

    def open(self, tx: Tx) -> OpenConversation | None:
        """Open the conversation, unless another process has finished its deletion."""
        row = tx.one(Q.find_hidden, tenant=self.scope.tenant, id=self.id, code=CODES[self.kind])
        return None if row is None else OpenConversation(tx, self.scope, row)


# ---- hiding --------------------------------------------------------------------------------------------------------


def begin(tx: Tx, scope: Scope, conversation: str, kind: ErasureKind) -> HiddenConversation | None:
    """Delete a small conversation at once. Hide a large one, and return what is left to do."""
    found = tx.one(Q.hidden, id=conversation, **scope_params(scope))
    if found is not None:
        return _continue(tx, scope, conversation, kind, KINDS[found[1]])
    conv = open_conversation(tx, scope, conversation)
    require_owner(scope, info(tx, conv.cid))
    if kind == "reset":
        drop_generated_title(tx, scope, conversation)
        conv = open_conversation(tx, scope, conversation)
    return hide_or_delete(conv, kind)


def hide_or_delete(conv: OpenConversation, kind: ErasureKind) -> HiddenConversation | None:
    if conv.tx.one(Q.is_large, cid=conv.cid, most=deletion.AT_ONCE) is None:
        turns = conv.tx.all(Q.next_turns, cid=conv.cid, after=-1, limit=deletion.AT_ONCE)
        _finish(conv, kind, list(starmap(TurnRow, turns)))
        return None
    conv.tx.run(Q.hide, cid=conv.cid, code=CODES[kind])
    conv.tx.run(Q.drop_jobs, cid=conv.cid)
    deletion.mark_for_scrub(conv.tx)
    return HiddenConversation(conv.scope, conv.id, conv.cid, kind)


def _continue(tx: Tx, scope: Scope, conversation: str, kind: ErasureKind, begun: ErasureKind) -> HiddenConversation:
    """Continue a deletion that was interrupted. A conversation that is being reset may also be forgotten."""
    row = tx.one(Q.find_hidden, tenant=scope.tenant, id=conversation, code=CODES[begun])
    assert row is not None
    require_owner(scope, info(tx, row[0]))
    if kind == "reset" and begun != "reset":
        raise ConversationGone(conversation)
    if kind != begun and begun == "reset":
        tx.run(Q.hide, cid=row[0], code=CODES[kind])
        begun = kind
    return HiddenConversation(scope, conversation, row[0], begun)


def unfinished(tx: Tx, scope: Scope) -> list[HiddenConversation]:
    """Find the deletions that were interrupted, within what a scope may see."""
    rows = tx.all(Q.all_hidden, **scope_params(scope))
    return [HiddenConversation(scope, id, cid, KINDS[code]) for cid, id, code in rows]


def begin_expired(tx: Tx, scope: Scope) -> tuple[list[str], HiddenConversation | None]:
    """Delete expired conversations up to the first large one, which is hidden. Returns the deleted ones, and it."""
    timer = deletion.SliceTimer()
    done: list[str] = []
    for (id,) in tx.all(Q.expired, now=tx.now, limit=deletion.EXPIRE_BATCH, **scope_params(scope)):
        found = tx.one(Q.hidden, id=id, **scope_params(scope))
        if found is not None:
            row = tx.one(Q.find_hidden, tenant=scope.tenant, id=id, code=found[1])
            assert row is not None
            return done, HiddenConversation(scope, id, row[0], KINDS[found[1]])
        large = hide_or_delete(deletion.open_expired(tx, scope, id), "expire")
        if large is not None:
            return done, large
        done.append(id)
        if timer.is_over():
            break
    return done, None


# ---- slices --------------------------------------------------------------------------------------------------------


def index_shares(tx: Tx, cid: int) -> tuple[int, int]:
    """Return how many passages of the text index belong to a conversation, and how many to others."""
    row = tx.one(Q.count_all_passages, cid=cid)
    mine, total = row if row is not None else (0, 0)
    return mine, total - mine


def rounds(mine: int, others: int) -> Iterator[tuple[int, int]]:
    """Yield, for each round, which turns leave the index: those whose `seq` divided by the first leaves the second."""
    step = 2
    while mine > max(others, LAST_ROUND):
        yield step, step // 2
        mine, step = mine // 2, step * 2
    yield 1, 0


def unindex_slice(tx: Tx, hidden: HiddenConversation, turns: tuple[int, int], after: int, bulk: bool) -> int | None:
    """Take the next turns out of the text index. Returns the seq of the last one; None when there are no more."""
    conv = hidden.open(tx)
    if conv is None:
        return None
    if bulk:
        with text_index.removal_before_merge(tx):
            return _unindex_next(conv, turns, after, bulk)
    last = _unindex_next(conv, turns, after, bulk)
    deletion.mark_for_scrub(tx)
    return last


def _unindex_next(conv: OpenConversation, turns: tuple[int, int], after: int, bulk: bool) -> int | None:
    timer, (step, rest) = deletion.SliceTimer(), turns
    while found := conv.tx.all(Q.turns_to_unindex, cid=conv.cid, after=after, step=step, rest=rest, limit=CHUNK):
        rows = _some(found)
        text_index.unindex_known(conv, rows, merged_later=bulk)
        after = rows[-1].seq
        if timer.is_over():
            return after
    return None


def _some(rows: Sequence[Row]) -> list[TurnRow]:
    """Return the first turns, with at most `CHUNK_CHARACTERS` after the first one."""
    found: list[TurnRow] = []
    characters = 0
    for turn in starmap(TurnRow, rows):
        characters += len(turn.content or "")
        if found and characters > CHUNK_CHARACTERS:
            break
        found.append(turn)
    return found


def rows_slice(tx: Tx, hidden: HiddenConversation, after: int) -> int | None:
    """Delete the next turns, then everything else. Returns the seq of the last turn; None when nothing is left."""
    conv = hidden.open(tx)
    if conv is None:
        return None
    timer, before = deletion.SliceTimer(), after
    stubs: list[bytes] = []
    while rows := tx.all(Q.next_turns, cid=conv.cid, after=after, limit=CHUNK):
        turns = _some(rows)
        text_index.unindex_known(conv, turns)  # one may have been indexed again since
        stubs += deletion.remove_rows(conv, turns, keep_stubs=hidden.kind == "reset")
        after = turns[-1].seq
        if timer.is_over():
            break
    if stubs:
        conv.log("reset", conv.tick(), payload={"through": after}, content_hash=digest(stubs))
        conv.save()
        tx.run(Q.hide, cid=conv.cid, code=CODES[hidden.kind])  # `save` has extended its time to live
    more = after > before or _drop_some(conv, timer)
    deletion.mark_for_scrub(tx)
    return after if more else None


def _drop_some(conv: OpenConversation, timer: deletion.SliceTimer) -> bool:
    """Delete rows that belong to the conversation as a whole. False when none are left."""
    for before, statement, limit in DROPS:
        while True:
            if before is not None:
                conv.tx.run(before, cid=conv.cid, limit=limit)
            if not conv.tx.all(statement, cid=conv.cid, limit=limit):
                break
            if timer.is_over():
                return True
    return False


# The statement before it (if any), the deletion, and its rows at once: a request may be as long as a context.
DROPS = (
    (Q.drop_some_request_quotes, Q.drop_some_requests, 5),
    (None, Q.drop_some_facts, 50),
    (None, Q.drop_some_items, 50),
    (None, Q.drop_some_summaries, 50),
    (None, Q.drop_some_vectors, 50),
    (None, Q.drop_some_marks, 200),
    (Q.doom_some_blobs, Q.drop_some_attachments, 10),
)


def finish(tx: Tx, hidden: HiddenConversation) -> None:
    conv = hidden.open(tx)
    deletion.request_scrub(tx)
    if conv is not None:
        _finish(conv, hidden.kind, [])


def _finish(conv: OpenConversation, kind: ErasureKind, turns: list[TurnRow]) -> None:
    if kind == "reset":
        deletion.reset_rest(conv, turns)
    else:
        deletion.delete_all_but_log(conv, kind)


def drop_bodies(tx: Tx, scope: Scope, conversation: str, turn: str) -> bool:
    """Delete recorded requests that may contain a turn, before it is forgotten. False when none are left."""
    conv = open_conversation(tx, scope, conversation)
    timer, seq = deletion.SliceTimer(), conv.turn(turn).seq
    while requests.drop_some_bodies(tx, conv.cid, seq):
        if timer.is_over():
            return True
    return False


# ---- turns with many passages --------------------------------------------------------------------------------------
# They leave the text index before anything else is deleted, the last ones first. If the process is killed in between,
# the turn is found by fewer of its words until it is forgotten.

OpenTurn = Callable[[Tx], tuple[OpenConversation, TurnRow]]
"""Opens the conversation of a turn, and reads the turn. Raises NotFound if either is gone."""


def open_turn(tx: Tx, scope: Scope, conversation: str, turn: str) -> tuple[OpenConversation, TurnRow]:
    conv = open_conversation(tx, scope, conversation)
    return conv, conv.turn(turn)


def open_hidden_turn(tx: Tx, hidden: HiddenConversation, turn: str) -> tuple[OpenConversation, TurnRow]:
    conv = hidden.open(tx)
    if conv is None:
        raise ConversationGone(hidden.id)
    return conv, conv.turn(turn)


class LargeTurn(NamedTuple):
    """A turn with many passages. `bulk`: they leave without secure-delete, and the index is merged."""

    conversation: str
    id: str
    bulk: bool


def turns_to_unindex(tx: Tx, scope: Scope, turns: Sequence[tuple[str, str]]) -> list[LargeTurn]:
    """Find the turns with many passages among some that will be forgotten, and their tool results."""
    found: list[LargeTurn] = []
    for conversation, turn in turns:
        with suppress(NotFound):  # who forgets it gets the error
            conv, row = open_turn(tx, scope, conversation, turn)
            for one in (row, *deletion.results_of(conv, row)):
                mine = tx.all(Q.count_passages_of, tid=one.tid)[0][0]
                if mine > MANY_PASSAGES:
                    is_large = bool(tx.all(Q.is_large_share, mine=mine, share=TURN_SHARE)[0][0])
                    found.append(LargeTurn(conversation, one.id, is_large))
                elif not mine and text_index.unmerged(tx) is not None and text_index.should_be_indexed(conv, one):
                    found.append(LargeTurn(conversation, one.id, True))  # a process was killed before the merge
    return found


def turns_to_unindex_first(tx: Tx, hidden: HiddenConversation) -> list[str]:
    return [id for (id,) in tx.all(Q.turns_of_many_passages, cid=hidden.cid, most=VERY_MANY_PASSAGES)]


def text_of_turn(tx: Tx, find: OpenTurn) -> str:
    return text_index.text_of(find(tx)[1])


def passages_slice(tx: Tx, find: OpenTurn, derived: Sequence[str], bulk: bool) -> bool:
    """Take the last passages of a turn out of the text index. False when it has none."""
    conv, turn = find(tx)
    if bulk:
        with text_index.removal_before_merge(tx):
            return text_index.unindex_last(conv, turn, derived, PASSAGES_TO_MERGE, merged_later=True)
    more = text_index.unindex_last(conv, turn, derived, PASSAGES)
    deletion.mark_for_scrub(tx)
    return more


# ---- the driver ----------------------------------------------------------------------------------------------------


class Eraser:
    """Runs the slices of one deletion after another."""

    def __init__(self, writer: Writer, readers: Readers) -> None:
        self.writer, self.readers = writer, readers
        self._one_at_a_time = asyncio.Lock()

    async def erase(self, hidden: HiddenConversation) -> None:
        async with self._one_at_a_time:
            await self._unindex(hidden)
            after: int | None = -1
            while after is not None:
                after = await self.slice(rows_slice, hidden, after)
            await self.writer.submit(finish, hidden)

    async def slice(self, work: Callable[Concatenate[Tx, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        """Run one slice, then leave the lock to others."""
        result = await self.writer.submit_slice(work, *arguments, **options)
        await asyncio.sleep(PAUSE_SECONDS)
        return result

    async def unindex_turns(self, scope: Scope, turns: Sequence[tuple[str, str]]) -> None:
        """Take those with many passages out of the text index, before they are forgotten."""
        for one in await self.readers.run(turns_to_unindex, scope, turns):
            find = partial(open_turn, scope=scope, conversation=one.conversation, turn=one.id)
            if one.bulk:
                async with self._one_at_a_time:
                    await self._unindex_turn(find, bulk=True)
                    await self._merge_index()
            else:
                await self._unindex_turn(find, bulk=False)

    async def _unindex_turn(self, find: OpenTurn, bulk: bool) -> None:
        with suppress(NotFound):  # another process has deleted it
            text = await self.readers.run(text_of_turn, find)
            derived = await run_in_strides(partial(english_passages, text), len(text))
            while await self.slice(passages_slice, find, derived, bulk):
                pass

    async def _unindex(self, hidden: HiddenConversation) -> None:
        if await self.readers.run(text_index.has_lost_passages, hidden.cid):
            await self.writer.submit(text_index.rebuild_damaged)  # words may be in the index, though nothing says where
        mine, others = await self.readers.run(index_shares, hidden.cid)
        bulk = mine * BULK_SHARE > mine + others
        for turn in await self.readers.run(turns_to_unindex_first, hidden):
            await self._unindex_turn(partial(open_hidden_turn, hidden=hidden, turn=turn), bulk)
        for turns in rounds(mine, others) if bulk else [(1, 0)]:
            after: int | None = -1
            while after is not None:
                after = await self.slice(unindex_slice, hidden, turns, after, bulk)
            await self._merge_index()

    async def _merge_index(self) -> None:
        """Merge the text index, if words were removed from it that are still there."""
        mark = await self.readers.run(text_index.unmerged)
        if mark is None:
            return
        more = await self.slice(text_index.merge_some, MERGE_PAGES, True)
        while more:
            more = await self.slice(text_index.merge_some, MERGE_PAGES, False)
        await self.writer.submit(text_index.merged, mark)
