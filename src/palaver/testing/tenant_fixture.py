"""The victim of the attacks: a tenant with a row in every table, and what a stranger may know of it."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from string import Template
from typing import Any

from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import engine_of
from palaver.conversations.opener import open as open_store
from palaver.conversations.store import Store
from palaver.core.identity import canonical_json, new_id
from palaver.core.turn_draft import DraftBuilder
from palaver.engines.postgres import rows
from palaver.model import Fact, ItemSource, MemoryItem, Request, Scope, Turn
from palaver.models.tokens import BpeCounter
from palaver.ports.memory import FactsDraft, SummaryDraft
from palaver.ports.subjects import ItemsDraft
from palaver.testing.fakes import HashEmbedder

LETTERS = "bcdfghjklmnpqrstvwxz"  # no word of any language
FRESH = "0" * 26  # an id that no row has
SHA256 = "0" * 64  # of no file
LEASE = 3_600.0  # the stream stays open while it is attacked
# Values for columns of tables that no function fills, by type; known names and numbers come first.
FILLINGS = {
    "text": "$word",
    "text[]": "{$word}",
    "bytea": r"\x00",
    "bigint": "1",
    "integer": "1",
    "smallint": "1",
    "double precision": "1",
    "boolean": "true",
    "json": "{}",
    "jsonb": "{}",
    "tsvector": "'$word':1",
    "halfvec": "[1,0]",
    "extensions.halfvec": "[1,0]",
}
# Values for each argument of a function, in the notation of its type. A new argument needs an entry here, or the suite
# fails. `verb.name` is for one function, `name:type` for one type.
ARGUMENTS = {
    "accounts": '[{"kind": "user", "name": "$owner", "period": "total"}]',
    "actor": "$me",
    "actors": "{$owner}",
    "after:bigint": "-1",
    "after:text": "$turn",
    "alone": "false",
    "agent": "$agent",
    "among": "{$tid}",
    "argument": "1",
    "at": "1",
    "asked": "$vector",
    "attachment": '{"id": "$fresh", "owner": "$owner", "filename": "x", "media_type": "x", "bytes": 1,'
    ' "sha256": "$sha256", "path": "$path"}',
    "attachments.before": "$file",
    "before:bigint": "4000000000000000",
    "before:text": "$turn",
    "before_id": "$conversation",
    "bad:jsonb": "[[0, 0]]",
    "bad:text[]": "{$fact}",
    "bodies": "10",
    "before_updated": "4000000000000000",
    "budget": "10000",
    "by_meaning": "50",
    "by_words": "50",
    "calls": '[{"conversation": "$conversation", "drafts": $drafts}]',
    "candidates": "50",
    "changes": r'{"title": "x", "participants": "[]", "salt": "\\x00000000000000000000000000000000"}',
    "charges": '[{"kind": "user", "name": "$owner", "period": "total", "amounts": {"requests": 1, "tokens": 0, '
    '"dollars": 0, "bytes": 0, "conversations": 0}, "limits": {}}]',
    "cid": "$cid",
    "conversation": "$conversation",
    "dead": "true",
    "delay": "1",
    "discard_after": "true",
    "dropped": "{fact/$fact}",
    "draft": '{"id": "$fresh", "role": "user", "actor": "$me", "content": "x", "is_parts": 0, "level": 0,'
    ' "from_seq": 0, "through_seq": 1, "turns": 1, "tokens": 1, "text": "x", "token_count": 1, "model": "x",'
    r' "revision": 0, "salt": "\\x00000000000000000000000000000000"}',
    "drafts": "$drafts",
    "empty": "{}",
    "error": "x",
    "everywhere": "true",
    "expected_hash": "$tip_hash",
    "expected_n": "$tip_n",
    "expected_seq": "0",
    "fields": "{title}",
    "file": "$file",
    "first": "0",
    "put_embedded.first": "4000000000000000",  # after all that is embedded already
    "from_seq": "0",
    "hash": r"\x00",
    "id": "$file",
    "digest": "$fresh",
    "deleted": "[]",
    "drop_fact.id": "$fact",
    "items": "{$conversation}",
    "ids": "{$item}",
    "author": "$owner",
    "include_ended": "true",
    "items.status": "approved",
    "items.kind": "fact",
    "put_items.changes": '{"event": "learn", "new": [{"id": "$fresh", "kind": "fact", "subject": "x", "predicate": "x",'
    ' "object": "x", "confidence": 1, "learnt": 1, "origin": "manual", "status": "approved", "by": "x",'
    ' "sources": []}],'
    ' "ended": [["$item", 1, null]], "approved": ["$item"], "sources": []}',
    "in_characters": "false",
    "include_invalidated": "true",
    "job": '{"id": $jid, "kind": "embed", "conversation": "$conversation", "attempts": 0, "asked": 1}',
    "keep_salt": "false",
    "key": "$key",
    "key:jsonb": r'{"hash": "\\x01", "name": "x", "scope": "{}", "created": 1}',
    "announce.kind": "stop",
    "derived_records.kind": "summary",
    "kind": "embed",
    "put_budget.kind": "user",
    "kinds": "{append}",
    "known:bigint[]": "{}",
    "known:jsonb": "{}",
    "last": "4000000000000000",
    "lease": "1000000",
    "length": "1",
    "level": "0",
    "looked_at": "50",
    "marks": "[[$pid, 2]]",
    "memory": "{}",
    "model": "$model",
    "models": "{$model}",
    "limits": '{"requests_per_day": 1}',
    "micros": "1",
    "most": "50",
    "most_rows": "50",
    "most_facts": "50",
    "moved": '{"$turn": "$fresh"}',
    "n": "0",
    "new": '[{"id": "$fresh", "subject": "x", "predicate": "x", "object": "$fresh", "confidence": 1,'
    ' "valid_from": 1, "by": "x"}]',
    "name": "$owner",
    "owner": "$owner",
    "filter": '[[0, "n", "number", null, null, false, false]]',
    "members": "{$owner}",
    "wanted_actors": "{$owner}",
    "wanted_roles": "{user}",
    "passages": "1",
    "path": "$path",
    "payload": "{}",
    "paths": '{"$path"}',
    "person": "$owner",
    "piece": "x",
    "pieces": """[["x", 1, "'$word':1"]]""",
    "place": "1000",
    "pseudonym": "erased:00000000000000000000000000000000",
    "query": "'$word'",
    "question": "0",
    "ratio": "1.5",
    "records": '[["conversation", {"id": "$conversation", "owner": "$owner", "key": "$key", "participants": "[]",'
    r' "turn_count": 0, "token_count": 0, "next_seq": 0, "next_n": 1, "tip_position": -1, "tip_hash": "\\x00",'
    ' "created": 1, "updated": 1, "minute": 0}]]',
    "request": '{"id": "$fresh", "at": 1, "purpose": "x", "model": "x", "adapter": "x", "body": "{}", "quoted": []}',
    "replaced": '[["$fact", "$fresh"]]',
    "replaces": "$turn",
    "revision": "0",
    "roles": "{user}",
    "salt": "00",
    "samples": "1",
    "seal": '{"content": "x", "token_count": 1}',
    "seals": r'[{"conversation": "$conversation", "n": 1, "tip": "\\x00", "seal": "\\x00", "at": 1}]',
    "secret": "00",
    "shown": "3",
    "since": "0",
    "size": "1",
    "spec": '{"id": "$fresh", "owner": "$owner", "key": "$key", "participants": "[\\"$stranger\\"]",'
    r' "salt": "\\x00000000000000000000000000000000"}',
    "spans": "{0,4000000000000000}",
    "stems": "{$word}",
    "summarised": "100",
    "tail": "x",
    "tail_n": "1",
    "terms": "1",
    "requests_before": "4000000000000000",
    "through": "1",
    "through_seq": "1000",
    "tip": r"\x00",
    "tids": "{$tid}",
    "retired": "true",
    "started": "1",
    "starts:bigint[]": "{0}",
    "ends:bigint[]": "{1000000}",
    "tokens": "10000",
    "trouble": "x",
    "turn": "$turn",
    "stream_abort.turn": "$pending",
    "stream_chunk.turn": "$pending",
    "stream_commit.turn": "$pending",
    "stream_renew.turn": "$pending",
    "until": "4000000000000000",
    "vectors": '[[$pid, "[1,0]"]]',
    "put_fact_vectors.vectors": '[["$conversation", "$fact", "[1,0]"]]',
    "viewer": "$owner",
    "whole": "true",
    "words:jsonb": "[]",
    "words:text": "'$word':1",
    "workspace": "$workspace",
}


class NoAttack(Exception):
    """The suite has no attack for this function or table. The message names what is missing."""


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    type: str
    optional: bool


@dataclass(frozen=True, slots=True)
class Known:
    """Names and numbers of the victim's data, or invented ones."""

    values: dict[str, str]

    def __getitem__(self, name: str) -> str:
        return self.values[name]

    def argument(self, verb: str, parameter: Parameter) -> str:
        """Return the arguments for a function."""
        for name in (f"{verb}.{parameter.name}", f"{parameter.name}:{parameter.type}", parameter.name):
            if name in ARGUMENTS:
                return Template(ARGUMENTS[name]).substitute(self.values)
        raise NoAttack(f"{verb}: no attack on its argument {parameter.name} ({parameter.type}); add one to ARGUMENTS")

    def seen_by(self, user: str) -> Known:
        """Return the same names for a caller who writes under its own name."""
        return Known({**self.values, **_written_by(user)})

    def masked(self, text: str) -> str:
        """Return the text without any of these names. Numbers stay, because they are too short to be recognised."""
        longest_first = sorted(self.values.items(), key=lambda one: -len(one[1]))  # a path has an owner in it
        for name, value in longest_first:
            if len(value) > 10:
                text = text.replace(value, f"<{name}>")
        return text


def made_up(tenant: str, run: str) -> Known:
    """Names and numbers that do not exist; a stranger must not be able to distinguish them from real ones."""
    texts = {name: f"{name}-{_word()}" for name in ("key", "agent", "workspace", "file", "fact", "item")}
    ids = {name: _id() for name in ("conversation", "turn", "pending")}
    numbers = {name: str(8 * 10**15 + place) for place, name in enumerate(("cid", "tid", "pid", "jid"))}
    path = f"ada-{run}/{ids['conversation']}/{_word()}"
    tip = {"tip_n": "1", "tip_hash": "00" * 32}
    return Known({**_common(tenant, run), **texts, **ids, **numbers, **tip, "word": _word(), "path": path})


def _common(tenant: str, run: str, owner: str | None = None) -> dict[str, str]:
    vector = json.dumps([1.0] + [0.0] * (HashEmbedder().dimensions - 1))
    people = {"tenant": tenant, "owner": owner or f"ada-{run}", "stranger": f"eve-{run}"}
    return {
        **people,
        **_written_by("x"),
        "fresh": FRESH,
        "sha256": SHA256,
        "model": HashEmbedder().name,
        "vector": vector,
    }


def _written_by(user: str) -> dict[str, str]:
    """Return the arguments that name the author of a turn."""
    draft = rows.draft_json(DraftBuilder(BpeCounter()).draft(FRESH, "user", "x", actor=user or "x"))
    return {"me": user or "x", "drafts": canonical_json([draft])}


def _id() -> str:
    return "7" + "".join(secrets.choice("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for _ in range(18)) + "0000000"


def _word() -> str:
    return "".join(secrets.choice(LETTERS) for _ in range(14))


# ---- the victim's data ---------------------------------------------------------------------------------------------


async def victim(
    url: str,
    admin: Any,
    tenant: str,
    run: str,
    *,
    folder: str,
    owner: str | None = None,
    participants: tuple[str, ...] = (),
) -> Known:
    """Make a conversation with everything in it through the methods, and a row in each table that they left empty.

    `folder` holds its file.
    """
    word, common = _word(), _common(tenant, run, owner)
    names = {"word": word, "agent": f"agent-{word}", "workspace": f"workspace-{word}", "key": f"key-{word}"}
    options: dict[str, Any] = {"worker": False, "embedder": HashEmbedder(), "stream_lease": LEASE}
    async with open_store(url, scope=Scope(tenant, common["owner"]), files=folder, **options) as store:
        talk = await store.conversation(
            names["key"],
            title=f"About {word}",
            agent=names["agent"],
            workspace=names["workspace"],
            participants=participants,
        )
        file = await talk.attach(word.encode(), filename=f"{word}.txt")
        said = f"My name is {word}. Always answer in {word}."
        turn = await talk.append("user", said, attachments=[file], metadata={"n": 1, "word": word})
        await talk.remember("goals", f"Learn more about {word}.")
        await store.settle()
        await _derive(store, talk, turn, word)
        pending = await talk.append_open("assistant")
        await talk.append_chunk(pending, 0, word)
    names |= {"conversation": talk.id, "turn": turn.id, "pending": pending.id, "file": file.id, "path": file.path}
    numbers = await _numbers(admin, tenant, turn.id)
    known = {**common, **names, **numbers, "fact": f"fact-{word}", "item": f"item-{word}"}
    await _fill(admin, known)
    job = await admin.fetchval("SELECT min(jid) FROM palaver.jobs WHERE tenant = $1", tenant)
    return Known({**known, "jid": str(job)})


async def _derive(store: Store, talk: Conversation, turn: Turn, word: str) -> None:
    """Store a summary, a fact and a request: the log has to know them, so they are not filled in below."""
    engine, scope = engine_of(store), store.scope
    revision = (await engine.unsummarised(scope, talk.id, 0)).revision
    span = {"level": 0, "from_seq": 0, "through_seq": 1, "turns": 1, "tokens": turn.token_count}
    summary = SummaryDraft(id=new_id(), text=word, token_count=1, model="x", revision=revision, **span)
    await engine.put_summary(scope, talk.id, summary)
    fact = Fact(
        id=f"fact-{word}",
        subject=word,
        predicate="is",
        object=word,
        source_turn=turn.id,
        confidence=0.5,
        valid_from=turn.created,
    )
    await engine.put_facts(scope, talk.id, FactsDraft(new=(fact,)))
    item = MemoryItem(
        id=f"item-{word}",
        kind="fact",
        subject=word,
        predicate="is",
        object=word,
        learnt_at=turn.created,
        origin="said",
        sources=(ItemSource(conversation=talk.id, turn=turn.id, said=turn.created),),
    )
    await engine.put_items(scope, talk.id, ItemsDraft(event="learn", new=(item,)))
    request = Request(
        id=new_id(),
        conversation=talk.id,
        turn=turn.id,
        purpose="generate",
        at=turn.created,
        model="x",
        adapter="x",
        body={"text": word},
        explanation=None,
        response=None,
    )
    await engine.put_request(scope, talk.id, request, None)


async def _numbers(admin: Any, tenant: str, turn: str) -> dict[str, str]:
    row = await admin.fetchrow(
        """SELECT t.cid, t.tid, (SELECT min(p.pid) FROM palaver.passages p WHERE p.tenant = t.tenant AND p.tid = t.tid)
        AS pid, c.next_n - 1 AS tip_n, encode(c.tip_hash, 'hex') AS tip_hash
        FROM palaver.turns t JOIN palaver.conversations c USING (tenant, cid) WHERE t.tenant = $1 AND t.id = $2""",
        tenant,
        turn,
    )
    return {name: str(value) for name, value in row.items()}


async def _fill(admin: Any, known: dict[str, str]) -> None:
    for table in await tables(admin):
        if not await admin.fetchval(f"SELECT count(*) FROM palaver.{table} WHERE tenant = $1", known["tenant"]):
            await _fill_one(admin, table, known)


async def _fill_one(admin: Any, table: str, known: dict[str, str]) -> None:
    """Insert a row with a value in every required column."""
    columns = await admin.fetch(
        """SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type FROM pg_attribute a
        WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped
        AND a.attgenerated = '' AND a.attidentity = '' AND a.attnotnull AND NOT a.atthasdef""",
        f"palaver.{table}",
    )
    values = {}
    for name, kind in columns:
        if kind not in FILLINGS:
            raise NoAttack(f"table {table}: nothing to fill its column {name} ({kind}) with; add it to FILLINGS")
        values[name] = known.get(name) or Template(FILLINGS[kind]).substitute(known)
    places = ", ".join(f"${n}::text::{kind}" for n, (_, kind) in enumerate(columns, 1))
    names = ", ".join(f'"{name}"' for name in values)
    await admin.execute(f"INSERT INTO palaver.{table} ({names}) VALUES ({places})", *values.values())


async def tables(admin: Any) -> list[str]:
    rows = await admin.fetch(
        """SELECT relname FROM pg_class WHERE relnamespace = 'palaver'::regnamespace AND relkind IN ('r', 'p')
        AND NOT relispartition ORDER BY 1"""
    )
    return [row[0] for row in rows]


async def remove(admin: Any, *tenants: str) -> None:
    """Delete all data of these tenants. Rows that others refer to are deleted last."""
    waiting = await tables(admin)
    async with admin.transaction():
        while waiting:
            waiting = [table for table in waiting if not await _removed(admin, table, tenants)]


async def _removed(admin: Any, table: str, tenants: tuple[str, ...]) -> bool:
    hanging = """SELECT c.conrelid::regclass::text FROM pg_constraint c
        WHERE c.contype = 'f' AND c.confrelid = $1::text::regclass AND c.conrelid <> c.confrelid"""
    for row in await admin.fetch(hanging, f"palaver.{table}"):
        if await admin.fetchval(f"SELECT count(*) FROM {row[0]} WHERE tenant = ANY ($1)", list(tenants)):
            return False
    await admin.execute(f"DELETE FROM palaver.{table} WHERE tenant = ANY ($1)", list(tenants))
    return True
