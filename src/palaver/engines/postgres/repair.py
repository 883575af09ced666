"""Damage of derived data on Postgres: finding it, and making room for what the worker writes again.

Every table has types and checks, so that a row is rarely unreadable: what can happen is that rows are lost, or that a
text was replaced by one of another shape.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.turn_draft import decode_content, words
from palaver.engines.derived_rows import is_memory, is_sound
from palaver.engines.postgres.memory import PostgresMemory, read_fact, read_summary
from palaver.engines.postgres.rows import index_words
from palaver.engines.postgres.rpc import application_scope
from palaver.engines.postgres.transports import Row, as_json
from palaver.engines.rows import DAMAGED
from palaver.model import Scope
from palaver.ports.damage import LOST, UNREADABLE, Damage

INDEX_BATCH = 200  # turns per call
PAGE = 1_000  # conversations per call


class PostgresRepair(PostgresMemory):
    async def find_damage(self, tenant: str | None = None, *, thorough: bool = False) -> list[Damage]:
        if not self.may_work:
            return []  # a caller with a token: the application's worker looks
        found = []
        for one in await self.all_tenants() if tenant is None else [tenant]:
            scope = application_scope(one)
            found += [_lost(one, row) for row in await self.write("find_damage", scope)]
            for conversation in await self._conversations(scope) if thorough else ():
                found += [damage for damage, _ in await self._unreadable(scope, conversation)]
        return found

    async def _conversations(self, scope: Scope) -> list[str]:
        found: list[str] = []
        before = None
        while True:
            page = await self._page(scope, before)
            found += [row["id"] for row in page]
            if len(page) < PAGE:
                return found
            before = (page[-1]["updated"], page[-1]["id"])

    async def _page(self, scope: Scope, before: tuple[int, str] | None) -> Sequence[Row]:
        updated, id = before or (None, None)
        return await self.read("conversations", scope, most=PAGE, before_updated=updated, before_id=id)

    async def repair(self, scope: Scope, conversation: str) -> list[Damage]:
        rows = await self.write("find_damage", scope, conversation=conversation)
        missing = [_lost(scope.tenant, row) for row in rows]
        unreadable = await self._unreadable(scope, conversation)
        tables = {one.table for one in (*missing, *(damage for damage, _ in unreadable))}
        bad = {damage.table: rows for damage, rows in unreadable}
        if "summaries" in tables:
            places = [(row["level"], row["from_seq"]) for row in bad.get("summaries", ())]
            await self.write("repair_summaries", scope, conversation=conversation, bad=as_json(places))
        if "working_memory" in tables:
            await self.repair_memory(scope, conversation, is_lost=True)
        if "facts" in tables:
            ids = [row["id"] for row in bad.get("facts", ())]
            await self.write("repair_facts", scope, conversation=conversation, bad=ids)
        if "passages" in tables:
            await self._index_again(scope, conversation)
        if "embeddings" in tables:
            await self.write("repair_vectors", scope, conversation=conversation)
        return [*missing, *(damage for damage, _ in unreadable)]

    async def rebuild_index(self) -> int:
        scope = self.home_scope()
        found = await self._conversations(scope)
        for conversation in found:
            await self._index_again(scope, conversation)
        return len(found)

    async def repair_database(self) -> list[Damage]:
        return []  # pages and indexes are the server's own business: see docs/operations.md

    async def rows_kept_aside(self, tenant: str | None = None) -> list[Damage]:
        found = []
        for one in await self.all_tenants() if tenant is None else [tenant]:
            for row in await self.write("kept_aside", application_scope(one)):
                count = {"count": row["rows"], "kept": row["rows"]}
                place = {"tenant": one, "conversation": row["thread"]}
                found.append(Damage(table=row["name"], problem=UNREADABLE, **count, **place))
        return found

    async def enqueue_repair(self, damage: Sequence[Damage]) -> None:
        places = dict.fromkeys((one.tenant, one.conversation) for one in damage if one.conversation is not None)
        for tenant, conversation in places:
            args = {"conversation": conversation, "kind": "repair", "argument": None}
            await self.write("add_job", application_scope(tenant), **args)

    async def _unreadable(self, scope: Scope, conversation: str) -> list[tuple[Damage, list[Row]]]:
        """Find rows of memory that have another shape than any that was written, or that the log contradicts."""
        summaries = await self.read("summaries", scope, conversation=conversation, level=None)
        facts = await self.read("facts", scope, conversation=conversation, include_invalidated=True)
        memory = await self.read("working_memory_records", scope, conversation=conversation)
        bad: dict[str, list[Row]] = {
            "summaries": [row for row in summaries if not _is_summary(row)],
            "facts": [row for row in facts if not _is_fact(row)],
            "working_memory": [row for row in memory if not is_memory(row["memory"])],
        }
        for row in await self.read("mismatched_rows", scope, conversation=conversation):
            kind, _, id = row["key"].partition("/")
            if kind == "summary":
                level, _, start = id.partition("/")
                bad["summaries"].append({"level": int(level), "from_seq": int(start)})
            elif kind == "fact":
                bad["facts"].append({"id": id})
            elif kind == "notes" and not bad["working_memory"]:
                bad["working_memory"].append({"memory": ""})
        return [(_unreadable(scope, conversation, name, len(rows)), rows) for name, rows in bad.items() if rows]

    async def _index_again(self, scope: Scope, conversation: str) -> None:
        await self.write("repair_index", scope, conversation=conversation)
        after = 0
        while True:
            place = {"conversation": conversation, "after": after, "most": INDEX_BATCH}
            found = await self.write("unindexed", scope, **place)
            if not found:
                return
            texts = ((row["tid"], words(decode_content(row["content"], bool(row["is_parts"])))) for row in found)
            indexed = [(tid, index_words(text)) for tid, text in texts]
            await self.write("put_passages", scope, conversation=conversation, words=as_json(indexed))
            after = found[-1]["tid"]


def _lost(tenant: str, row: Row) -> Damage:
    return Damage(table=row["name"], problem=LOST, count=row["missing"], tenant=tenant, conversation=row["thread"])


def _unreadable(scope: Scope, conversation: str, table: str, count: int) -> Damage:
    return Damage(table=table, problem=UNREADABLE, count=count, tenant=scope.tenant, conversation=conversation)


def _is_summary(row: Row) -> bool:
    try:
        return is_sound(read_summary(row))
    except DAMAGED:
        return False


def _is_fact(row: Row) -> bool:
    try:
        return is_sound(read_fact(row))
    except DAMAGED:
        return False
