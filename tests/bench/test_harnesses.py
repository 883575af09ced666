"""The providers for public harnesses, called as the harnesses call them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from bench.amb import PalaverProvider
from bench.precision_mem_bench import application


@dataclass(frozen=True)
class Document:
    """As AMB's: an id, a text, a user and a time."""

    id: str
    content: str
    user_id: str | None = None
    timestamp: str | None = None


def test_amb(tmp_path: Path) -> None:
    provider = PalaverProvider(tmp_path / "contexts.jsonl", embedder="none")
    provider.initialize()
    provider.prepare(tmp_path / "store", {"ada"})
    dog = Document("d1", "My dog is called Rex.", "ada", "2023-05-08T13:56:00")
    documents = [
        dog,
        Document("d2", "It rains in Rome.", "ada"),
        Document("d3", "Bob's dog is Tom.", "bob", "2023-05-08"),
    ]
    provider.ingest(documents)
    provider.ingest(documents[:1])
    found, raw = provider.retrieve("Which dog?", k=1, user_id="ada", query_timestamp="2024-01-01")
    assert found == [dog]
    assert set(raw["scores"]) == {"d1"}
    assert provider.retrieve("dog", user_id="nobody")[0] == []
    provider.cleanup()
    lines = [json.loads(line) for line in (tmp_path / "contexts.jsonl").read_text().splitlines()]
    assert [line["documents"] for line in lines] == [["d1"], []]
    assert lines[0]["context"] == dog.content
    assert lines[0]["sha256"] == hashlib.sha256(dog.content.encode()).hexdigest()


async def test_precision_mem_bench(monkeypatch: pytest.MonkeyPatch) -> None:
    app = application()
    async with app.router.lifespan_context(app):
        client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://bench")
        beliefs = {"b1": "database we use MongoDB", "b2": "editor is Vim", "b3": "database of Bob is MySQL"}
        for id, text in beliefs.items():
            user = "bob" if id == "b3" else "ada"
            body = {"text": text, "user_id": user, "metadata": {"beliefId": id, "scope": "work"}, "aliases": []}
            assert (await client.post("/add", json=body)).json() == {"ok": True}
        assert (await client.post("/wait")).json() == {"ok": True}
        asked = {"query": "which database?", "user_id": "ada", "limit": 20}
        assert [one["id"] for one in (await client.post("/search", json=asked)).json()["results"]] == ["b1"]
        for scope, ids in (("work", ["b1"]), ("home", []), (["home", "work"], ["b1"])):
            found = await client.post("/search", json={**asked, "scope": scope})
            assert [one["id"] for one in found.json()["results"]] == ids
        assert (await client.delete("/reset")).json() == {"ok": True}
        assert (await client.post("/search", json=asked)).json() == {"results": []}
        await client.aclose()
