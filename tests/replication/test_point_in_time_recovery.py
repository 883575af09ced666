"""The commands of docs/how-to/backups.md for point-in-time recovery, run as they are printed there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import palaver
from palaver.errors import ConversationGone, TurnGone, VerificationFailed
from tests.support import postgres_server
from tests.support.postgres_server import DURABLE, Server, migrate_for_tests

GUIDE = Path(__file__).parents[2] / "docs/how-to/backups.md"
TENANT = "acme"
SERVER_PROGRAMS = ("pg_basebackup", "pg_ctl")  # a block with one of them runs as the user of the server


@dataclass
class Guide:
    """The console blocks of one section, by a command in them, and the variables that a reader sets."""

    variables: dict[str, str]
    blocks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        section = GUIDE.read_text().partition("## Postgres: point-in-time recovery\n")[2].partition("\n## ")[0]
        self.blocks = re.findall(r"^```console\n(.*?)^```", section, re.MULTILINE | re.DOTALL)

    def run(self, containing: str, **variables: str) -> str:
        """Run the block with this command. Variables of the test take the place of those in the guide."""
        self.variables |= variables
        (block,) = [one for one in self.blocks if containing in one]
        commands = re.sub(r"^export .*\n", "", block, flags=re.MULTILINE)
        as_server = any(program in block for program in SERVER_PROGRAMS)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", "systemctl() { :; }\n" + commands],
            env=os.environ | self.variables,
            capture_output=True,
            text=True,
            timeout=120,
            **postgres_server.somebody() if as_server else {},
            cwd="/" if as_server else self.variables["FOLDER"],
        )
        assert done.returncode == 0, f"{containing}: {done.stdout}\n{done.stderr}"
        return done.stdout


@dataclass
class Place:
    """Folders of the test, and the server that is running now."""

    server: Server
    database: str
    folder: Path
    guide: Guide

    @property
    def admin(self) -> str:
        return self.server.at(self.database)

    @property
    def url(self) -> str:
        return postgres_server.as_application(self.admin)

    def restart(self) -> None:
        assert self.server.data is not None
        password = self.admin.partition("postgres:")[2].partition("@")[0]
        postgres_server.stop(self.server)
        self.server = postgres_server.start_on(Path(self.server.data), password, DURABLE)
        self.guide.variables["ADMIN"] = self.admin


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    try:
        server = postgres_server.start(DURABLE)
    except postgres_server.NoPostgres as reason:
        pytest.skip(str(reason))
    folder = postgres_server.new_folder()
    wal = postgres_server.new_folder(folder)
    database = await postgres_server.new_database(server)
    path = f"{postgres_server.programs()}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    port = str(postgres_server.free_port())
    new = re.sub(r":\d+/", f":{port}/", server.at(database))
    guide = Guide(
        {
            "PATH": path,
            "ADMIN": server.at(database),
            "NEW": new,
            "NEW_PORT": port,
            "WAL": str(wal),
            "BASE": str(folder / "base"),
            "NEW_DATA": str(folder / "recovered"),
            "PALAVER_TENANT": TENANT,
            "FOLDER": str(tmp_path),
        }
    )
    here = Place(server, database, folder, guide)
    try:
        # The tests give their settings on the command line; a server of one's own has them in its folder.
        await postgres_server.execute(here.admin, "ALTER SYSTEM SET max_connections = 200")
        await migrate_for_tests(here.admin)
        yield here
    finally:
        recovered = folder / "recovered"
        if (recovered / "postmaster.pid").exists():
            postgres_server.run([postgres_server.programs() / "pg_ctl", "-D", recovered, "-m", "immediate", "stop"])
        postgres_server.remove(here.server)
        shutil.rmtree(folder, ignore_errors=True)


async def now(url: str) -> str:
    """The database's own time: commits are compared with it."""
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        return str(await connection.fetchval("SELECT clock_timestamp()::text"))
    finally:
        await connection.close()


def open_with(url: str, files: Path) -> palaver.Store:
    return palaver.open(url, tenant=TENANT, files=files, embedder=None, worker=False)


@pytest.mark.costly
async def test_the_guide_restores_a_moment_and_forgets_again_what_was_forgotten_later(
    place: Place, tmp_path: Path
) -> None:
    guide, files, copy = place.guide, tmp_path / "files", tmp_path / "files-copy"
    guide.run("archive_mode")
    place.restart()
    async with open_with(place.url, files) as store:
        talk = await store.conversation("support/42", owner="bob", participants=["ada"])
        await talk.append("user", "From before the base backup.", actor="bob")
        guide.run("pg_basebackup")
        secret = await talk.append("user", "Forget this later, please.", actor="bob")
        kept = await talk.append("user", "Here is the bill.", actor="bob", attachments=[await talk.attach(b"42 euro")])
        await talk.append("user", "Words of a person who will be erased.", actor="ada")
        other = await store.conversation("mistake", owner="bob")
        await other.append("user", "A mistake deletes this.")
        private = await store.conversation("private", owner="bob")
        await private.append("user", "Deleted later, on purpose.")
        emptied = await store.conversation("emptied", owner="bob")
        await emptied.append("user", "Reset later, on purpose.")
        wanted = [(turn.id, turn.text) for turn in await talk.history()]
        moment = await now(place.admin)
        shutil.copytree(files, copy)

        await talk.append("user", "After the moment.", actor="bob")
        await talk.forget(secret)
        await talk.forget(kept)
        await other.forget()
        await private.forget()
        await emptied.reset()
        receipt = await store.erase_user("ada")

    guide.run("last_archived_wal")
    guide.run("recovery_target_time", MOMENT=moment)
    assert "support/42" in guide.run("pg_promote")

    recovered = guide.variables["NEW"]
    application = postgres_server.as_application(recovered)
    async with open_with(application, copy) as store:
        assert [(turn.id, turn.text) for turn in await (await store.get(talk.id)).history()] == wanted
    guide.run("palaver doctor", PALAVER_FILES=str(copy))
    async with open_with(application, files) as store:
        with pytest.raises(VerificationFailed, match=kept.attachments[0].id):  # its bytes were deleted after the moment
            await (await store.get(talk.id)).verify()

    guide.run("forget-again.sh <<")
    again = tmp_path / "forget-again.sh"
    lines = again.read_text().splitlines()
    assert {line.split()[1] for line in lines} == {"forget", "reset"}
    again.write_text("\n".join(line for line in lines if other.id not in line and kept.id not in line) + "\n")
    guide.run("sh forget-again.sh")

    async with open_with(application, copy) as store:
        await store.check_erasure(receipt)
        talk = await store.get(talk.id)
        assert [turn.text for turn in await talk.history()] == ["From before the base backup.", "Here is the bill."]
        with pytest.raises(TurnGone):
            await talk.turn(secret.id)
        with pytest.raises(ConversationGone):
            await store.get(private.id)
        assert await (await store.get(emptied.id)).history() == []
        assert len(await (await store.get(other.id)).history()) == 1  # the deletion that was taken out of the list
