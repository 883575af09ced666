"""palaver keys, serve, audit anchor."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from palaver.model import RIGHTS
from palaver.server.settings import ServerSettings
from tests.cli.conftest import raw


def test_a_key_is_shown_once_and_then_only_described(cli: Any, ok: Callable[..., str]) -> None:
    key = ok("keys", "create", "phone", "--user", "ada", "--tenant", "acme", "--days", "90").strip()
    assert key.startswith("plv.")
    listed = ok("keys", "list", "--tenant", "acme")
    assert "phone" in listed
    assert key not in listed
    assert {"created", "expires"} < set(listed.split())
    assert ok("keys", "list", "--json") == ""  # of another tenant


def test_a_key_is_revoked_by_its_id(lines: Callable[..., list[dict[str, Any]]], ok: Callable[..., str]) -> None:
    (made,) = lines("keys", "create", "backend")
    assert sorted(made["scope"]["rights"]) == sorted(RIGHTS)
    assert "Revoked the key" in ok("keys", "revoke", made["id"])
    (listed,) = lines("keys", "list")
    assert listed["revoked_at"]


@pytest.mark.parametrize(
    "wrong",
    [
        ("--right", "everything"),
        ("--preset", "everything"),
        ("--visibility", "all"),
        ("--visibility", "workspace"),
        ("--sight", "all"),
        ("--days", "-1"),
    ],
)
def test_a_key_that_makes_no_sense_is_refused(cli: Callable[..., Result], wrong: tuple[str, str]) -> None:
    assert cli("keys", "create", "x", *wrong).exit_code == 1


def test_the_log_of_keys_is_chained(lines: Callable[..., list[dict[str, Any]]], cli: Any, ok: Any) -> None:
    for name in "ab":
        ok("keys", "create", name)
    assert [one["kind"] for one in lines("keys", "log")] == ["create", "create"]
    db = raw()
    db.execute("UPDATE key_events SET key = 'another' WHERE n = 1")
    db.close()
    refused = cli("keys", "log")
    assert refused.exit_code == 1
    assert "event 1" in refused.stderr


def test_a_read_only_key_may_only_read(lines: Callable[..., list[dict[str, Any]]]) -> None:
    (made,) = lines("keys", "create", "eyes", "--user", "ada", "--read-only")
    assert (made["scope"]["rights"], made["scope"]["visibility"]) == (["read"], "own")


@pytest.mark.parametrize(
    ("options", "rights"),
    [
        (("--preset", "backend"), set(RIGHTS)),
        (("--user", "ada", "--preset", "frontend"), {"read", "write", "generate"}),
        (("--user", "ada", "--preset", "reader"), {"read"}),
        (("--user", "ada"), {"read", "write", "generate"}),
        ((), set(RIGHTS)),
        (("--user", "ada", "--preset", "frontend", "--right", "system"), {"read", "write", "generate", "system"}),
        (("--user", "ada", "--right", "read", "--right", "write"), {"read", "write"}),
    ],
)
def test_presets_of_keys(
    lines: Callable[..., list[dict[str, Any]]], options: tuple[str, ...], rights: set[str]
) -> None:
    (made,) = lines("keys", "create", "x", *options)
    assert set(made["scope"]["rights"]) == rights
    (listed,) = lines("keys", "list")
    assert set(listed["scope"]["rights"]) == rights, "as it is read from the database"


def test_nobody_serves_the_world_without_keys(cli: Callable[..., Result]) -> None:
    refused = cli("serve", "--host", "0.0.0.0", "--port", "0")
    assert refused.exit_code == 1
    assert "palaver keys create" in refused.stderr


def test_a_file_sets_the_database_and_tenant_unless_an_option_does(
    ok: Callable[..., str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[ServerSettings] = []

    async def take(settings: ServerSettings) -> bool:
        served.append(settings)
        return True

    monkeypatch.setattr("palaver.server.process.serve", take)
    monkeypatch.delenv("PALAVER_URL")
    (folder / "serve.toml").write_text('tenant = "acme"\nurl = "team.db"\n')
    for more in ([], ["--db", "own.db"], ["--tenant", "default"]):
        ok("serve", "--config", "serve.toml", *more)
    found = [(one.url, one.tenant) for one in served]
    assert found == [
        ("sqlite:///team.db", "acme"), ("sqlite:///own.db", "acme"), ("sqlite:///team.db", "default"),
    ]  # fmt: skip


def test_one_file_has_one_server_process(cli: Callable[..., Result]) -> None:
    refused = cli("serve", "--workers", "2")
    assert refused.exit_code == 1
    assert "Postgres" in refused.stderr


def test_anchors_are_the_ends_of_the_logs(
    store: Any, ok: Callable[..., str], cli: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.conversation("a").append("user", "hello")
    monkeypatch.setenv("PALAVER_AUDIT_KEY", "a key that is kept elsewhere")
    (line,) = ok("audit", "anchor").splitlines()
    anchor = json.loads(line)
    assert (anchor["n"], len(anchor["tip"]), len(anchor["seal"])) == (2, 64, 64)
    Path("tips.jsonl").write_text(line)
    assert cli("verify", "--anchors", "tips.jsonl").exit_code == 0
    Path("tips.jsonl").write_text(json.dumps({**anchor, "tip": "0" * 64}))
    assert cli("verify", "--anchors", "tips.jsonl").exit_code == 1
    monkeypatch.setenv("PALAVER_AUDIT_KEY", "the key of somebody else")
    assert cli("verify").exit_code == 1
