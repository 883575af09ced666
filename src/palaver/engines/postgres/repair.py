"""Damage of derived data on Postgres: finding it, and making room for what the worker writes again.

Every table has types and checks, so that a row is rarely unreadable: what can happen is that rows are lost, or that a
text was replaced by one of another shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from palaver.core.derived_rows import NOTES, fact_key, kind_of, summary_key
from palaver.core.turn_draft import decode_content, words
from palaver.engines.derived_rows import is_memory, is_sound
from palaver.engines.postgres.memory import PostgresMemory, read_fact, read_summary
from palaver.engines.postgres.rows import index_words
from palaver.engines.postgres.rpc import application_scope
from palaver.engines.postgres.transports import Row, as_json
from palaver.engines.rows import DAMAGED
from palaver.errors import NotFound
from palaver.model import Scope
from palaver.ports.damage import CHANGED, LOST, UNREADABLE, Damage, Problem

INDEX_BATCH = 200  # turns per call
PAGE = 1_000  # conversations per call
TABLES = {"summary": "summaries", "fact": "facts", "notes": "working_memory", "file": "file_passages"}


@dataclass(slots=True)
class BadRows:
    """Rows of one conversation that cannot be used, by their keys in the log."""

    tenant: str
    conversation: str
    problems: dict[str, Problem] = field(default_factory=dict)

    def add(self, key: str, problem: Problem) -> None:
        """Add a row. A request cannot be rebuilt: `verify` names it."""
        if kind_of(key) in TABLES:
            self.problems.setdefault(key, problem)

    @property
    def damage(self) -> list[Damage]:
        counts = Counter((TABLES[kind_of(key)], problem) for key, problem in self.problems.items())
        return [
            Damage(table=table, problem=problem, count=count, tenant=self.tenant, conversation=self.conversation)
            for (table, problem), count in counts.items()
        ]

    @property
    def summaries(self) -> list[list[int]]:
        """Return level and start of each."""
        return [[int(part) for part in key.split("/")[1:]] for key in self.problems if kind_of(key) == "summary"]

    @property
    def facts(self) -> list[str]:
        return [key.partition("/")[2] for key in self.problems if kind_of(key) == "fact"]


class PostgresRepair(PostgresMemory):
    async def find_damage(self, tenant: str | None = None, *, thorough: bool = False) -> list[Damage]:
        if not self.may_work:
            return []  # a caller with a token: the application's worker looks
        found = []
        for one in await self.all_tenants() if tenant is None else [tenant]:
            scope = application_scope(one)
            found += [_lost(one, row) for row in await self.write("find_damage", scope)]
            for conversation in await self._conversations(scope) if thorough else ():
                with suppress(NotFound):  # deleted since they were listed
                    found += (await self._bad_rows(scope, conversation)).damage
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
        bad = await self._bad_rows(scope, conversation)
        tables = {one.table for one in (*missing, *bad.damage)}
        if "summaries" in tables:
            await self.write("repair_summaries", scope, conversation=conversation, bad=as_json(bad.summaries))
        if "working_memory" in tables:
            await self.repair_memory(scope, conversation, is_bad=True)
        if "facts" in tables:
            await self.write("repair_facts", scope, conversation=conversation, bad=bad.facts)
        if tables & {"passages", "file_passages"}:
            await self._index_again(scope, conversation)
        if "embeddings" in tables:
            await self.write("repair_vectors", scope, conversation=conversation)
        return [*missing, *bad.damage]

    async def rebuild_index(self) -> int:
        scope = self.home_scope()
        found = await self._conversations(scope)
        for conversation in found:
            with suppress(NotFound):
                await self._index_again(scope, conversation)
        return len(found)

    async def repair_database(self) -> list[Damage]:
        return []  # pages and indexes are the server's own business: see docs/how-to/operations.md

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
            with suppress(NotFound):
                await self.write("add_job", application_scope(tenant), **args)

    async def _bad_rows(self, scope: Scope, conversation: str) -> BadRows:
        """Find rows of memory that have another shape than any that was written, or that the log contradicts."""
        bad = BadRows(scope.tenant, conversation)
        for row in await self.read("summaries", scope, conversation=conversation, level=None):
            if not _is_summary(row):
                bad.add(summary_key(row["level"], row["from_seq"]), UNREADABLE)
        for row in await self.read("facts", scope, conversation=conversation, include_invalidated=True):
            if not _is_fact(row):
                bad.add(fact_key(row["id"]), UNREADABLE)
        for row in await self.read("working_memory_records", scope, conversation=conversation):
            if not is_memory(row["memory"]):
                bad.add(NOTES, UNREADABLE)
        for row in await self.read("mismatched_rows", scope, conversation=conversation):
            bad.add(row["key"], CHANGED)
        return bad

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
