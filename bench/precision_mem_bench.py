"""A provider for PrecisionMemBench: `/add`, `/search` and `/reset` over a Palaver store. No language model is used.

    python -m bench.precision_mem_bench --port 8080          # then run the benchmark's own tests against it

In the benchmark's `providers.config.json`:

    "palaver": {"envVar": "PALAVER_BENCH_URL", "defaultUrl": "http://127.0.0.1:8080",
                "seedDelayMs": 0, "waitAfterSeed": true}

The benchmark counts what is returned and should not be, so `/search` leaves out hits whose score is far below the best
one's. That floor was not tuned on the benchmark's data, and no figure of it is claimed here.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request

import palaver
from palaver import RecallHit, Store

FLOOR = 0.35  # of a hit's relevance, as a share of the best one


class Beliefs:
    """The texts of users, each in a conversation of the kind `items`."""

    def __init__(self, store: Store, floor: float = FLOOR) -> None:
        self.store, self.floor = store, floor

    async def add(self, text: str, user: str, metadata: Mapping[str, Any]) -> None:
        talk = await self.store.conversation(f"bench/{user}", settings={"kind": "items"})
        await talk.append("user", text, actor=user, metadata={"belief": dict(metadata)})

    async def wait(self) -> None:
        await self.store.settle()

    async def search(self, query: str, user: str, limit: int, scope: str | list[str] | None) -> list[dict[str, Any]]:
        try:
            talk = await self.store.find(f"bench/{user}")
        except palaver.ConversationNotFound:
            return []
        scopes = {scope} if isinstance(scope, str) else set(scope or ())
        hits = [hit for hit in await talk.recall(query, limit * 4, include_facts=False) if _own_score(hit) > 0]
        hits.sort(key=_own_score, reverse=True)
        best = max(map(_own_score, hits), default=0.0)
        found: dict[str, dict[str, Any]] = {}
        for hit in hits:
            assert hit.turn is not None
            belief = hit.turn.metadata.get("belief", {})
            id, place = belief.get("beliefId"), belief.get("scope")
            if id and _own_score(hit) >= self.floor * best and (not scopes or place in (None, *scopes)):
                found.setdefault(str(id), {"id": str(id), "memory": hit.turn.text, "score": _own_score(hit)})
        return list(found.values())[:limit]

    async def reset(self) -> None:
        page = await self.store.conversations(kind="items", limit=1_000)
        for info in page.items:
            if (info.key or "").startswith("bench/"):
                await (await self.store.get(info.id)).forget()


def _own_score(hit: RecallHit) -> float:
    """Return the score without what a hit gets from its neighbours: these texts are not a conversation."""
    return hit.parts.get("lexical", 0.0) + hit.parts.get("dense", 0.0) if hit.turn else 0.0


def application(floor: float = FLOOR) -> Any:
    """Return the ASGI application."""
    kept: dict[str, Beliefs] = {}

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        with tempfile.TemporaryDirectory() as folder:
            async with palaver.open(f"sqlite:///{folder}/bench.db") as store:
                kept["beliefs"] = Beliefs(store, floor)
                yield

    app = FastAPI(lifespan=life)

    @app.post("/add")
    async def add(request: Request) -> dict[str, bool]:
        body = await request.json()
        await kept["beliefs"].add(body["text"], body["user_id"], body.get("metadata") or {})
        return {"ok": True}

    @app.post("/search")
    async def search(request: Request) -> dict[str, Any]:
        body = await request.json()
        found = await kept["beliefs"].search(body["query"], body["user_id"], body.get("limit", 20), body.get("scope"))
        return {"results": found}

    @app.post("/wait")
    async def wait() -> dict[str, bool]:
        await kept["beliefs"].wait()
        return {"ok": True}

    @app.delete("/reset")
    async def reset() -> dict[str, bool]:
        await kept["beliefs"].reset()
        return {"ok": True}

    return app


async def main() -> None:
    import uvicorn

    parser = argparse.ArgumentParser(prog="python -m bench.precision_mem_bench")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--floor", type=float, default=FLOOR)
    given = parser.parse_args()
    config = uvicorn.Config(application(given.floor), host="127.0.0.1", port=given.port, log_level="warning")
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    asyncio.run(main())
