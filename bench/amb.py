"""A memory provider for AMB, the agent memory benchmark of vectorize-io.

    from bench.amb import PalaverProvider          # register it next to AMB's own providers

Documents are turns of one conversation per user; a question gets what recall finds. `contexts` is a file to which every
question's context is written as one JSON line, with its SHA-256, so that anybody with a key for the answering model can
reproduce a score from exactly what it was shown. AMB's base class is used if it is installed; the methods are the same
without it.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import palaver

try:
    from memory_bench.memory.base import MemoryProvider  # type: ignore[import-not-found]
except ImportError:
    MemoryProvider = object

DEFAULT = Path("bench/results/amb-contexts.jsonl")


class PalaverProvider(MemoryProvider):  # type: ignore[misc,valid-type]
    """Palaver in AMB: SQLite, the embedder of the wheel, no language model."""

    name = "palaver"
    description = "Palaver: recall by words and meaning, no model on write"
    kind = "local"
    provider: str | None = None
    variant: str | None = None
    link: str | None = None
    logo: str | None = None
    concurrency = 1

    def __init__(self, contexts: Path = DEFAULT, **options: Any) -> None:
        self._contexts, self._options = Path(contexts), options
        self._store: palaver.sync.Store | None = None
        self._documents: dict[str, Any] = {}

    def initialize(self) -> None:
        """Do nothing: `prepare` opens the database."""

    def cleanup(self) -> None:
        """Close the database."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def prepare(self, store_dir: Path, unit_ids: set[str] | None = None, reset: bool = True) -> None:
        """Open a database in the folder of the run; with `reset`, a new one."""
        self.cleanup()
        folder = Path(store_dir)
        folder.mkdir(parents=True, exist_ok=True)
        if reset:
            for path in folder.glob("palaver.db*"):
                path.unlink()
        self._store = palaver.sync.open(f"sqlite:///{folder}/palaver.db", **self._options)

    def ingest(self, documents: list[Any]) -> None:
        """Store documents, each as a turn at its time, and wait until they are indexed and embedded."""
        store = self._opened()
        for document in documents:
            self._documents[document.id] = document
            talk = store.conversation(_key(getattr(document, "user_id", None)))
            created = getattr(document, "timestamp", None) or None
            fields = {"metadata": {"document": document.id}, "idempotency_key": str(document.id)[:512]}
            talk.append("user", document.content, **fields, **({"created": _moment(created)} if created else {}))
        store.settle()

    def retrieve(
        self, query: str, k: int = 10, user_id: str | None = None, query_timestamp: str | None = None
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the documents that fit best, and write the context of the question."""
        talk = self._opened().conversation(_key(user_id))
        hits = [hit for hit in talk.recall(query, k, include_facts=False) if hit.turn]
        ids = [str(hit.turn.metadata["document"]) for hit in hits if hit.turn and "document" in hit.turn.metadata]
        found = [self._documents[id] for id in dict.fromkeys(ids) if id in self._documents]
        self._write(query, user_id, query_timestamp, found)
        return found, {"scores": {str(hit.turn.metadata.get("document")): hit.score for hit in hits if hit.turn}}

    def _write(self, query: str, user: str | None, when: str | None, found: list[Any]) -> None:
        context = "\n\n".join(document.content for document in found)
        line = {
            "query": query,
            "user": user,
            "at": when,
            "documents": [document.id for document in found],
            "context": context,
            "sha256": hashlib.sha256(context.encode()).hexdigest(),
        }
        self._contexts.parent.mkdir(parents=True, exist_ok=True)
        with self._contexts.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def _opened(self) -> palaver.sync.Store:
        assert self._store is not None, "prepare() opens the database"
        return self._store


def _key(user: str | None) -> str:
    return f"amb/{user}" if user else "amb"


def _moment(text: str) -> str:
    """Return a time with a zone: AMB's times have none, and are meant as UTC."""
    has_zone = text.endswith("Z") or "+" in text[10:] or "-" in text[10:] or len(text) == len("2026-11-15")
    return text if has_zone else f"{text}+00:00"
