"""mem0 as a peer in bench/person.py: `infer=False`, our embedder, Qdrant in memory, no model and no network.

Each turn is a memory of one user. The context of a question is what `search` returns, best first, as far as it fits the
budget. Without spaCy and fastembed, which mem0 takes as options, its search is by vectors alone.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.datasets import Said

TOP_K = 100
Encode = Callable[[str], Any]


class Mem0:
    """The memories of one person in mem0."""

    def __init__(self, owner: str, encode: Encode, dimensions: int) -> None:
        self.owner = owner.replace(" ", "-")  # mem0 takes no white space in an id
        self.memory = _open(encode, dimensions)

    def add(self, session: Sequence[Said], ids: Sequence[str]) -> None:
        """Store the turns of one session, each with the id that figures know it by."""
        for said, id in zip(session, ids, strict=True):
            message = {"role": said.role, "content": said.text, "name": said.actor}
            self.memory.add([message], user_id=self.owner, metadata={"turn": id}, infer=False)

    def context(self, question: str, budget: int, count: Callable[[str], int]) -> tuple[str, frozenset[str]]:
        """Return the memories that fit the budget, as one text, and the turns that they are."""
        found = self.memory.search(question, filters={"user_id": self.owner}, top_k=TOP_K, threshold=0.0)["results"]
        lines: list[str] = []
        turns: set[str] = set()
        for one in found:
            if count("\n".join([*lines, one["memory"]])) <= budget:
                lines.append(one["memory"])
                turns.add(one["metadata"]["turn"])
        return "\n".join(lines), frozenset(turns)


def installed() -> str | None:
    """Return the version of mem0, or None: bench/requirements.txt has it."""
    try:
        return version("mem0ai")
    except ModuleNotFoundError:
        return None


def _open(encode: Encode, dimensions: int) -> Any:
    os.environ["MEM0_TELEMETRY"] = "False"
    folder = Path(tempfile.mkdtemp(prefix="mem0-"))
    os.environ.setdefault("MEM0_DIR", str(folder))
    from mem0 import Memory
    from mem0.configs.base import MemoryConfig
    from mem0.embeddings.base import EmbeddingBase
    from qdrant_client import QdrantClient

    class Ours(EmbeddingBase):  # type: ignore[misc]
        def embed(self, text: str, memory_action: str | None = None) -> list[float]:
            return list(map(float, encode(text)))

    store = {"client": QdrantClient(":memory:"), "collection_name": "bench", "embedding_model_dims": dimensions}
    config = MemoryConfig(
        vector_store={"provider": "qdrant", "config": store},
        embedder={"provider": "openai", "config": {"api_key": "unused"}},  # replaced below
        llm={"provider": "openai", "config": {"api_key": "unused"}},  # not called with infer=False
        history_db_path=str(folder / "history.db"),
    )
    memory = Memory(config)
    memory.embedding_model = Ours()
    return memory
