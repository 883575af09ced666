"""Erasing a person: who was erased, and their turns and names in one conversation after the other.

Readers find what is to be changed; each change is one short transaction, and the engine repeats it until nothing is
left. Old bytes are scrubbed when the erasure is finished (`put_erasure`), or when the file is next opened.
audit/erasure.py says what replaces a name in the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from palaver.audit.erasure import tombstone_digest, without_name
from palaver.core.identity import canonical_json, from_json, genesis
from palaver.core.turn_draft import stub_hash
from palaver.engines.rows import Row, TurnRow, scope_from_json, scope_params
from palaver.engines.sqlite.deletion import SliceTimer, forget_turn, request_scrub
from palaver.engines.sqlite.keys import log_key
from palaver.engines.sqlite.open_conversation import OpenConversation, open_conversation, require_cid
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import SqlValue, Tx
from palaver.errors import ConversationNotFound
from palaver.model import Scope
from palaver.ports.engine import KEY_ID
from palaver.ports.queries import ConversationNames, ErasedName, ErasedTurns, Erasure

# How much is found at once; one transaction changes as much of it as fits into a slice.
FIND = 500
FILE_BATCH = 20
KEY_EVENT_BATCH = 100

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


def find_turns(tx: Tx, scope: Scope, conversation: str, name: ErasedName) -> list[str]:
    """Find turns that the user said or that have a file of the user."""
    named: Values = {"cid": require_cid(tx, scope, conversation), "user": name.user, "before": name.before}
    return [TurnRow(*row).id for row in tx.all(Q.turns_to_erase, limit=FIND, **named)]


def find_bodies(tx: Tx, scope: Scope, conversation: str, name: ErasedName) -> list[int]:
    """Find requests whose body contains the user's name: a prompt names those who take part."""
    cid = require_cid(tx, scope, conversation)
    return [row[0] for row in tx.all(Q.bodies_naming, cid=cid, user=name.user)]


def erase_turns(tx: Tx, scope: Scope, conversation: str, name: ErasedName, found: Sequence[str]) -> ErasedTurns:
    """Forget turns that were found, until the time of a slice is over, and some files of the user that no turn has."""
    conv, timer, erased = open_conversation(tx, scope, conversation), SliceTimer(), list[str]()
    for id in found:
        if erased and timer.is_over():
            break
        row = conv.turn(id)
        # The pseudonym first: forgetting logs the hash of a stub, which holds the speaker.
        if row.actor == name.user:
            tx.run(Q.rename_speaker, tid=row.tid, actor=name.pseudonym)
        forget_turn(tx, scope, conversation, id)
        erased.append(id)
    files = _drop_files(tx, scope, conversation, {"cid": conv.cid, "user": name.user, "before": name.before})
    tx.run(Q.drop_set_aside, cid=conv.cid)
    note_erased(tx, scope, name.digest, "turns", [f"{conversation}/{id}" for id in erased])
    note_erased(tx, scope, name.digest, "files", [f"{conversation}/{id}" for id in files])
    _scrub_later(tx)
    more = len(erased) < len(found) or len(found) == FIND or len(files) == FILE_BATCH
    return ErasedTurns(tuple(erased), files, more)


def drop_bodies(tx: Tx, rids: Sequence[int]) -> None:
    for rid in rids:
        tx.run(Q.drop_body, rid=rid)
    _scrub_later(tx)


def _scrub_later(tx: Tx) -> None:
    """Note that old bytes are left. They are removed once, when the erasure is finished."""
    tx.run(Q.mark_unscrubbed)
    tx.scrub = False


def _drop_files(tx: Tx, scope: Scope, conversation: str, named: Values) -> tuple[str, ...]:
    rows = tx.all(Q.files_to_erase, limit=FILE_BATCH, **named)
    conv = open_conversation(tx, scope, conversation)
    for aid, id, path in rows:
        tx.run(Q.doom_blob, path=path)
        tx.run(Q.drop_attachment, aid=aid)
        conv.log("detach", conv.tick(), payload={"attachment": id})
    if rows:
        conv.save()
    return tuple(row[1] for row in rows)


# ---- names ---------------------------------------------------------------------------------------------------------


def find_events(tx: Tx, scope: Scope, conversation: str, name: ErasedName, after: int) -> list[int]:
    """Find the numbers of events after another that name the user."""
    values: Values = {"user": name.user, "before": name.before, "after": after, "limit": FIND}
    return [row[0] for row in tx.all(Q.events_naming, cid=_open(tx, scope, conversation).cid, **values)]


def find_stubs(tx: Tx, scope: Scope, conversation: str, name: ErasedName) -> list[str]:
    """Find forgotten turns whose stubs name the user."""
    values: Values = {"user": name.user, "before": name.before, "limit": FIND}
    rows = tx.all(Q.stubs_naming, cid=_open(tx, scope, conversation).cid, **values)
    return [TurnRow(*row).id for row in rows]


def erase_events(tx: Tx, scope: Scope, conversation: str, name: ErasedName, found: Sequence[int]) -> int:
    """Replace the name in events that were found, until the time of a slice is over. Returns in how many it was."""
    conv, timer = _open(tx, scope, conversation), SliceTimer()
    events: list[tuple[int, str]] = []
    for n in found:
        if events and timer.is_over():
            break
        events.append((n, _erase_from_event(conv, name, n).hex()))
    _log(conv, name, {"events": events})
    return len(events)


def erase_stubs(tx: Tx, scope: Scope, conversation: str, name: ErasedName, found: Sequence[str]) -> int:
    """Replace the speaker of forgotten turns that were found, until the time of a slice is over."""
    conv, timer = _open(tx, scope, conversation), SliceTimer()
    stubs: list[tuple[str, str, str]] = []
    for id in found:
        if stubs and timer.is_over():
            break
        stubs.append((id, *_erase_from_stub(conv, name, id)))
    _log(conv, name, {"stubs": stubs})
    return len(stubs)


def rename_owner(tx: Tx, scope: Scope, conversation: str, name: ErasedName) -> None:
    """Put the pseudonym into the row of a deleted conversation that the user owned."""
    conv = _open(tx, scope, conversation)
    if conv.owner == name.user:
        tx.run(Q.rename_owner_of_deleted, cid=conv.cid, owner=name.pseudonym)


def _open(tx: Tx, scope: Scope, conversation: str) -> OpenConversation:
    """Open a conversation, deleted or not."""
    found = tx.one(Q.find_even_deleted, id=conversation, **scope_params(scope))
    if found is None:
        raise ConversationNotFound(conversation)
    return OpenConversation(tx, scope, found)


def _log(conv: OpenConversation, name: ErasedName, erased: Mapping[str, object]) -> None:
    conv.updated += 1  # erasing does not make a conversation a recent one
    conv.log("erase", conv.updated, payload={"name": name.pseudonym, **erased})
    conv.save()
    note_erased(conv.tx, conv.scope, name.digest, "logs", [conv.id])
    _scrub_later(conv.tx)


def _erase_from_event(conv: OpenConversation, name: ErasedName, n: int) -> bytes:
    """Replace the name in an event. Returns the digest that proves what is left of it."""
    row = conv.tx.one(Q.event_to_erase, cid=conv.cid, n=n)
    assert row is not None
    kind, turn, actor, at, payload, content_hash, hash, previous = row
    actor, payload = without_name(actor, payload, name.user, name.pseudonym)
    conv.tx.run(Q.replace_names, cid=conv.cid, n=n, actor=actor, payload=payload)
    previous = previous or (genesis(conv.id) if n == 1 else _archived_hash(conv, n - 1))
    return tombstone_digest(previous, n, kind, turn, actor, at, payload, content_hash, hash)


def _archived_hash(conv: OpenConversation, n: int) -> bytes:
    """Return the hash of an event that is in an archive. Archiving logged it, if the event was the last that went."""
    row = conv.tx.one(Q.archived_hash, cid=conv.cid, n=n)
    return bytes.fromhex(row[0]) if row else b""


def _erase_from_stub(conv: OpenConversation, name: ErasedName, id: str) -> tuple[str, str]:
    """Replace the speaker of a forgotten turn. Returns the hashes of its stub before and after."""
    row = conv.turn(id)
    conv.tx.run(Q.rename_speaker, tid=row.tid, actor=name.pseudonym)
    fields = row.created, row.idempotency_key, row.content_hash
    before, after = (stub_hash(row.id, row.role, actor, *fields).hex() for actor in (row.actor, name.pseudonym))
    return before, after


# ---- keys ----------------------------------------------------------------------------------------------------------


def erase_keys(tx: Tx, scope: Scope, name: ErasedName) -> tuple[list[str], int]:
    """Delete the user's API keys, and replace the name in some events of their log."""
    keys = [row[0] for row in tx.all(Q.api_keys, tenant=scope.tenant)
            if scope_from_json(scope.tenant, row[2]).user == name.user]  # fmt: skip
    ids = [hash.hex()[:KEY_ID] for hash in keys]
    erased = _erase_from_key_log(tx, scope, name, ids)
    if erased:
        log_key(tx, scope, "erase", "", {"name": name.pseudonym, "events": erased})
    if len(erased) < KEY_EVENT_BATCH:  # else the keys are needed to find the other events
        for hash in keys:
            tx.run(Q.drop_key, tenant=scope.tenant, hash=hash)
        values: Values = {"tenant": scope.tenant, "user": name.user, "keys": canonical_json(ids)}
        tx.run(Q.erase_budgets, **values)
        tx.run(Q.erase_budget_use, **values)
    else:
        ids = []
    note_erased(tx, scope, name.digest, "keys", ids)
    tx.run(Q.mark_unscrubbed)
    return ids, len(erased)


def _erase_from_key_log(tx: Tx, scope: Scope, name: ErasedName, ids: list[str]) -> list[tuple[int, str]]:
    values: Values = {"user": name.user, "name": name.pseudonym, "before": name.before, "ids": canonical_json(ids)}
    erased = []
    rows = tx.all(Q.key_events_naming, tenant=scope.tenant, limit=KEY_EVENT_BATCH, **values)
    for n, kind, key, actor, at, payload, hash, previous in rows:
        if key in ids and payload is not None:  # the name of the key, or the address that it was used from
            payload = canonical_json({"name": name.pseudonym})
        actor, payload = without_name(actor, payload, name.user, name.pseudonym)
        previous = previous or genesis(f"keys of {scope.tenant}")
        proof = tombstone_digest(previous, n, kind, key, actor, at, payload, None, hash)
        tx.run(Q.replace_names_of_key, tenant=scope.tenant, n=n, actor=actor, payload=payload)
        erased.append((n, proof.hex()))
    return erased
