"""Filters by metadata use their indexes, and their rows follow the metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

import palaver
from palaver.core.filters import clean_where
from palaver.engines.rows import scope_params
from palaver.engines.sqlite.filters import filter_params, interval_params
from palaver.engines.sqlite.queries import Q
from palaver.model import Scope

WHERE = clean_where({"metadata": {"n": {"gte": 7, "lt": 9}, "subject": {"in": ["a", "b"]}}})
COMMON: dict[str, Any] = {**scope_params(Scope.of("default", None)), "now": 0, "limit": 20, "owner": None}
STATEMENTS = {
    "history": Q.history_active.replace("FROM turns t", f"FROM ({Q.turns_with}) f CROSS JOIN turns t ON t.tid = f.tid"),
    "conversations": Q.conversations_with,
    "recall": Q.turns_where,
    "search": Q.search_filtered,
}


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    async with palaver.open(f"sqlite:///{tmp_path}/chat.db") as store:
        talk = await store.conversation("k", metadata={"plan": "pro"})
        await talk.append("user", "an apple", metadata={"n": 8, "subject": "a", "tags": ["zanzibar", True]})
    return tmp_path / "chat.db"


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_statement_with_a_filter_reads_a_whole_table(path: Path, name: str) -> None:
    db = apsw.Connection(str(path))
    params = COMMON | filter_params(WHERE) | interval_params(WHERE.metadata)
    params |= {"cid": 1, "before": 9, "after": -1, "match": "terms : apple", "conversation": None}
    plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {STATEMENTS[name]}", params)]
    scans = [line for line in plan if line.startswith("SCAN") and line.split()[1] in ("t", "m", "c", "p")]
    if name == "recall":  # the conversations of the scope are gone through, by an index
        scans = [line for line in scans if line.split()[1] != "c"]
    assert scans == [], plan
    assert any("SEARCH m USING" in line for line in plan), plan


def rows(path: Path) -> list[tuple[Any, ...]]:
    db = apsw.Connection(str(path))
    there = db.execute("SELECT cid, tid, key, value FROM turn_metadata ORDER BY 1, 2, 3, 4").fetchall()
    assert there == db.execute("SELECT * FROM turn_metadata_values ORDER BY 1, 2, 3, 4").fetchall()
    return there


async def test_the_index_has_what_the_metadata_has(path: Path) -> None:
    assert [row[2:] for row in rows(path)] == [("n", 8), ("subject", "a"), ("tags", "zanzibar"), ("tags", b"\x01")]
    async with palaver.open(f"sqlite:///{path}") as store:
        talk = await store.find("k")
        await talk.append("user", "without metadata")
        [turn, _] = await talk.history()
        await talk.forget(turn)
        assert rows(path) == []
    kept = [one.read_bytes() for one in path.parent.iterdir() if one.name.startswith(path.name)]
    assert kept
    assert not any(b"zanzibar" in one for one in kept)
