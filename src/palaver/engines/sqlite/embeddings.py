"""Vectors of passages and facts, as the worker writes them. Each function is one transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from palaver.core.identity import canonical_json
from palaver.engines import embedding
from palaver.engines.file_passages import FILE_PARTS
from palaver.engines.rows import Row
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import Tx
from palaver.ports.recall import Embedded, FactToEmbed, ToEmbed

DROP_BATCH = 1_000  # vectors deleted in one transaction


def to_embed(tx: Tx, model: str, limit: int, after: int = 0) -> list[ToEmbed]:
    """Return the next passages that have no vector of this model."""
    limits = {"limit": limit, "most": embedding.MAX_PARTS_READ, "files": FILE_PARTS}
    rows = tx.all(Q.to_embed, after=max(after, _embedded_pid(tx, model)), model=model, **limits)
    found = embedding.to_embed(row[:-3] for row in rows)
    return [_with_place(one, *row[-3:]) for one, row in zip(found, rows, strict=True)]


def _with_place(one: ToEmbed, tenant: str | None, conversation: str | None, has_vector: int) -> ToEmbed:
    thread = None if tenant is None or conversation is None else (tenant, conversation)
    return replace(one, worth_a_vector=one.worth_a_vector and not has_vector, thread=thread)


def put_embedded(tx: Tx, model: str, embedded: Embedded) -> None:
    """Store a batch. Does nothing when another worker was faster, or when row numbers were reused for other turns."""
    first, last = embedded.passages[0][0], embedded.passages[-1][0]
    made_from = dict(embedded.passages)
    there = {int(pid): turn for pid, turn in tx.all(Q.passage_turns, first=first, last=last)}
    if first <= _embedded_pid(tx, model) or any(made_from.get(pid, "") != turn for pid, turn in there.items()):
        return
    for pid, tid, part, vector in embedded.vectors:
        if pid in there:
            _count(tx, tx.all(Q.add_vector, tid=tid, part=part, model=model, vector=vector), 1)
    marks = [(tid, standing) for pid, tid, standing in embedded.marks if pid in there]
    for tid, standing in marks:
        tx.run(Q.mark, tid=tid, standing=standing)
    tx.run(Q.bump_marked, tids=canonical_json([tid for tid, _ in marks]))
    if embedded.is_progress:
        tx.run(Q.save_embedded_pid, name=_progress_name(model), pid=last)


def drop_other_vectors(tx: Tx, model: str, batch: int = DROP_BATCH) -> int:
    """Delete some vectors of other embedders, and their progress. Returns how many were deleted."""
    tx.run(Q.forget_other_embedders, name=_progress_name(model))
    return _count(tx, tx.all(Q.drop_other_vectors, model=model, limit=batch), -1)


def drop_vectors_of_turn(tx: Tx, tid: int) -> None:
    _count(tx, tx.all(Q.drop_vectors_of_turn, tid=tid), -1)


def _count(tx: Tx, conversations: list[Row], sign: int) -> int:
    """Count vectors that were added (1) or deleted (-1), by their conversations. Returns how many there were."""
    for cid, count in Counter(row[0] for row in conversations).items():
        tx.run(Q.count_vectors, cid=cid, count=sign * count)
    return len(conversations)


def has_vectors_of(tx: Tx, models: Sequence[str]) -> bool:
    """True if one of these embedders has worked here, which its progress in `meta` shows without reading vectors."""
    return any(tx.one(Q.embedded_pid, name=_progress_name(model)) is not None for model in models)


def drop_vectors(tx: Tx, models: Sequence[str], batch: int = DROP_BATCH) -> int:
    """Delete some vectors of these embedders. Returns how many were deleted.

    Their progress is set to 0 first, so that one of them would start again, and deleted last, so that a crash in
    between does not leave vectors that nothing looks for.
    """
    dropped = _count(tx, tx.all(Q.drop_vectors_by, models=canonical_json(list(models)), limit=batch), -1)
    for model in models:
        if dropped:
            tx.run(Q.restart_embedder, name=_progress_name(model))
        else:
            tx.run(Q.forget_embedder, name=_progress_name(model))
    return dropped


def embedding_backlog(tx: Tx, model: str) -> int:
    """Return how many passages have no vector of this model yet, at most."""
    last = tx.all(Q.last_pid)[0][0]
    return max(0, int(last) - _embedded_pid(tx, model))


def _embedded_pid(tx: Tx, model: str) -> int:
    row = tx.one(Q.embedded_pid, name=_progress_name(model))
    return int(row[0]) if row else 0


def _progress_name(model: str) -> str:
    return f"embedded_pid/{model}"


def facts_to_embed(tx: Tx, model: str, limit: int) -> list[FactToEmbed]:
    return [
        FactToEmbed(tenant=tenant, conversation=conversation, id=id, text=text)
        for tenant, conversation, id, text in tx.all(Q.facts_to_embed, model=model, limit=limit)
    ]


def put_fact_vectors(tx: Tx, model: str, vectors: Sequence[tuple[FactToEmbed, bytes]]) -> None:
    for fact, vector in vectors:
        ids = {"tenant": fact.tenant, "conversation": fact.conversation, "id": fact.id}
        tx.run(Q.put_fact_vector, model=model, vector=vector, **ids)
