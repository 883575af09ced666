"""The worker: leases, retries, what is put aside and why, and that no work is lost or done twice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import Store
from palaver.conversations.internals import engine_of, worker_of
from palaver.memory.worker.jobs import JOBS
from palaver.memory.worker.loop import LEASE_SECONDS
from palaver.memory.worker.services import TRIES, JobServices
from palaver.memory.worker.throttle import BackgroundThrottle, CooperativePause
from palaver.ports.jobs import JOB_KINDS, Job
from palaver.testing import FakeClock, HashEmbedder
from palaver.testing.kit import eventually
from tests.support.memory import Gate, Watched, spans, talk_on, traces, url

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

SECRET = "zqvblxkmtrwp"
LEASE = round(LEASE_SECONDS * 1_000_000)


async def outbox(store: Store) -> list[dict[str, Any]]:
    return list((await store.stats()).storage["outbox"])


class Failing(HashEmbedder):
    """An embedder that fails `times` times, and quotes what it was given when it does."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times, self.calls = times, 0

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.calls += 1
        if self.calls <= self.times:
            raise KeyError(f"cannot embed {texts}")
        return await super().embed(texts)


# ---- leases --------------------------------------------------------------------------------------------------------


async def test_the_job_of_a_worker_that_died_is_taken_over_when_its_lease_ends(tmp_path: Path) -> None:
    clock = FakeClock()
    async with palaver.open(url(tmp_path), embedder=None, worker=False, clock=clock) as store:
        talk = await store.conversation()
        await talk_on(talk, 60)
        await engine_of(store).index_all()
        taken = [await engine_of(store).claim_job(LEASE) for _ in range(2)]
        assert {job.kind for job in taken if job} == {"embed", "compact"}
        assert await engine_of(store).claim_job(LEASE) is None, "others have to wait"
        clock.advance(LEASE / 1_000_000 - 1)
        assert not await worker_of(store).run_one()
        clock.advance(1)
        await store.settle()
        assert spans(await talk.summaries()) == [(0, 25)]
        assert await outbox(store) == []


async def test_after_a_kill_the_next_worker_waits_no_longer_than_the_lease_that_was_configured(tmp_path: Path) -> None:
    clock, gate = FakeClock(), Gate()
    options: Any = {"embedder": None, "summarizer": gate, "worker": False, "clock": clock, "stream_lease": 5}
    async with palaver.open(url(tmp_path), **options) as store:
        await talk_on(await store.conversation(), 60)
        await engine_of(store).index_all()
        dying = asyncio.create_task(worker_of(store).drain())
        await gate.asked.wait()
        clock.advance(4)
        assert await engine_of(store).claim_job(1, None, ["compact"]) is None
        clock.advance(1)
        assert await engine_of(store).claim_job(1, None, ["compact"]) is not None
        dying.cancel()
        await asyncio.wait([dying])


async def test_a_worker_that_was_thought_dead_undoes_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    async with palaver.open(url(tmp_path), embedder=None, worker=False, clock=clock) as store:
        talk = await store.conversation()
        await talk.append("user", "Hello.")
        await engine_of(store).index_all()
        slow = await engine_of(store).claim_job(LEASE)
        assert slow is not None
        clock.advance(LEASE / 1_000_000)
        quick = await engine_of(store).claim_job(LEASE)
        assert quick is not None
        assert quick.id == slow.id
        await engine_of(store).finish_job(slow)
        await engine_of(store).retry_job(slow, 0, "Late", dead=True)
        await engine_of(store).release_job(slow)
        assert await engine_of(store).claim_job(LEASE) is None, "it is still the quick one's"
        await worker_of(store).embed()
        await engine_of(store).finish_job(quick)
        assert await outbox(store) == []


async def test_a_worker_that_is_stopped_hands_its_job_back_at_once(tmp_path: Path) -> None:
    gate = Gate()
    async with palaver.open(url(tmp_path), embedder=None, summarizer=gate) as store:
        talk = await store.conversation("t")
        await talk_on(talk, 60)
        await gate.asked.wait()
    async with palaver.open(url(tmp_path), embedder=None, worker=False) as store:
        assert all(job["attempts"] == 0 for job in await outbox(store))
        await store.settle()  # would wait for two minutes otherwise
        assert spans(await (await store.conversation("t")).summaries()) == [(0, 25)]


async def test_a_job_that_is_claimed_while_the_worker_stops_taking_jobs_is_handed_back(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=None, worker=False) as store:
        await (await store.conversation()).append("user", "Hello.")
        await engine_of(store).index_all()
        running = asyncio.create_task(worker_of(store).run_one())
        await asyncio.sleep(0)  # now the claim is under way
        worker_of(store).jobs = {}  # as a server does when it begins to close
        assert not await running
        again = await engine_of(store).claim_job(LEASE)
        assert again is not None, "the next worker need not wait"
        assert again.attempts == 1, "the attempt does not count"


async def test_a_clock_that_is_set_back_holds_nothing_up(tmp_path: Path) -> None:
    clock = FakeClock()
    async with palaver.open(url(tmp_path), embedder=None, worker=False, clock=clock) as store:
        talk = await store.conversation()
        await talk_on(talk, 60)
        await engine_of(store).index_all()
        assert await engine_of(store).claim_job(LEASE)  # by a worker that dies
        clock.advance(-30 * 86_400)
        await store.settle()
        assert spans(await talk.summaries()) == [(0, 25)]
        await talk_on(talk, 60)
        await store.settle()
        assert len(spans(await talk.summaries())) > 1
        await talk.verify()


# ---- no work is lost -----------------------------------------------------------------------------------------------


async def test_what_is_asked_for_while_a_job_is_being_done_is_done_as_well(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=HashEmbedder(), worker=False) as store:
        talk = await store.conversation()
        await talk.append("user", "The first.")
        await engine_of(store).index_all()
        job = await engine_of(store).claim_job(LEASE)
        assert job is not None
        await worker_of(store).embed()
        await talk.append("user", "The second, which comes before the first is reported done.")
        await engine_of(store).index_all()
        await engine_of(store).finish_job(job)
        assert [one["kind"] for one in await outbox(store)] == ["embed"]
        await store.settle()
        assert await engine_of(store).embedding_backlog("hash-32") == 0


async def test_an_edit_while_a_span_is_being_rebuilt_is_not_missed(tmp_path: Path) -> None:
    gate = Gate()
    async with palaver.open(url(tmp_path), embedder=None, summarizer=gate) as store:
        talk = await store.conversation()
        gate.open.set()
        turns = await talk_on(talk, 60)
        await store.settle()
        gate.asked.clear()
        gate.open.clear()
        await talk.append("user", "first edit", replaces=turns[3])
        await gate.asked.wait()
        await talk.append("assistant", "second edit", replaces=turns[57])  # elsewhere, but the thread has changed
        gate.open.set()
        await store.settle()
        (summary,) = await talk.summaries()
        assert "first edit" in summary.text


@pytest.mark.costly
async def test_two_workers_on_one_file_do_each_job_once(tmp_path: Path) -> None:
    one, two = Watched(), Watched()
    async with (
        palaver.open(url(tmp_path), embedder=HashEmbedder(), summarizer=one) as first,
        palaver.open(url(tmp_path), embedder=HashEmbedder(), summarizer=two) as second,
    ):
        talks = [await first.conversation(f"c{n}") for n in range(8)]
        await asyncio.gather(*(talk_on(talk, 130) for talk in talks))
        await asyncio.gather(first.settle(), second.settle())
        written = [spans(await talk.summaries()) for talk in talks]
        assert len(one.read) + len(two.read) == sum(map(len, written))
        for talk in talks:
            (row,) = await engine_of(first).vectors(
                first.scope, palaver.ports.RecallScope(conversation=talk.id), "hash-32", {}
            )
            assert len({tid for _, tid, _ in row.rows}) == len(row.rows) == 130
        assert await outbox(first) == []


async def test_embedding_the_same_passages_twice_stores_them_once(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=HashEmbedder(), worker=False) as store:
        talk = await store.conversation()
        await talk_on(talk, 100)
        await engine_of(store).index_all()
        await asyncio.gather(*(worker_of(store).embed() for _ in range(4)))
        (row,) = await engine_of(store).vectors(
            store.scope, palaver.ports.RecallScope(conversation=talk.id), "hash-32", {}
        )
        assert len(row.rows) == 100


# ---- failures ------------------------------------------------------------------------------------------------------


async def test_a_job_that_fails_is_tried_again_later_and_later(tmp_path: Path) -> None:
    clock, embedder = FakeClock(), Failing(3)
    async with palaver.open(url(tmp_path), embedder=embedder, worker=False, clock=clock) as store:
        talk = await store.conversation()
        await talk.append("user", "Hello.")
        await engine_of(store).index_all()
        for delay in (1, 2, 4):
            assert await worker_of(store).run_one()
            clock.advance(delay - 0.01)
            assert not await worker_of(store).run_one(), "not yet"
            clock.advance(0.01)
        await store.settle()
        assert embedder.calls == 4
        assert await outbox(store) == []


async def test_after_the_last_try_it_is_put_aside_with_the_type_of_its_error_and_nothing_else(tmp_path: Path) -> None:
    clock, embedder = FakeClock(), Failing(TRIES + 1)
    async with palaver.open(url(tmp_path), embedder=embedder, worker=False, clock=clock) as store:
        talk = await store.conversation()
        turn = await talk.append("user", f"Something about {SECRET}.")
        await engine_of(store).index_all()
        for _ in range(TRIES):
            clock.advance(100)
            assert await worker_of(store).run_one()
        assert embedder.calls == TRIES
        (job,) = await outbox(store)
        assert (job["kind"], job["dead"], job["error"]) == ("embed", True, "KeyError")
        await store.settle()  # nobody waits for it
        assert SECRET not in str(job)
        await talk.forget(turn)
        assert traces(tmp_path, SECRET) == []

        # New work gives it another chance, and one failure puts it aside again.
        await talk.append("user", "Something else.")
        await engine_of(store).index_all()
        clock.advance(100)
        assert await worker_of(store).run_one()
        assert (await outbox(store))[0]["dead"]
        await talk.append("user", "And something more.")
        clock.advance(100)
        await store.settle()
        assert await outbox(store) == []
        assert await engine_of(store).embedding_backlog(embedder.name) == 0


async def test_a_job_of_a_conversation_that_is_gone_is_dropped(tmp_path: Path) -> None:
    gate = Gate()
    async with palaver.open(url(tmp_path), embedder=None, summarizer=gate) as store:
        talk = await store.conversation()
        await talk_on(talk, 60)
        await gate.asked.wait()
        await talk.forget()
        gate.open.set()
        await store.settle()
        assert await outbox(store) == []


async def test_a_job_of_a_kind_that_this_version_does_not_know_is_left_for_one_that_does(tmp_path: Path) -> None:
    """During an upgrade, workers of two versions share a queue."""
    ran: list[str] = []

    async def reindex(_: JobServices, job: Job, __: bool) -> None:
        ran.append(job.kind)

    async with palaver.open(url(tmp_path), embedder=None, worker=False) as store:
        talk = await store.conversation()
        await store.settle()
        await engine_of(store).add_job(store.scope, talk.id, "reindex_v9", None)
        worker = worker_of(store)
        async with asyncio.timeout(60):  # settle would wait for ever for a job that nobody here can run
            await store.settle()
        assert not await worker.run_one()
        assert await worker.next_due() is None, "so that the worker does not spin"
        (job,) = await outbox(store)
        assert (job["kind"], job["attempts"], job["dead"]) == ("reindex_v9", 0, False)
        health = await engine_of(store).health()
        assert (health.waiting, health.lag) == (1, 0.0), "it waits, but nobody here is behind with it"

        await talk_on(talk, 60)
        await store.settle()
        assert spans(await talk.summaries()) == [(0, 25)], "it holds up no other job"

        newer = replace(worker, jobs={**JOBS, "reindex_v9": reindex})
        await newer.drain()
        assert ran == ["reindex_v9"]
        assert await outbox(store) == []


def test_every_kind_of_job_that_engines_hand_out_has_a_handler() -> None:
    assert set(JOB_KINDS) == set(JOBS)


async def test_settle_waits_for_what_another_worker_has_in_hand(tmp_path: Path) -> None:
    gate = Gate()
    async with (
        palaver.open(url(tmp_path), embedder=None, summarizer=gate) as busy,
        palaver.open(url(tmp_path), embedder=None, worker=False) as waiting,
    ):
        talk = await busy.conversation("t")
        await talk_on(talk, 60)
        await gate.asked.wait()
        settled = asyncio.create_task(waiting.settle())
        looks = [await outbox(waiting) for _ in range(5)]  # time enough for a settle that does not wait
        assert all(look[0]["attempts"] for look in looks)
        assert not settled.done()
        gate.open.set()
        await settled
        assert spans(await (await waiting.conversation("t")).summaries()) == [(0, 25)]


async def test_the_worker_works_by_itself(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=HashEmbedder()) as store:
        talk = await store.conversation()
        await talk_on(talk, 60)
        async for event in talk.subscribe():
            if event.kind == "remember":
                break
        assert spans(await talk.summaries()) == [(0, 25)]


# ---- giving way ----------------------------------------------------------------------------------------------------


async def test_between_two_summaries_the_worker_lets_writers_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with palaver.open(url(tmp_path), embedder=None, worker=False) as store:
        talk = await store.conversation()
        await talk_on(talk, 150)
        await engine_of(store).index_all()
        worker, written = worker_of(store), []

        async def give_way(_: BackgroundThrottle) -> None:
            written.append(len(await talk.summaries()))

        monkeypatch.setattr(BackgroundThrottle, "let_writers_go_first", give_way)
        while await worker.run_one(give_way=True):
            pass
        level_0 = spans(await talk.summaries())
        assert len(level_0) > 2
        assert len(set(written)) >= len(level_0), "it waited after each"


@pytest.mark.costly
async def test_memory_work_goes_on_during_constant_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for pauses, but not for ever: the patience here is longer than the test."""
    async with palaver.open(url(tmp_path), embedder=None, worker=False) as store:
        throttle = worker_of(store).throttle
        throttle.patience_seconds, throttle.pressing_seconds = 3_600.0, 0.0
        monkeypatch.setattr(type(engine_of(store)), "quiet_seconds", lambda _: 0.0)
        talk = await store.conversation()
        await talk_on(talk, 300)
        await engine_of(store).index_all()
        background = asyncio.create_task(worker_of(store).run())
        try:
            async with asyncio.timeout(120):
                while await outbox(store):  # noqa: ASYNC110  # jobs come and go in the database
                    await asyncio.sleep(0.05)
        finally:
            background.cancel()
        assert len(spans(await talk.summaries())) > 5


def test_work_beside_others_rests_as_long_as_it_worked() -> None:
    now, slept = [0.0], []
    pause = CooperativePause(clock=lambda: now[0], sleep=slept.append)
    for step in (0.0004, 0.0004, 0.0004, 0.004, 0.0001, 5.0):
        now[0] += step
        pause()
    assert slept == [pytest.approx(0.0012), pytest.approx(0.004), pytest.approx(0.01)], "and never for long"


@pytest.mark.costly
async def test_who_waits_for_all_of_it_does_not_wait_for_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with palaver.open(url(tmp_path), embedder=None) as store:
        worker_of(store).throttle.patience_seconds = 3_600.0
        quiet = [1.0]
        monkeypatch.setattr(type(engine_of(store)), "quiet_seconds", lambda _: quiet[0])
        talk = await store.conversation()
        await talk_on(talk, 1_000)
        async with asyncio.timeout(120):
            while not await talk.summaries():  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            quiet[0] = 0.0  # in the middle of a job: the rest of it waits for a pause that never comes
            await store.settle()
        assert len(spans(await talk.summaries())) > 30


async def test_the_worker_pauses_in_the_background_alone(tmp_path: Path) -> None:
    pauses: list[int] = []

    def make_pause() -> Callable[[], None]:
        return lambda: pauses.append(1)

    async with palaver.open(url(tmp_path), embedder=None, worker=False) as store:
        worker_of(store).throttle.make_pause = make_pause
        talk = await store.conversation()
        await talk_on(talk, 60)
        await store.settle()
        assert not pauses, "who waits for it wants it done"
    async with palaver.open(url(tmp_path), embedder=None) as store:
        worker_of(store).throttle.make_pause = make_pause
        await talk_on(await store.conversation("another"), 60)
        async with asyncio.timeout(120):
            while len(pauses) < 60:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


# ---- a disk that is full for a while -------------------------------------------------------------------------------


def full_once(store: Store, name: str, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """The engine's method fails once. The event says when it did."""
    method, failed = getattr(engine_of(store), name), asyncio.Event()

    async def fail_once(*arguments: Any) -> Any:
        if not failed.is_set():
            failed.set()
            raise palaver.DatabaseFull("no space left")
        return await method(*arguments)

    monkeypatch.setattr(engine_of(store), name, fail_once)
    return failed


async def test_memory_work_goes_on_after_the_disk_was_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = Failing(0)
    async with palaver.open(url(tmp_path), embedder=embedder) as store:
        failed = full_once(store, "next_job", monkeypatch)
        talk = await store.conversation()
        await talk.append("user", "hello")
        await failed.wait()
        await talk.append("user", "hello again")

        async def it_has_begun() -> bool:
            return embedder.calls > 0

        await eventually(it_has_begun)


async def test_dead_streams_are_sealed_after_the_disk_was_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with palaver.open(url(tmp_path), embedder=None, worker=False, stream_lease=0.1) as store:
        failed = full_once(store, "next_lease_end", monkeypatch)
        talk = await store.conversation()
        turn = await talk.append_open("assistant")
        await failed.wait()

        async def it_is_sealed() -> bool:
            return (await talk.turn(turn)).status == "aborted"

        await eventually(it_is_sealed)


async def test_sweeping_goes_on_after_the_disk_was_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with palaver.open(url(tmp_path), embedder=None, worker=False, sweep_every=0.05) as store:
        failed = full_once(store, "expire", monkeypatch)
        talk = await store.conversation(ttl=0.01)
        await failed.wait()

        async def it_is_gone() -> bool:
            return (await store.audit(talk.id))[-1].kind == "expire"

        await eventually(it_is_gone)


@pytest.mark.parametrize("name", ["claim_job", "release_job"])
async def test_a_store_closes_while_the_disk_is_full(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes instead of the cancellation, and must not be treated as a temporary one."""
    asked, closing, gate = asyncio.Event(), asyncio.Event(), Gate()

    async def fail(*_arguments: Any) -> Any:
        asked.set()
        if name == "claim_job":
            await closing.wait()
        raise palaver.DatabaseFull("no space left")

    async with asyncio.timeout(60), palaver.open(url(tmp_path), embedder=None, summarizer=gate) as store:
        monkeypatch.setattr(engine_of(store), name, fail)
        await talk_on(await store.conversation(), 60)
        await (asked if name == "claim_job" else gate.asked).wait()
        asyncio.get_running_loop().call_later(0.1, closing.set)
