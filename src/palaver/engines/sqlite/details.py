"""The fields of a conversation that an `update` event covers: title, participants, settings and so on."""

from __future__ import annotations

from palaver.core.conversation_details import DETAIL_FIELDS, ConversationDetails, details_hash
from palaver.core.identity import canonical_json, new_salt
from palaver.engines.rows import conversation_info
from palaver.engines.sqlite.open_conversation import OpenConversation, open_conversation, require_cid
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.text_index import index_title, rewrite_separators, unindex_title
from palaver.engines.sqlite.transaction import Tx
from palaver.errors import UpdateConflict
from palaver.model import ConversationInfo, Scope
from palaver.ports.queries import ConversationChanges


def info(tx: Tx, cid: int) -> ConversationInfo:
    row = tx.one(Q.conversation, cid=cid)
    assert row is not None
    return conversation_info(row)


def add_participants(conv: OpenConversation, participants: tuple[str, ...]) -> None:
    for actor in participants:
        conv.tx.run(Q.add_participant, actor=actor, cid=conv.cid)


def update(tx: Tx, scope: Scope, id: str, changes: ConversationChanges) -> ConversationInfo:
    conv = open_conversation(tx, scope, id)
    if changes.expected_updated not in (None, conv.updated):
        raise UpdateConflict(expected=changes.expected_updated, found=conv.updated)
    row = tx.one(Q.details, cid=conv.cid)
    assert row is not None
    *stored, title_pid = row
    details = ConversationDetails(*stored)
    if changes.if_untitled and details.title is not None:
        return info(tx, conv.cid)
    if "title" in changes.fields:
        title_pid = _index_new_title(conv, details.title or "", title_pid, changes.title)
        tx.run(Q.mark_title, cid=conv.cid, made=int(changes.if_untitled))
    replaced = False
    for name in changes.fields:
        value, before = getattr(changes, name), getattr(details, name)
        setattr(details, name, canonical_json(value) if name == "participants" else value)
        replaced = replaced or before not in (None, getattr(details, name))
    if "participants" in changes.fields:
        tx.run(Q.drop_participants, cid=conv.cid)
        add_participants(conv, changes.participants)
    hash = details_hash(changes.salt, details)
    values = {name: getattr(details, name) for name in DETAIL_FIELDS if name not in ("id", "owner", "key")}
    tx.run(Q.save_details, cid=conv.cid, **values, title_pid=title_pid, salt=changes.salt, content_hash=hash)
    conv.ttl = details.ttl
    tx.run(Q.save_expiry, cid=conv.cid, expires_at=None)
    conv.log("update", conv.tick(), payload={"fields": sorted(changes.fields)}, content_hash=hash)
    conv.save()
    if replaced:  # old words are removed from the WAL and the file, as those of a forgotten turn are
        tx.run(Q.mark_unscrubbed)
        tx.scrub = True
    return info(tx, conv.cid)


def _index_new_title(conv: OpenConversation, old: str, pid: int | None, new: str | None) -> int | None:
    """Replace the title in the text index. Returns the number of its new passage."""
    if pid is not None:
        unindex_title(conv, pid, old)
        rewrite_separators(conv.tx)
    return index_title(conv, new)


def drop_generated_title(tx: Tx, scope: Scope, id: str) -> None:
    """Remove a title that a job wrote: it may repeat the words of a turn that is being forgotten."""
    if tx.one(Q.title_made, cid=require_cid(tx, scope, id)):
        update(tx, scope, id, ConversationChanges(fields=frozenset({"title"}), title=None, salt=new_salt()))
