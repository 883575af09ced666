"""Background jobs, and the health of a database."""

from __future__ import annotations

from dataclasses import dataclass

JOB_KINDS = ("embed", "compact", "title", "files")
"""The kinds of jobs that this version runs. Others in the queue are from a newer version, and are left to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    id: int
    kind: str
    tenant: str
    conversation: str | None
    argument: int | None
    attempts: int
    asked: int = 0  # when work of this kind was last asked for: later than here means that there is more


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One look at a database: its schema, the one that this version knows, and the memory work of all tenants.

    `lag` is for how many seconds the oldest of what could be done now has waited.
    """

    schema: int
    schema_known: int
    waiting: int
    put_aside: int
    lag: float
