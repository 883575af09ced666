"""The job `embed`: vectors of new passages and facts, and marks on turns that hold a standing instruction."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TypeVar

from palaver.core.budgets import Payer
from palaver.core.concurrency import Pause, iterate_with_pauses
from palaver.core.identity import time_of_id
from palaver.errors import BudgetExceeded, ConversationGone, NotFound
from palaver.memory.worker.jobs import person
from palaver.memory.worker.services import JobServices
from palaver.model import Scope
from palaver.ports.jobs import Job
from palaver.ports.models import Embedder
from palaver.ports.recall import Embedded, ToEmbed

T = TypeVar("T")
BATCH = 32
NO_EMBEDDER = "none"  # the name under which progress is stored when there are only marks to find


async def run(services: JobServices, job: Job, give_way: bool) -> None:
    """Embed what the job covers."""
    await embed(services, job, give_way=give_way)


async def embed(services: JobServices, job: Job | None = None, *, give_way: bool = False) -> None:
    """Store a vector for every new passage and fact, and mark the standing instructions among the passages.

    Raises BudgetExceeded if the embedder may not be called now. Marks are stored in any case.
    """
    try:
        await _embed_passages(services, services.embedder, job, give_way)
    except BudgetExceeded:
        await _embed_passages(services, None, job, give_way)
        raise
    if services.embedder is not None:
        await _embed_facts(services, services.embedder, job)
    superseded = _superseded(services)
    if job is not None and superseded:  # only now: until then, a process with the other embedder finds them
        await services.engine.drop_vectors(superseded, job)


async def _embed_passages(services: JobServices, embedder: Embedder | None, job: Job | None, give_way: bool) -> None:
    """Store vectors and marks; without an embedder, only marks, whose progress is stored apart from the vectors'.

    Where a job is for several conversations, those whose budgets allow it do not wait for the others.
    """
    name = embedder.name if embedder else NO_EMBEDDER
    refused: dict[object, BudgetExceeded] = {}
    after = 0
    while batch := await services.engine.to_embed(name, BATCH, job, after):
        if give_way:
            await services.throttle.let_writers_go_first()
        for some in _by_payer(services, batch, lambda one: one.thread):
            try:
                if some[0].thread not in refused:
                    await _embed_batch(services, embedder, some, job, is_progress=not refused)
            except BudgetExceeded as problem:
                refused[some[0].thread] = problem
        after = batch[-1].pid if refused else 0
    if refused:
        raise next(iter(refused.values()))


def _by_payer(services: JobServices, batch: list[T], conversation: Callable[[T], object]) -> list[list[T]]:
    """Split a batch where its conversation changes, if calls of the embedder are paid for."""
    if services.embedding_budget is None:
        return [batch]
    return [list(some) for _, some in groupby(batch, conversation)]


async def _embed_batch(
    services: JobServices, embedder: Embedder | None, batch: Sequence[ToEmbed], job: Job | None, *, is_progress: bool
) -> None:
    wanted = [one for one in batch if one.worth_a_vector] if embedder is not None else []
    if not wanted and not is_progress:
        return  # read again in vain: the vectors are there
    vectors: tuple[tuple[int, int, int, bytes], ...] = ()
    if embedder is not None and wanted:
        texts = [one.text for one in wanted]
        await _reserve(services, _place_of(batch[0], job), texts)
        vectors = _rows(wanted, await embedder.embed(texts))
    marks = await asyncio.to_thread(_find_standing_instructions, batch, services.pause())
    passages = tuple((one.pid, one.turn) for one in batch)
    made = Embedded(passages=passages, vectors=vectors, marks=marks, place=batch[0].place, is_progress=is_progress)
    await person.enqueue(services, batch, job)  # first: a crash in between must not lose it
    await services.engine.put_embedded(embedder.name if embedder else NO_EMBEDDER, made)
    if embedder is not None:
        _report_lag(services, batch)


def _place_of(one: ToEmbed, job: Job | None) -> tuple[str, str | None]:
    """Return the tenant and the conversation of a passage, as far as they are known."""
    if one.thread is not None:
        return one.thread
    return (one.place[0], None) if job is None else (job.tenant, job.conversation)


async def _reserve(services: JobServices, place: tuple[str, str | None], texts: Sequence[str]) -> None:
    """Count texts in the budgets of the conversation's owner. Raises BudgetExceeded."""
    budget = services.embedding_budget
    if budget is None:
        return
    tenant, conversation = place
    owner = None if conversation is None else await _owner_of(services, tenant, conversation)
    await budget.take(Payer(tenant, owner), texts)


async def _owner_of(services: JobServices, tenant: str, conversation: str) -> str | None:
    try:
        return (await services.engine.conversation(Scope.of(tenant, None), conversation)).owner or None
    except (
        ConversationGone,
        NotFound,
    ):  # deleted since: the tenant alone pays, and other conversations of the job do not wait
        return None


def _report_lag(services: JobServices, batch: Sequence[ToEmbed]) -> None:
    """Report how long after their storage turns can be recalled by meaning. An id holds the time when it was made."""
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
        for facts in _by_payer(services, batch, lambda one: (one.tenant, one.conversation)):
            texts = [one.text for one in facts]
            await _reserve(services, (facts[0].tenant, facts[0].conversation), texts)
            vectors = list(zip(facts, map(_half_floats, await embedder.embed(texts)), strict=True))
            await services.engine.put_fact_vectors(embedder.name, vectors)


def _rows(passages: Sequence[ToEmbed], vectors: Sequence[Sequence[float]]) -> tuple[tuple[int, int, int, bytes], ...]:
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
