"""Seals: changes that an attacker with write access to the database cannot hide."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

import palaver
from palaver.audit.seals import check_seals, check_tip, clean_sealing_key, seal_everything
from palaver.conversations.internals import engine_of
from palaver.core.identity import event_hash, genesis
from palaver.errors import VerificationFailed
from palaver.interchange.archive import archive_conversation

KEY = b"a key that is kept elsewhere"
NOW = datetime(2026, 11, 15, tzinfo=UTC)


async def sealed_talk(path: Path) -> str:
    async with palaver.open(f"sqlite:///{path}", worker=False, embedder=None) as store:
        talk = await store.conversation("a")
        await talk.append("user", "one")
        assert await seal_everything(engine_of(store), KEY, NOW) == 1
        await talk.append("user", "two")
        assert await seal_everything(engine_of(store), KEY, NOW) == 1
        assert await seal_everything(engine_of(store), KEY, NOW) == 0
        assert await check_seals(engine_of(store), KEY, store.scope, talk.id) == 2
        return talk.id


def rewrite_the_log(path: Path, id: str) -> None:
    """Forge what the chain alone cannot show: change the actor of an event, and recompute every hash after it."""
    db = apsw.Connection(str(path))
    previous = genesis(id)
    rows = db.execute("SELECT cid, n, kind, turn, actor, at, payload, content_hash FROM events ORDER BY n").fetchall()
    for cid, n, kind, turn, actor, at, payload, content_hash in rows:
        by = "mallory" if kind == "append" else actor
        previous = event_hash(previous, n, kind, turn, by, at, payload, content_hash)
        db.execute("UPDATE events SET actor = ?, hash = ? WHERE cid = ? AND n = ?", (by, previous, cid, n))
    db.execute("UPDATE conversations SET tip_hash = ?", (previous,))
    db.close()


async def test_a_rewritten_log_passes_the_chain_but_not_the_seals(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    id = await sealed_talk(path)
    rewrite_the_log(path, id)
    async with palaver.open(f"sqlite:///{path}", worker=False, embedder=None) as store:
        await (await store.get(id)).verify()
        with pytest.raises(VerificationFailed, match="seal over event 2"):
            await check_seals(engine_of(store), KEY, store.scope, id)


async def test_seals_cannot_be_made_without_the_key(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    id = await sealed_talk(path)
    async with palaver.open(f"sqlite:///{path}", worker=False, embedder=None) as store:
        with pytest.raises(VerificationFailed, match="not made with this key"):
            await check_seals(engine_of(store), b"the key of somebody else", store.scope, id)


async def test_a_tip_that_was_kept_elsewhere_shows_a_log_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    id = await sealed_talk(path)
    async with palaver.open(f"sqlite:///{path}", worker=False, embedder=None) as store:
        (tip,) = await engine_of(store).tips(store.scope, "", 10)
        await check_tip(engine_of(store), store.scope, tip)
    db = apsw.Connection(str(path))
    db.execute("DELETE FROM events WHERE n = ?", (tip.n,))
    db.close()
    async with palaver.open(f"sqlite:///{path}", worker=False, embedder=None) as store:
        with pytest.raises(VerificationFailed, match="cut short"):
            await check_tip(engine_of(store), store.scope, tip)
    assert tip.conversation == id


def test_a_short_key_is_refused() -> None:
    with pytest.raises(palaver.InvalidInput):
        clean_sealing_key(b"short")


async def test_seals_over_archived_events_stay_valid_as_long_as_the_log_names_the_archive(tmp_path: Path) -> None:
    id = await sealed_talk(tmp_path / "a.db")
    async with palaver.open(f"sqlite:///{tmp_path}/a.db", worker=False, embedder=None) as store:
        talk = await store.get(id)
        await archive_conversation(store, talk, datetime(2100, 1, 1, tzinfo=UTC), lambda lines: None)
        assert await check_seals(engine_of(store), KEY, store.scope, id) == 2
        await talk.append("user", "three")
    db = apsw.Connection(str(tmp_path / "a.db"))
    db.execute("DELETE FROM events WHERE kind = 'archive'")
    db.close()
    async with palaver.open(f"sqlite:///{tmp_path}/a.db", worker=False, embedder=None) as store:
        with pytest.raises(VerificationFailed, match="cut short"):
            await check_seals(engine_of(store), KEY, store.scope, id)
        with pytest.raises(VerificationFailed, match="event 1 is missing"):
            await (await store.get(id)).verify()
