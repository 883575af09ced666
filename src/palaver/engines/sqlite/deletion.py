"""Permanent deletion. Each function is one transaction.

Forgetting a turn removes, in this order:

1. the conversation's title, if a job wrote it: it may repeat the turn's words;
2. the turns that hold results of its tool calls, each in the same way as the turn itself;
3. its passages in the text index, and those of its files;
4. its mark as a standing instruction, its vectors, and damaged rows of memory that were put aside: they may quote it;
5. the bodies of recorded requests that may contain it: those sent after it, and those elsewhere that quote it;
6. its files: the rows and their extracted text now; the bytes are listed in `doomed_blobs`, and the store deletes them
   after the commit;
7. what memory derived from it: summaries that cover it lose their text and are written again, its notes and facts are
   deleted, and facts that those facts had replaced are valid again;
8. its stream, if it is still being written;
9. every field but those of its stub (`STUB_FIELDS` in core/turn_draft.py);
10. the conversation's preview, if it came from the turn.

The log then gets a `forget` event with the hash of the stub. Before the call returns, the old bytes are removed as
well: leaf separators of the text index (here, `request_scrub`), the WAL and the gaps between the cells of pages
(`scrubbing`).

`reset_rest` does all this for every turn of a conversation. `delete_all_but_log` also deletes the conversation's own
fields. Of a large conversation they only find the rest: `large_deletions` has deleted nearly everything before, in
slices. `retire` does 3 to 6 and 9, and keeps the memory (7).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import starmap

from palaver.core.derived_rows import file_key
from palaver.core.identity import digest, stub_key
from palaver.core.turn_draft import decode_calls, decode_results, stub_hash
from palaver.engines.rows import TurnRow, scope_params
from palaver.engines.sqlite import memory_invalidation, requests
from palaver.engines.sqlite.details import drop_generated_title
from palaver.engines.sqlite.embeddings import drop_vectors_of_turn
from palaver.engines.sqlite.open_conversation import OpenConversation, open_conversation
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.text_index import rewrite_separators, unindex, unindex_title
from palaver.engines.sqlite.transaction import Tx
from palaver.errors import NotFound
from palaver.model import Scope
from palaver.ports.queries import Deletion

# How much one transaction deletes, so that other writers can go in between.
EXPIRE_BATCH = 100  # conversations, at most
TURN_BATCH = 200  # at most
SLICE_SECONDS = 0.008
AT_ONCE = 60  # turns or requests of a conversation that is deleted in one transaction


class SliceTimer:
    """A limit on the time of one transaction, without its commit."""

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        self.end = time.monotonic() + seconds

    def is_over(self) -> bool:
        return time.monotonic() >= self.end


# ---- turns ---------------------------------------------------------------------------------------------------------


def forget_turn(tx: Tx, scope: Scope, conversation: str, turn: str) -> Deletion:
    drop_generated_title(tx, scope, conversation)
    conv = open_conversation(tx, scope, conversation)
    row = conv.turn(turn)
    if row.status == "forgotten":
        return Deletion() if _is_forgotten(conv, row) else _forget_retired(conv, row)
    rows = [row, *results_of(conv, row)]
    for one in rows:
        conv.log("forget", conv.tick(), turn=one.id, content_hash=_remove_turn(conv, one))
    conv.find_tip()
    memory_invalidation.drop_memory_beyond_tip(conv)
    conv.refresh_preview()
    conv.save()
    request_scrub(tx)
    return Deletion(turns=tuple(one.id for one in rows))


def _remove_turn(conv: OpenConversation, row: TurnRow) -> bytes:
    """Remove a turn and everything derived from it (3 to 9 of the list above). Returns the hash of its stub."""
    _remove_words(conv, row)
    memory_invalidation.invalidate_turn(conv, row)
    conv.tx.run(Q.close_stream, tid=row.tid)
    return _reduce_to_stub(conv, row)


def _remove_words(conv: OpenConversation, row: TurnRow) -> None:
    """Remove every copy of a turn's words outside its row and the memory (3 to 6)."""
    unindex(conv, [row])
    requests.drop_bodies_after(conv.tx, conv.cid, row.seq)
    _remove_copies(conv, row)


def _remove_copies(conv: OpenConversation, row: TurnRow) -> None:
    """Remove the copies of a turn's words that are found by its id, except for those in the text index."""
    tx = conv.tx
    tx.run(Q.unmark, tid=row.tid)
    drop_vectors_of_turn(tx, row.tid)
    tx.run(Q.drop_set_aside, cid=conv.cid)
    requests.drop_bodies_quoting(tx, row.id)
    conv.changed(*(file_key(id) for (id,) in tx.all(Q.files_of_turn, cid=conv.cid, tid=row.tid)))
    tx.run(Q.doom_turn_blobs, cid=conv.cid, tid=row.tid)
    tx.run(Q.drop_turn_attachments, cid=conv.cid, tid=row.tid)


def _reduce_to_stub(conv: OpenConversation, row: TurnRow, keep_salt: bool = False) -> bytes:
    """Clear every field of a turn that is not in its stub (9). Returns the hash of the stub."""
    key = stub_key(conv.id, row.idempotency_key)
    conv.tx.run(Q.stub, tid=row.tid, idempotency_key=key, keep_salt=int(keep_salt))
    if row.active:
        conv.turn_count -= 1
        conv.token_count -= row.token_count
    return stub_hash(row.id, row.role, row.actor, row.created, key, row.content_hash)


def results_of(conv: OpenConversation, row: TurnRow) -> list[TurnRow]:
    """Return the turns with results of the tool calls of `row`.

    When a later turn makes a call with the same id, results from there on belong to that turn.
    """
    open_calls = {call.id for call in decode_calls(row.tool_calls)}
    found: list[TurnRow] = []
    if not open_calls:
        return found
    for other in starmap(TurnRow, conv.tx.all(Q.tool_turns_after, cid=conv.cid, seq=row.seq)):
        open_calls -= {call.id for call in decode_calls(other.tool_calls)}
        if open_calls & {result.id for result in decode_results(other.tool_results)}:
            found.append(other)
    return found


def _is_forgotten(conv: OpenConversation, row: TurnRow) -> bool:
    """True if the turn was forgotten, false if it was only retired: both have the same status."""
    return conv.tx.one(Q.forgotten_by, cid=conv.cid, turn=row.id) is not None


def _forget_retired(conv: OpenConversation, row: TurnRow) -> Deletion:
    """Forget a turn whose words are gone already: what memory derived from it, and its salt, go too."""
    memory_invalidation.invalidate_turn(conv, row)
    conv.tx.run(Q.drop_set_aside, cid=conv.cid)
    requests.drop_bodies_after(conv.tx, conv.cid, row.seq)
    requests.drop_bodies_quoting(conv.tx, row.id)
    conv.tx.run(Q.unsalt, tid=row.tid)
    hash = stub_hash(row.id, row.role, row.actor, row.created, row.idempotency_key, row.content_hash)
    conv.log("forget", conv.tick(), turn=row.id, content_hash=hash)
    conv.save()
    request_scrub(conv.tx)
    return Deletion(turns=(row.id,))


def older_turns(tx: Tx, scope: Scope, before: int, after: int) -> list[tuple[int, str, str]]:
    """Find turns from before a time, by their row numbers: number, conversation and id of each."""
    values = {"before": before, "now": tx.now, "limit": TURN_BATCH, **scope_params(scope)}
    return [(tid, conversation, turn) for tid, conversation, turn in tx.all(Q.older_than, after=after, **values)]


def older_retired_turns(tx: Tx, scope: Scope, before: int) -> list[tuple[str, str]]:
    """Find turns from before a time that are retired already, and that summaries still speak of."""
    values = {"before": before, "now": tx.now, "limit": TURN_BATCH, **scope_params(scope)}
    return [(conversation, turn) for conversation, turn in tx.all(Q.retired_and_older, **values)]


def forget_some(tx: Tx, scope: Scope, turns: Sequence[tuple[str, str]]) -> tuple[int, list[str]]:
    """Forget turns, given with their conversations, until the time of a slice is over.

    Returns how many were looked at, and the ids of those that were forgotten.
    """
    timer, looked_at = SliceTimer(), 0
    forgotten: list[str] = []
    for conversation, turn in turns:
        if looked_at and timer.is_over():
            break
        looked_at += 1
        try:
            forgotten.extend(forget_turn(tx, scope, conversation, turn).turns)
        except NotFound:
            continue  # deleted since it was found
    return looked_at, forgotten


def turns_to_retire(tx: Tx, scope: Scope, conversation: str, position: int) -> list[tuple[str, str]]:
    """Find the turns that `retire` will look at next, with their conversation."""
    conv = open_conversation(tx, scope, conversation)
    return [(conversation, row.id) for row in _next_to_retire(conv, position)]


def _next_to_retire(conv: OpenConversation, position: int) -> list[TurnRow]:
    position = min(position, conv.tip_position)
    rows = conv.tx.all(Q.before_position, cid=conv.cid, position=position, limit=TURN_BATCH)
    return [TurnRow(*row) for row in rows]


def retire(tx: Tx, scope: Scope, conversation: str, position: int, keep_salt: bool) -> Deletion:
    """Remove the words of turns that are summarised, and keep their summaries.

    With `keep_salt` a copy of the words kept elsewhere can still be checked against the turn's hash. The last turn is
    never retired: the position of the next one is counted from it.
    """
    conv = open_conversation(tx, scope, conversation)
    timer = SliceTimer()
    rows: list[TurnRow] = []
    for row in _next_to_retire(conv, position):
        if rows and timer.is_over():
            break
        _retire_turn(conv, row, keep_salt)
        rows.append(row)
    if rows:
        tx.run(Q.bump, cid=conv.cid)
        memory_invalidation.recount_summarized(conv)
        conv.find_tip()
        conv.refresh_preview()
        conv.save()
        request_scrub(tx)
    return Deletion(turns=tuple(row.id for row in rows))


def _retire_turn(conv: OpenConversation, row: TurnRow, keep_salt: bool) -> None:
    _remove_words(conv, row)
    hash = _reduce_to_stub(conv, row, keep_salt)
    conv.log("retire", conv.tick(), turn=row.id, payload={"salt": True} if keep_salt else None, content_hash=hash)


# ---- conversations -------------------------------------------------------------------------------------------------


def reset_rest(conv: OpenConversation, rows: Sequence[TurnRow]) -> None:
    """Forget the turns that are left, and everything else of the conversation but its own fields."""
    tx = conv.tx
    requests.drop_requests(tx, conv.cid)
    memory_invalidation.drop_all(conv)
    unindex(conv, rows)
    stubs = remove_rows(conv, rows, keep_stubs=True)
    tx.run(Q.doom_blobs, cid=conv.cid)
    tx.run(Q.drop_attachments, cid=conv.cid)
    conv.log("reset", conv.tick(), content_hash=digest(stubs))
    conv.preview = None
    conv.find_tip()
    tx.run(Q.save_expiry, cid=conv.cid, expires_at=None)  # it may have been hidden
    conv.save()
    request_scrub(tx)


def remove_rows(conv: OpenConversation, rows: Sequence[TurnRow], *, keep_stubs: bool) -> list[bytes]:
    """Remove turns that are not in the text index any more, and what belongs to each; the memory goes as a whole.

    Returns the hashes of their stubs; of turns that were forgotten before, only the salt goes, or the stub as well.
    """
    stubs, tx = [], conv.tx
    for row in rows:
        if row.status != "forgotten":
            _remove_copies(conv, row)
            tx.run(Q.close_stream, tid=row.tid)
        if not keep_stubs:
            tx.run(Q.drop_turn, tid=row.tid)
        elif row.status == "forgotten":
            tx.run(Q.unsalt, tid=row.tid)
        else:
            stubs.append(_reduce_to_stub(conv, row))
    if not keep_stubs:
        tx.run(Q.lower_indexed_tid)
    return stubs


def open_expired(tx: Tx, scope: Scope, id: str) -> OpenConversation:
    row = tx.one(Q.find_expired, tenant=scope.tenant, id=id)
    assert row is not None
    return OpenConversation(tx, scope, row)


def delete_all_but_log(conv: OpenConversation, kind: str) -> None:
    """Delete a conversation. Its log stays and ends with an event of this kind."""
    tx, cid = conv.tx, conv.cid
    unindex(conv, [TurnRow(*row) for row in tx.all(Q.remembered, cid=cid)])
    details = tx.one(Q.details, cid=cid)
    assert details is not None
    *_, title_pid = details
    if title_pid is not None:
        unindex_title(conv, title_pid, details[6])
    requests.drop_requests(tx, cid)
    memory_invalidation.drop_all(conv)
    for statement in (
        Q.doom_blobs,
        Q.drop_attachments,
        Q.drop_streams,
        Q.drop_places,
        Q.drop_turns,
        Q.drop_participants,
        Q.drop_all_proofs,
    ):
        tx.run(statement, cid=cid)
    tx.run(Q.lower_indexed_tid)
    at = conv.tick()
    conv.log(kind, at)
    conv.turn_count, conv.token_count, conv.preview, conv.ttl = 0, 0, None, None
    conv.save()
    tx.run(Q.leave_tombstone, cid=cid, at=at)
    request_scrub(tx)


# ---- old bytes -----------------------------------------------------------------------------------------------------


def blobs_to_delete(tx: Tx, limit: int) -> list[str]:
    return [row[0] for row in tx.all(Q.blobs_to_delete, limit=limit)]


def blobs_deleted(tx: Tx, paths: Sequence[str]) -> None:
    for path in paths:
        tx.run(Q.blob_deleted, path=path)


def request_scrub(tx: Tx) -> None:
    """Have old bytes removed from the WAL and the file after the commit."""
    mark_for_scrub(tx)
    tx.scrub = True


def is_marked_for_scrub(tx: Tx) -> bool:
    return tx.one(Q.unscrubbed) is not None


def mark_for_scrub(tx: Tx) -> None:
    """Note that there are old bytes, and leave their removal to a later transaction."""
    rewrite_separators(tx)
    tx.run(Q.mark_unscrubbed)
