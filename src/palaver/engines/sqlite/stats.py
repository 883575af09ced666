"""Counts, token usage and health. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.engines.migrate import migrations
from palaver.engines.rows import scope_params, waiting_seconds
from palaver.engines.sqlite.jobs import due_parameters
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import Tx
from palaver.model import Scope, Stats, UsageLine
from palaver.ports.jobs import Health


def stats(tx: Tx, scope: Scope) -> Stats:
    visible = {"now": tx.now, **scope_params(scope)}
    conversations, turns, tokens, events = tx.all(Q.stats, **visible)[0]
    attachments, size = tx.all(Q.attachment_stats, **visible)[0]
    (streams,) = tx.all(Q.stream_stats, **visible)[0]
    files_to_delete, unscrubbed = tx.all(Q.file_stats)[0]
    storage = {
        "open_streams": streams,
        "files_to_delete": files_to_delete,
        "scrub_pending": bool(unscrubbed),
        "outbox": _outbox(tx),
    }
    return Stats(conversations, turns, tokens, events, attachments, size, storage)


def _outbox(tx: Tx) -> list[dict[str, object]]:
    """Count the jobs that wait or were set aside, by kind. `error` is the type of a failure, never its text."""
    return [
        {"kind": kind, "dead": bool(dead), "jobs": jobs, "attempts": attempts, "error": error}
        for kind, dead, jobs, _, attempts, error in tx.all(Q.job_stats)
    ]


def usage(tx: Tx, scope: Scope, since: int | None, until: int | None, limit: int) -> list[UsageLine]:
    rows = tx.all(Q.usage, since=since, until=until, limit=limit, now=tx.now, **scope_params(scope))
    names = ("day", "user", "model", "calls", "prompt", "completion")
    return [UsageLine(**dict(zip(names, row, strict=True))) for row in rows]


def health(tx: Tx, kinds: Sequence[str]) -> Health:
    schema, waiting, put_aside, oldest = tx.all(Q.health, **due_parameters(tx, kinds))[0]
    known = migrations("palaver.engines.sqlite.migrations")[-1].number
    return Health(
        schema=schema,
        schema_known=known,
        compatible=schema == known,
        waiting=waiting,
        put_aside=put_aside,
        lag=waiting_seconds(oldest, tx.now),
    )
