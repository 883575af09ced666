"""Attachments in the bucket `chat-attachments`: the policies alone, and files that are stored through them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from palaver.conversations.internals import components_of
from palaver.core.identity import canonical_json, new_id
from palaver.engines.postgres import migrate
from tests.engines.supabase.conftest import Project
from tests.support import postgres_server, supabase_server
from tests.support.supabase_server import user_id

ADA, BOB, EVE = user_id("ada"), user_id("bob"), user_id("eve")
PUT = "INSERT INTO storage.objects (bucket_id, name) VALUES ('chat-attachments', $1)"
SEEN = "SELECT name FROM storage.objects WHERE bucket_id = 'chat-attachments'"


@asynccontextmanager
async def acting(database: str, user: str | None, tenant: str | None = "acme") -> AsyncIterator[Any]:
    """Run and commit a transaction as Supabase's storage server does."""
    connection = await asyncpg.connect(database)
    claims = canonical_json({"sub": user, "app_metadata": {"tenant": tenant} if tenant else {}})
    try:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL ROLE {'authenticated' if user else 'anon'}")
            await connection.execute("SELECT set_config('request.jwt.claims', $1, true)", claims if user else "")
            yield connection
    finally:
        await connection.close()


async def seen(database: str, user: str | None, tenant: str | None = "acme") -> list[str]:
    async with acting(database, user, tenant) as here:
        return [row["name"] for row in await here.fetch(SEEN)]


async def talk_of(database: str, owner: str, *members: str) -> str:
    id = new_id()
    spec = {"id": id, "owner": owner, "participants": canonical_json(members), "salt": "\\x" + "00" * 16}
    async with acting(database, owner) as here:
        await here.execute("SELECT palaver_api.open_conversation('{}', $1)", canonical_json(spec))
    return id


async def attach(database: str, user: str, talk: str, path: str, owner: str | None = None) -> str:
    id = new_id()
    row = {
        "id": id,
        "owner": owner or user,
        "filename": "a",
        "media_type": "x/y",
        "bytes": 1,
        "sha256": "0" * 64,
        "path": path,
    }
    async with acting(database, user) as here:
        await here.execute("SELECT palaver_api.attach('{}', $1, $2)", talk, canonical_json(row))
    return id


# ---- the policies --------------------------------------------------------------------------------------------------


async def test_the_bucket_is_private_and_the_script_can_be_run_again(supabase_database: str) -> None:
    connection = await asyncpg.connect(supabase_database)
    try:
        await connection.execute("UPDATE storage.buckets SET public = true")
        await connection.execute(migrate.storage_script())
        assert await connection.fetchval("SELECT public FROM storage.buckets WHERE id = 'chat-attachments'") is False
    finally:
        await connection.close()


async def test_what_is_printed_for_a_project_can_be_pasted(empty_database: str) -> None:
    project = [*supabase_server.ROLES, supabase_server.USERS, supabase_server.STORAGE]
    await postgres_server.execute(empty_database, *project, migrate.editor_script(storage=True))
    async with acting(empty_database, ADA) as here:
        await here.execute(PUT, f"{ADA}/c/1.txt")
    assert await seen(empty_database, ADA) == [f"{ADA}/c/1.txt"]


async def test_one_uploads_into_the_own_folder_only(supabase_database: str) -> None:
    async with acting(supabase_database, ADA) as here:
        await here.execute(PUT, f"{ADA}/c/1.txt")
    for user, tenant, path in (
        (BOB, "acme", f"{ADA}/c/2.txt"),
        (BOB, "acme", "2.txt"),
        (BOB, "acme", f"x/{BOB}/2.txt"),
        (BOB, None, f"{BOB}/c/2.txt"),
        (None, None, f"{ADA}/c/2.txt"),
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with acting(supabase_database, user, tenant) as here:
                await here.execute(PUT, path)
    assert await seen(supabase_database, ADA) == [f"{ADA}/c/1.txt"]
    for user, tenant in ((BOB, "acme"), (EVE, "evil"), (None, None)):
        assert await seen(supabase_database, user, tenant) == []


async def test_files_are_seen_by_those_who_see_their_conversation(supabase_database: str) -> None:
    talk = await talk_of(supabase_database, ADA, BOB)
    path = f"{ADA}/{talk}/1.txt"
    async with acting(supabase_database, ADA) as here:
        await here.execute(PUT, path)
    assert await seen(supabase_database, BOB) == []  # not attached yet
    await attach(supabase_database, ADA, talk, path)
    assert await seen(supabase_database, BOB) == [path]
    for user, tenant in ((EVE, "acme"), (BOB, "evil"), (BOB, None)):
        assert await seen(supabase_database, user, tenant) == []


async def test_nobody_changes_a_file(supabase_database: str) -> None:
    async with acting(supabase_database, ADA) as here:
        await here.execute(PUT, f"{ADA}/c/1.txt")
        assert await here.execute("UPDATE storage.objects SET name = $1", f"{ADA}/c/2.txt") == "UPDATE 0"


async def test_forgetting_a_conversation_removes_the_files_of_all_users(supabase_database: str) -> None:
    talk = await talk_of(supabase_database, ADA, BOB)
    path = f"{BOB}/{talk}/1.txt"
    async with acting(supabase_database, BOB) as here:
        await here.execute(PUT, path)
    await attach(supabase_database, BOB, talk, path)
    remove = "DELETE FROM storage.objects WHERE name = $1"
    async with acting(supabase_database, ADA) as here:
        assert await here.execute(remove, path) == "DELETE 0"
        await here.execute("SELECT palaver_api.forget_conversation('{}', $1)", talk)
    async with acting(supabase_database, EVE) as here:
        assert await here.execute(remove, path) == "DELETE 0"
        assert await here.fetch("SELECT * FROM palaver_api.doomed_blobs('{}', 10)") == []
    async with acting(supabase_database, ADA) as here:
        assert [row[0] for row in await here.fetch("SELECT * FROM palaver_api.doomed_blobs('{}', 10)")] == [path]
        assert await here.execute(remove, path) == "DELETE 1"


async def test_a_strangers_file_cannot_be_claimed_to_have_it_deleted(supabase_database: str) -> None:
    """A user who could attach another user's file could read it, and delete it by forgetting."""
    talk, own = await talk_of(supabase_database, ADA, BOB), await talk_of(supabase_database, EVE)
    path = f"{ADA}/{talk}/1.txt"
    for user, where, whose in ((EVE, own, EVE), (EVE, own, ADA), (BOB, talk, BOB), (BOB, talk, ADA)):
        with pytest.raises(asyncpg.PostgresError) as refused:
            await attach(supabase_database, user, where, path, whose)
        assert refused.value.sqlstate == "PV021"


# ---- files behind the policies ------------------------------------------------------------------------------------


async def test_a_file_is_stored_read_shared_and_forgotten(project: Project) -> None:
    async with project.open(worker=False) as store:
        ada, bob, eve = [await store.signed_in(project.lite.token(name)) for name in ("ada", "bob", "eve")]
        talk = await ada.conversation("k", participants=[BOB])
        file = await talk.attach(b"bytes", filename="note.txt")
        turn, path = await talk.append("user", "See this.", attachments=[file]), file.path
        assert path.split("/")[:2] == [ADA, talk.id]
        assert await talk.read_attachment(file) == b"bytes"
        assert await (await bob.get(talk.id)).read_attachment(file.id) == b"bytes"
        await talk.verify()
        with pytest.raises(Exception, match=r"no attachment|refuses"):
            await components_of(eve).blobs.get(path)
        await components_of(eve).blobs.delete(path)  # she cannot see it, so there is nothing to remove
        assert await components_of(ada).blobs.get(path) == b"bytes"
        await talk.forget(turn.id)
        assert await seen(project.database, ADA) == []
        with pytest.raises(Exception, match="no attachment"):
            await components_of(ada).blobs.get(path)
