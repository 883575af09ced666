"""Vectors of passages and facts on Postgres, as the worker keeps them up to date. Each call is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.turn_draft import decode_content, words
from palaver.engines import embedding
from palaver.engines.postgres.rows import index_words
from palaver.engines.postgres.rpc import EnginePart, application_scope
from palaver.engines.postgres.transports import as_json
from palaver.ports.jobs import Job
from palaver.ports.recall import Embedded, FactToEmbed, ToEmbed

TO_EMBED = ("pid", "part", "tid", "id", "role", "is_parts", "content", "metadata")
DROP_BATCH = 1_000  # vectors or conversations per call
INDEX_BATCH = 200  # turns per call


class PostgresEmbeddings(EnginePart):
    async def index_all(self) -> None:
        """Do nothing: every append updates the text index."""

    async def to_embed(self, model: str, limit: int, job: Job | None = None, after: int = 0) -> list[ToEmbed]:
        if after:
            return []  # a job is for one conversation, and its passages are embedded in order
        tenant, conversation = self._range(job)
        if job and job.argument:
            await self._index(job)
        args = {"model": model, "most": limit, "looked_at": embedding.MAX_PARTS_READ, "conversation": conversation}
        rows = await self.write("to_embed", application_scope(tenant), **args)
        cid = rows[0]["cid"] if rows else 0
        return embedding.to_embed((tuple(row[name] for name in TO_EMBED) for row in rows), (tenant, cid))

    async def _index(self, job: Job) -> None:
        """Index turns that were stored by SQL (see compat/), which has no stemmer."""
        scope, conversation = application_scope(job.tenant), job.conversation
        while found := await self.write("to_index", scope, conversation=conversation, most=INDEX_BATCH):
            texts = ((row["tid"], words(decode_content(row["content"], bool(row["is_parts"])))) for row in found)
            indexed = [(tid, index_words(text)) for tid, text in texts]
            await self.write("put_words", scope, conversation=conversation, words=as_json(indexed))

    async def put_embedded(self, model: str, embedded: Embedded) -> None:
        tenant, cid = embedded.place
        assert embedded.is_progress, "passages of a conversation are embedded in order"
        await self.write(
            "put_embedded",
            application_scope(tenant),
            model=model,
            cid=cid,
            first=embedded.passages[0][0],
            last=embedded.passages[-1][0],
            vectors=as_json([(pid, _vector_text(vector)) for pid, _, _, vector in embedded.vectors]),
            marks=as_json([(pid, standing) for pid, _, standing in embedded.marks]),
        )

    async def facts_to_embed(self, model: str, limit: int, job: Job | None = None) -> list[FactToEmbed]:
        tenant, conversation = self._range(job)
        args = {"model": model, "most": limit, "conversation": conversation}
        rows = await self.write("facts_to_embed", application_scope(tenant), **args)
        return [FactToEmbed(tenant=tenant, conversation=row["thread"], id=row["id"], text=row["fact"]) for row in rows]

    def _range(self, job: Job | None) -> tuple[str, str | None]:
        """Return the tenant and the conversation that a job names; without a job, all of this store's tenant."""
        return (job.tenant, job.conversation) if job else (self.home, None)

    async def put_fact_vectors(self, model: str, vectors: Sequence[tuple[FactToEmbed, bytes]]) -> None:
        rows = as_json([(fact.conversation, fact.id, _vector_text(vector)) for fact, vector in vectors])
        await self.write("put_fact_vectors", application_scope(vectors[0][0].tenant), model=model, vectors=rows)

    async def drop_other_vectors(self, model: str, tenant: str | None = None) -> None:
        scope = self.home_scope(tenant)
        while (await self.write("drop_other_vectors", scope, model=model, most=DROP_BATCH))[0]["dropped"]:
            pass

    async def enqueue_embedding(self, models: Sequence[str], tenant: str | None = None) -> None:
        for one in await self.all_tenants() if tenant is None else [tenant]:
            await self._enqueue_in(one, models)

    async def _enqueue_in(self, tenant: str, models: Sequence[str]) -> None:
        scope, last = application_scope(tenant), 0
        while last is not None:
            args = {"models": list(models), "after": last, "most": DROP_BATCH}
            last = (await self.write("embed_again", scope, **args))[0]["last"]

    async def drop_vectors(self, models: Sequence[str], job: Job) -> None:
        scope = application_scope(job.tenant)
        args = {"models": list(models), "conversation": job.conversation, "most": DROP_BATCH}
        while (await self.write("drop_vectors", scope, **args))[0]["dropped"]:
            pass

    async def embedding_backlog(self, model: str, tenant: str | None = None) -> int:
        rows = await self.write("embedding_backlog", self.home_scope(tenant), model=model)
        return int(rows[0]["passages"])


def _vector_text(vector: bytes) -> str:
    """Write half floats in pgvector's notation. Five digits represent every half float exactly."""
    import numpy as np

    return "[" + ",".join(f"{value:.5g}" for value in np.frombuffer(vector, "<f2").tolist()) + "]"
