"""Background jobs, and the health of a database."""

from __future__ import annotations

from dataclasses import dataclass

JOB_KINDS = ("embed", "compact", "title", "files", "repair", "prove", "person")
"""The kinds of jobs that this version runs. Others in the queue are from a newer version, and are left to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A claimed job."""

    id: int
    kind: str
    tenant: str
    conversation: str | None
    argument: int | None
    attempts: int
    asked: int = 0  # when it was last enqueued; a later time in the database means that there is more to do


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state of a database: its schema, the one that this version knows, and the jobs of all tenants.

    `compatible` says whether this version can work with that schema; it may be newer than the known one.

    `lag` is how many seconds the oldest due job has waited. `put_aside` counts jobs that failed too often.
    """

    schema: int
    schema_known: int
    compatible: bool
    waiting: int
    put_aside: int
    lag: float
