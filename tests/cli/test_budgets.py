"""`palaver budgets`: set, show, remove."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from typer.testing import Result

Ok = Callable[..., str]


def test_a_budget_is_set_shown_and_removed(ok: Ok, lines: Callable[..., list[dict[str, Any]]]) -> None:
    ok("append", "c", "user", "hello", "--user", "ada")
    ok("budgets", "set", "requests_per_day=200", "dollars_per_month=2.5", "storage_bytes=2000", "--user", "ada")
    shown = ok("budgets", "show", "--user", "ada")
    assert "requests per day" in shown
    assert "$2.5000" in shown
    found = {line["measure"]: (line["limit"], line["used"]) for line in lines("budgets", "show", "--user", "ada")}
    assert found == {"requests": (200, 0), "dollars": (2.5, 0), "bytes": (2000, 5)}
    ok("budgets", "remove", "--user", "ada")
    assert "No budget is stored" in ok("budgets", "show", "--user", "ada")
    ok("budgets", "set", "conversations=3")
    assert [line["kind"] for line in lines("budgets", "show")] == ["tenant"]


def test_a_wrong_limit_is_named(ok: Ok, cli: Callable[..., Result]) -> None:
    ok("append", "c", "user", "hello")
    for wrong, told in (("requests=1", "write LIMIT=AMOUNT"), ("tokens_per_day=many", "must be a number")):
        result = cli("budgets", "set", wrong)
        assert result.exit_code != 0
        assert told in result.output
