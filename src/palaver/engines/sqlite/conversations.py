"""Creating, finding, listing and searching conversations. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from palaver.core.conversation_details import DETAIL_FIELDS, ConversationDetails, details_hash
from palaver.core.derived_rows import PROOF
from palaver.core.filters import TurnFilter
from palaver.core.identity import canonical_json, genesis
from palaver.engines.erasing import CODES, RESETTING
from palaver.engines.rows import Row, TurnRow, conversation_info, scope_params
from palaver.engines.sqlite.deletion import open_expired
from palaver.engines.sqlite.details import add_participants, info
from palaver.engines.sqlite.filters import filter_params, interval_params, json_or_none
from palaver.engines.sqlite.large_deletions import hide_or_delete
from palaver.engines.sqlite.open_conversation import MINUTE, NO_LIMIT, OpenConversation, require_cid
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.text_index import index_title, tenant_word
from palaver.engines.sqlite.transaction import SqlValue, Tx
from palaver.engines.sqlite.unindexed import IndexState, scan
from palaver.errors import ConversationBusy, ConversationNotFound
from palaver.model import ConversationInfo, ConversationMatch, Scope, TurnMatch
from palaver.ports.queries import ConversationSpec, Listing, SearchQuery
from palaver.ports.recall import RecallScope
from palaver.recall.terms import terms

CANDIDATES = 500  # the newest matching passages that a search considers
MATCHES = 3  # matching turns returned per conversation


def get(tx: Tx, scope: Scope, id: str) -> ConversationInfo:
    return info(tx, require_cid(tx, scope, id))


def find_by_key(tx: Tx, scope: Scope, owner: str, key: str) -> ConversationInfo:
    row = tx.one(Q.find_key, tenant=scope.tenant, owner=owner, key=key)
    try:
        if row is not None:
            return get(tx, scope, row[1])
    except ConversationNotFound:
        pass  # not visible to this scope: the error must not contain its id
    raise ConversationNotFound(key)


def get_or_create(tx: Tx, scope: Scope, spec: ConversationSpec) -> ConversationInfo:
    if spec.key is not None:
        row = tx.one(Q.find_key, tenant=scope.tenant, owner=spec.owner, key=spec.key)
        if row is not None:
            cid, id, expires_at = row
            if expires_at is None or expires_at > tx.now:
                return info(tx, cid)
            if expires_at == CODES["reset"]:
                raise ConversationBusy(id, RESETTING)
            hide_or_delete(open_expired(tx, scope, id), "expire")  # a large one is deleted by the next sweep
    return _create(tx, scope, spec)


def _create(tx: Tx, scope: Scope, spec: ConversationSpec) -> ConversationInfo:
    details = ConversationDetails(
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
    values = {name: getattr(details, name) for name in DETAIL_FIELDS}
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
    add_participants(conv, spec.participants)
    if title_pid := index_title(conv, spec.title):
        tx.run(Q.save_title_pid, cid=conv.cid, title_pid=title_pid)
    conv.log("create", conv.updated, payload={PROOF: 1}, content_hash=hash)
    conv.save()
    return info(tx, conv.cid)


def conversations(tx: Tx, scope: Scope, listing: Listing) -> list[ConversationInfo]:
    updated, id = listing.before or (None, None)
    sql, wanted = Q.list, listing.filter
    params: dict[str, SqlValue] = {}
    if wanted.metadata:
        found = f"FROM ({Q.conversations_with}) f CROSS JOIN conversations c ON c.cid = f.cid"
        sql, params = sql.replace("FROM conversations c", found, 1), interval_params(wanted.metadata)
    rows = tx.all(
        sql,
        now=tx.now,
        members=json_or_none(wanted.actors),
        since=wanted.since,
        until=wanted.until,
        owner=listing.owner,
        in_workspace=listing.workspace,
        agent=listing.agent,
        before_updated=updated,
        before_id=id,
        before_minute=NO_LIMIT if updated is None else updated // MINUTE,
        limit=listing.limit,
        **scope_params(scope),
        **params,
    )
    return [conversation_info(row) for row in rows]


# ---- searching -----------------------------------------------------------------------------------------------------


def search(tx: Tx, scope: Scope, query: SearchQuery, state: IndexState) -> list[ConversationMatch]:
    """Find conversations with a title or a turn that contains every stem; title matches first, then the most recent."""
    by_conversation: dict[int, list[Row]] = {}
    rows = _passages(tx, scope, query, f"scope : {tenant_word(scope.tenant)}", " AND ") if state.usable else []
    for row in [*_unindexed(tx, scope, query, state, all), *rows]:
        by_conversation.setdefault(row[0], []).append(row)
    found = [_search_result(tx, cid, rows, query) for cid, rows in by_conversation.items()]
    found.sort(key=lambda one: (one.in_title, one.conversation.updated), reverse=True)
    return found[: query.limit]


def _search_result(tx: Tx, cid: int, rows: list[Row], query: SearchQuery) -> ConversationMatch:
    turns = list(dict.fromkeys(tid for _, tid in rows if tid is not None))[:MATCHES]
    return ConversationMatch(
        info(tx, cid),
        tuple(_match(tx, tid, query) for tid in turns),
        in_title=any(tid is None for _, tid in rows),
    )


def matches(tx: Tx, scope: Scope, query: SearchQuery, state: IndexState) -> list[TurnMatch]:
    """Find turns of one conversation that contain any stem; those with the most stems first, then the latest."""
    assert query.conversation is not None
    cid = require_cid(tx, scope, query.conversation)
    rows = _passages(tx, scope, query, f"scope : c{cid}", " OR ") if state.usable else []
    rows = [*_unindexed(tx, scope, query, state, any), *rows]
    found = [_match(tx, tid, query) for tid in dict.fromkeys(tid for _, tid in rows if tid is not None)]
    found.sort(key=lambda match: (len(match.terms), match.turn.seq), reverse=True)
    return found[: query.limit]


def _passages(tx: Tx, scope: Scope, query: SearchQuery, where: str, joiner: str) -> list[Row]:
    words = [f'"{stem}"' for stem in query.stems]
    if query.prefix:
        words[-1] = f'({words[-1]} OR "{query.prefix}" *)'
    match = f"({where}) AND terms : ({joiner.join(words)})"
    params = {"match": match, "now": tx.now, "limit": CANDIDATES, **scope_params(scope)}
    if query.filter.is_empty:
        return tx.all(Q.search, **params)
    return tx.all(Q.search_filtered, **params, **filter_params(query.filter))


def _unindexed(
    tx: Tx, scope: Scope, query: SearchQuery, state: IndexState, wanted: Callable[[Iterable[bool]], bool]
) -> list[Row]:
    """Find the same among turns that are not in the index: all stems in one passage, or any of them."""
    final, *others = reversed(query.stems)  # the prefix belongs to the last one
    found: list[Row] = []
    for passage in scan(tx, scope, RecallScope(conversation=query.conversation), state):
        there = set(passage.terms)
        last = final in there or bool(query.prefix and any(term.startswith(query.prefix) for term in there))
        if wanted([last, *(stem in there for stem in others)]):
            found.append((passage.cid, passage.tid))
    return found if query.filter.is_empty else _only_fitting(tx, found, query.filter)


def _only_fitting(tx: Tx, rows: list[Row], wanted: TurnFilter) -> list[Row]:
    tids = canonical_json([tid for _, tid in rows])
    fitting = {tid for (tid,) in tx.all(Q.fitting_turns, tids=tids, **filter_params(wanted))}
    return [row for row in rows if row[1] in fitting]


def _match(tx: Tx, tid: int, query: SearchQuery) -> TurnMatch:
    row = tx.one(Q.turn_by_tid, tid=tid)
    assert row is not None
    turn = TurnRow(*row[:-1]).turn(row[-1])
    return TurnMatch(turn, _matching_terms(turn.text, query))


def _matching_terms(text: str, query: SearchQuery) -> tuple[str, ...]:
    present = set(terms(text))
    matching = [stem for stem in query.stems if stem in present]
    if query.prefix:
        matching += sorted({term for term in present if term.startswith(query.prefix)} - set(matching))
    return tuple(matching)
