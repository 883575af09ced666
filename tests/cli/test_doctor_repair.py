"""palaver doctor --repair and palaver reindex: damage of derived data is found and repaired."""

from __future__ import annotations

import asyncio
import json

import pytest

import palaver
from tests.cli.conftest import raw
from tests.support import postgres_server


def damaged(sql: str) -> None:
    db = raw()
    db.execute(sql)
    assert db.changes()
    db.close()


@pytest.mark.parametrize("sql", ["DELETE FROM passages", "DELETE FROM text_index_data"])
def test_doctor_finds_and_mends_a_damaged_index(cli, ok, sql):
    ok("append", "notes", "user", "The zebra is here.")
    ok("search", "zebra")
    damaged(sql)
    found = cli("doctor", "--json")
    assert found.exit_code == 1
    assert json.loads(found.stdout)["database"]["damage"]
    assert "doctor --repair" in cli("doctor").stdout
    mended = json.loads(ok("doctor", "--repair", "--json"))["database"]
    assert (mended["problem"], mended["damage"]) == (None, [])
    assert mended["repaired"]
    assert "zebra" in ok("search", "zebra")


async def test_doctor_names_the_conversations_of_damaged_rows(cli, postgres_database: str, postgres_url: str) -> None:
    async with palaver.open(postgres_url, worker=False) as store:
        talks = [await store.conversation(key) for key in ("first", "second")]
        for talk in talks:
            await talk.append("user", "The zebra is here.")
        await store.settle()
    await postgres_server.execute(postgres_database, "DELETE FROM palaver.passages")
    ran = await asyncio.to_thread(cli, "doctor", "--json", "--db", postgres_url)
    found = json.loads(ran.stdout)["database"]
    assert sorted(found["damage"]) == sorted(f"passages: 1 row lost, in conversation {talk.id}" for talk in talks)
    assert "(passages: 2 rows lost)" in found["problem"]
    shown = (await asyncio.to_thread(cli, "doctor", "--db", postgres_url)).stdout
    assert all(talk.id in shown for talk in talks)


def test_reindex_makes_the_text_index_again_and_says_so(ok):
    ok("append", "notes", "user", "The zebra is here.")
    ok("search", "zebra")
    damaged("DELETE FROM passages")
    assert "Rebuilt the text index of 1 conversation." in ok("reindex")
    assert "zebra" in ok("search", "zebra")
    ok("doctor")


def test_doctor_names_a_job_that_waits_for_a_budget(ok):
    ok("append", "notes", "user", "The zebra is here.")
    ok("search", "zebra")
    damaged("UPDATE jobs SET error = 'BudgetExceeded' WHERE kind = 'embed'")
    assert json.loads(ok("doctor", "--json"))["database"]["waiting"] == [
        "embed: 1 job will be retried (BudgetExceeded)"
    ]
    assert "will be retried" in ok("doctor")
