"""What recall asks of the database: shapes of turns, postings of stems, vectors. Each method is one round trip."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from typing import Any

from palaver.core.identity import from_json
from palaver.engines.postgres.memory import turn_of
from palaver.engines.postgres.rpc import Caller
from palaver.engines.postgres.transports import as_json
from palaver.model import Scope, Turn
from palaver.ports.recall import Nearest, Postings, ProfileRows, RecallScope, VectorRows


class RecallVerbs(Caller):
    async def profile(self, scope: Scope, where: RecallScope, known: tuple[int, ...] | None, after: int) -> ProfileRows:
        args = {"known": None if known is None else list(known)}
        (row,) = await self.read("profile", scope, conversation=where.conversation, owner=where.owner, **args)
        return ProfileRows(
            stamp=tuple(row["stamp"]),
            fresh=row["fresh"],
            rows=from_json(row["shapes"] or "[]"),
            through=0,
            passages=row["passages"],
            terms=row["terms"],
            total=row["stamp"][-1],
        )

    async def postings(self, scope: Scope, where: RecallScope, stems: Sequence[str], limit: int) -> dict[str, Postings]:
        args = {"stems": list(stems), "most": limit}
        rows = await self.read("postings", scope, conversation=where.conversation, owner=where.owner, **args)
        return {row["stem"]: Postings(*_pairs(row["places"]).T) for row in rows}

    async def vectors(
        self, scope: Scope, where: RecallScope, model: str, known: dict[int, tuple[int, ...]]
    ) -> list[VectorRows]:
        args = {"model": model, "known": as_json({str(cid): stamp for cid, stamp in known.items()})}
        rows = await self.read("vectors", scope, conversation=where.conversation, owner=where.owner, **args)
        return [
            VectorRows(
                conversation=row["cid"],
                fresh=row["fresh"],
                rows=_vectors(row["numbers"], row["floats"]),
                stamp=tuple(row["stamp"]),
            )
            for row in rows
        ]

    async def some_vectors(self, scope: Scope, where: RecallScope, model: str, count: int) -> list[bytes] | None:
        args = {"model": model, "most": count}
        (row,) = await self.read("some_vectors", scope, conversation=where.conversation, owner=where.owner, **args)
        return [half for _, _, half in _vectors(row["numbers"], row["floats"])]

    async def nearest(self, scope: Scope, where: RecallScope, wanted: Nearest) -> list[tuple[int, float]]:
        args = {"model": wanted.model, "asked": _text(wanted.asked), "most": wanted.k, "among": list(wanted.among)}
        (row,) = await self.read("nearest", scope, conversation=where.conversation, owner=where.owner, **args)
        found: list[tuple[int, float]] = _places(row["places"])
        return found

    async def fact_vectors(self, scope: Scope, where: RecallScope, model: str) -> dict[str, bytes]:
        args = {"conversation": where.conversation, "owner": where.owner}
        rows = await self.read("fact_vectors", scope, model=model, **args)
        return {row["id"]: _halves(row["floats"]).tobytes() for row in rows}

    async def turns_by_number(self, scope: Scope, tids: Sequence[int]) -> dict[int, Turn]:
        rows = await self.read("turns_numbered", scope, tids=list(tids))
        found = {row["tid"]: turn_of(from_json(row["turn"]), row["conversation"]) for row in rows}
        return {tid: found[tid] for tid in tids if tid in found}


def _pairs(packed: str) -> Any:
    """Two columns of numbers, as `palaver.packed` sends them; an array, because there may be many."""
    import numpy as np

    return np.frombuffer(b64decode(packed), ">i8").astype(np.int64).reshape(-1, 2)


def _halves(floats: str) -> Any:
    import numpy as np

    return np.frombuffer(b64decode(floats), ">f2").astype("<f2")


def _vectors(numbers: str, floats: str) -> list[tuple[int, int, bytes]]:
    pairs = _pairs(numbers)
    halves = _halves(floats).reshape(len(pairs), -1) if len(pairs) else ()
    return [(eid, tid, half.tobytes()) for (eid, tid), half in zip(pairs.tolist(), halves, strict=True)]


def _places(packed: str) -> Any:
    import numpy as np

    return np.frombuffer(b64decode(packed), np.dtype([("tid", ">i8"), ("near", ">f8")])).tolist()


def _text(vector: Sequence[float]) -> str:
    """A vector as pgvector reads it."""
    return "[" + ",".join(f"{value:.5g}" for value in vector) + "]"
