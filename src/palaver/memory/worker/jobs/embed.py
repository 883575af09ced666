"""The job `embed`: vectors of new passages and facts, and marks on turns that hold a standing instruction."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from palaver.core.concurrency import Pause, iterate_with_pauses
from palaver.core.identity import time_of_id
from palaver.memory.worker.jobs import person
from palaver.memory.worker.services import JobServices
from palaver.ports.jobs import Job
from palaver.ports.models import Embedder
from palaver.ports.recall import Embedded, ToEmbed

BATCH = 32
NO_EMBEDDER = "none"  # the name under which progress is stored when there are only marks to find


async def run(services: JobServices, job: Job, give_way: bool) -> None:
    """Embed what the job covers."""
    await embed(services, job, give_way=give_way)


async def embed(services: JobServices, job: Job | None = None, *, give_way: bool = False) -> None:
    """Store a vector for every new passage and fact, and mark the standing instructions among the passages."""
    name = services.embedder.name if services.embedder else NO_EMBEDDER
    while batch := await services.engine.to_embed(name, BATCH, job):
        if give_way:
            await services.throttle.let_writers_go_first()
        vectors = await _embed_passages(services.embedder, [one for one in batch if one.worth_a_vector])
        marks = await asyncio.to_thread(_find_standing_instructions, batch, services.pause())
        passages = tuple((one.pid, one.turn) for one in batch)
        made = Embedded(passages=passages, vectors=vectors, marks=marks, place=batch[0].place)
        await person.enqueue(services, batch, job)  # first: a crash in between must not lose it
        await services.engine.put_embedded(name, made)
        _report_lag(services, batch)
    if services.embedder is not None:
        await _embed_facts(services, services.embedder, job)
    superseded = _superseded(services)
    if job is not None and superseded:  # only now: until then, a process with the other embedder finds them
        await services.engine.drop_vectors(superseded, job)


def _report_lag(services: JobServices, batch: Sequence[ToEmbed]) -> None:
    """Report how long after their storage turns can be recalled by meaning. An id holds the time when it was made."""
    if services.embedder is None:
        return
    now = services.clock.now()
    for id in {one.turn for one in batch if one.turn is not None}:
        services.meter.recallable(max(0.0, (now - time_of_id(id)).total_seconds()))


async def replace_superseded(services: JobServices, tenant: str | None = None) -> None:
    """Enqueue what an earlier version of the embedder has embedded. Vectors of any other embedder are kept."""
    superseded = _superseded(services)
    if superseded:
        await services.engine.enqueue_embedding(superseded, tenant)


def _superseded(services: JobServices) -> tuple[str, ...]:
    return tuple(getattr(services.embedder, "supersedes", ()))


async def _embed_facts(services: JobServices, embedder: Embedder, job: Job | None) -> None:
    while batch := await services.engine.facts_to_embed(embedder.name, BATCH, job):
        made = await embedder.embed([one.text for one in batch])
        vectors = list(zip(batch, map(_half_floats, made), strict=True))
        await services.engine.put_fact_vectors(embedder.name, vectors)


async def _embed_passages(
    embedder: Embedder | None, passages: Sequence[ToEmbed]
) -> tuple[tuple[int, int, int, bytes], ...]:
    if embedder is None or not passages:
        return ()
    vectors = await embedder.embed([one.text for one in passages])
    return tuple(
        (one.pid, one.tid, one.part, _half_floats(vector)) for one, vector in zip(passages, vectors, strict=True)
    )


def _half_floats(vector: Sequence[float]) -> bytes:
    """Encode a vector as it is stored."""
    import numpy as np

    return np.asarray(vector, np.float16).tobytes()


def _find_standing_instructions(batch: Sequence[ToEmbed], pause: Pause) -> tuple[tuple[int, int, int], ...]:
    """Return (passage, turn, 2 for an instruction or 1 for a preference). Only a participant's own words count."""
    from palaver.memory.standing_instructions import standing

    found = []
    for one in iterate_with_pauses(batch, pause):
        kinds = {mark.kind for mark in standing(one.text)} if one.own_words and one.text else set()
        if kinds:
            found.append((one.pid, one.tid, 2 if "instruction" in kinds else 1))
    return tuple(found)
