"""Many writers, one thread: no gap, no double, no "database is locked"."""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import Conversation, Event
from palaver.conversations.internals import engine_of

PROCESSES, APPENDS = 4, 250
TASKS, TASK_APPENDS = 8, 250

# Each waits for a line on its input, so that all of them start at the same moment.
APPENDER = """
import asyncio, sys, palaver
async def main(url, name, count):
    async with palaver.open(url, tenant="acme", embedder=None) as store:
        talk = await store.conversation("shared")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for n in range(int(count)):
            turn = await talk.append("user", f"{name} {n}", actor=name)
            print(turn.seq, flush=True)
asyncio.run(main(*sys.argv[1:]))
"""

SAME_KEY = """
import asyncio, sys, palaver
async def main(url):
    async with palaver.open(url, tenant="acme", embedder=None) as store:
        talk = await store.conversation("shared")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for n in range(20):
            tries = [talk.append("user", f"once {n}", idempotency_key=f"key {n}") for _ in range(4)]
            for turn in await asyncio.gather(*tries):
                print(n, turn.id, flush=True)
asyncio.run(main(*sys.argv[1:]))
"""

# It opens one file after another, each when it gets a line.
OPENER = """
import asyncio, sys, palaver
async def main(urls):
    print("ready", flush=True)
    for url in urls:
        await asyncio.to_thread(sys.stdin.readline)
        async with palaver.open(url, tenant="acme", embedder=None) as store:
            talk = await store.conversation("shared")
            print((await talk.append("user", "hello")).seq, flush=True)
asyncio.run(main(sys.argv[1:]))
"""


async def start(script: str, arguments: list[list[str]]) -> list[asyncio.subprocess.Process]:
    """Start one process per list of arguments, and wait until all of them wait for a line."""
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
    started = [asyncio.create_subprocess_exec(sys.executable, "-c", script, *args, **pipes) for args in arguments]
    processes = await asyncio.gather(*started)
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n", await process.communicate()
    return processes


async def finish(processes: list[asyncio.subprocess.Process]) -> list[list[str]]:
    """Send each process a line, and return the lines that it prints until it ends."""
    outputs = await asyncio.gather(*(process.communicate(b"\n") for process in processes))
    for process, (_, problem) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, problem.decode()
    return [lines.decode().splitlines() for lines, _ in outputs]


async def together(script: str, arguments: list[list[str]]) -> list[list[str]]:
    """Run one process per list of arguments, all at once, and return the lines that each printed."""
    return await finish(await start(script, arguments))


def url(folder: Path) -> str:
    return f"sqlite:///{folder}/shared.db"


async def whole_log(talk: Conversation) -> list[Event]:
    return await talk.audit(limit=100_000)


async def check(talk: Conversation, turns: int) -> None:
    """Gap-free numbers, in one order everywhere, and proven."""
    stored = await talk.history(100_000)
    assert [turn.seq for turn in stored] == list(range(turns))
    assert [turn.position for turn in stored] == list(range(turns))
    assert len({turn.id for turn in stored}) == turns
    assert len({turn.text for turn in stored}) == turns
    moments = [turn.created for turn in stored]
    assert all(one < two for one, two in pairwise(moments))
    log = await whole_log(talk)
    assert [event.n for event in log] == list(range(1, len(log) + 1))
    assert [event.turn for event in log if event.kind == "append"] == [turn.id for turn in stored]
    assert (await talk.verify()).turns == turns


async def test_processes_appending_to_one_conversation_leave_no_gap_and_no_double(database_url: str) -> None:
    async with palaver.open(database_url, tenant="acme") as store:
        talk = await store.conversation("shared")
        arguments = [[database_url, f"p{n}", str(APPENDS)] for n in range(PROCESSES)]
        acknowledged = [int(seq) for lines in await together(APPENDER, arguments) for seq in lines]
        assert sorted(acknowledged) == list(range(PROCESSES * APPENDS))
        await check(talk, PROCESSES * APPENDS)
        for n in range(PROCESSES):
            mine = await talk.history(100_000, participants=[f"p{n}"])
            assert [turn.text for turn in mine] == [f"p{n} {i}" for i in range(APPENDS)], "each in its own order"


@pytest.mark.costly
async def test_tasks_appending_to_one_conversation_leave_no_gap_and_no_double(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), tenant="acme") as store:
        talk = await store.conversation("shared")

        async def writer(name: str) -> list[int]:
            return [(await talk.append("user", f"{name} {n}")).seq for n in range(TASK_APPENDS)]

        acknowledged = await asyncio.gather(*(writer(f"t{n}") for n in range(TASKS)))
        assert all(seqs == sorted(seqs) for seqs in acknowledged)
        await check(talk, TASKS * TASK_APPENDS)
        commits = (await store.stats()).storage["commits"]
        assert commits < TASKS * TASK_APPENDS / 2, "queued appends share commits"


async def test_two_stores_on_one_database_in_one_process_do_not_disturb_each_other(database_url: str) -> None:
    async with palaver.open(database_url, tenant="acme") as one, palaver.open(database_url, tenant="acme") as two:
        talks = [await one.conversation("shared"), await two.conversation("shared")]
        assert talks[0].id == talks[1].id

        async def writer(name: int) -> None:
            for n in range(100):
                await talks[name % 2].append("user", f"{name} {n}")

        await asyncio.gather(*(writer(name) for name in range(4)))
        await check(talks[0], 400)


async def test_the_same_key_from_many_processes_and_tasks_stores_once(database_url: str) -> None:
    async with palaver.open(database_url, tenant="acme") as store:
        talk = await store.conversation("shared")
        answers = [line.split() for lines in await together(SAME_KEY, [[database_url]] * 3) for line in lines]
        assert len(answers) == 3 * 20 * 4
        assert len({(n, id) for n, id in answers}) == 20, "every try got the first result"
        stored = await talk.history(1_000)
        assert sorted(turn.id for turn in stored) == sorted({id for _, id in answers})
        await talk.verify()


async def test_a_retry_while_the_first_try_is_in_flight_gets_its_result(database_url: str) -> None:
    async with palaver.open(database_url, tenant="acme") as store:
        talk = await store.conversation("shared")
        turns = await asyncio.gather(*(talk.append("user", "once", idempotency_key="k") for _ in range(50)))
        assert len({turn.id for turn in turns}) == 1
        assert [event.kind for event in await whole_log(talk)].count("append") == 1


async def test_a_cancelled_append_is_stored_wholly_or_not_at_all(database_url: str) -> None:
    async with palaver.open(database_url, tenant="acme") as store:
        talk = await store.conversation("shared")
        tasks = [asyncio.create_task(talk.append("user", f"text {n}")) for n in range(50)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        acknowledged = {turn.id for turn in results if isinstance(turn, palaver.Turn)}
        stored = await talk.history(1_000)
        assert acknowledged <= {turn.id for turn in stored}
        assert [turn.seq for turn in stored] == list(range(len(stored)))
        await talk.verify()


@pytest.mark.parametrize(("verb", "status"), [("stream_open", "aborted"), ("stream_commit", "complete")])
async def test_a_stream_that_is_cancelled_at_its_start_or_end_is_not_left_pending(
    database_url: str, monkeypatch: pytest.MonkeyPatch, verb: str, status: str
) -> None:
    async with palaver.open(database_url, tenant="acme") as store:
        talk = await store.conversation("shared")
        real, under_way, go_on = getattr(engine_of(store), verb), asyncio.Event(), asyncio.Event()

        async def slowly(*arguments: Any, **fields: Any) -> palaver.Turn:
            opened = await real(*arguments, **fields) if verb == "stream_open" else None
            under_way.set()
            await go_on.wait()
            return opened or await real(*arguments, **fields)

        async def write() -> None:
            async with talk.stream() as out:
                await out.write("All of it.")

        monkeypatch.setattr(engine_of(store), verb, slowly)
        writing = asyncio.create_task(write())
        await under_way.wait()
        writing.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert [turn.status for turn in await talk.history(include_superseded=True)] == [status]


async def test_processes_that_create_the_same_file_at_once_all_succeed(tmp_path: Path) -> None:
    """Three files one after another, by the same processes: to start them takes longest."""
    urls = [f"sqlite:///{tmp_path}/{n}.db" for n in range(3)]
    processes = await start(OPENER, [urls] * 5)
    for path in urls:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")
        answers = [await process.stdout.readline() for process in processes if process.stdout is not None]
        assert sorted(answers) == [b"0\n", b"1\n", b"2\n", b"3\n", b"4\n"]
        async with palaver.open(path, tenant="acme") as store:
            assert (await store.stats()).conversations == 1
            await (await store.conversation("shared")).verify()
    await finish(processes)


@pytest.mark.costly
async def test_stores_that_create_the_same_file_at_once_all_succeed(tmp_path: Path) -> None:
    """Many more tries than processes can make: all in one process, each with threads of its own."""

    async def one(path: str) -> str:
        async with palaver.open(path, tenant="acme") as store:
            return (await store.conversation("shared")).id

    for n in range(20):
        ids = await asyncio.gather(*(one(f"sqlite:///{tmp_path}/{n}.db?synchronous=NORMAL") for _ in range(6)))
        assert len(set(ids)) == 1


async def test_one_failing_append_in_a_group_fails_alone(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), tenant="acme") as store:
        talk = await store.conversation("shared")
        first = await talk.append("user", "first", idempotency_key="k")
        before = (await store.stats()).storage["commits"]
        good = [talk.append("user", f"good {n}") for n in range(20)]
        bad = [
            talk.append("user", "x", expected_seq=999),
            talk.append("user", "x", replaces="0" * 26),
            talk.append("user", "other words", idempotency_key="k"),
            talk.append_many([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], expected_seq=999),
            talk.append_chunk(first, 0, "x"),
        ]
        mixed = [work for pair in zip(good, bad, strict=False) for work in pair] + good[len(bad) :]
        results = await asyncio.gather(*mixed, return_exceptions=True)
        failed = {type(result) for result in results if isinstance(result, Exception)}
        assert failed == {
            palaver.AppendConflict,
            palaver.TurnNotFound,
            palaver.IdempotencyConflict,
            palaver.StreamSealed,
        }
        assert sum(isinstance(result, palaver.Turn) for result in results) == 20
        assert (await store.stats()).storage["commits"] - before < 10, "they did share commits"
        texts = [turn.text for turn in await talk.history(1_000)]
        assert sorted(texts) == sorted(["first", *(f"good {n}" for n in range(20))])
        await talk.verify()


async def test_an_append_of_many_is_all_or_nothing_also_inside_a_group(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), tenant="acme") as store:
        talk = await store.conversation("shared")
        await talk.append("user", "taken", idempotency_key="k")
        many = [{"role": "user", "content": f"many {n}"} for n in range(5)]
        clash = [*many, {"role": "user", "content": "clash", "idempotency_key": "k"}]
        results = await asyncio.gather(
            *(talk.append("user", f"good {n}") for n in range(5)),
            talk.append_many(clash),
            *(talk.append("user", f"more {n}") for n in range(5)),
            return_exceptions=True,
        )
        assert isinstance(results[5], palaver.IdempotencyConflict)
        assert not any(turn.text.startswith("many") for turn in await talk.history(100))
        assert len(await talk.history(100)) == 11
        await talk.verify()
