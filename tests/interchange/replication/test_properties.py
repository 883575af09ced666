"""Random programs on a main store and two at the edge, with replications in between: in the end all are the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

import palaver
from palaver import Conversation, Store
from tests.interchange.replication.stores import assert_same, logs
from tests.support.examples import examples

MAIN, EDGES = 0, (1, 2)
KEYS = ("a", "b")
ACTIONS = ("say", "say", "say", "stream", "edit", "cut", "switch", "forget", "note", "rename", "reset", "delete")

steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(ACTIONS), st.sampled_from((MAIN, *EDGES)), st.integers(0, 999)),
        st.tuples(st.just("replicate"), st.sampled_from(EDGES), st.just(0)),
    ),
    max_size=30,
)


@dataclass
class Program:
    """Runs steps, and notes which texts must be there in the end and which must not."""

    stores: list[Store]
    kept: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)  # written in one store while the conversation was deleted in another
    deleted: set[str] = field(default_factory=set)  # conversations
    texts: int = 0

    async def run(self, action: str, at: int, pick: int) -> None:
        if action == "replicate":
            await self.replicate(at)
            return
        talk = await self.stores[at].conversation(KEYS[pick % len(KEYS)])
        turns = await talk.history()
        if action in ("say", "stream") or (action in ("edit", "cut") and turns):
            await self.say(talk, action, turns[pick % len(turns)] if turns else None)
        elif action == "switch" and (branches := await talk.branches()):
            versions = branches[pick % len(branches)].turns
            await talk.switch(versions[pick % len(versions)])
        elif action == "forget" and turns:
            turn = turns[pick % len(turns)]
            await talk.forget(turn)
            self.forgotten.add(turn.text)
        elif action == "note":
            await talk.remember("goals", f"note {pick}", by="ada")
        elif action == "rename":
            await talk.rename(f"title {pick}")
        elif action == "reset":
            self.forgotten |= await texts_of(talk)
            await talk.reset()
        elif action == "delete":
            await self.delete(talk)

    async def say(self, talk: Conversation, action: str, turn: palaver.Turn | None) -> None:
        self.texts += 1
        text = f"text {self.texts}"
        if action == "stream":
            async with talk.stream("assistant") as writer:
                await writer.write(text)
        elif action == "say" or turn is None:
            await talk.append("user", text)
        else:
            await talk.append("user", text, replaces=turn, discard_after=action == "cut")
        (self.unsure if talk.id in self.deleted else self.kept).add(text)

    async def delete(self, talk: Conversation) -> None:
        self.forgotten |= await texts_of(talk)
        for store in self.stores:
            try:
                self.unsure |= await texts_of(await store.get(talk.id))
            except LookupError:
                continue
        self.deleted.add(talk.id)
        await talk.forget()

    async def replicate(self, edge: int) -> None:
        report = await palaver.replicate(self.stores[edge], self.stores[MAIN])
        assert report.is_complete, report

    async def finish(self) -> None:
        """Bring all stores together, and check that they are the same and as they must be."""
        for edge in (*EDGES, *EDGES):
            await self.replicate(edge)
        found = [await logs(store) for store in self.stores]
        for other in found[1:]:
            assert_same(found[0], other)
        for store in self.stores:
            stored = Counter[str]()
            for info in (await store.conversations()).items:
                history = await (await store.get(info.id)).history(include_superseded=True, limit=1_000)
                stored.update(turn.text for turn in history)
            assert self.kept - self.forgotten - self.unsure <= stored.keys()
            assert not self.forgotten & stored.keys()
            assert set(stored.values()) <= {1}, "a turn was added twice"


async def texts_of(talk: Conversation) -> set[str]:
    return {turn.text for turn in await talk.history(include_superseded=True, limit=1_000)}


async def run(program: list[tuple[str, int, int]]) -> None:
    async with AsyncExitStack() as stack:
        options = {"embedder": None, "worker": False}
        stores = [await stack.enter_async_context(palaver.open("memory:", **options)) for _ in (MAIN, *EDGES)]
        one = Program(stores)
        for step in program:
            await one.run(*step)
        await one.finish()


@examples(12)
@given(steps)
def test_after_any_program_all_stores_are_the_same(program: list[tuple[str, int, int]]) -> None:
    asyncio.run(run(program))
