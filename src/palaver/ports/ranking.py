"""The port of a database that ranks for recall itself. An engine without it has its turns and vectors read instead."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from palaver.model import Scope
from palaver.ports.recall import CandidateQuery, Candidates, FactQuery, FoundFact, Nearest, RecallScope, RecallSize


@runtime_checkable
class RankingStore(Protocol):
    """Finds the turns, vectors and facts that may be the best for a question, in scopes that are too large to read.

    Optional: recall uses it if the engine has these methods. Every method sees only what `scope` may see.
    """

    async def recall_size(self, scope: Scope, where: RecallScope, most: int) -> RecallSize:
        """Return how large a scope of several conversations is. Counting may stop at `most` turns."""
        ...

    async def candidates(self, scope: Scope, where: RecallScope, wanted: CandidateQuery) -> Candidates:
        """Return the turns that may be the best for a question."""
        ...

    async def facts_found(self, scope: Scope, where: RecallScope, wanted: FactQuery) -> list[FoundFact]:
        """Return the facts that may be the best for a question."""
        ...

    async def some_vectors(self, scope: Scope, where: RecallScope, model: str, count: int) -> list[bytes]:
        """Return a sample of the vectors."""
        ...

    async def nearest(self, scope: Scope, where: RecallScope, wanted: Nearest) -> list[tuple[int, float]]:
        """Return turns and their inner products with the question. A turn may occur once for each of its vectors."""
        ...
