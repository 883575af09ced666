"""The order of answers in conversations whose questions are queued or refused. Each function is one transaction."""

from __future__ import annotations

from palaver.engines.sqlite.open_conversation import open_conversation
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import Tx
from palaver.model import Scope
from palaver.ports.answer_places import PlaceRequest, queue_name

FARTHEST = 300_000_000  # microseconds; a lease further ahead was written before the clock was set back


def take(tx: Tx, scope: Scope, conversation: str, wanted: PlaceRequest, lease: int) -> int:
    """Take a place, or renew it. Returns how many answers come first."""
    conv = open_conversation(tx, scope, conversation)
    tx.run(Q.drop_expired_places, cid=conv.cid, now=tx.now, farthest=tx.now + max(lease, FARTHEST))
    own = tx.one(Q.answer_place, cid=conv.cid, id=wanted.id)
    seq = wanted.question if wanted.question is not None else conv.next_seq if own is None else own[0]
    found = tx.one(Q.places_ahead, cid=conv.cid, id=wanted.id, seq=seq, alone=wanted.alone)
    assert found is not None
    ahead = int(found[0])
    is_stored = wanted.question is not None
    if wanted.alone and ahead and own is None:
        return ahead
    tx.run(
        Q.take_place,
        cid=conv.cid,
        id=wanted.id,
        seq=seq,
        stored=is_stored,
        started=ahead == 0 and (wanted.alone or is_stored),
        lease_until=tx.now + lease,
    )
    if is_stored and (own is None or not own[1]):
        tx.touched.add(queue_name(conversation))  # others may have waited to learn where this question stands
    return 0 if own is not None and own[2] else ahead


def leave(tx: Tx, scope: Scope, conversation: str, place: str) -> None:
    conv = open_conversation(tx, scope, conversation)
    tx.run(Q.leave_place, cid=conv.cid, id=place)
    tx.touched.add(queue_name(conversation))
