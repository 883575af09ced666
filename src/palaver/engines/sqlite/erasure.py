"""Erasing a person: who was erased, and their turns and names in one conversation after the other.

Each function is one transaction of bounded size; the caller repeats it until nothing is left. Old bytes are scrubbed
when the erasure is finished (`put_erasure`), or when the file is next opened. audit/erasure.py says what replaces a
name in the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaver.audit.erasure import tombstone_digest, without_name
from palaver.core.identity import canonical_json, from_json, genesis
from palaver.core.turn_draft import stub_hash
from palaver.engines.rows import Row, TurnRow, scope_from_json, scope_params
from palaver.engines.sqlite.deletion import forget_turn, request_scrub
from palaver.engines.sqlite.keys import log_key
from palaver.engines.sqlite.open_conversation import OpenConversation, open_conversation
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import SqlValue, Tx
from palaver.errors import ConversationNotFound
from palaver.model import Scope
from palaver.ports.engine import KEY_ID
from palaver.ports.queries import ConversationNames, ErasedName, ErasedTurns, Erasure

# How much one transaction changes, so that other writers can go in between.
TURN_BATCH = 20
EVENT_BATCH = 500

Values = dict[str, SqlValue]


# ---- who was erased ------------------------------------------------------------------------------------------------


def erasures(tx: Tx, scope: Scope) -> list[Erasure]:
    return [_erasure(row) for row in tx.all(Q.erasures, tenant=scope.tenant)]


def _erasure(row: Row) -> Erasure:
    digest, salt, started, at, user, key, conversations = row
    return Erasure(digest, salt, started, at, user, key, tuple(from_json(conversations)))


def put_erasure(tx: Tx, scope: Scope, erasure: Erasure) -> None:
    tx.run(
        Q.put_erasure,
        tenant=scope.tenant,
        digest=erasure.digest,
        salt=erasure.salt,
        started=erasure.started,
        at=erasure.at,
        user=erasure.user,
        key=erasure.key,
        conversations=canonical_json(erasure.conversations),
    )
    if erasure.user is None:
        tx.run(Q.drop_erased_items, tenant=scope.tenant, digest=erasure.digest)
        request_scrub(tx)


def note_erased(tx: Tx, scope: Scope, digest: str, kind: str, items: Sequence[str]) -> None:
    for item in items:
        tx.run(Q.note_erased, tenant=scope.tenant, digest=digest, kind=kind, item=item)


def erased_items(tx: Tx, scope: Scope, digest: str) -> list[tuple[str, str]]:
    return [(kind, item) for kind, item in tx.all(Q.erased_items, tenant=scope.tenant, digest=digest)]


def conversation_names(tx: Tx, scope: Scope, after: str, limit: int) -> list[ConversationNames]:
    rows = tx.all(Q.conversation_names, after=after, limit=limit, **scope_params(scope))
    return [
        ConversationNames(id, bool(gone), owner, created, updated, from_json(names))
        for id, gone, owner, created, updated, names in rows
    ]


# ---- turns and files -----------------------------------------------------------------------------------------------


def erase_turns(tx: Tx, scope: Scope, conversation: str, name: ErasedName) -> ErasedTurns:
    """Forget some turns that the user said or that have a file of the user, and the user's files that no turn has."""
    cid = open_conversation(tx, scope, conversation).cid
    named: Values = {"cid": cid, "user": name.user, "before": name.before}
    rows = [TurnRow(*row) for row in tx.all(Q.turns_to_erase, limit=TURN_BATCH, **named)]
    for row in rows:
        # The pseudonym first: forgetting logs the hash of a stub, which holds the speaker.
        if row.actor == name.user:
            tx.run(Q.rename_speaker, tid=row.tid, actor=name.pseudonym)
        forget_turn(tx, scope, conversation, row.id)
    files = _drop_files(tx, scope, conversation, named)
    tx.run(Q.drop_bodies_naming, cid=cid, user=name.user)
    tx.run(Q.drop_set_aside, cid=cid)
    tx.run(Q.mark_unscrubbed)
    tx.scrub = False  # once, when the erasure is finished
    erased = ErasedTurns(tuple(row.id for row in rows), files, TURN_BATCH in (len(rows), len(files)))
    note_erased(tx, scope, name.digest, "turns", [f"{conversation}/{id}" for id in erased.turns])
    note_erased(tx, scope, name.digest, "files", [f"{conversation}/{id}" for id in erased.files])
    return erased


def _drop_files(tx: Tx, scope: Scope, conversation: str, named: Values) -> tuple[str, ...]:
    rows = tx.all(Q.files_to_erase, limit=TURN_BATCH, **named)
    conv = open_conversation(tx, scope, conversation)
    for aid, id, path in rows:
        tx.run(Q.doom_blob, path=path)
        tx.run(Q.drop_attachment, aid=aid)
        conv.log("detach", conv.tick(), payload={"attachment": id})
    if rows:
        conv.save()
    return tuple(row[1] for row in rows)


# ---- names ---------------------------------------------------------------------------------------------------------


def erase_names(tx: Tx, scope: Scope, conversation: str, name: ErasedName) -> tuple[int, bool]:
    """Replace the user's name in some events, in stubs of forgotten turns, and as the owner of what was deleted."""
    found = tx.one(Q.find_even_deleted, id=conversation, **scope_params(scope))
    if found is None:
        raise ConversationNotFound(conversation)
    conv = OpenConversation(tx, scope, found)
    events, stubs = _erase_from_events(conv, name), _erase_from_stubs(conv, name)
    if conv.owner == name.user:
        tx.run(Q.rename_owner_of_deleted, cid=conv.cid, owner=name.pseudonym)
    if events or stubs:
        conv.updated += 1  # erasing does not make a conversation a recent one
        conv.log("erase", conv.updated, payload={"name": name.pseudonym, "events": events, "stubs": stubs})
        conv.save()
        note_erased(tx, scope, name.digest, "logs", [conversation])
        tx.run(Q.mark_unscrubbed)
    return len(events) + len(stubs), EVENT_BATCH in (len(events), len(stubs))


def _erase_from_events(conv: OpenConversation, name: ErasedName) -> list[tuple[int, str]]:
    """Replace the name in events. Returns their numbers, and the digests that prove what is left of them."""
    values: Values = {"user": name.user, "before": name.before, "limit": EVENT_BATCH}
    erased = []
    for n, kind, turn, actor, at, payload, content_hash, hash, previous in conv.tx.all(
        Q.events_naming, cid=conv.cid, **values
    ):
        actor, payload = without_name(actor, payload, name.user, name.pseudonym)
        previous = previous or (genesis(conv.id) if n == 1 else _archived_hash(conv, n - 1))
        proof = tombstone_digest(previous, n, kind, turn, actor, at, payload, content_hash, hash)
        conv.tx.run(Q.replace_names, cid=conv.cid, n=n, actor=actor, payload=payload)
        erased.append((n, proof.hex()))
    return erased


def _archived_hash(conv: OpenConversation, n: int) -> bytes:
    """Return the hash of an event that is in an archive. Archiving logged it, if the event was the last that went."""
    row = conv.tx.one(Q.archived_hash, cid=conv.cid, n=n)
    return bytes.fromhex(row[0]) if row else b""


def _erase_from_stubs(conv: OpenConversation, name: ErasedName) -> list[tuple[str, str, str]]:
    """Replace the speaker of forgotten turns. Returns their ids, and the hashes of their stubs before and after."""
    values: Values = {"user": name.user, "before": name.before, "limit": EVENT_BATCH}
    erased = []
    for row in (TurnRow(*one) for one in conv.tx.all(Q.stubs_naming, cid=conv.cid, **values)):
        hashes = [
            stub_hash(row.id, row.role, actor, row.created, row.idempotency_key, row.content_hash).hex()
            for actor in (row.actor, name.pseudonym)
        ]
        conv.tx.run(Q.rename_speaker, tid=row.tid, actor=name.pseudonym)
        erased.append((row.id, *hashes))
    return [(id, before, after) for id, before, after in erased]


# ---- keys ----------------------------------------------------------------------------------------------------------


def erase_keys(tx: Tx, scope: Scope, name: ErasedName) -> tuple[list[str], int]:
    """Delete the user's API keys, and replace the name in some events of their log."""
    keys = [row[0] for row in tx.all(Q.api_keys, tenant=scope.tenant)
            if scope_from_json(scope.tenant, row[2]).user == name.user]  # fmt: skip
    ids = [hash.hex()[:KEY_ID] for hash in keys]
    erased = _erase_from_key_log(tx, scope, name, ids)
    if erased:
        log_key(tx, scope, "erase", "", {"name": name.pseudonym, "events": erased})
    if len(erased) < EVENT_BATCH:  # else the keys are needed to find the other events
        for hash in keys:
            tx.run(Q.drop_key, tenant=scope.tenant, hash=hash)
    else:
        ids = []
    note_erased(tx, scope, name.digest, "keys", ids)
    tx.run(Q.mark_unscrubbed)
    return ids, len(erased)


def _erase_from_key_log(tx: Tx, scope: Scope, name: ErasedName, ids: list[str]) -> list[tuple[int, str]]:
    values: Values = {"user": name.user, "name": name.pseudonym, "before": name.before, "ids": canonical_json(ids)}
    erased = []
    rows = tx.all(Q.key_events_naming, tenant=scope.tenant, limit=EVENT_BATCH, **values)
    for n, kind, key, actor, at, payload, hash, previous in rows:
        if key in ids and payload is not None:  # the name of the key, or the address that it was used from
            payload = canonical_json({"name": name.pseudonym})
        actor, payload = without_name(actor, payload, name.user, name.pseudonym)
        previous = previous or genesis(f"keys of {scope.tenant}")
        proof = tombstone_digest(previous, n, kind, key, actor, at, payload, None, hash)
        tx.run(Q.replace_names_of_key, tenant=scope.tenant, n=n, actor=actor, payload=payload)
        erased.append((n, proof.hex()))
    return erased
