"""Budgets: reserved before a call, settled after it, shared by all processes, on both engines."""

from __future__ import annotations

import asyncio
import sys
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import Scope
from palaver.conversations.api_keys import create_key
from palaver.conversations.internals import components_of, engine_of
from palaver.core.budgets import clean_options, period_end
from palaver.errors import (
    BudgetExceeded,
    CostBudgetExceeded,
    InvalidInput,
    ModelUnavailable,
    PermissionDenied,
    PriceUnknown,
    StorageBudgetExceeded,
)
from palaver.ports.models import ModelRequest
from palaver.testing import FakeClock, ScriptedModel
from palaver.testing.providers import LoopbackProvider, Say

PRICE = {"input": 1.0, "output": 10.0}


class Paid(ScriptedModel):
    price = PRICE

    def body(self, request: ModelRequest) -> dict[str, Any]:
        return {**super().body(request), **request.settings}


def used(lines: list[palaver.BudgetLine]) -> dict[str, float]:
    return {f"{line.kind} {line.measure} {line.period}": line.used for line in lines}


def one_of_each(said: int = 1) -> dict[str, Any]:
    return {
        "model": "scripted",
        "models": {"scripted": ScriptedModel(["fine"] * said)},
        "embedder": "none",
        "worker": False,
    }


async def test_a_used_up_budget_refuses_before_anything_is_stored_or_sent(database_url: str) -> None:
    model = ScriptedModel(["one", "two", "three"])
    limits = {"user": {"requests_per_day": 2}}
    async with palaver.open(
        database_url, user="ada", model="m", models={"m": model}, budgets=limits, worker=False
    ) as store:
        talk = await store.conversation()
        await talk.generate("first")
        await talk.generate("second")
        with pytest.raises(BudgetExceeded) as refused:
            await talk.generate("third")
        assert (refused.value.kind, refused.value.measure, refused.value.period) == ("user", "requests", "day")
        assert (refused.value.limit, refused.value.used) == (2, 2)
        assert 0 < (refused.value.retry_after or 0) <= 86_400
        assert len(model.calls) == 2
        assert [turn.text for turn in await talk.history()] == ["first", "one", "second", "two"]
        assert used(await store.budgets()) == {"user requests day": 2}
        other = await store.scoped(Scope.of("default", "bob")).conversation()
        assert (await other.generate("hello")).text == "three"


async def test_prompt_and_maximum_are_reserved_and_the_real_usage_is_counted(database_url: str) -> None:
    with LoopbackProvider() as provider:
        provider.script(Say("Rice.", prompt_tokens=30), Say("Beans.", prompt_tokens=30))
        models = {"m": {**provider.models()["chat"], "price": PRICE}}
        options: Any = {"user": {"tokens_per_day": 1_000, "dollars_per_month": 1.0}, "output_tokens": 500}
        async with palaver.open(
            database_url, user="ada", model="m", models=models, budgets=options, worker=False
        ) as store:
            talk = await store.conversation()
            answer = await talk.generate("What can I eat?")
            assert provider.received[0].body["max_tokens"] == 500
            counted = used(await store.budgets())
            assert answer.tokens.prompt == 30
            assert counted["user tokens day"] == 30 + (answer.tokens.completion or 0)
            assert counted["user dollars month"] == pytest.approx(
                (30 * 1.0 + (answer.tokens.completion or 0) * 10.0) / 1e6
            )
            with pytest.raises(BudgetExceeded) as refused:  # there are tokens left, but not as many
                await talk.generate("More, please.", settings={"max_tokens": 2_000})
            assert refused.value.measure == "tokens"
            await talk.generate("More, please.", settings={"max_tokens": 20})
            assert provider.received[1].body["max_tokens"] == 20


async def test_money_without_a_price_is_refused_by_name(database_url: str) -> None:
    model = ScriptedModel(["never"])
    limits: Any = {"tenant": {"dollars_per_month": 5}}
    async with palaver.open(
        database_url, user="ada", model="m", models={"m": model}, budgets=limits, worker=False
    ) as store:
        talk = await store.conversation()
        with pytest.raises(PriceUnknown, match=r"scripted.*has no price.*`price`"):
            await talk.generate("hello")
        assert model.calls == []
        assert await talk.history() == []
        offline = await talk.generate("hello", model="offline")  # costs nothing
        assert offline.role == "assistant"


async def test_money_is_counted_and_refused(database_url: str) -> None:
    model = Paid(["word"] * 20)
    limits: Any = {"tenant": {"dollars_per_day": 0.06}, "output_tokens": 2_000}
    async with palaver.open(
        database_url, user="ada", model="m", models={"m": model}, budgets=limits, worker=False
    ) as store:
        talk = await store.conversation()
        for _ in range(2):
            await talk.generate("hello")
        lines = await store.budgets()
        assert [line.kind for line in lines] == ["tenant"]
        assert 0 < lines[0].used < 0.001  # the reservation of two cents was settled
        with pytest.raises(CostBudgetExceeded):
            await talk.generate("hello", settings={"max_tokens": 10_000})


async def test_a_call_that_fails_gives_its_reservation_back(database_url: str) -> None:
    model = ScriptedModel([ModelUnavailable("scripted", "is overloaded", status=503), "fine"])
    limits: Any = {"user": {"tokens_per_day": 6_000, "requests_per_day": 10}}
    settings: Any = {"retries": 0}
    async with palaver.open(
        database_url, user="ada", model="m", models={"m": model}, budgets=limits, generate=settings, worker=False
    ) as store:
        talk = await store.conversation()
        with pytest.raises(ModelUnavailable):
            await talk.generate("hello")
        assert used(await store.budgets()) == {"user tokens day": 0, "user requests day": 1}
        await talk.generate("again")


async def test_an_answer_that_is_stopped_counts_what_was_said(database_url: str) -> None:
    model = ScriptedModel([["word " * 50, "more " * 50]])
    limits: Any = {"user": {"tokens_per_day": 10_000}}
    async with palaver.open(
        database_url, user="ada", model="m", models={"m": model}, budgets=limits, worker=False
    ) as store:
        talk = await store.conversation()
        async with aclosing(talk.generate_stream("hello")) as events:
            async for event in events:
                if isinstance(event, palaver.TextDelta):
                    break
        counted = used(await store.budgets())["user tokens day"]
        assert 100 <= counted < 1_000


async def test_each_period_ends(database_url: str) -> None:
    clock = FakeClock(datetime(2026, 1, 31, 23, 0, tzinfo=UTC))
    limits: Any = {"user": {"requests_per_day": 1, "requests_per_month": 3}}
    async with palaver.open(database_url, user="ada", budgets=limits, clock=clock, **one_of_each(9)) as store:
        talk = await store.conversation()
        await talk.generate("one")
        with pytest.raises(BudgetExceeded) as refused:
            await talk.generate("two")
        assert refused.value.retry_after == pytest.approx(3_600, abs=1)
        clock.advance(7_200)
        await talk.generate("two")
        assert used(await store.budgets()) == {"user requests day": 1, "user requests month": 1}
    assert period_end("month", datetime(2026, 12, 3, tzinfo=UTC)) == datetime(2027, 1, 1, tzinfo=UTC)


async def test_one_users_own_budget_stands_in_place_of_the_default(database_url: str) -> None:
    async with palaver.open(database_url, budgets={"user": {"requests_per_day": 1}}, **one_of_each(9)) as store:
        await store.set_budget("user", "ada", requests_per_day=3)
        ada, bob = [await store.scoped(Scope.of("default", name)).conversation() for name in ("ada", "bob")]
        for _ in range(3):
            await ada.generate("hello")
        with pytest.raises(BudgetExceeded):
            await ada.generate("hello")
        await bob.generate("hello")
        with pytest.raises(BudgetExceeded):
            await bob.generate("hello")
        await store.set_budget("user", "ada")
        assert [line.limit for line in await store.budgets(user="ada")] == [1]


async def test_who_may_see_and_set_budgets(database_url: str) -> None:
    async with palaver.open(database_url, budgets={"user": {"requests_per_day": 1}}) as store:
        ada = store.scoped(Scope.of("default", "ada"))
        assert [line.name for line in await ada.budgets()] == ["ada"]
        with pytest.raises(PermissionDenied):
            await ada.budgets(user="bob")
        with pytest.raises(PermissionDenied):
            await ada.set_budget("user", "ada", requests_per_day=10)
        chief = store.scoped(Scope.of("default", "chief").with_rights("admin"))
        await chief.set_budget("user", "ada", requests_per_day=10)
        with pytest.raises(InvalidInput, match="set by the application"):
            await chief.set_budget("tenant", requests_per_day=10)
        await store.set_budget("tenant", requests_per_day=10)
        elsewhere = store.scoped(Scope.of("other", None))
        assert await engine_of(elsewhere).budgets("other") == []


async def test_a_keys_budget_counts_what_is_done_with_the_key(database_url: str) -> None:
    async with palaver.open(database_url, **one_of_each(9)) as store:
        _, key = await create_key(store, "phone", user="ada")
        await store.set_budget("key", key.id, requests_per_day=1)
        scope = Scope("default", "ada", key=key.id)
        talk = await store.scoped(scope).conversation()
        await talk.generate("hello")
        with pytest.raises(BudgetExceeded) as refused:
            await talk.generate("hello")
        assert refused.value.kind == "key"
        without = await store.scoped(Scope.of("default", "ada")).get(talk.id)
        await without.generate("from elsewhere")


async def test_storage_and_conversations_are_limited_and_deletion_makes_room(database_url: str, tmp_path: Path) -> None:
    limits: Any = {"user": {"storage_bytes": 1_000, "conversations": 2}}
    async with palaver.open(database_url, user="ada", budgets=limits, files=tmp_path / "files") as store:
        components_of(store).budgets.remeasure_seconds = 0.0
        talk = await store.conversation("one")
        await store.conversation("one")  # the same one
        await store.conversation("two")
        with pytest.raises(StorageBudgetExceeded, match="2 conversations"):
            await store.conversation("three")
        first = await talk.append("user", "x" * 600)
        with pytest.raises(StorageBudgetExceeded) as refused:
            await talk.append("user", "y" * 600)
        assert (refused.value.measure, refused.value.limit) == ("bytes", 1_000)
        with pytest.raises(StorageBudgetExceeded):
            await talk.attach(b"z" * 600, filename="z.txt")
        await talk.append("assistant", "w" * 600)  # an answer that was paid for
        await talk.forget(first)
        await talk.attach(b"z" * 300, filename="z.txt")
        lines = {line.measure: line.used for line in await store.budgets()}
        assert lines == {"bytes": 900, "conversations": 2}


async def test_background_work_counts_and_falls_back_to_rules(database_url: str) -> None:
    model = ScriptedModel(["A title"] * 10)
    limits: Any = {"user": {"requests_per_day": 2}}
    options: Any = {"model": "m", "models": {"m": model}, "budgets": limits, "embedder": "none", "worker": False}
    async with palaver.open(database_url, user="ada", **options) as store:
        talk = await store.conversation()
        await talk.generate("Which trains go to Lisbon?")
        await store.settle()  # the title is a call, too
        assert used(await store.budgets()) == {"user requests day": 2}
        for n in range(6):
            await talk.append("user", f"Day {n}: I live in Lisbon and like trains very much indeed.")
        await talk.compact(keep_tokens=20)
        summaries = await talk.summaries()
        assert {"budget used up" in one.model for one in summaries} == {True}
        assert len(model.calls) == 2


async def test_an_erased_user_leaves_no_budget_behind(database_url: str) -> None:
    async with palaver.open(database_url, **one_of_each(9)) as store:
        await store.set_budget("user", "ada", requests_per_day=5)
        await (await store.scoped(Scope.of("default", "ada")).conversation()).generate("hello")
        await store.erase_user("ada")
        assert await engine_of(store).budgets("default") == []
        components_of(store).budgets.changed("default")
        assert await store.budgets(user="ada") == []


WORK = """
import asyncio, sys
import palaver
from palaver.errors import BudgetExceeded
from palaver.testing import ScriptedModel

async def main(url, callers):
    model = ScriptedModel(["fine"] * 1000)  # its script gets shorter with each answer
    limits = {"tenant": {"requests_per_day": 40, "tokens_per_day": 40_000}, "output_tokens": 500}
    options = {"model": "m", "models": {"m": model}, "budgets": limits, "embedder": "none", "worker": False}
    async with palaver.open(url, **options) as store:
        talks = [await store.scoped(palaver.Scope.of("default", f"user{n % 8}")).conversation() for n in range(callers)]
        done = await asyncio.gather(*(talk.generate("hello") for talk in talks), return_exceptions=True)
        refused = [one for one in done if isinstance(one, BudgetExceeded)]
        others = [one for one in done if isinstance(one, Exception) and not isinstance(one, BudgetExceeded)]
        print(1000 - len(model._script), len(refused), len(others))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


@pytest.mark.costly
async def test_two_processes_with_64_callers_never_exceed_a_budget(database_url: str) -> None:
    async with palaver.open(database_url):
        pass  # so that both find the schema
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", WORK, database_url, "32", stdout=asyncio.subprocess.PIPE
        )
        for _ in range(2)
    ]
    said = [(await child.communicate())[0].decode().split() for child in children]
    calls, refused, others = (sum(int(one[n]) for one in said) for n in range(3))
    assert others == 0
    assert 30 <= calls <= 40
    assert calls + refused == 64
    async with palaver.open(database_url, budgets={"tenant": {"requests_per_day": 40}}) as store:
        assert used(await store.budgets()) == {"tenant requests day": calls}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"users": {}}, "budgets.users"),
        ({"user": {"requests": 1}}, "budgets.user.requests"),
        ({"user": {"requests_per_day": -1}}, "budgets.user.requests_per_day"),
        ({"user": {"tokens_per_day": 1.5}}, "budgets.user.tokens_per_day"),
        ({"output_tokens": 0}, "budgets.output_tokens"),
        ([], "budgets"),
    ],
)
def test_bad_options_are_named(given: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        clean_options(given)
    assert refused.value.field == field
