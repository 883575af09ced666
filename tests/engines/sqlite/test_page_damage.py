"""Random damage of derived rows and pages: turns stay readable, a context is built, and the repair is complete."""

from __future__ import annotations

import asyncio
import random
import shutil
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import palaver
from palaver.conversations.internals import engine_of, worker_of
from palaver.engines.sqlite.table_repair import DERIVED, SHADOWS
from palaver.memory.worker.jobs.repair import enqueue_repairs, repair_database
from palaver.testing import HashEmbedder
from tests.support.memory import talk_on

TURNS = 120
TABLES = (*(name for name in DERIVED if name not in ("jobs", "set_aside", "file_passages")), *SHADOWS[:3])
PAGE = 4_096
DAMAGES = st.tuples(
    st.sampled_from(["page", "page", "delete", "zeros"]), st.sampled_from(TABLES), st.integers(0, 2**31)
)
TEXTS = {"summaries": "text", "working_memory": "memory", "facts": "object"}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("original") / "chat.db"
    asyncio.run(_fill(path))
    return path


async def _fill(path: Path) -> None:
    async with palaver.open(f"sqlite:///{path}?synchronous=NORMAL", embedder=HashEmbedder(), worker=False) as store:
        talk = await store.conversation("k", settings={"facts": True})
        await talk_on(talk, TURNS, "Turn {n}: the zebra has number {n}. From now on, call me Ada{n}.")
        await talk.remember("goals", "be kind", by="ada")
        await store.settle()


def damage(path: Path, kind: str, table: str, seed: int) -> None:
    chosen = random.Random(seed)
    db = apsw.Connection(str(path))
    db.create_scalar_function("chance", lambda: chosen.random() < 0.5, 0)
    try:
        if kind == "page":
            names = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE tbl_name = ?", (table,))]
            marks = ", ".join("?" * len(names))
            pages = [row[0] for row in db.execute(f"SELECT pageno FROM dbstat WHERE name IN ({marks})", names)]
        elif kind == "delete":
            db.execute(f"DELETE FROM {table} WHERE chance()")
        elif table in TEXTS:
            db.execute(f"UPDATE {table} SET {TEXTS[table]} = CAST(zeroblob(9) AS TEXT) WHERE chance()")
    except apsw.Error:
        return  # an earlier damage keeps SQLite from reading it
    finally:
        db.close()
    if kind == "page" and pages:
        with path.open("r+b") as file:
            file.seek((chosen.choice(pages) - 1) * PAGE)
            file.write(chosen.choice([bytes(PAGE), chosen.randbytes(PAGE)]))


async def survives(path: Path) -> None:
    async with palaver.open(f"sqlite:///{path}?synchronous=NORMAL", embedder=HashEmbedder(), worker=False) as store:
        talk = await store.conversation("k")
        assert len(await talk.history(500)) == TURNS
        context = await talk.build_context(token_budget=800, message="Which number has the zebra?")
        assert context.messages
        await talk.recall("zebra number 7")
        await store.search("zebra")
        await talk.search("zebra")
        await talk.append("user", "and it goes on with the zebra")
        await repair_database(worker_of(store))
        await enqueue_repairs(worker_of(store))
        found = await engine_of(store).find_damage(thorough=True)
        await engine_of(store).enqueue_repair(found)
        await store.settle()
        assert await engine_of(store).find_damage(thorough=True) == []
        assert len(await talk.history(500)) == TURNS + 1
        assert len(await talk.search("zebra", limit=200)) == TURNS + 1, "every turn is in the index"
        assert (await talk.verify()).turns == TURNS + 1
    db = apsw.Connection(str(path))
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


def check(original: Path, folder: Path, damages: list[tuple[str, str, int]]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    path = folder / "chat.db"
    shutil.copy(original, path)
    for one in damages:
        damage(path, *one)
    asyncio.run(survives(path))


SHARED = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True, "database": None}


@pytest.mark.costly
@settings(max_examples=6, **SHARED)  # type: ignore[arg-type]
@given(damages=st.lists(DAMAGES, min_size=1, max_size=3))
def test_any_damage_of_derived_data_is_survived_and_repaired(
    original: Path, tmp_path: Path, damages: list[tuple[str, str, int]]
) -> None:
    check(original, tmp_path / "copy", damages)


@pytest.mark.slow
@settings(max_examples=150, **SHARED)  # type: ignore[arg-type]
@given(damages=st.lists(DAMAGES, min_size=1, max_size=4))
def test_any_damage_of_derived_data_is_survived_and_repaired_often(
    original: Path, tmp_path: Path, damages: list[tuple[str, str, int]]
) -> None:
    check(original, tmp_path / "copy", damages)


def test_lost_separators_of_the_index_are_found(original: Path, tmp_path: Path) -> None:
    """Without them no word of their leaf is found, and neither counts nor FTS5's own check show it."""
    path = tmp_path / "chat.db"
    shutil.copy(original, path)
    db = apsw.Connection(str(path))
    db.execute("DELETE FROM text_index_idx")
    assert db.changes()
    db.close()
    asyncio.run(survives(path))
