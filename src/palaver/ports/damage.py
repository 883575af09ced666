"""Damage of derived data: memory and the text index can be rebuilt from the turns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Problem = Literal["lost", "unreadable", "changed"]
LOST: Problem = "lost"  # fewer rows than were written
UNREADABLE: Problem = "unreadable"  # bytes that are not text, JSON of another shape, a damaged page
CHANGED: Problem = "changed"  # not as the log has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Rows of a derived table that cannot be used: how many, and why. It holds ids and counts, never content.

    An engine that meets such rows while it reads leaves them out and reports them, with
    `ContextSnapshot.damage` for a context. The caller says so in its result and enqueues the job `repair` of the
    conversation. `conversation` is None where the damage concerns the whole database, as that of the text index does.
    `ids` names the rows, as far as their ids are known and can be read. `kept` counts rows that were put aside because
    a person wrote them and no turn holds them.
    """

    table: str
    problem: Problem
    count: int = 1
    tenant: str = ""
    conversation: str | None = None
    ids: tuple[str, ...] = ()
    kept: int = 0

    def __str__(self) -> str:
        rows = "1 row" if self.count == 1 else f"{self.count:,} rows"
        named = f" ({', '.join(self.ids)})" if self.ids else ""
        return f"{self.table}: {rows} {self.problem}{named}"


def describe(damage: Iterable[Damage]) -> str:
    """Return damage as one line for people."""
    return "; ".join(map(str, damage))


def merge(damage: Sequence[Damage]) -> list[Damage]:
    """Add up damage of the same table, problem and conversation."""
    found: dict[tuple[str, str, str, str | None], Damage] = {}
    for one in damage:
        key = (one.table, one.problem, one.tenant, one.conversation)
        old = found.get(key)
        found[key] = (
            one
            if old is None
            else Damage(
                table=one.table,
                problem=one.problem,
                count=old.count + one.count,
                tenant=one.tenant,
                conversation=one.conversation,
                ids=(*old.ids, *one.ids),
                kept=old.kept + one.kept,
            )
        )
    return list(found.values())
