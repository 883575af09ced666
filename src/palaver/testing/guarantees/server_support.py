"""The engine's support for a server: keys and their log, stops, the event number to follow from, usage, seals."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from palaver.audit.seals import check_seals, check_tip, seal_everything
from palaver.conversations.api_keys import check_key_log, create_key, hash_of, key_log, list_keys, revoke_key
from palaver.conversations.internals import engine_of
from palaver.errors import InvalidInput, PermissionDenied, TurnNotFound, VerificationFailed
from palaver.model import ADMIN, READ, WRITE, Right, Scope
from palaver.testing.fakes import FakeClock
from palaver.testing.kit import Database, guarantee, refused

KEY = b"a key that is kept elsewhere"
NOW = datetime(2026, 11, 15, tzinfo=UTC)


@guarantee
async def a_key_is_found_by_its_hash_in_its_own_tenant(db: Database) -> None:
    """A key is found inside the tenant that it names, with the scope it was given, and nowhere else."""
    async with db.open() as store:
        rights: frozenset[Right] = frozenset({READ})
        secret, made = await create_key(store, "phone", user="ada", rights=rights, days=1)
        found = await engine_of(store).api_key(store.scope.tenant, hash_of(secret))
        assert found == made
        assert found is not None
        assert found.scope == Scope(store.scope.tenant, "ada", rights, "own", None)
        assert await engine_of(store).api_key("another", hash_of(secret)) is None
        assert await engine_of(store).api_key(store.scope.tenant, hash_of(secret + "x")) is None
        assert await list_keys(store) == [made]
        assert await engine_of(store).has_key()


@guarantee
async def a_key_ends_when_its_time_is_over_or_it_is_revoked(db: Database) -> None:
    """A key works until its end or until it is revoked; revoking it twice changes nothing."""
    clock = FakeClock()
    async with db.open(clock=clock) as store:
        _, short = await create_key(store, "short", user="ada", days=1)
        assert short.works(clock.now())
        clock.advance(2 * 86_400)
        assert not short.works(clock.now())
        _, long = await create_key(store, "long", user="ada")
        revoked = await revoke_key(store, long.id)
        assert not revoked.works(clock.now())
        assert await revoke_key(store, long.id) == revoked
        assert not await engine_of(store).has_key()
        async with refused(InvalidInput, field="id"):
            await revoke_key(store, "0" * 12)


@guarantee
async def the_log_of_keys_is_chained(db: Database) -> None:
    """Creating, using and revoking keys at the same time leaves a log without gaps that can be checked."""
    async with db.open() as store:
        made = await asyncio.gather(*(create_key(store, f"key {n}", user="ada") for n in range(5)))
        used = Scope(store.scope.tenant, "ada", frozenset({READ}), "own", None)
        await asyncio.gather(*(engine_of(store).log_key(used, "use", key.id, {"address": "::1"}) for _, key in made))
        await revoke_key(store, made[0][1].id)
        assert await check_key_log(store) == 11
        log = await key_log(store)
        assert [event.n for event in log] == list(range(1, 12))
        assert (log[-1].kind, log[-1].turn) == ("revoke", made[0][1].id)
        async with refused(PermissionDenied):
            await key_log(store.scoped(used))


@guarantee
async def a_stop_is_an_event(db: Database) -> None:
    """A request to stop is in the log, names who asked, changes nothing else, and the log still verifies."""
    async with db.open() as store:
        talk = await store.conversation("k", owner="ada")
        turn = await talk.append("user", "x")
        number = await (await store.scoped(Scope.of(store.scope.tenant, "ada")).get(talk.id)).ask_to_stop(turn)
        last = (await talk.audit())[-1]
        assert (last.n, last.kind, last.turn, last.actor) == (number, "stop", turn.id, "ada")
        assert (await talk.refresh()).turn_count == 1
        await talk.verify()
        async with refused(TurnNotFound):
            await talk.ask_to_stop("0" * 26)
        async with refused(PermissionDenied):
            await (await store.scoped(Scope(store.scope.tenant, "ada", frozenset({READ}))).get(talk.id)).ask_to_stop()


@guarantee
async def a_conversation_knows_its_last_event(db: Database) -> None:
    """Every way to read a conversation says how far its log goes."""
    async with db.open() as store:
        talk = await store.conversation("k")
        await talk.append_many([{"role": "user", "content": "x"}] * 3)
        last = (await talk.audit())[-1].n
        assert (await talk.refresh()).last_event == last
        assert (await store.get(talk.id)).info.last_event == last
        assert (await store.conversations()).items[0].last_event == last


@guarantee
async def tokens_are_added_up_by_day_owner_and_model(db: Database) -> None:
    """Usage is what turns report, by day in UTC, owner and model, inside what the scope may see."""
    async with db.open() as store:
        for owner in ("ada", "bob"):
            talk = await store.conversation("k", owner=owner)
            for hour in (1, 23):
                said = datetime(2026, 1, 2, hour, tzinfo=UTC)
                await talk.append("assistant", "x", tokens={"prompt": 10, "completion": 2}, model="m", created=said)
            await talk.append("assistant", "x", tokens={"prompt": 1}, created=datetime(2026, 1, 3, tzinfo=UTC))
            await talk.append("user", "not counted")
        found = [(one.day, one.user, one.model, one.calls, one.prompt, one.completion) for one in await store.usage()]
        assert found == [
            ("2026-01-03", "ada", "", 1, 1, 0), ("2026-01-03", "bob", "", 1, 1, 0),
            ("2026-01-02", "ada", "m", 2, 20, 4), ("2026-01-02", "bob", "m", 2, 20, 4),
        ]  # fmt: skip
        own = store.scoped(Scope(store.scope.tenant, "ada", frozenset({READ, WRITE})))
        assert {one.user for one in await own.usage()} == {"ada"}
        assert await own.usage(since=datetime(2026, 1, 4, tzinfo=UTC)) == []
        assert len(await own.usage(until=datetime(2026, 1, 3, tzinfo=UTC))) == 1


@guarantee
async def every_log_that_grew_is_sealed_once(db: Database) -> None:
    """Sealing covers the end of each log of every tenant that has grown since, and the seals can be checked."""
    async with db.open() as store:
        other = store.scoped(Scope.of("another", None))
        talks = [await one.conversation("k") for one in (store, other)]
        assert await seal_everything(engine_of(store), KEY, NOW) == 2
        assert await seal_everything(engine_of(store), KEY, NOW) == 0
        await talks[0].append("user", "x")
        await talks[0].forget()
        assert await seal_everything(engine_of(store), KEY, NOW) == 1
        assert await check_seals(engine_of(store), KEY, store.scope, talks[0].id) == 2
        async with refused(VerificationFailed):
            await check_seals(engine_of(store), KEY[::-1], store.scope, talks[0].id)
        (tip,) = await engine_of(store).tips(store.scope, "", 10)
        assert (tip.conversation, tip.n) == (talks[0].id, 3)
        await check_tip(engine_of(store), store.scope, tip)
        assert await engine_of(store).tips(store.scope, tip.conversation, 10) == []


@guarantee
async def work_that_waits_is_counted_and_so_is_how_long_it_has(db: Database) -> None:
    """The health of a database has the number of waiting jobs of all tenants, and when the oldest one became due."""
    clock = FakeClock()
    async with db.open(clock=clock, worker=False) as store:
        found = await engine_of(store).health()
        assert found.schema == found.schema_known
        assert (found.waiting, found.put_aside, found.lag) == (0, 0, 0.0)
        talk = await store.conversation("waiting")
        await talk.append("user", "first")
        await engine_of(store).index_all()
        clock.advance(60)
        found = await engine_of(store).health()
        assert found.waiting >= 1
        assert 60 <= found.lag < 70
        assert (await engine_of(store).health(("files",))).lag == 0.0, "no job of this kind waits"
        job = await engine_of(store).claim_job(120_000_000)
        assert job is not None
        assert (await engine_of(store).health()).lag == 0.0, "a worker has claimed it"
        await talk.append("user", "meanwhile")
        await engine_of(store).index_all()
        await engine_of(store).finish_job(job)
        assert (await engine_of(store).health()).lag < 10, "it goes to the end of the queue"
        await store.settle()
        assert (await engine_of(store).health()).waiting == 0


@guarantee
async def a_key_sees_what_it_owns(db: Database) -> None:
    """A key without a user sees the conversations of its tenant, its own included; `own` without a user is refused."""
    async with db.open(tenant="acme") as store:
        _, key = await create_key(store, "backend", rights=frozenset({READ, WRITE, ADMIN}))
        assert key.scope.visibility == "tenant"
        async with refused(InvalidInput, field="visibility"):
            await create_key(store, "nobody", visibility="own")
        talk = await store.scoped(key.scope).conversation("k")
        assert [one.id for one in (await store.scoped(key.scope).conversations()).items] == [talk.id]
