"""Data that recall ranks by, on Postgres: turn arrays, postings of stems, vectors. Each method is one round trip."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from palaver.core.filters import Interval, TurnFilter
from palaver.core.identity import from_json
from palaver.engines.postgres.memory import read_fact, read_turn_json
from palaver.engines.postgres.rows import filter_json, list_or_none
from palaver.engines.postgres.rpc import EnginePart
from palaver.engines.postgres.transports import Row, as_json
from palaver.errors import EngineError
from palaver.model import WRITE, Scope, Turn
from palaver.ports.ranking import RankingStore
from palaver.ports.recall import (
    CandidateQuery,
    Candidates,
    FactQuery,
    FoundFact,
    Nearest,
    Postings,
    ProfileRows,
    RecallScope,
    RecallSize,
    VectorRows,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ROW_COLUMNS = ("tids", "cids", "positions", "created", "tokens", "roles", "actors", "standing")


class PostgresRecall(EnginePart, RankingStore):
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
            missing=await self._count_missing(scope, where) if row["fresh"] else None,
        )

    async def _count_missing(self, scope: Scope, where: RecallScope) -> int:
        """Count the passages that are missing from the text index, and enqueue the repair of a conversation."""
        place = {"conversation": where.conversation, "owner": where.owner}
        missing = int((await self.read("missing_passages", scope, **place))[0]["missing"])
        if missing > 0 and where.conversation is not None and WRITE in scope.rights:
            with suppress(EngineError):  # a standby, or one that is full: it is found again later
                await self.write("add_job", scope, conversation=where.conversation, kind="repair", argument=None)
        return max(0, missing)

    async def turns_where(self, scope: Scope, where: RecallScope, metadata: Sequence[Interval]) -> Sequence[int]:
        place = {"conversation": where.conversation, "owner": where.owner}
        (row,) = await self.read("turns_where", scope, filter=filter_json(metadata), **place)
        found: list[int] = _unpack_numbers(row["tids"], 1)[:, 0].tolist()
        return found

    def index_problem(self) -> str | None:
        return None  # the server keeps its index up to date; lost rows are counted with the profile

    async def postings(self, scope: Scope, where: RecallScope, stems: Sequence[str], limit: int) -> dict[str, Postings]:
        args = {"stems": list(stems), "most": limit}
        rows = await self.read("postings", scope, conversation=where.conversation, owner=where.owner, **args)
        return {row["stem"]: Postings(*_unpack_pairs(row["places"]).T) for row in rows}

    async def vectors(
        self,
        scope: Scope,
        where: RecallScope,
        model: str,
        known: dict[int, tuple[int, ...]],
        most: int | None = None,  # not used: where there are more, the database ranks them
    ) -> list[VectorRows]:
        args = {"model": model, "known": as_json({str(cid): stamp for cid, stamp in known.items()})}
        rows = await self.read("vectors", scope, conversation=where.conversation, owner=where.owner, **args)
        return [
            VectorRows(
                conversation=row["cid"],
                fresh=row["fresh"],
                rows=_unpack_vectors(row["numbers"], row["floats"]),
                stamp=tuple(row["stamp"]),
            )
            for row in rows
        ]

    async def some_vectors(self, scope: Scope, where: RecallScope, model: str, count: int) -> list[bytes]:
        args = {"model": model, "most": count}
        (row,) = await self.read("some_vectors", scope, conversation=where.conversation, owner=where.owner, **args)
        return [half for _, _, half in _unpack_vectors(row["numbers"], row["floats"])]

    async def nearest(self, scope: Scope, where: RecallScope, wanted: Nearest) -> list[tuple[int, float]]:
        args = {
            "model": wanted.model,
            "asked": _vector_text(wanted.asked),
            "most": wanted.k,
            "among": list(wanted.among),
        }
        (row,) = await self.read("nearest", scope, conversation=where.conversation, owner=where.owner, **args)
        return _unpack_places(row["places"])

    async def recall_size(self, scope: Scope, where: RecallScope, most: int) -> RecallSize:
        (row,) = await self.read("recall_size", scope, owner=where.owner, most=most)
        names = tuple(row["actors"] or ())
        return RecallSize(turns=row["turns"], passages=row["passages"], terms=row["terms"], actors=names)

    async def candidates(self, scope: Scope, where: RecallScope, wanted: CandidateQuery) -> Candidates:
        args = {
            "stems": list(wanted.stems),
            "passages": wanted.size.passages,
            "terms": wanted.size.terms,
            "by_words": wanted.by_words,
            "by_meaning": wanted.by_meaning,
            "model": wanted.model,
            "asked": None if wanted.asked is None else _vector_text(wanted.asked),
            "since": wanted.since,
            "until": wanted.until,
            "owner": where.owner,
        }
        if wanted.filter.is_empty:
            spans = [moment for span in wanted.spans for moment in span]
            (row,) = await self.read("candidates", scope, spans=spans, **args)
        else:
            (row,) = await self.read("candidates_where", scope, **_filtered(wanted.filter), **args)
        return Candidates(
            rows=_unpack_rows(row),
            holding=row["holding"] or [0] * len(wanted.stems),
            hits=_unpack_numbers(row["hits"], 3),
            near=_unpack_places(row["places"]),
            sample=row["sample"] or [],
            matching=None if wanted.filter.is_empty else row["matching"] or [],
        )

    async def facts_found(self, scope: Scope, where: RecallScope, wanted: FactQuery) -> list[FoundFact]:
        args = {
            "stems": list(wanted.stems),
            "most": wanted.most,
            "model": wanted.model,
            "asked": None if wanted.asked is None else _vector_text(wanted.asked),
        }
        rows = await self.read("matching_facts", scope, owner=where.owner, **args)
        return [FoundFact(read_fact(row), _unpack_halves(row["floats"]).tobytes()) for row in rows]

    async def fact_vectors(self, scope: Scope, where: RecallScope, model: str) -> dict[str, bytes]:
        args = {"conversation": where.conversation, "owner": where.owner}
        rows = await self.read("fact_vectors", scope, model=model, **args)
        return {row["id"]: _unpack_halves(row["floats"]).tobytes() for row in rows}

    async def turns_by_number(self, scope: Scope, tids: Sequence[int]) -> dict[int, Turn]:
        rows = await self.read("turns_numbered", scope, tids=list(tids))
        found = {row["tid"]: read_turn_json(from_json(row["turn"]), row["conversation"]) for row in rows}
        return {tid: found[tid] for tid in tids if tid in found}


def _filtered(wanted: TurnFilter) -> dict[str, Any]:
    return {
        "filter": filter_json(wanted.metadata),
        "wanted_roles": list_or_none(wanted.roles),
        "wanted_actors": list_or_none(wanted.actors),
    }


def _unpack_pairs(packed: str) -> NDArray[np.int64]:
    return _unpack_numbers(packed, 2)


def _unpack_numbers(packed: str, columns: int) -> NDArray[np.int64]:
    """Read columns of numbers that `palaver.packed` wrote, as an array because there may be many."""
    import numpy as np

    return np.frombuffer(b64decode(packed), ">i8").astype(np.int64).reshape(-1, columns)


def _unpack_rows(row: Row) -> list[tuple[Any, ...]]:
    """Return the rows of the turn arrays from their columns."""
    return [(*values, "complete") for values in zip(*(row[name] or () for name in ROW_COLUMNS), strict=True)]


def _unpack_halves(floats: str) -> NDArray[np.float16]:
    import numpy as np

    return np.frombuffer(b64decode(floats), ">f2").astype("<f2")


def _unpack_vectors(numbers: str, floats: str) -> list[tuple[int, int, bytes]]:
    pairs = _unpack_pairs(numbers)
    halves = _unpack_halves(floats).reshape(len(pairs), -1) if len(pairs) else ()
    return [(eid, tid, half.tobytes()) for (eid, tid), half in zip(pairs.tolist(), halves, strict=True)]


def _unpack_places(packed: str) -> list[tuple[int, float]]:
    import numpy as np

    record = np.dtype([("tid", ">i8"), ("near", ">f8")])
    places: list[tuple[int, float]] = np.frombuffer(b64decode(packed), record).tolist()
    return places


def _vector_text(vector: Sequence[float]) -> str:
    """Write a vector in pgvector's notation."""
    return "[" + ",".join(f"{value:.5g}" for value in vector) + "]"
