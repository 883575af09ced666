"""An index that knows English only stays in use, and is completed in quiet moments."""

from __future__ import annotations

from pathlib import Path

import palaver
from palaver import Store
from palaver.conversations.internals import engine_of
from palaver.core.turn_draft import decode_content, words
from palaver.engines.sqlite import text_index
from palaver.engines.sqlite.engine import SQLiteEngine
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import Tx
from palaver.recall.terms import english_passages
from palaver.testing import HashEmbedder

TURNS = ("Die Rechnung ist noch nicht bezahlt.", "Die Rechnung für das Gerät kommt später.", "The bill was paid.")
ENTRIES = "SELECT count(*) FROM text_index WHERE text_index MATCH ?"


def sqlite(store: Store) -> SQLiteEngine:
    engine = engine_of(store)
    assert isinstance(engine, SQLiteEngine)
    return engine


def _as_before(tx: Tx) -> None:
    """Leave the index as a version left it that knew English only."""
    for tid, cid, is_parts, content, tenant, owner in tx.all(Q.to_complete, tid=0, through=10**9, limit=1_000):
        text = words(decode_content(content, bool(is_parts)))
        scope = text_index.scope_words(cid, tenant, owner)
        stems = english_passages(text)
        text_index._complete(tx, cid, tid, scope, stems, stems)
        if text.isascii():
            tx.db.execute("UPDATE passages SET terms = NULL WHERE tid = ?", (tid,))
    tx.db.execute("DELETE FROM meta WHERE name LIKE 'languages%'")


async def _count(store: Store, word: str) -> int:
    match = f'terms : "{word}"'
    return await sqlite(store).readers.run(lambda tx: int(next(tx.db.execute(ENTRIES, (match,)))[0]))


async def test_an_index_of_english_is_completed_and_keeps_its_numbers(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    async with palaver.open(url, embedder=HashEmbedder(), worker=False) as store:
        talk = await store.conversation("talk")
        turns = [await talk.append("user", text) for text in TURNS]
        await store.settle()
        await sqlite(store).writer.submit(_as_before)
        assert await _count(store, "rechnung") == 2
        assert await _count(store, "bezahl") == await _count(store, "spat") == 0

    async with palaver.open(url, embedder=HashEmbedder(), worker=False) as store:
        talk = await store.conversation("talk")
        hits = await talk.recall("Welche Rechnung habe ich?", k=2)  # found while the index is as it was
        assert {hit.turn.text for hit in hits if hit.turn} == set(TURNS[:2])
        while await sqlite(store).writer.submit_chores():
            pass
        assert await _count(store, "spat") == 1
        assert await engine_of(store).embedding_backlog(HashEmbedder().name) == 0  # no vector is rebuilt
        for turn in turns[:2]:
            await talk.forget(turn)
        assert await _count(store, "rechnung") == await _count(store, "spat") == 0
        assert await _count(store, "bill") == 1
