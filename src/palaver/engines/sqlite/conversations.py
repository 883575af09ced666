"""Conversations: getting, listing, searching, changing. Each function is one transaction."""

from __future__ import annotations

from palaver.audit.verifier import DETAILS, Details, details_hash
from palaver.core.identity import canonical_json, genesis, new_salt
from palaver.engines.rows import Row, TurnRow, conversation_info, scope_params
from palaver.engines.sqlite.connection import Tx
from palaver.engines.sqlite.deletion import bury, open_expired
from palaver.engines.sqlite.open_conversation import MINUTE, OpenConversation, find, open_conversation
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.text_index import index_title, rewrite_separators, tenant_word, unindex_title
from palaver.errors import ConversationNotFound, UpdateConflict
from palaver.model import ConversationInfo, ConversationMatch, Scope, TurnMatch
from palaver.ports.queries import ConversationChanges, ConversationSpec, Listing, SearchQuery
from palaver.recall.terms import terms

END = 2**62
CANDIDATES = 500  # passages that a search looks at
MATCHES = 3  # turns shown per conversation


def get(tx: Tx, scope: Scope, id: str) -> ConversationInfo:
    return info(tx, find(tx, scope, id)[0])


def by_key(tx: Tx, scope: Scope, owner: str, key: str) -> ConversationInfo:
    row = tx.one(Q.find_key, tenant=scope.tenant, owner=owner, key=key)
    try:
        if row is not None:
            return get(tx, scope, row[1])
    except ConversationNotFound:
        pass  # somebody else's: not even its id is told
    raise ConversationNotFound(key)


def info(tx: Tx, cid: int) -> ConversationInfo:
    row = tx.one(Q.conversation, cid=cid)
    assert row is not None
    return conversation_info(row)


def get_or_create(tx: Tx, scope: Scope, spec: ConversationSpec) -> ConversationInfo:
    if spec.key is not None:
        row = tx.one(Q.find_key, tenant=scope.tenant, owner=spec.owner, key=spec.key)
        if row is not None:
            cid, id, expires_at = row
            if expires_at is None or expires_at > tx.now:
                return info(tx, cid)
            bury(open_expired(tx, scope, id), "expire")
    return _create(tx, scope, spec)


def _create(tx: Tx, scope: Scope, spec: ConversationSpec) -> ConversationInfo:
    details = Details(
        id=spec.id,
        owner=spec.owner,
        key=spec.key,
        workspace=spec.workspace,
        agent=spec.agent,
        model=spec.model,
        title=spec.title,
        participants=canonical_json(spec.participants),
        metadata=spec.metadata,
        settings=spec.settings,
        ttl=spec.ttl,
    )
    hash = details_hash(spec.salt, details)
    values = {name: getattr(details, name) for name in DETAILS}
    tx.run(
        Q.create,
        tenant=scope.tenant,
        **values,
        expires_at=None if spec.ttl is None else tx.now + spec.ttl,
        tip_hash=genesis(spec.id),
        salt=spec.salt,
        content_hash=hash,
        created=tx.now,
    )
    row = tx.one(Q.find_expired, tenant=scope.tenant, id=spec.id)
    assert row is not None
    conv = OpenConversation(tx, scope, row)
    _enrol(conv, spec.participants)
    if title_pid := index_title(conv, spec.title):
        tx.run(Q.save_title_pid, cid=conv.cid, title_pid=title_pid)
    conv.log("create", conv.updated, content_hash=hash)
    conv.save()
    return info(tx, conv.cid)


def _enrol(conv: OpenConversation, participants: tuple[str, ...]) -> None:
    for actor in participants:
        conv.tx.run(Q.add_participant, actor=actor, cid=conv.cid)


def update(tx: Tx, scope: Scope, id: str, changes: ConversationChanges) -> ConversationInfo:
    conv = open_conversation(tx, scope, id)
    if changes.expected_updated not in (None, conv.updated):
        raise UpdateConflict(expected=changes.expected_updated, found=conv.updated)
    row = tx.one(Q.details, cid=conv.cid)
    assert row is not None
    *stored, title_pid = row
    details = Details(*stored)
    if changes.if_untitled and details.title is not None:
        return info(tx, conv.cid)
    old_title = details.title or ""
    for name in changes.fields:
        value = getattr(changes, name)
        setattr(details, name, canonical_json(value) if name == "participants" else value)
    if "title" in changes.fields:
        if title_pid is not None:
            unindex_title(conv, title_pid, old_title)
            rewrite_separators(tx)
        title_pid = index_title(conv, changes.title)
        tx.run(Q.mark_title, cid=conv.cid, made=int(changes.if_untitled))
    if "participants" in changes.fields:
        tx.run(Q.drop_participants, cid=conv.cid)
        _enrol(conv, changes.participants)
    hash = details_hash(changes.salt, details)
    values = {name: getattr(details, name) for name in DETAILS if name not in ("id", "owner", "key")}
    tx.run(Q.save_details, cid=conv.cid, **values, title_pid=title_pid, salt=changes.salt, content_hash=hash)
    conv.ttl = details.ttl
    tx.run(Q.save_expiry, cid=conv.cid, expires_at=None)
    conv.log("update", conv.tick(), payload={"fields": sorted(changes.fields)}, content_hash=hash)
    conv.save()
    return info(tx, conv.cid)


def drop_generated_title(tx: Tx, scope: Scope, id: str) -> None:
    """A turn is forgotten: a title that a job wrote may repeat its words."""
    if tx.one(Q.title_made, cid=find(tx, scope, id)[0]):
        update(tx, scope, id, ConversationChanges(fields=frozenset({"title"}), title=None, salt=new_salt()))


def listed(tx: Tx, scope: Scope, listing: Listing) -> list[ConversationInfo]:
    updated, id = listing.before or (None, None)
    rows = tx.all(
        Q.list,
        now=tx.now,
        owner=listing.owner,
        in_workspace=listing.workspace,
        agent=listing.agent,
        before_updated=updated,
        before_id=id,
        before_minute=END if updated is None else updated // MINUTE,
        limit=listing.limit,
        **scope_params(scope),
    )
    return [conversation_info(row) for row in rows]


# ---- searching -----------------------------------------------------------------------------------------------------


def search(tx: Tx, scope: Scope, query: SearchQuery) -> list[ConversationMatch]:
    """Conversations with a title or a turn that holds every stem; title matches first, then the most recent."""
    by_conversation: dict[int, list[Row]] = {}
    for row in _passages(tx, scope, query, f"scope : {tenant_word(scope.tenant)}", " AND "):
        by_conversation.setdefault(row[0], []).append(row)
    found = [_found(tx, cid, rows, query) for cid, rows in by_conversation.items()]
    found.sort(key=lambda one: (one.in_title, one.conversation.updated), reverse=True)
    return found[: query.limit]


def _found(tx: Tx, cid: int, rows: list[Row], query: SearchQuery) -> ConversationMatch:
    turns = list(dict.fromkeys(tid for _, tid in rows if tid is not None))[:MATCHES]
    return ConversationMatch(
        info(tx, cid),
        tuple(_match(tx, tid, query) for tid in turns),
        in_title=any(tid is None for _, tid in rows),
    )


def matches(tx: Tx, scope: Scope, query: SearchQuery) -> list[TurnMatch]:
    """Turns of one conversation that hold any stem; those with the most different ones first, then the latest."""
    assert query.conversation is not None
    cid = find(tx, scope, query.conversation)[0]
    rows = _passages(tx, scope, query, f"scope : c{cid}", " OR ")
    found = [_match(tx, tid, query) for tid in dict.fromkeys(tid for _, tid in rows if tid is not None)]
    found.sort(key=lambda match: (len(match.terms), match.turn.seq), reverse=True)
    return found[: query.limit]


def _passages(tx: Tx, scope: Scope, query: SearchQuery, where: str, joiner: str) -> list[Row]:
    words = [f'"{stem}"' for stem in query.stems]
    if query.prefix:
        words[-1] = f'({words[-1]} OR "{query.prefix}" *)'
    match = f"({where}) AND terms : ({joiner.join(words)})"
    return tx.all(Q.search, match=match, now=tx.now, limit=CANDIDATES, **scope_params(scope))


def _match(tx: Tx, tid: int, query: SearchQuery) -> TurnMatch:
    row = tx.one(Q.turn_by_tid, tid=tid)
    assert row is not None
    turn = TurnRow(*row[:-1]).turn(row[-1])
    return TurnMatch(turn, _held(turn.text, query))


def _held(text: str, query: SearchQuery) -> tuple[str, ...]:
    held = set(terms(text))
    wanted = [stem for stem in query.stems if stem in held]
    if query.prefix:
        wanted += sorted({term for term in held if term.startswith(query.prefix)} - set(wanted))
    return tuple(wanted)
