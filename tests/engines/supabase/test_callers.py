"""Background jobs run for callers who signed in recently, may write, and have a valid token."""

from __future__ import annotations

import asyncio

import pytest

from palaver.conversations import sessions
from palaver.conversations.internals import components_of, sessions_of
from palaver.conversations.store import Store
from palaver.errors import WrongEventLoop
from tests.engines.supabase.conftest import Project


def session_of(store: Store, token: sessions.Token) -> sessions.Session:
    found = sessions_of(store).get(token)
    assert found is not None
    return found


async def test_the_same_token_has_the_same_components(project: Project) -> None:
    async with project.open(worker=False) as store:
        token = project.lite.token("ada")
        ada = components_of(await store.signed_in(token))
        assert components_of(await store.signed_in(token)) is ada
        assert components_of(await store.signed_in(project.lite.token("bob"))) is not ada


async def test_who_may_only_read_leaves_the_work_to_others(project: Project) -> None:
    async with project.open(worker=False) as store:
        reader = project.lite.token("eve", palaver_rights="read", palaver_sight="tenant")
        writer = project.lite.token("ada")
        await store.signed_in(reader)
        await store.signed_in(writer)
        assert not session_of(store, reader).has_work()
        assert session_of(store, writer).has_work()
        await session_of(store, writer).work()
        assert not session_of(store, writer).has_work()


async def test_a_caller_whose_token_ran_out_is_dropped(project: Project) -> None:
    current = [project.lite.token("ada")]
    async with project.open() as store:

        def token() -> str:
            return current[0]

        ada = await store.signed_in(token)
        talk = await ada.conversation("k")
        current[0] = project.lite.token("ada", lasts=-60)
        with pytest.raises(sessions.PalaverError):
            await talk.append("user", "too late")
        async with asyncio.timeout(30):
            while sessions_of(store).get(token) is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def test_another_event_loop_is_refused_and_the_store_goes_on(project: Project) -> None:
    async with project.open(token=project.lite.token("ada"), worker=False) as store:
        talk = await store.conversation("k")

        def elsewhere() -> None:
            for verb in (lambda: talk.append("user", "from elsewhere"), talk.history, store.stats):
                with pytest.raises(WrongEventLoop, match=r"palaver\.sync"):
                    asyncio.run(verb())

        await asyncio.to_thread(elsewhere)
        assert (await talk.append("user", "from here")).seq == 0


async def test_the_oldest_make_room(project: Project) -> None:
    tokens = [project.lite.token(name) for name in ("ada", "bob", "eve")]
    async with project.open(worker=False) as opened:
        store = Store(components_of(opened), opened.scope, sessions.Sessions(limit=2))
        first = await store.signed_in(tokens[0])
        for token in tokens[1:]:
            await store.signed_in(token)
        assert [sessions_of(store).get(token) is not None for token in tokens] == [False, True, True]
        await first.conversation("k")  # a store stays usable after its session is dropped from the cache
