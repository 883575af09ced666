"""Postgres: appends against plain inserts at the same commit setting, time to a subscriber, policies, contexts."""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import palaver
from bench import large
from bench.measure import Bench, Figure, Goal, Result, Skipped, in_turns
from bench.read import BATCH

sys.path.insert(0, str(Path(__file__).parent.parent))

CONNECTIONS = 16
TALKS = 1_000
BUDGET = 4_000
WAKES = 100
SPREAD = Goal(0.5)
SOON = Goal(10, at_least=False, of="value")
POLICIES = Goal(1.3, at_least=False)
NEAR_SQLITE = Goal(3, at_least=False)
RAW = "CREATE TABLE raw (id bigserial PRIMARY KEY, talk int NOT NULL, content text NOT NULL)"


class NoServer(Exception):
    """There is no Postgres to measure. The message has the reason."""


@dataclass(frozen=True, slots=True)
class Database:
    """A migrated database on a durable server of its own: the superuser's address, and the application's."""

    server: Any
    admin: str
    url: str


@asynccontextmanager
async def database() -> AsyncIterator[Database]:
    """Start a server with a migrated database. Raises NoServer."""
    try:
        from tests.support import postgres_server
    except ImportError as problem:
        raise NoServer(f"run from a clone ({problem})") from None
    try:
        server = postgres_server.start(postgres_server.DURABLE)
    except postgres_server.NoPostgres as reason:
        raise NoServer(str(reason)) from None
    try:
        admin = server.at(await postgres_server.new_database(server))
        await postgres_server.migrate_for_tests(admin)
        await postgres_server.execute(admin, RAW)
        yield Database(server, admin, postgres_server.as_application(admin))
    finally:
        postgres_server.remove(server)


async def run(bench: Bench) -> list[Result]:
    try:
        async with database() as made:
            return [
                *await _appends(bench, made.admin, made.url),
                await _wakes(bench, made.url),
                *await _contexts(bench, made.admin, made.url),
                await _policies(bench, made.admin, made.url),
                *await large.recalls(bench, made.server),
            ]
    except NoServer as reason:
        return [Skipped("postgres", str(reason))]


@asynccontextmanager
async def _pool(url: str) -> AsyncIterator[Any]:
    import asyncpg

    async with asyncpg.create_pool(url, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        yield pool


async def _appends(bench: Bench, admin: str, url: str) -> list[Result]:
    count = bench.sizes.slice * 4
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(_pool(admin))
        store = await stack.enter_async_context(palaver.open(url, embedder=None, worker=False))
        hot = [await store.conversation("hot")]
        many = await asyncio.gather(*(store.conversation(f"talk/{n}") for n in range(TALKS)))

        async def insert(n: int, text: str) -> None:
            await pool.execute("INSERT INTO raw (talk, content) VALUES ($1, $2)", n, text)

        def appended(talks: Sequence[palaver.Conversation]) -> Callable[[int, str], Awaitable[Any]]:
            return lambda n, text: talks[n % len(talks)].append("user", text)

        rounds = await in_turns(
            bench.sizes.slices,
            {
                "raw": lambda texts: _sixteen(texts, insert),
                "hot": lambda texts: _sixteen(texts, appended(hot)),
                "spread": lambda texts: _sixteen(texts, appended(many)),
            },
            material=lambda: bench.texts.messages(count),
        )
        for talk in (*hot, many[0]):
            await talk.verify()
    than = f"single-row INSERT, the same commit setting, {CONNECTIONS} connections"
    names = {"hot": ("1 hot conversation", None), "spread": (f"{TALKS:,} conversations", SPREAD)}
    return [
        rounds.speed(
            "postgres", f"appends, {what}, {CONNECTIONS} connections", count, name, "raw", than=than, goal=goal
        )
        for name, (what, goal) in names.items()
    ]


async def _sixteen(texts: Sequence[str], write: Callable[[int, str], Awaitable[Any]]) -> None:
    """Append from sixteen tasks, each with its own share."""

    async def share(first: int) -> None:
        for n in range(first, len(texts), CONNECTIONS):
            await write(n, texts[n])

    await asyncio.gather(*(share(first) for first in range(CONNECTIONS)))


async def _wakes(bench: Bench, url: str) -> Figure:
    """Measure the time from the return of an append in one store to its event in another, which is notified."""
    taken: list[float] = []
    async with palaver.open(url, embedder=None, worker=False) as here, palaver.open(url, worker=False) as there:
        talk = await here.conversation("watched")
        same = await there.get(talk.id)
        feed = same.subscribe(after=(await talk.audit())[-1].n)
        for text in bench.texts.messages(WAKES):
            heard = asyncio.create_task(anext(feed))
            await asyncio.sleep(0.02)  # it waits now
            await talk.append("user", text)
            start = time.perf_counter()
            await heard
            taken.append((time.perf_counter() - start) * 1_000)
        await feed.aclose()
    slow = statistics.quantiles(taken, n=20)[-1]
    return Figure(
        "postgres", "commit to subscriber, p50", statistics.median(taken), "ms", goal=SOON, note=f"p95 {slow:.1f} ms"
    )


async def _contexts(bench: Bench, admin: str, url: str) -> list[Result]:
    from tests.support import postgres_server

    turns = bench.sizes.histories[-1] if bench.sizes.histories[-1] <= 100_000 else 100_000
    urls = {"sqlite": bench.url("context.db", "NORMAL"), "postgres": url}
    async with AsyncExitStack() as stack:
        talks = {}
        for name, place in urls.items():
            store = await stack.enter_async_context(palaver.open(place, embedder=None, worker=False))
            talks[name] = await store.conversation("long", settings={"compaction": {"strategy": "never"}})
            for first in range(0, turns, BATCH):
                texts = bench.texts.messages(min(BATCH, turns - first))
                await talks[name].append_many({"role": "user", "content": text} for text in texts)
        await postgres_server.execute(admin, "ANALYZE")

        def builder(talk: palaver.Conversation, **options: Any) -> Any:
            async def build(_: object) -> None:
                for text in bench.texts.messages(bench.sizes.reads):
                    await talk.build_context(BUDGET, query=" ".join(text.split()[:8]), **options)

            return build

        plain = {name: builder(talk, semantic_recall=False) for name, talk in talks.items()}
        recall = {f"{name} recall": builder(talk) for name, talk in talks.items()}
        rounds = await in_turns(bench.sizes.slices, plain | recall)

    def figure(what: str, mark: str, goal: Goal | None) -> Figure:
        ours, theirs = f"postgres{mark}", f"sqlite{mark}"
        each = [rounds.seconds(name) / bench.sizes.reads * 1_000 for name in (ours, theirs)]
        paired = rounds.times(ours, theirs)
        return Figure(
            "postgres", f"build_context, {what}, {turns:,} turns", each[0], "ms", each[1], "SQLite", goal, paired=paired
        )

    return [figure("no recall", "", NEAR_SQLITE), figure("recall by words, warm", " recall", NEAR_SQLITE)]


async def _policies(bench: Bench, admin: str, url: str) -> Figure:
    """Measure the same appends with and without row level security, in turn."""
    from tests.support import postgres_server

    tables = "turns", "events", "conversations", "passages", "jobs"
    seconds: dict[str, list[float]] = {"ENABLE": [], "DISABLE": []}
    async with palaver.open(url, embedder=None, worker=False) as store:
        talks = await asyncio.gather(*(store.conversation(f"policy/{n}") for n in range(CONNECTIONS)))
        for round in range(-1, bench.sizes.slices):
            for switch in sorted(seconds, reverse=bool(round % 2)):
                statements = [f"ALTER TABLE palaver.{name} {switch} ROW LEVEL SECURITY" for name in tables]
                await postgres_server.execute(admin, *statements)
                texts = bench.texts.messages(bench.sizes.slice * 4)
                await _sixteen(
                    texts[:CONNECTIONS], lambda n, text: talks[n % CONNECTIONS].append("user", text)
                )  # plans
                start = time.perf_counter()
                await _sixteen(texts, lambda n, text: talks[n % CONNECTIONS].append("user", text))
                if round >= 0:
                    seconds[switch].append(time.perf_counter() - start)
    each = {switch: statistics.median(taken) / (bench.sizes.slice * 4) * 1_000 for switch, taken in seconds.items()}
    paired = statistics.median(on / off for on, off in zip(seconds["ENABLE"], seconds["DISABLE"], strict=True))
    what, than = "an append with row level security", "the same without"
    return Figure("postgres", what, each["ENABLE"], "ms", each["DISABLE"], than, POLICIES, paired=paired)
