"""After any changes, a long-lived store recalls from the same data that a new one would read."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import Conversation, Store
from palaver.conversations.internals import clock_of, engine_of
from palaver.errors import PalaverError
from palaver.ports.recall import RecallScope
from palaver.recall.service import RecallService
from tests.support.memory import url

pytestmark = [pytest.mark.costly, pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

STEPS = 60
SAYINGS = (
    "The soup was good.",
    "From now on, always answer in French.",
    "I prefer tea to coffee.",
    "Remember that the meeting is on Monday.",
    "What did we say about the soup?",
    "",
)


async def known(recaller: RecallService, store: Store, where: RecallScope) -> list[tuple[Any, ...]]:
    profile = (await recaller.rank(store.scope, where, "soup", 5)).profile
    names = ("tid", "conversation", "position", "created", "tokens", "assistant", "searchable", "standing")
    columns = [getattr(profile, name).tolist() for name in names]
    return sorted(zip(*columns, [profile.actors[code] for code in profile.actor.tolist()], strict=True))


class Life:
    """A user who does this and that in some conversations."""

    def __init__(self, store: Store, talks: list[Conversation], seed: int) -> None:
        self.store, self.talks, self.random = store, talks, random.Random(seed)
        self.streams: list[tuple[Conversation, palaver.Turn]] = []

    async def step(self) -> None:
        talk = self.random.choice(self.talks)
        doing: list[tuple[int, Callable[[Conversation], Any]]] = [
            (8, self.say),
            (3, self.settle),
            (2, self.replace),
            (1, self.switch),
            (1, self.forget),
            (2, self.open),
            (3, self.close),
        ]
        work = self.random.choices([one for _, one in doing], [weight for weight, _ in doing])[0]
        try:
            await work(talk)
        except PalaverError:
            pass  # a turn that is superseded, a stream that was cut: such is life

    async def say(self, talk: Conversation) -> None:
        for _ in range(self.random.choice((1, 1, 2, 30))):
            await talk.append(self.random.choice(("user", "assistant")), self.random.choice(SAYINGS))

    async def settle(self, _: Conversation) -> None:
        await self.store.settle()

    async def replace(self, talk: Conversation) -> None:
        if turns := await talk.history(20):
            old = self.random.choice(turns)
            discard = self.random.random() < 0.3
            await talk.append(old.role, self.random.choice(SAYINGS), replaces=old, discard_after=discard)

    async def switch(self, talk: Conversation) -> None:
        if turns := [one for one in await talk.history(50, include_superseded=True) if not one.active]:
            await talk.switch(self.random.choice(turns))

    async def forget(self, talk: Conversation) -> None:
        if turns := await talk.history(20):
            await talk.forget(self.random.choice(turns))

    async def open(self, talk: Conversation) -> None:
        self.streams.append((talk, await talk.append_open("assistant")))

    async def close(self, _: Conversation) -> None:
        if self.streams:
            talk, turn = self.streams.pop(self.random.randrange(len(self.streams)))
            await talk.append_chunk(turn, 0, self.random.choice(SAYINGS) or "Well.")
            await (talk.append_abort(turn) if self.random.random() < 0.3 else talk.append_commit(turn))


@pytest.mark.parametrize("seed", range(3))
async def test_what_is_known_is_what_is_there(tmp_path: Path, seed: int) -> None:
    async with palaver.open(url(tmp_path), user="ada", embedder=None, worker=False) as store:
        talks = [await store.conversation(f"talk {n}") for n in range(3)]
        life, old = (
            Life(store, talks, seed),
            RecallService(engine_of(store), None, clock_of(store)),
        )
        places = [RecallScope(conversation=talks[0].id), RecallScope(owner="ada"), RecallScope()]
        for n in range(STEPS):
            await life.step()
            new = RecallService(engine_of(store), None, clock_of(store))
            for where in places if n == STEPS - 1 else [places[n % 3]]:  # each after one, two or more changes
                assert await known(old, store, where) == await known(new, store, where)
