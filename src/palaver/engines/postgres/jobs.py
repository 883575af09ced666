"""The outbox: which memory work is waiting, who has it, what failed. Each method is one transaction inside one tenant.

A login that is a member of `palaver_worker` sees which tenants have work waiting, and works for all of them. Any other
works for the tenant that the store was opened for.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from palaver.core.identity import micros, moment
from palaver.core.turn_draft import decode_content, words
from palaver.engines import embedding
from palaver.engines.postgres.migrate import known_version
from palaver.engines.postgres.rows import index_words
from palaver.engines.postgres.rpc import Caller
from palaver.engines.postgres.transports import as_json
from palaver.engines.rows import waiting_seconds
from palaver.errors import DatabaseReadOnly
from palaver.model import Scope
from palaver.ports.jobs import Health, Job
from palaver.ports.recall import Embedded, FactToEmbed, ToEmbed

TO_EMBED = ("pid", "part", "tid", "id", "role", "is_parts", "content", "metadata")
TENANTS = 20  # that a worker who found nothing in one of them looks at
DROP_BATCH = 1_000
INDEX_BATCH = 200


class OutboxVerbs(Caller):
    _last_append = 0.0

    def quiet_seconds(self) -> float:
        return time.monotonic() - self._last_append

    async def add_job(self, scope: Scope, conversation: str, kind: str, argument: int | None) -> None:
        try:
            await self.write("add_job", scope, conversation=conversation, kind=kind, argument=argument)
        except DatabaseReadOnly:
            pass  # a follower: reading there asks nobody for work

    async def claim_job(self, lease: int, tenant: str | None = None) -> Job | None:
        if not self.may_work:
            return None
        async for one in self._with_work(tenant):
            rows = await self.write("claim_job", Scope.of(one, None), lease=lease)
            if rows:
                return Job(tenant=one, **dict(rows[0]))
        return None

    async def _with_work(self, tenant: str | None) -> AsyncIterator[str]:
        """The tenants that may have a job: the one that is asked for, or whoever has waited longest."""
        rows = await self.as_worker("tenants_waiting", most=TENANTS) if tenant is None else None
        if rows is None:
            yield self.home if tenant is None else tenant
            return
        for row in rows:
            yield row["tenant"]

    async def next_job(self, tenant: str | None = None) -> datetime | None:
        if not self.may_work:
            return None  # there may be jobs, but none for this caller
        rows = await self.as_worker("next_job_anywhere") if tenant is None else None
        if rows is None:  # asked of the database that jobs are claimed from, never of a copy that is behind it
            rows = await self.write("next_job", self._inside(tenant))
        return None if rows[0]["due"] is None else moment(rows[0]["due"])

    async def health(self) -> Health:
        rows = await self.as_worker("health", everywhere=True)
        row = (rows or await self.write("health", self._inside(None), everywhere=False))[0]
        behind = waiting_seconds(row["oldest"], micros(self.clock.now()))
        found = {name: row[name] for name in ("schema", "waiting", "put_aside")}
        return Health(schema_known=known_version(), lag=behind, **found)

    def _inside(self, tenant: str | None) -> Scope:
        return Scope.of(self.home if tenant is None else tenant, None)

    async def renew_job(self, job: Job, lease: int) -> None:
        await self.write("renew_job", Scope.of(job.tenant, None), job=as_json(job), lease=lease)

    async def finish_job(self, job: Job) -> None:
        await self.write("finish_job", Scope.of(job.tenant, None), job=as_json(job))

    async def release_job(self, job: Job) -> None:
        await self.write("release_job", Scope.of(job.tenant, None), job=as_json(job))

    async def retry_job(self, job: Job, delay: int, error: str, dead: bool) -> None:
        told = {"delay": delay, "error": error, "dead": dead}
        await self.write("retry_job", Scope.of(job.tenant, None), job=as_json(job), **told)

    async def index_all(self) -> None:
        """Nothing to do: the text index is part of every append."""

    # ---- vectors

    async def to_embed(self, model: str, limit: int, job: Job | None = None) -> list[ToEmbed]:
        tenant, conversation = (job.tenant, job.conversation) if job else (self.home, None)
        if job and job.argument:
            await self._index(job)
        args = {"model": model, "most": limit, "looked_at": embedding.MAX_PARTS_READ, "conversation": conversation}
        rows = await self.write("to_embed", Scope.of(tenant, None), **args)
        return embedding.to_embed(
            (tuple(row[name] for name in TO_EMBED) for row in rows), (tenant, rows[0]["cid"] if rows else 0)
        )

    async def _index(self, job: Job) -> None:
        """Turns that were written in SQL (see compat/) get their words here: it has no stemmer."""
        scope, conversation = Scope.of(job.tenant, None), job.conversation
        while found := await self.write("to_index", scope, conversation=conversation, most=INDEX_BATCH):
            texts = ((row["tid"], words(decode_content(row["content"], bool(row["is_parts"])))) for row in found)
            placed = [(tid, index_words(text)) for tid, text in texts]
            await self.write("put_words", scope, conversation=conversation, words=as_json(placed))

    async def put_embedded(self, model: str, embedded: Embedded) -> None:
        tenant, cid = embedded.place
        await self.write(
            "put_embedded",
            Scope.of(tenant, None),
            model=model,
            cid=cid,
            first=embedded.passages[0][0],
            last=embedded.passages[-1][0],
            vectors=as_json([(pid, _half_floats(vector)) for pid, _, _, vector in embedded.vectors]),
            marks=as_json([(pid, standing) for pid, _, standing in embedded.marks]),
        )

    async def facts_to_embed(self, model: str, limit: int, job: Job | None = None) -> list[FactToEmbed]:
        tenant, conversation = (job.tenant, job.conversation) if job else (self.home, None)
        args = {"model": model, "most": limit, "conversation": conversation}
        rows = await self.write("facts_to_embed", Scope.of(tenant, None), **args)
        return [FactToEmbed(tenant=tenant, conversation=row["thread"], id=row["id"], text=row["fact"]) for row in rows]

    async def put_fact_vectors(self, model: str, vectors: Sequence[tuple[FactToEmbed, bytes]]) -> None:
        made = as_json([(one.conversation, one.id, _half_floats(vector)) for one, vector in vectors])
        await self.write("put_fact_vectors", Scope.of(vectors[0][0].tenant, None), model=model, vectors=made)

    async def drop_other_vectors(self, model: str, tenant: str | None = None) -> None:
        scope = self._inside(tenant)
        while (await self.write("drop_other_vectors", scope, model=model, most=DROP_BATCH))[0]["dropped"]:
            pass

    async def enqueue_embedding(self, models: Sequence[str], tenant: str | None = None) -> None:
        async for one in self._tenants(tenant):
            await self._embed_again(one, models)

    async def _tenants(self, tenant: str | None) -> AsyncIterator[str]:
        """The one that is asked for, or all that this login works for."""
        rows = await self.as_worker("tenants") if tenant is None else None
        if rows is None:
            yield self.home if tenant is None else tenant
            return
        for row in rows:
            yield row["tenant"]

    async def _embed_again(self, tenant: str, models: Sequence[str]) -> None:
        scope, last = Scope.of(tenant, None), 0
        while last is not None:
            args = {"models": list(models), "after": last, "most": DROP_BATCH}
            last = (await self.write("embed_again", scope, **args))[0]["last"]

    async def drop_vectors(self, models: Sequence[str], job: Job) -> None:
        scope = Scope.of(job.tenant, None)
        args = {"models": list(models), "conversation": job.conversation, "most": DROP_BATCH}
        while (await self.write("drop_vectors", scope, **args))[0]["dropped"]:
            pass

    async def embedding_backlog(self, model: str, tenant: str | None = None) -> int:
        scope = self._inside(tenant)
        return int((await self.write("embedding_backlog", scope, model=model))[0]["passages"])


def _half_floats(vector: bytes) -> str:
    """As pgvector reads them. Five digits say every half float exactly."""
    import numpy as np

    return "[" + ",".join(f"{value:.5g}" for value in np.frombuffer(vector, "<f2").tolist()) + "]"
