"""Vectors of an embedder that is paid for count in budgets, and wait when these are used up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import palaver
from palaver.conversations.internals import engine_of
from palaver.conversations.store import Store
from palaver.testing import FakeClock

START = datetime(2026, 11, 18, 12, tzinfo=UTC)


class Letters:
    """An embedder by letters. It counts its calls."""

    name, dimensions = "letters", 26

    def __init__(self) -> None:
        self.calls = 0

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.calls += 1
        return [[float(text.lower().count(chr(97 + n))) + 0.01 for n in range(26)] for text in texts]


class PaidLetters(Letters):
    price = {"input": 1.0, "output": 0.0}  # noqa: RUF012


def opened(url: str, embedder: Letters, limits: dict[str, Any], **options: Any) -> Any:
    budgets: Any = {"user": limits}
    return palaver.open(url, tenant="acme", embedder=embedder, budgets=budgets, worker=False, **options)


async def used(store: Store, measure: str) -> float:
    return sum(line.used for line in await store.budgets(user="ada") if line.measure == measure)


async def backlog(store: Store, embedder: Letters) -> int:
    return await engine_of(store).embedding_backlog(embedder.name)


async def test_vectors_count_for_the_owner_before_they_are_made(database_url: str) -> None:
    embedder = PaidLetters()
    limits = {"requests_per_day": 9, "tokens_per_day": 9_999, "dollars_per_day": 1.0}
    async with opened(database_url, embedder, limits) as store:
        talk = await store.conversation("a", owner="ada")
        await talk.append("user", "I like rice with peas.")
        await store.settle()
        assert embedder.calls == await used(store, "requests") == 1
        tokens = await used(store, "tokens")
        assert 0 < tokens < 30
        assert await used(store, "dollars") * 1_000_000 == tokens


async def test_a_free_embedder_is_not_counted(database_url: str) -> None:
    embedder = Letters()
    async with opened(database_url, embedder, {"requests_per_day": 0, "dollars_per_day": 0}) as store:
        talk = await store.conversation("a", owner="ada")
        await talk.append("user", "I like rice.")
        await store.settle()
        assert (embedder.calls, await used(store, "requests"), await backlog(store, embedder)) == (1, 0, 0)


async def test_vectors_wait_for_the_next_period_and_words_find_the_turns(database_url: str) -> None:
    embedder, clock = PaidLetters(), FakeClock(START)
    async with opened(database_url, embedder, {"requests_per_day": 1}, clock=clock) as store:
        talk = await store.conversation("a", owner="ada")
        await talk.append("user", "I like rice.")
        await store.settle()
        await talk.append("user", "Always answer in French, please.")
        for _ in range(8):  # more often than a job is tried that fails
            await store.settle()
            clock.advance(360)
        (job,) = [one for one in (await store.stats()).storage["outbox"] if one["kind"] == "embed"]
        assert (job["dead"], job["error"]) == (0, "BudgetExceeded")
        assert (embedder.calls, await used(store, "requests"), await backlog(store, embedder)) == (1, 1, 1)
        [hit, *_] = await talk.recall("French")
        assert "French" in hit.turn.text
        clock.set(START + timedelta(days=1))
        await store.settle()
        assert (embedder.calls >= 2, await backlog(store, embedder)) == (True, 0)


async def test_a_question_without_budget_is_looked_for_by_words(database_url: str) -> None:
    embedder = PaidLetters()
    async with opened(database_url, embedder, {"requests_per_day": 1}, user="ada") as store:
        talk = await store.conversation("a")
        await talk.append("user", "I like rice.")
        await store.settle()
        [hit] = await talk.recall("rice")
        assert hit.turn.text == "I like rice."
        explained = (await talk.build_context(token_budget=500, query="rice")).explain()
        assert "by words alone" in str(explained.to_dict())
        assert "1 requests per day" in str(explained.to_dict())
        found = await talk.recall("quarks", threshold=1.5)
        assert found.empty is not None
        assert (found.empty.reason, "requests per day" in found.empty.detail) == ("not ready", True)
        assert embedder.calls == 1


async def test_money_is_limited_and_the_price_is_not_known(database_url: str) -> None:
    embedder = Letters()
    embedder.name = "openai:letters"
    async with opened(database_url, embedder, {"dollars_per_day": 1.0}) as store:
        talk = await store.conversation("a", owner="ada")
        await talk.append("user", "I like rice.")
        await store.settle()
        assert (embedder.calls, await backlog(store, embedder)) == (0, 1)


async def test_others_do_not_wait_for_the_budget_of_one_user(database_url: str) -> None:
    embedder, clock = PaidLetters(), FakeClock(START)
    async with opened(database_url, embedder, {}, clock=clock) as store:
        await store.set_budget("user", "ada", requests_per_day=0)
        for n in range(3):
            for owner in ("ada", "bob"):
                await (await store.conversation(f"{owner} {n}", owner=owner)).append("user", f"I like rice {n}.")
        for _ in range(2):
            await store.settle()
            clock.advance(360)
        assert embedder.calls == 3
        for owner, found in (("ada", "not ready"), ("bob", "nothing relevant")):
            talk = await store.conversation(f"{owner} 1", owner=owner)
            assert (await talk.recall("quarks", threshold=1.5)).empty.reason == found
        await store.set_budget("user", "ada")
        clock.advance(360)
        await store.settle()
        assert await backlog(store, embedder) == 0
