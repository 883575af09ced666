"""Conversations on Postgres: create, find, list, search, change. Each method is one transaction."""

from __future__ import annotations

from typing import Any

from palaver.core.filters import TurnFilter
from palaver.core.identity import canonical_json
from palaver.engines.postgres import rows
from palaver.engines.postgres.rpc import EnginePart
from palaver.engines.postgres.transports import Row, as_json
from palaver.model import ConversationInfo, ConversationMatch, Scope, Turn, TurnMatch
from palaver.ports.queries import ConversationChanges, ConversationSpec, Listing, SearchQuery
from palaver.recall.terms import terms

CANDIDATES = 500  # passages that a search looks at
MATCHES = 3  # turns shown per conversation


class PostgresConversations(EnginePart):
    async def open_conversation(self, scope: Scope, spec: ConversationSpec) -> ConversationInfo:
        size, title = rows.title_words(spec.title)
        values = {**_details(spec), "id": spec.id, "owner": spec.owner, "key": spec.key}
        call = self.write if spec.key is None else self.write_once
        found = await call("open_conversation", scope, spec=as_json(values), words=title, size=size)
        self.hub.committed(found[0]["id"])
        return rows.read_info(found[0])

    async def conversation(self, scope: Scope, id: str) -> ConversationInfo:
        return rows.read_info((await self.read("conversation", scope, conversation=id))[0])

    async def find_conversation(self, scope: Scope, owner: str, key: str) -> ConversationInfo:
        return rows.read_info((await self.read("find_conversation", scope, owner=owner, key=key))[0])

    async def conversations(self, scope: Scope, listing: Listing) -> list[ConversationInfo]:
        updated, id = listing.before or (None, None)
        filtered = {} if listing.filter.is_empty else _listing_args(listing.filter)
        found = await self.read(
            "conversations_where" if filtered else "conversations",
            scope,
            **filtered,
            most=listing.limit,
            owner=listing.owner,
            workspace=listing.workspace,
            agent=listing.agent,
            before_updated=updated,
            before_id=id,
        )
        return [rows.read_info(row) for row in found]

    async def search(self, scope: Scope, search: SearchQuery) -> list[ConversationMatch]:
        query = _tsquery(search, " & ")
        limits = {"candidates": CANDIDATES, "shown": MATCHES, "most": search.limit}
        name, filtered = _function("search", search)
        return [_read_match(row, search) for row in await self.read(name, scope, query=query, **limits, **filtered)]

    async def matches(self, scope: Scope, search: SearchQuery) -> list[TurnMatch]:
        id = search.conversation
        assert id is not None
        query = _tsquery(search, " | ")
        name, filtered = _function("matches", search)
        found = await self.read(name, scope, conversation=id, query=query, candidates=CANDIDATES, **filtered)
        matches = [_match(rows.read_turn(row, id), search) for row in found]
        matches.sort(key=lambda match: (len(match.terms), match.turn.seq), reverse=True)
        return matches[: search.limit]

    async def update(self, scope: Scope, id: str, changes: ConversationChanges) -> ConversationInfo:
        size, title = rows.title_words(changes.title)
        values = {
            **_details(changes),
            "if_untitled": changes.if_untitled,
            "expected_updated": changes.expected_updated,
        }
        fields = sorted(changes.fields)
        args = {"fields": fields, "changes": as_json(values), "words": title, "size": size}
        found = await self.write("update_conversation", scope, conversation=id, **args)
        self.hub.committed(id)
        return rows.read_info(found[0])


def _details(given: ConversationSpec | ConversationChanges) -> dict[str, object]:
    return {
        "title": given.title,
        "workspace": given.workspace,
        "agent": given.agent,
        "model": given.model,
        "participants": canonical_json(given.participants),
        "metadata": given.metadata,
        "settings": given.settings,
        "ttl": given.ttl,
        "salt": rows.to_hex(given.salt),
    }


def _function(name: str, search: SearchQuery) -> tuple[str, dict[str, Any]]:
    """Return the function to call, and the arguments of the filter if there is one."""
    return (name, {}) if search.filter.is_empty else (f"{name}_where", rows.filter_args(search.filter))


def _listing_args(wanted: TurnFilter) -> dict[str, Any]:
    args = rows.filter_args(wanted)
    return {"members": args.pop("actors"), **{name: value for name, value in args.items() if name != "roles"}}


def _tsquery(search: SearchQuery, operator: str) -> str:
    """Write the stems of a search in the notation of `tsquery`. A stem contains no quote."""
    stems = [f"'{stem}'" for stem in search.stems]
    if search.prefix:
        stems[-1] = f"({stems[-1]} | '{search.prefix}':*)"
    return operator.join(stems)


def _read_match(row: Row, search: SearchQuery) -> ConversationMatch:
    info = rows.read_info(rows.decode_json(row["conversation"]))
    turns = [rows.read_turn(one, info.id) for one in rows.decode_json(row["turns"]) or ()]
    return ConversationMatch(info, tuple(_match(turn, search) for turn in turns), in_title=row["in_title"])


def _match(turn: Turn, search: SearchQuery) -> TurnMatch:
    stems = set(terms(turn.text))
    matched = [stem for stem in search.stems if stem in stems]
    if search.prefix:
        matched += sorted({stem for stem in stems if stem.startswith(search.prefix)} - set(matched))
    return TurnMatch(turn, tuple(matched))
