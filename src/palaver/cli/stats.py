"""`palaver stats`: count what is stored and what waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from palaver.cli.app import Call, command
from palaver.cli.database import existing
from palaver.cli.output import counted, emit, size, table, wire
from palaver.cli.worker import embedder_name
from palaver.conversations.internals import engine_of

if TYPE_CHECKING:
    from palaver.conversations.store import Store

PANEL = "Maintenance"


@command("stats", PANEL)
async def stats(call: Call) -> None:
    """Show counts of what is stored, the size of the file, and background jobs that wait or have failed.

    Example:

      palaver stats --json
    """
    async with existing(call) as store:
        found = await store.stats()
        embedding = await _embedding(store)
    if call.as_json:
        data = wire(found)
        emit({**data, "storage": {**data["storage"], "embedding": embedding}})
        return
    rows = [
        ("conversations", f"{found.conversations:,}"),
        ("turns", f"{found.turns:,}"),
        ("tokens", f"{found.tokens:,}"),
        ("events", f"{found.events:,}"),
        ("attachments", f"{found.attachments:,} ({size(found.attachment_bytes)})"),
    ]
    storage = dict(found.storage)
    outbox = storage.pop("outbox", [])
    rows += [(name.replace("_", " "), _format_value(name, value)) for name, value in storage.items()]
    rows.append(("outbox", "; ".join(_job_line(job) for job in outbox) or "no jobs"))
    rows.append(("embedding", f"{counted(embedding['backlog'], 'passage')} to embed ({embedding['embedder']})"))
    table(("what", "value"), rows)


async def _embedding(store: Store) -> dict[str, Any]:
    """The name of the current embedder, and the number of passages that it has not embedded yet."""
    name = embedder_name(store)
    return {"embedder": name, "backlog": await engine_of(store).embedding_backlog(name)}


def _job_line(job: Mapping[str, Any]) -> str:
    state = "failed" if job["dead"] else "waiting"
    tries = f" after {counted(job['attempts'], 'try', 'tries')}: {job['error']}" if job["error"] else ""
    return f"{job['kind']}: {job['jobs']:,} {state}{tries}"


def _format_value(name: str, value: Any) -> str:
    if name.endswith("bytes"):
        return size(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)
