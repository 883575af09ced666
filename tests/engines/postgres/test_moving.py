"""A conversation moves between engines with every hash unchanged; and URLs of replicas and pools."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import palaver
from palaver import Conversation, Store
from palaver.conversations.internals import engine_of
from palaver.ports.queries import Record


async def rows_of(talk: Conversation) -> list[Record]:
    async with aclosing(talk.records()) as pages:
        return [record async for page in pages for record in page]


async def moved(talk: Conversation, to: Store) -> Conversation:
    found = await to.restore(await rows_of(talk), {})
    assert found is not None
    return found


async def test_from_a_file_to_postgres_and_back_nothing_changes(postgres_url: str, tmp_path: Path) -> None:
    async with (
        palaver.open(f"sqlite:///{tmp_path}/one.db", worker=False) as one,
        palaver.open(postgres_url, worker=False) as server,
        palaver.open(f"sqlite:///{tmp_path}/two.db", worker=False) as two,
    ):
        talk = await one.conversation("k", title="Ünïcode", participants=["ada", "bob"], settings={"facts": False})
        first = await talk.append("user", "Grüße aus 東京", actor="ada", idempotency_key="k1")
        await talk.append("assistant", "", tool_calls=[{"id": "c1", "name": "look", "arguments": {"q": "ü"}}])
        await talk.append("tool", "", tool_results=[{"id": "c1", "content": "…"}])
        await talk.append("user", "Once more", replaces=first, discard_after=True)
        await talk.switch(first)
        async with talk.stream("assistant") as out:
            await out.write("piece by piece")
        there = await moved(talk, server)
        back = await moved(there, two)
        proofs = [await one_of.verify() for one_of in (talk, there, back)]
        assert len({proof.tip for proof in proofs}) == 1
        assert await rows_of(talk) == await rows_of(back)
        added = await there.append("user", "and it goes on")
        assert [turn.id for turn in await there.history()][-1] == added.id
        await there.verify()
        assert [found.conversation.id for found in await server.search("東京")] == [talk.id]


async def test_an_address_of_pgbouncer_uses_nothing_that_outlives_a_transaction(postgres_url: str) -> None:
    async with palaver.open(f"{postgres_url}?pgbouncer=true", worker=False) as store:
        talk = await store.conversation("k")
        await talk.append("user", "hello")
        assert [turn.text for turn in await talk.history()] == ["hello"]
        await talk.verify()
        async with aclosing(talk.subscribe(after=0)) as events:
            kinds = [(await anext(events)).kind for _ in range(2)]
        assert kinds == ["create", "append"]


async def test_reads_go_to_the_address_for_reading(postgres_url: str) -> None:
    async with palaver.open(postgres_url, read_url=postgres_url, worker=False) as store:
        talk = await store.conversation("k")
        await talk.append("user", "hello")
        assert len(await talk.history()) == 1
        assert engine_of(store).transport.replica.get_size() > 0  # type: ignore[attr-defined]
