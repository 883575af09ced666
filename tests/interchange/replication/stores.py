"""Two stores, and what must be the same in both after a replication."""

from __future__ import annotations

from collections.abc import Iterable

from palaver import Conversation, Event, Store
from palaver.conversations.internals import engine_of

Logs = dict[str, list[tuple[int, str, str]]]


async def logs(store: Store) -> Logs:
    """Return the events of every conversation, those of subjects' memories included."""
    engine, found = engine_of(store), {}
    for tip in await engine.tips(store.scope, "", 10_000):
        try:
            talk = await store.get(tip.conversation)
        except LookupError:
            continue
        await talk.verify()
        found[tip.conversation] = [(event.n, event.kind, event.hash) for event in await all_events(talk)]
    return found


async def all_events(talk: Conversation) -> list[Event]:
    return list(await talk.audit(limit=1_000))


async def texts(talk: Conversation, *, everything: bool = False) -> list[str]:
    """Return the texts of the view, or of all turns in the order of their numbers."""
    return [turn.text for turn in await talk.history(include_superseded=everything, limit=1_000)]


def assert_same(first: Logs, second: Logs) -> None:
    assert first.keys() == second.keys()
    for id, events in first.items():
        assert events == second[id], id


async def say(talk: Conversation, words: Iterable[str]) -> None:
    for text in words:
        await talk.append("user", text)
