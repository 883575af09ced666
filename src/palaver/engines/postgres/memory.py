"""Summaries, working memory and facts on Postgres. Each method is one transaction, in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from palaver.core.identity import from_json, micros, moment, optional_micros
from palaver.engines.derived_rows import is_memory, notes_of_people, read_memory, read_rows
from palaver.engines.postgres.rows import read_turn
from palaver.engines.postgres.rpc import EnginePart
from palaver.engines.postgres.transports import Row, as_json
from palaver.engines.rows import TurnRow, conversation_info, is_current_message
from palaver.memory import working_memory
from palaver.model import ConversationInfo, Fact, Scope, Summary, Turn, WorkingMemory
from palaver.ports.damage import LOST, Damage
from palaver.ports.memory import ContextSnapshot, FactsDraft, MemoryDraft, ReadBudget, SummaryDraft, Unsummarised
from palaver.ports.recall import RecallScope

SUMMARY_FIELDS = tuple(Summary.__dataclass_fields__)
FACT_FIELDS = (
    "id", "subject", "predicate", "object", "source_turn", "confidence", "valid_from", "invalidated_at",
    "invalidated_by", "by", "created",
)  # fmt: skip
LATER_FACT_FIELDS = ("valid_to", "learnt")  # not in the arrays that 0.1.0 reads as well
FACT_TIMES = ("valid_from", "invalidated_at", "created", "valid_to", "learnt")
SUMMARIZED_PLACE = 14  # of `summarized_through` in a row of `conversation_info`


class PostgresMemory(EnginePart):
    async def context_snapshot(self, scope: Scope, conversation: str, limits: ReadBudget) -> ContextSnapshot:
        args = {"budget": limits.budget, "in_characters": limits.in_characters, "most_facts": limits.facts}
        more = {"viewer": limits.viewer, "summarised": limits.summarised}
        (row,) = await self.read("read_context", scope, conversation=conversation, **args, **more)
        tail = _read_turns(row["tail"], conversation)
        current = next((turn for turn in reversed(tail) if is_current_message(turn, limits.viewer)), None)
        if row["current"] is not None:
            current = read_turn_json(from_json(row["current"]), conversation)
        summaries, bad_summaries = read_rows("summaries", from_json(row["summaries"] or "[]"), _read_summary)
        memory, bad_memory = read_memory(row["working_memory"], is_there=row["working_memory"] is not None)
        facts, bad_facts = read_rows("facts", from_json(row["facts"] or "[]"), _read_fact)
        return ContextSnapshot(
            info=_read_info(row, row["summarized_position"]),
            tail=tail,
            current=current,
            summaries=summaries,
            working_memory=memory,
            facts=facts,
            damage=(*bad_summaries, *bad_memory, *bad_facts, *_read_missing(row["missing"])),
            revision=row["revision"],
            summarized_position=row["summarized_position"],
            summarized_turns=row["summarized_turns"],
            refused=tuple(row["refused"]),
        )

    async def unsummarised(self, scope: Scope, conversation: str, tokens: int) -> Unsummarised:
        (row,) = await self.read("unsummarised", scope, conversation=conversation, tokens=tokens)
        return Unsummarised(
            info=_read_info(row, row["position"]),
            revision=row["revision"],
            position=row["position"],
            turns=_read_turns(row["turns"], conversation),
            stale=read_rows("summaries", from_json(row["stale"] or "[]"), _read_summary)[0],
            working_memory=read_memory(row["working_memory"], is_there=row["working_memory"] is not None)[0],
            facts=read_rows("facts", from_json(row["facts"] or "[]"), _read_fact)[0],
        )

    async def span(self, scope: Scope, conversation: str, from_seq: int, through_seq: int) -> list[Turn]:
        rows = await self.read("span", scope, conversation=conversation, from_seq=from_seq, through_seq=through_seq)
        return [read_turn(row, conversation) for row in rows]

    async def speakers(
        self, scope: Scope, conversation: str, spans: Sequence[tuple[int, int]], retired: bool
    ) -> list[frozenset[str]]:
        ends = {"starts": [start for start, _ in spans], "ends": [end for _, end in spans]}
        rows = await self.read("speakers", scope, conversation=conversation, **ends, retired=retired)
        found: list[set[str]] = [set() for _ in spans]
        for row in rows:
            found[row["span"] - 1].add(row["actor"])
        return [frozenset(actors) for actors in found]

    async def summaries(self, scope: Scope, conversation: str, level: int | None) -> list[Summary]:
        rows = await self.read("summaries", scope, conversation=conversation, level=level)
        return list(read_rows("summaries", rows, read_summary)[0])

    async def uncovered(self, scope: Scope, conversation: str, level: int) -> list[Summary]:
        rows = await self.read("uncovered", scope, conversation=conversation, level=level)
        return list(read_rows("summaries", rows, read_summary)[0])

    async def put_summary(self, scope: Scope, conversation: str, draft: SummaryDraft) -> bool:
        (row,) = await self.write("put_summary", scope, conversation=conversation, draft=as_json(draft))
        return bool(row["stored"])

    async def drop_summary(self, scope: Scope, conversation: str, summary: Summary) -> None:
        span = {"level": summary.level, "from_seq": summary.from_seq}
        await self.write("drop_summary", scope, conversation=conversation, **span)

    async def put_working_memory(self, scope: Scope, conversation: str, draft: MemoryDraft) -> bool:
        values = {name: getattr(draft, name) for name in draft.__dataclass_fields__}
        (row,) = await self.write("put_working_memory", scope, conversation=conversation, **values)
        if not row["stored"] and draft.before is None:
            await self.repair_memory(scope, conversation, is_bad=False)
        return bool(row["stored"])

    async def repair_memory(self, scope: Scope, conversation: str, *, is_bad: bool) -> None:
        """Put a damaged working memory aside, and begin a new one; turns are read again.

        Notes of people that can be read go into the new one, unless the log had the hash of the old one. `is_bad`: the
        memory is known to be lost or changed.
        """
        rows = await self.write("working_memory_records", scope, conversation=conversation)
        before = rows[0]["memory"] if rows else None
        if is_bad or (before is not None and not is_memory(before)):
            kept = working_memory.to_json(notes_of_people((before or "").encode()))
            new = {"memory": kept, "empty": working_memory.to_json(WorkingMemory())}
            await self.write("repair_memory", scope, conversation=conversation, before=before, **new)

    async def facts(self, scope: Scope, conversation: str, include_invalidated: bool) -> list[Fact]:
        rows = await self.read("facts", scope, conversation=conversation, include_invalidated=include_invalidated)
        return list(read_rows("facts", rows, read_fact)[0])

    async def facts_where(self, scope: Scope, where: RecallScope) -> list[Fact]:
        rows = await self.read("facts_where", scope, conversation=where.conversation, owner=where.owner)
        return list(read_rows("facts", rows, read_fact)[0])

    async def put_facts(self, scope: Scope, conversation: str, draft: FactsDraft) -> list[Fact] | None:
        (row,) = await self.write(
            "put_facts",
            scope,
            conversation=conversation,
            new=as_json([_fact_row(fact) for fact in draft.new]),
            replaced=as_json(draft.replaced),
            revision=draft.revision,
        )
        return [fact for fact in draft.new if fact.id in row["added"]] if row["stored"] else None

    async def drop_fact(self, scope: Scope, conversation: str, id: str) -> bool:
        (row,) = await self.write("drop_fact", scope, conversation=conversation, id=id)
        return bool(row["dropped"])


# ---- from rows to values, and back ---------------------------------------------------------------------------------


def read_turn_json(values: list[Any], conversation: str) -> Turn:
    """Read a turn from the array that `palaver.turn_json` makes."""
    row = TurnRow(*values)
    row.content_hash = None if row.content_hash is None else bytes.fromhex(values[-2])
    return row.turn(conversation)


def _read_turns(text: str | None, conversation: str) -> tuple[Turn, ...]:
    return tuple(read_turn_json(values, conversation) for values in from_json(text or "[]"))


def _read_info(row: Row, summarized_position: int) -> ConversationInfo:
    """Return the conversation. Its array has the fields of 0.1.0, so how far it is summarised is inserted."""
    fields = from_json(row["info"])
    return conversation_info((*fields[:SUMMARIZED_PLACE], summarized_position, *fields[SUMMARIZED_PLACE:]))


def _read_missing(text: str | None) -> list[Damage]:
    counts = {} if text is None else from_json(text)
    return [Damage(table=table, problem=LOST, count=count) for table, count in counts.items()]


def read_summary(row: Row) -> Summary:
    return _read_summary([row[name] for name in SUMMARY_FIELDS])


def _read_summary(values: list[Any]) -> Summary:
    known = dict(zip(SUMMARY_FIELDS, values, strict=True))
    return Summary(**{**known, "created": moment(known["created"])})


def read_fact(row: Row) -> Fact:
    return _read_fact([row[name] for name in (*FACT_FIELDS, *LATER_FACT_FIELDS)])


def _read_fact(values: list[Any]) -> Fact:
    names = (*FACT_FIELDS, *LATER_FACT_FIELDS)[: max(len(values), len(FACT_FIELDS))]
    known = dict(zip(names, values, strict=True))
    times = {name: moment(known[name]) for name in FACT_TIMES if known.get(name) is not None}
    return Fact(**{**known, **times})


def _fact_row(fact: Fact) -> dict[str, object]:
    values = {name: getattr(fact, name) for name in FACT_FIELDS}
    later = {"valid_to": optional_micros(fact.valid_to), "learnt": optional_micros(fact.learnt)}
    return {**values, "valid_from": micros(fact.valid_from), "invalidated_at": None, "created": None, **later}
