"""palaver verify, stats, migrate, doctor."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import apsw
import pytest

import palaver
from palaver.engines.migrate import migrations
from tests.cli.conftest import raw


@pytest.fixture
def filled(ok):
    Path("bill.txt").write_text("42 euro")
    ok("append", "support/42", "user", "I'm allergic to peanuts.", "--attach", "bill.txt")
    ok("append", "notes", "user", "Something else.")


def tamper(sql: str) -> None:
    db = raw()
    db.execute(sql).fetchall()
    db.close()


def test_verify_passes_what_is_sound(ok, lines, filled):
    assert "2 conversations of 2 verified." in ok("verify")
    for command in ("ls", "verify"):
        assert "No conversations in the tenant 'acme'." in ok(command, "--tenant", "acme"), command
    assert [(one["key"], one["ok"], one["turns"]) for one in lines("verify", "notes")] == [("notes", True, 1)]


def test_verify_names_what_was_changed_and_goes_on(cli, filled):
    tamper("UPDATE turns SET content = 'Something new.' WHERE content = 'Something else.'")
    result = cli("verify", "--json")
    found = {one["key"]: one["ok"] for one in map(json.loads, result.stdout.splitlines())}
    assert found == {"support/42": True, "notes": False}
    assert json.loads(result.stderr)["error"] == "VerificationFailed"
    assert result.exit_code == 1


def test_verify_notices_a_file_that_is_missing(cli, filled):
    Path("chat.db-files").rename("moved")
    result = cli("verify", "support/42")
    assert result.exit_code == 1
    assert "error:" in result.stderr


def test_archive_moves_the_log_into_a_file_that_verify_takes(ok, cli, filled):
    assert "Archived 5 events and 0 requests in old.jsonl." in ok(
        "archive", "--before", "2100-01-01", "--to", "old.jsonl"
    )
    assert len(Path("old.jsonl").read_text().splitlines()) == 5
    assert "in an archive that was not given" in ok("verify")
    assert "archive" not in ok("verify", "--archive", "old.jsonl")
    Path("old.jsonl").write_text(Path("old.jsonl").read_text().replace("append", "forget", 1))
    assert cli("verify", "--archive", "old.jsonl").exit_code == 1
    assert cli("archive", "--before", "yesterday", "--to", "old.jsonl").exit_code != 0


def test_stats_count_what_is_there(ok, lines, filled):
    (stats,) = lines("stats")
    assert (stats["conversations"], stats["turns"], stats["attachments"]) == (2, 2, 1)
    assert "chat.db" in ok("stats")


def test_migrate_makes_the_database_and_says_the_version(ok, lines):
    newest = migrations("palaver.engines.sqlite.migrations")[-1].number
    assert lines("migrate")[0] == {"database": "sqlite:///chat.db", "from": None, "to": newest, "changed": True}
    assert lines("migrate")[0]["changed"] is False
    assert "up to date" in ok("migrate")


def test_migrate_refuses_a_database_of_a_newer_version(ok, cli):
    ok("migrate")
    tamper("PRAGMA user_version = 9999")
    result = cli("migrate")
    assert result.exit_code == 1
    assert "upgrade Palaver" in result.stderr


def test_doctor_lists_versions_file_features_and_extras(ok, lines, filled):
    (report,) = lines("doctor")
    assert report["versions"]["palaver"] == palaver.__version__
    assert report["versions"]["sqlite"] == apsw.sqlite_lib_version()
    assert report["sqlite"]["FTS5"] is True
    assert report["database"]["bytes"] == Path("chat.db").stat().st_size
    assert report["database"]["problem"] is None
    assert {"server", "local", "postgres", "supabase", "openai", "anthropic", "mcp", "otel"} <= set(report["extras"])
    shown = ok("doctor")
    for name, extra in report["extras"].items():
        assert extra["installed"] or f'pip install "palaver[{name}]"' in shown


def test_doctor_looks_at_a_missing_database_without_making_it(ok):
    assert "does not exist yet" in ok("doctor")
    assert not Path("chat.db").exists()


@pytest.mark.parametrize("content", [b"This is a letter, not a database. " * 100, b"SQLite format 3\0" + b"x" * 8000])
def test_doctor_says_what_is_wrong_with_a_file(cli, content):
    Path("chat.db").write_bytes(content)
    result = cli("doctor", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["database"]["problem"]
    assert Path("chat.db").read_bytes() == content


def test_doctor_recognises_the_file_of_another_program(cli):
    tamper("CREATE TABLE theirs (x)")
    result = cli("doctor")
    assert result.exit_code == 1
    assert "this SQLite file is not a database of Palaver" in result.stdout


def test_doctor_finds_damage_inside(ok, cli, filled):
    data = bytearray(Path("chat.db").read_bytes())
    for page in range(4096 * 4, len(data), 4096):
        data[page : page + 8] = b"\xde\xad\xbe\xef\xde\xad\xbe\xef"
    Path("chat.db").write_bytes(data)
    assert cli("doctor").exit_code == 1


def test_doctor_keeps_a_password_to_itself(cli):
    result = cli("doctor", "--db", "postgresql://ada:swordfish@127.0.0.1:1/chat")
    assert "swordfish" not in result.output
    assert "127.0.0.1:1" in result.output


def test_doctor_says_that_a_server_cannot_be_reached(cli):
    result = cli("doctor", "--db", "postgresql://127.0.0.1:1/chat", "--json")
    assert result.exit_code == 1
    assert "cannot be reached" in json.loads(result.stdout)["database"]["problem"]


async def test_doctor_reads_the_schema_of_a_server(cli, empty_database, postgres_url):
    told = await asyncio.to_thread(cli, "doctor", "--db", empty_database, "--json")
    assert "has no Palaver schema" in json.loads(told.stdout)["database"]["problem"]
    told = await asyncio.to_thread(cli, "doctor", "--db", postgres_url, "--json")
    found = json.loads(told.stdout)["database"]
    assert (found["problem"], found["schema"], found["cluster"]) == (None, found["schema_known"], None)


def test_doctor_says_where_files_are_or_what_to_set(lines, cli, monkeypatch):
    monkeypatch.delenv("PALAVER_FILES", raising=False)
    assert lines("doctor")[0]["files"] == {"location": "chat.db-files", "problem": None}
    server = ("doctor", "--db", "postgresql://127.0.0.1:1/chat", "--json")
    found = json.loads(cli(*server).stdout)["files"]
    assert found["location"] is None
    assert "set files= (PALAVER_FILES) to a folder" in found["problem"]
    assert "attachments cannot be stored or read" in cli(*server[:-1]).stdout
    monkeypatch.setenv("PALAVER_FILES", "s3://chat")
    assert json.loads(cli(*server).stdout)["files"] == {"location": "s3://chat", "problem": None}


def test_an_upgrade_from_a_newer_schema_is_refused(cli):
    """The functions of an old version would replace those of the new one."""
    refused = cli("migrate", "--sql", "--since", "99")
    assert refused.exit_code == 1
    assert "newer than this version" in refused.stderr
    assert refused.stdout == ""
