"""palaver backup, restore: a second copy while others write, and the way back."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import palaver
import palaver.sync
from palaver.audit.seals import seal_everything
from palaver.conversations.internals import engine_of
from palaver.engines.migrate import migrations
from palaver.interchange.backup import back_up_file
from tests.cli.conftest import raw
from tests.server.processes import wait_until
from tests.support import postgres_server
from tests.support.postgres_server import Server
from tests.upgrades.test_upgrades import rows_of, sqlite_at

NEWEST = migrations("palaver.engines.sqlite.migrations")[-1].number
FILES = 5
KEY = b"a key that is kept elsewhere, and long"


@pytest.fixture
def filled(ok):
    Path("bill.txt").write_text("42 euro")
    ok("append", "support/42", "user", "I'm allergic to peanuts.", "--attach", "bill.txt")
    ok("append", "notes", "user", "Something else.")
    ok("append", "theirs", "user", "Another tenant's.", "--tenant", "globex")


def test_an_empty_setting_of_the_files_means_the_folder_next_to_the_database(filled, ok, monkeypatch):
    """A file of settings may have the line `PALAVER_FILES=`. It does not mean the working directory."""
    monkeypatch.setenv("PALAVER_FILES", "")
    Path("private.txt").write_text("not an attachment")
    assert "1 file (" in ok("backup", "copy")
    assert list(Path("copy").rglob("private.txt")) == []


def keys(db: str, tenant: str = "default") -> set[str]:
    with palaver.sync.open(f"sqlite:///{db}", tenant=tenant, worker=False) as store:
        return {info.key for info in store.conversations().items}


# ---- backup --------------------------------------------------------------------------------------------------------


def test_a_backup_is_a_database_with_its_files_and_a_page_about_it(ok, lines, filled):
    (told,) = lines("backup", "copy")
    assert (told["engine"], told["schema"], told["files"], told["missing"]) == ("sqlite", NEWEST, 1, 0)
    assert json.loads(Path("copy/backup.json").read_text())["sha256"] == told["sha256"]
    assert sorted(path.name for path in Path("copy").iterdir()) == ["backup.json", "palaver.db", "palaver.db-files"]
    assert "verified" in ok("verify", "--db", "copy/palaver.db")
    assert keys("copy/palaver.db") == {"support/42", "notes"}
    assert keys("copy/palaver.db", "globex") == {"theirs"}


def test_only_its_owner_can_read_it(ok, filled):
    ok("backup", "copy")
    assert stat.S_IMODE(Path("copy").stat().st_mode) == 0o700


def test_nothing_is_overwritten_and_nothing_is_left_behind(cli, ok, filled):
    ok("backup", "copy")
    again = cli("backup", "copy")
    assert again.exit_code == 1
    assert "already exists: name a new folder" in again.stderr
    assert cli("backup", "other", "--db", "nowhere.db").exit_code == 1
    assert [one.name for one in Path().iterdir() if one.name.startswith((".copy", ".other", "other", "nowhere"))] == []


def test_a_damaged_database_is_not_called_a_backup(cli, filled):
    data = bytearray(Path("chat.db").read_bytes())
    data[4096 * 3 : 4096 * 3 + 2000] = b"\xff" * 2000
    Path("chat.db").write_bytes(data)
    assert cli("backup", "copy").exit_code == 1
    assert not Path("copy").exists()


@pytest.mark.parametrize("sql", ["", "CREATE TABLE theirs (x)"], ids=["an empty file", "another program's"])
def test_a_file_that_palaver_did_not_make_is_refused(cli, sql):
    Path("theirs.db").touch()
    with closing(sqlite3.connect("theirs.db")) as db:
        db.execute(sql)
    refused = cli("backup", "copy", "--db", "theirs.db")
    assert refused.exit_code == 1
    assert "not a database of Palaver" in refused.stderr
    assert not Path("copy").exists()


def test_an_old_database_is_copied_as_it_is(ok, lines, filled):
    """Before an upgrade is when a backup is made: it must not be the upgrade."""
    db = raw()
    db.execute("PRAGMA user_version = 4").fetchall()
    db.close()
    assert lines("backup", "copy")[0]["schema"] == 4
    db = raw()
    assert db.execute("PRAGMA user_version").fetchall() == [(4,)]
    db.close()


def test_what_was_forgotten_is_in_no_byte_of_it(ok):
    """Also not between the cells of its pages."""
    with palaver.sync.open("sqlite:///chat.db", worker=False) as store:
        talk = store.conversation("long")
        turns = [talk.append("user", f"forgotten-marker-{n} " * 9) for n in range(200)]
        for turn in turns[::2]:
            talk.forget(turn)
        ok("backup", "copy")
    data = Path("copy/palaver.db").read_bytes()
    assert not [n for n in range(0, 200, 2) if f"forgotten-marker-{n} ".encode() in data]
    assert b"forgotten-marker-1 " in data


def has_grown(done: list[int], before: int) -> bool:
    return done[0] >= before + FILES


@contextmanager
def writers(store: palaver.sync.Store) -> Iterator[list[int]]:
    """Three threads that append, attach and forget until the block ends. Returns the acknowledged turns."""
    over, acknowledged = threading.Event(), [0]

    def write(name: str) -> None:
        talk = store.conversation(name)
        while not over.is_set():
            file = talk.attach(os.urandom(1_000).hex().encode(), filename="x.txt")
            turn = talk.append("user", f"Turn with a file of {name}.", attachments=[file])
            talk.append("assistant", "Noted. " * 50)
            acknowledged[0] += 1
            if acknowledged[0] % 3 == 0:
                with suppress(palaver.ScrubPending):  # a backup is a reader, too
                    talk.forget(turn)

    threads = [threading.Thread(target=write, args=(f"writer-{n}",)) for n in range(3)]
    for one in threads:
        one.start()
    try:
        yield acknowledged
    finally:
        over.set()
        for one in threads:
            one.join()


def test_every_backup_made_under_writers_is_whole(tmp_path):
    """Each is one moment: its chains verify, and every attachment that it names is in it, and no other."""
    source, files = tmp_path / "chat.db", tmp_path / "chat.db-files"
    with palaver.sync.open("sqlite:///chat.db?synchronous=NORMAL", worker=False) as store, writers(store) as done:
        for n in range(4):
            before = done[0]
            wait_until(partial(has_grown, done, before), "the writers to write")
            asyncio.run(back_up_file(source, files, tmp_path / f"copy{n}", lambda count: None))
    counts = []
    for n in range(4):
        folder = tmp_path / f"copy{n}"
        with palaver.sync.open(f"sqlite:///{folder}/palaver.db", worker=False) as store:
            talks = [store.get(info.id) for info in store.conversations().items]
            found = [talk.verify() for talk in talks]
            stats = store.stats()
        counts.append(sum(one.turns for one in found))
        there = [one for one in (folder / "palaver.db-files").rglob("*") if one.is_file()]
        assert len(there) == stats.attachments == sum(one.attachments for one in found)
    assert counts == sorted(counts)
    assert counts[0] > 0


# ---- restore -------------------------------------------------------------------------------------------------------


def test_a_backup_comes_back_as_it_was(ok, lines, filled):
    before = lines("verify")
    ok("backup", "copy")
    shutil.rmtree("chat.db-files")
    for name in ("chat.db", "chat.db-wal", "chat.db-shm"):
        Path(name).unlink(missing_ok=True)
    (told,) = lines("restore", "copy")
    assert (told["conversations"], told["turns"], told["aside"], told["problems"]) == (3, 3, None, [])
    assert lines("verify") == before
    db = raw()
    assert db.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
    db.close()


def test_what_is_there_is_moved_aside_and_only_when_asked_for(cli, ok, lines, filled):
    ok("backup", "copy")
    ok("append", "later", "user", "After the backup.")
    refused = cli("restore", "copy")
    assert refused.exit_code == 1
    assert "--force" in refused.stderr
    assert keys("chat.db") == {"support/42", "notes", "later"}
    (told,) = lines("restore", "copy", "--force")
    assert keys("chat.db") == {"support/42", "notes"}
    assert Path(told["aside_files"]).is_dir()
    assert keys(told["aside"]) == {"support/42", "notes", "later"}
    assert "verified" in ok("verify", "--db", told["aside"])


def test_restore_says_where_a_folder_is_that_another_database_may_use_too(cli, ok, filled, monkeypatch):
    ok("backup", "copy")
    monkeypatch.setenv("PALAVER_FILES", "shared")
    Path("shared").mkdir()
    Path("shared/of-another-database").touch()
    said = cli("restore", "copy", "--force").stderr
    (aside,) = Path().glob("chat.db.before-*-files")
    assert (aside / "of-another-database").exists()
    assert aside.name in said.replace("\n", "")


def test_a_database_that_was_lost_comes_back_over_what_is_left_of_it(cli, ok, lines, filled):
    """Its files, and the WAL of a server that was killed: played into another database, that would ruin it."""
    ok("backup", "copy")
    with palaver.sync.open("sqlite:///chat.db", worker=False) as store:
        store.conversation("later").append("user", "After the backup.")
        shutil.copy("chat.db-wal", "left-over")
    Path("chat.db").unlink()
    Path("left-over").rename("chat.db-wal")
    assert "chat.db-files already exists" in cli("restore", "copy").stderr
    (told,) = lines("restore", "copy", "--force")
    assert Path(told["aside"]).stat().st_size > 0
    assert keys("chat.db") == {"support/42", "notes"}
    assert "verified" in ok("verify")
    assert {one.name.rpartition("-")[2] for one in Path().glob("chat.db.before-*")} == {"files", "wal"}


def test_a_database_that_is_open_is_left_alone(cli, ok, filled):
    ok("backup", "copy")
    with palaver.sync.open("sqlite:///chat.db", worker=False) as store:
        talk = store.find("notes")
        talk.append("user", "Still here.")
        refused = cli("restore", "copy", "--force")
        assert refused.exit_code == 1
        assert "open elsewhere" in refused.stderr
        talk.append("user", "And still.")
    assert ok("show", "notes").count("till") == 2


@pytest.mark.parametrize("what", ["row", "file", "bit"])
def test_a_backup_that_was_changed_takes_no_place(cli, ok, filled, what):
    ok("backup", "copy")
    if what == "row":
        db = raw("copy/palaver.db")
        db.execute("UPDATE turns SET content = 'changed' WHERE content = 'Something else.'")
        db.close()
        rehash("copy")
    elif what == "file":
        (file,) = (one for one in Path("copy/palaver.db-files").rglob("*") if one.is_file())
        file.write_text("43 euro")
    else:
        with Path("copy/palaver.db").open("r+b") as out:
            out.seek(5_000)
            out.write(b"\xff")
    refused = cli("restore", "copy", "--db", "new.db")
    assert refused.exit_code == 1
    assert not Path("new.db").exists()
    assert [one.name for one in Path().iterdir() if one.name.startswith(".new")] == []
    if what != "bit":
        assert "Something" not in refused.output
        assert "Does not verify" in cli("restore", "copy", "--db", "new.db", "--anyway").stderr
        assert Path("new.db").exists()


def rehash(folder: str) -> None:
    """As an attacker would who wants to hide a change."""
    import hashlib

    page = json.loads(Path(folder, "backup.json").read_text())
    page["sha256"] = hashlib.sha256(Path(folder, "palaver.db").read_bytes()).hexdigest()
    Path(folder, "backup.json").write_text(json.dumps(page))


def test_a_backup_of_an_earlier_release_comes_back_up_to_date(lines, tmp_path):
    sqlite_at(tmp_path / "chat.db", 1, rows_of("sqlite", 1))
    assert lines("backup", "copy")[0]["schema"] == 1
    assert lines("restore", "copy", "--db", "new.db")[0]["problems"] == []
    assert lines("migrate", "--db", "new.db")[0]["changed"] is False


def test_it_may_come_back_under_another_name(ok, lines, filled):
    ok("backup", "copy")
    assert lines("restore", "copy", "--db", "odd name%41.db")[0]["conversations"] == 3
    assert lines("migrate", "--db", "odd name%41.db")[0]["changed"] is False


def test_seals_are_checked_with_their_key(cli, ok, filled, monkeypatch):
    async def seal() -> None:
        async with palaver.open("sqlite:///chat.db", worker=False) as store:
            await seal_everything(engine_of(store), KEY, datetime.now(UTC))

    asyncio.run(seal())
    ok("backup", "copy")
    monkeypatch.setenv("PALAVER_AUDIT_KEY", "another key, which did not seal it")
    assert cli("restore", "copy", "--db", "new.db").exit_code == 1
    monkeypatch.setenv("PALAVER_AUDIT_KEY", KEY.decode())
    ok("restore", "copy", "--db", "new.db")


def test_what_is_no_backup_is_refused(cli, filled):
    Path("folder").mkdir()
    for name in ("folder", "nowhere", "chat.db"):
        refused = cli("restore", name, "--db", "new.db")
        assert refused.exit_code == 1
        assert "is not a backup" in refused.stderr


def test_a_lost_attachment_is_said(cli, filled):
    shutil.rmtree("chat.db-files")
    told = cli("backup", "copy")
    assert told.exit_code == 0
    assert "Not found, although the database lists them: 1 attachment." in told.stderr
    assert cli("restore", "copy", "--db", "new.db").exit_code == 1
    assert cli("restore", "copy", "--db", "new.db", "--anyway").exit_code == 0


# ---- Postgres ------------------------------------------------------------------------------------------------------


@pytest.fixture
def programs(postgres: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = postgres_server.programs()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


async def test_postgres_is_dumped_and_comes_back(
    cli, programs: Path, postgres: Server, postgres_database: str, tmp_path: Path
) -> None:
    async with palaver.open(postgres_database, files=tmp_path / "files", worker=False) as store:
        talk = await store.conversation("support/42")
        await talk.append("user", "Hello", attachments=[await talk.attach(b"42 euro", filename="bill.txt")])
        before = await talk.verify()
    told = await asyncio.to_thread(cli, "backup", "copy", "--db", postgres_database, "--files", "files", "--json")
    assert told.exit_code == 0, told.output
    assert (json.loads(told.stdout)["engine"], json.loads(told.stdout)["files"]) == ("postgres", 1)
    name = await postgres_server.new_database(postgres, "template0")
    try:
        target = postgres.at(name)
        environment = {**os.environ, "PGPASSWORD": urlsplit(target).password or ""}
        command = [str(programs / "pg_restore"), "--single-transaction", f"--dbname={target}", "copy/palaver.dump"]
        await asyncio.to_thread(subprocess.run, command, env=environment, check=True, capture_output=True)
        async with palaver.open(target, files=tmp_path / "copy/palaver.db-files", worker=False) as store:
            assert await (await store.find("support/42")).verify() == before
    finally:
        await postgres_server.drop_database(postgres, name)


async def test_a_failed_login_of_a_dump_is_no_lack_of_rights(cli, programs: Path, postgres: Server) -> None:
    url = postgres.at("postgres", "nobody", "hunter2")
    told = await asyncio.to_thread(cli, "backup", "copy", "--db", url)
    assert "Check the address, the user and the password" in told.stderr
    assert "BYPASSRLS" not in told.stderr
    assert "hunter2" not in told.output


async def test_one_who_may_not_see_everything_cannot_dump(
    cli, programs: Path, postgres_url: str, tmp_path: Path
) -> None:
    told = await asyncio.to_thread(cli, "backup", "copy", "--db", postgres_url)
    assert told.exit_code == 1
    assert "administrator" in told.stderr
    assert not Path("copy").exists()


def test_without_pg_dump_it_says_what_to_run(cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    told = cli("backup", "copy", "--db", "postgresql://admin:hunter2@127.0.0.1:1/none")
    assert told.exit_code == 1
    assert "pg_dump --format=custom" in told.stderr
    assert "hunter2" not in told.output


@pytest.mark.parametrize("password", ["12/hunter2", "a#hunter2", "a[hunter2"])
def test_a_password_that_cuts_the_url_in_two_is_not_an_argument_of_pg_dump(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    program = tmp_path / "pg_dump"
    program.write_text(f'#!/bin/sh\necho "$@" | tee {tmp_path}/arguments >&2\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    told = cli("backup", "copy", "--db", f"postgresql://admin:{password}@127.0.0.1:1/none")
    assert told.exit_code == 1
    assert "percent-encoded" in told.stderr
    assert "hunter2" not in told.output
    assert not (tmp_path / "arguments").exists()


@pytest.mark.parametrize(
    ("url", "passed"),
    [
        ("postgresql:///none?host=/run/x&password=hunter2", "postgresql:///none?host=%2Frun%2Fx"),
        (
            "postgresql://admin:hunter2@h/none?pool_size=4&options=-c%20jit%3Doff",
            "postgresql://admin@h/none?options=-c%20jit%3Doff",
        ),
        ("postgres://admin:hunter2@h,i/none", "postgresql://admin@h,i/none"),
        ("postgresql://admin:hunter2@h/none?statement_timeout=5&jit=off&database=x", "postgresql://admin@h/none"),
        ("postgresql://admin:hunter2@h?database=none", "postgresql://admin@h?dbname=none"),
        ("postgresql://admin:hunter2@h/none?password=other", "postgresql://admin@h/none"),
    ],
)
def test_pg_dump_gets_an_address_that_it_can_read_and_the_password_by_the_environment(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, passed: str
) -> None:
    program = tmp_path / "pg_dump"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" "$PGPASSWORD" > {tmp_path}/said\nexit 1\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    cli("backup", "copy", "--db", url)
    *_, address, password = (tmp_path / "said").read_text().splitlines()
    assert address == f"--dbname={passed}"
    assert password == "hunter2"


def test_the_passphrase_of_a_client_key_is_not_an_argument_of_pg_dump(
    cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "pg_dump"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    told = cli("backup", "copy", "--db", "postgresql://admin@h/none?sslkey=/k&sslpassword=hunter2")
    assert told.exit_code == 1
    assert "service file" in told.stderr
    assert "hunter2" not in told.output
    assert not (tmp_path / "ran").exists()


def test_restoring_postgres_is_left_to_pg_restore(cli) -> None:
    told = cli("restore", "copy", "--db", "postgresql://127.0.0.1:1/none")
    assert told.exit_code == 1
    assert "pg_restore" in told.stderr
