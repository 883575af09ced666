"""The token of a request, and nothing else, identifies its caller."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import httpx
import pytest

import palaver
from palaver import InvalidInput, PermissionDenied, Scope, TokenRefused
from palaver.conversations.internals import engine_of
from palaver.conversations.store import Store
from palaver.engines.postgres.supabase import SupabaseEngine, is_secret
from tests.engines.supabase.conftest import Project
from tests.support import postgres_server
from tests.support.supabase_server import user_id


def client_of(store: Store) -> Any:
    assert isinstance(engine_of(store), SupabaseEngine)
    return engine_of(store).project.client


async def test_the_database_says_who_is_asking(project: Project) -> None:
    async with project.as_user("ada", "acme") as store:
        assert (store.scope.tenant, store.scope.user) == ("acme", user_id("ada"))
        talk = await store.conversation("k")
        await talk.append("user", "I'm allergic to peanuts.")
        assert talk.info.owner == user_id("ada")
        await talk.verify()


async def test_two_users_share_a_client_and_see_only_their_own(project: Project, monkeypatch: Any) -> None:
    """200 interleaved calls of two users over one client; each request carries the token of its own caller."""
    tokens = {name: project.lite.token(name, "acme") for name in ("ada", "bob")}
    sent: list[tuple[str, str]] = []
    send = httpx.AsyncClient.send

    async def noticed(self: httpx.AsyncClient, request: httpx.Request, **more: Any) -> httpx.Response:
        sent.append((request.headers["Authorization"], request.content.decode()))
        return await send(self, request, **more)

    async with project.open(worker=False) as store:
        people = {name: await store.signed_in(token) for name, token in tokens.items()}
        talks = {name: await one.conversation(f"of {name}") for name, one in people.items()}
        monkeypatch.setattr(httpx.AsyncClient, "send", noticed)

        async def call(name: str, n: int) -> None:
            if n % 2:
                await talks[name].append("user", f"{name} says {n}")
            else:
                assert {turn.text.split()[0] for turn in await talks[name].history()} <= {name}
                assert [one.key for one in (await people[name].conversations()).items] == [f"of {name}"]

        await asyncio.gather(*(call(name, n) for n in range(100) for name in tokens))
        headers = {client_of(one).options.headers["Authorization"] for one in people.values()}
        assert len({id(client_of(one)) for one in people.values()}) == 1
        assert headers == {f"Bearer {project.lite.publishable_key}"}
        assert not any(token in str(vars(client_of(store).postgrest)) for token in tokens.values())
        for name, other in (("ada", "bob"), ("bob", "ada")):
            assert len(await talks[name].history(limit=200)) == 50
            mine = [body for bearer, body in sent if bearer == f"Bearer {tokens[name]}"]
            assert mine
            assert not any(talks[other].id in body for body in mine)
        assert {bearer for bearer, _ in sent} == {f"Bearer {token}" for token in tokens.values()}


async def test_users_of_other_tenants_and_other_users_are_strangers(project: Project) -> None:
    async with project.as_user("ada", "acme") as store:
        talk = await store.conversation("k", participants=[user_id("bob")])
        for name, tenant, sees in (("bob", "acme", True), ("eve", "acme", False), ("bob", "evil", False)):
            other = await store.signed_in(project.lite.token(name, tenant))
            found = [one.id for one in (await other.conversations()).items]
            assert (talk.id in found) is sees
            if not sees:
                with pytest.raises(palaver.ConversationNotFound):
                    await other.get(talk.id)


async def test_nobody_is_nobody(project: Project) -> None:
    async with project.open() as store:
        for call in (store.conversation("k"), store.conversations(), store.stats(), store.settle()):
            with pytest.raises(TokenRefused):
                await call


async def test_the_database_itself_refuses_the_anonymous_role(project: Project) -> None:
    headers = {"apikey": project.lite.publishable_key, "Content-Profile": "palaver_api"}
    address = project.url.removeprefix("supabase+")
    async with httpx.AsyncClient(timeout=120.0) as client:
        for function, more in (("conversations", {"most": 10}), ("signed_in", {}), ("waiting", {})):
            body = {"who": {"tenant": "acme", "sight": "tenant", "rights": "read,write,admin"}, **more}
            answer = await client.post(f"{address}/rest/v1/rpc/{function}", json=body, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (401, "42501")


@pytest.mark.parametrize(
    "claims",
    [
        {"user_metadata": {"tenant": "acme"}},
        {"app_metadata": {"user_metadata": {"tenant": "acme"}}},
        {"app_metadata": {"tenant": ""}},
        {"app_metadata": {"tenant": "acme", "palaver_rights": "write"}},
        {},
    ],
)
async def test_a_token_that_names_no_tenant_is_refused(project: Project, claims: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused):
        async with project.open(token=project.lite.signed({"sub": user_id("eve"), **claims})):
            pass


async def test_what_users_write_about_themselves_changes_nothing(project: Project) -> None:
    """Users can edit `user_metadata`: neither the tenant nor a wider visibility comes from there."""
    forged = {"tenant": "acme", "palaver_sight": "tenant", "palaver_rights": "read,write,admin", "sub": "x"}
    token = project.lite.signed(
        {"sub": user_id("eve"), "app_metadata": {"tenant": "own"}, "user_metadata": forged, "palaver_sight": "tenant"}
    )
    async with project.open(token=token) as store:
        assert store.scope == Scope("own", user_id("eve"), frozenset({"read", "write", "generate"}))


async def test_tokens_that_are_not_good_are_refused(project: Project) -> None:
    good = project.lite.token("ada")
    late = project.lite.token("ada", lasts=-60)
    head, body, signature = good.split(".")
    for token in (late, f"{head}.{body}.{signature[::-1]}", "nonsense"):
        with pytest.raises(TokenRefused) as refused:
            async with project.open(token=token):
                pass
        assert token not in str(refused.value)
        assert isinstance(refused.value, PermissionDenied)


async def test_a_function_is_asked_for_the_token_before_each_request(project: Project) -> None:
    tokens = [project.lite.token("ada", lasts=lasts) for lasts in (900, 901, 902)]
    by_the_test = ContextVar("by_the_test", default=False)  # false in the task that finishes deletions after opening
    asked = 0

    async def current() -> str:
        nonlocal asked
        asked += by_the_test.get()
        return tokens[asked % 3]

    async with project.open(token=current, worker=False) as store:
        by_the_test.set(True)
        conversation = await store.conversation("k")
        for wanted in (2, 3):
            await conversation.append("user", "still here")
            assert asked == wanted
        await store.conversations()
        assert asked == 4


async def test_a_scope_cannot_be_chosen(project: Project) -> None:
    async with project.as_user("ada") as store:
        with pytest.raises(InvalidInput):
            store.scoped(Scope.of("acme", user_id("bob")))
        with pytest.raises(PermissionDenied):
            await store.conversation("k", owner=user_id("bob"))
    for wrong in ({"tenant": "other"}, {"user": "bob"}):
        with pytest.raises(InvalidInput):
            async with project.open(token=project.lite.token("ada"), **wrong):
                pass


async def test_a_forged_owner_is_refused_by_the_database(project: Project) -> None:
    """Even for a client that does not use the library, rights come from the token."""
    async with project.as_user("eve") as store:
        store.scope = Scope("acme", user_id("ada"), frozenset({"read", "write", "admin"}), "tenant")
        with pytest.raises(palaver.PalaverError):
            await store.conversation("k", owner=user_id("ada"))
    found = await _rows(project, "SELECT count(*) FROM palaver.conversations")
    assert found == 0


async def test_the_application_works_with_its_secret_key(project: Project) -> None:
    async with project.open(key=project.lite.secret_key, tenant="acme", user="ada") as store:
        await (await store.conversation("k")).append("user", "hello")
        assert (await store.scoped(Scope.of("evil", None)).stats()).conversations == 0
        assert (await store.scoped(Scope.of("acme", None)).stats()).turns == 1
        signed_in = await store.signed_in(project.lite.token("bob", "acme"))
        assert (await signed_in.stats()).turns == 0
        with pytest.raises(InvalidInput):
            signed_in.scoped(Scope.of("acme", None))


# ---- memory work ---------------------------------------------------------------------------------------------------


async def test_memory_work_is_done_for_signed_in_users(project: Project) -> None:
    """No service key: the caller's process works for the caller, and `settle` waits for the caller's own."""
    async with project.open() as store:
        ada = await store.signed_in(project.lite.token("ada"))
        bob = await store.signed_in(project.lite.token("bob"))
        talk = await ada.conversation("k")
        await (await bob.conversation("k")).append("user", "From now on call me Bob.")
        await talk.append_many([{"role": "user", "content": f"We decided on plan {n}."} for n in range(120)])
        await ada.settle()
        assert await talk.summaries()
        assert (await talk.recall("plan 7", k=3))[0].turn.text
        async with asyncio.timeout(30):  # no `settle` for Bob: jobs run in the background
            while await _rows(project, "SELECT count(*) FROM palaver.jobs"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_a_subscriber_hears_what_another_process_wrote(project: Project) -> None:
    async with project.as_user("ada") as here, project.as_user("ada") as elsewhere:
        talk = await here.conversation("k")
        heard = asyncio.create_task(_first(talk.subscribe(after=talk.info.next_seq + 1)))
        await asyncio.sleep(0)
        await (await elsewhere.find("k")).append("user", "news")
        async with asyncio.timeout(30):
            assert (await heard).kind == "append"


async def _first(events: Any) -> Any:
    async for event in events:
        return event
    raise AssertionError("it ended")


async def _rows(project: Project, query: str) -> Any:
    import asyncpg

    connection = await asyncpg.connect(project.database)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_the_command_line_signs_in(project: Project) -> None:
    env = {**os.environ, "SUPABASE_KEY": project.lite.publishable_key, "PALAVER_URL": project.url}
    palaver_command = Path(sys.executable).with_name("palaver")

    async def run(*args: str, **more: str) -> tuple[int | None, str]:
        command = await asyncio.create_subprocess_exec(
            palaver_command,
            *args,
            env={**env, **more},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await command.communicate()
        return command.returncode, said.decode()

    token = project.lite.token("ada")
    assert (await run("append", "k", "user", "hello from a terminal", PALAVER_TOKEN=token))[0] == 0
    code, said = await run("show", "k", PALAVER_TOKEN=token)
    assert (code, "hello from a terminal" in said) == (0, True)
    code, said = await run("ls")
    assert code != 0
    assert "signed in" in said


# ---- addresses and keys --------------------------------------------------------------------------------------------


async def _opened(url: str, **options: Any) -> None:
    async with palaver.open(url, **options):
        pass


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (_opened("supabase+http://example.org", key="k", token="t"), "url"),
        (_opened("supabase+https://example.org?x=1", key="k", token="t"), "url"),
        (_opened("supabase+https://me:secret@example.org", key="k"), "url"),
        (_opened("supabase+https://example.org", key="k", read_url="postgresql://x"), "read_url"),
        (_opened("sqlite:///x.db", token="t"), "token"),
        (_opened("postgresql://127.0.0.1/x", key="k"), "key"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_what_makes_no_sense_is_refused(call: Awaitable[None], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await call
    assert refused.value.field == field
    assert "secret" not in str(refused.value)


async def test_the_key_may_come_from_the_environment(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SUPABASE_KEY", "SUPABASE_ANON_KEY", "SUPABASE_PUBLISHABLE_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidInput, match="SUPABASE_KEY"):
        await _opened(project.url)
    monkeypatch.setenv("SUPABASE_KEY", project.lite.publishable_key)
    await _opened(project.url, token=project.lite.token("ada"))


def test_secret_keys_are_told_apart() -> None:
    import jwt

    assert is_secret("sb_secret_x")
    assert is_secret(jwt.encode({"role": "service_role"}, "x" * 32))
    for key in ("sb_publishable_x", jwt.encode({"role": "anon"}, "x" * 32), "a.b.c", ""):
        assert not is_secret(key)


async def test_a_project_without_the_schema_says_what_to_do(project: Project, postgres: postgres_server.Server) -> None:
    from urllib.parse import urlsplit

    name = urlsplit(project.database).path[1:]
    await postgres_server.execute(postgres.at(name), "DROP FUNCTION palaver_api.signed_in_scope(jsonb) CASCADE")
    with pytest.raises(palaver.SchemaMissing, match=r"supabase\.md|migrate"):
        await _opened(project.url, key=project.lite.publishable_key, token=project.lite.token("ada"))
