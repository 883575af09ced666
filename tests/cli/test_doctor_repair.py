"""palaver doctor --repair and palaver reindex: damage of derived data is found and repaired."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import raw


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
