"""Opening a store, and importing the library."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from contextlib import AsyncExitStack

import palaver
from bench.measure import Bench, Figure, Goal, Result, in_turns, timed
from bench.raw import Raw, connect
from bench.read import fill, fill_raw

# Nobody should wait for these who only says `import palaver`: the driver, the command line, and everything optional.
NOT_AT_IMPORT = (
    "apsw sqlite_vec typer click rich asyncpg supabase fastapi starlette uvicorn mcp jwt openai anthropic onnxruntime "
    "tokenizers numpy opentelemetry obstore structlog stamina pydantic httpx tiktoken regex requests"
).split()
IMPORT = (
    "import json, sys, time; start = time.perf_counter(); import {name}; taken = time.perf_counter() - start; "
    "print(json.dumps([taken, sorted({{module.partition('.')[0] for module in sys.modules}})]))"
)
TURNS = 1_000


async def run(bench: Bench) -> list[Result]:
    return [await _open_existing(bench), await _open_new(bench), *await _import(bench)]


async def _open_existing(bench: Bench) -> Figure:
    url, raw = bench.url("open.db"), Raw(bench.folder / "open-raw.db")
    async with palaver.open(url, embedder=None) as store:
        await fill(bench, await store.conversation("here"), TURNS)
    fill_raw(bench, raw, TURNS)
    raw.close()
    seconds = await _enter(bench.sizes.opens, url, raw)
    goal = Goal(50, at_least=False, of="value")
    ours, bare = seconds["ours"] * 1_000, seconds["raw"] * 1_000
    return Figure("open", f"a store of {TURNS:,} turns", ours, "ms", bare, "raw connection, first read", goal)


async def _enter(times: int, url: str, raw: Raw) -> dict[str, float]:
    """Time until the block is entered, without closing."""
    taken: dict[str, list[float]] = {"ours": [], "raw": []}
    for _ in range(times):
        async with AsyncExitStack() as stack:
            taken["ours"].append(await timed(stack.enter_async_context(palaver.open(url, embedder=None))))
            taken["raw"].append(await timed(_open_raw(raw, stack)))
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


async def _open_raw(raw: Raw, stack: AsyncExitStack) -> None:
    db = connect(raw.path)
    stack.callback(db.close)
    db.execute("SELECT max(seq) FROM turns").fetchall()


async def _open_new(bench: Bench) -> Figure:
    """Time a new file, including its schema and closing it."""
    numbers = iter(range(10**6))

    async def ours(_: object) -> None:
        async with palaver.open(bench.url(f"new-{next(numbers)}.db"), embedder=None):
            pass

    async def bare(_: object) -> None:
        Raw(bench.folder / f"new-raw-{next(numbers)}.db").close()

    rounds = await in_turns(bench.sizes.opens // 2, {"ours": ours, "raw": bare})
    ours_ms, raw_ms = rounds.seconds("ours") * 1_000, rounds.seconds("raw") * 1_000
    return Figure("open", "a new file, and close it", ours_ms, "ms", raw_ms, "raw, one table")


# ---- import --------------------------------------------------------------------------------------------------------


async def _import(bench: Bench) -> list[Result]:
    taken: dict[str, list[float]] = {"palaver": [], "asyncio": []}
    loaded: set[str] = set()
    for _ in range(bench.sizes.imports):
        for name, seconds in taken.items():
            time, modules = await _import_alone(name)
            seconds.append(time * 1_000)
            if name == "palaver":
                loaded.update(modules)
    ours, bare = statistics.median(taken["palaver"]), statistics.median(taken["asyncio"])
    unwanted = sorted(loaded.intersection(NOT_AT_IMPORT))
    others = sorted(loaded - sys.stdlib_module_names - {"palaver", "__main__"} - _site())
    return [
        Figure(
            "open", "import palaver", ours, "ms", bare, "import asyncio", Goal(100, at_least=False, of="value"),
            "median of fresh processes",
        ),
        Figure(
            "open", "drivers, command line, optional parts in it", len(unwanted), "modules",
            goal=Goal(0, at_least=False, of="value"),
            note=f"unwanted: {', '.join(unwanted) or 'none'}; third-party: {', '.join(others)}",
        ),
    ]  # fmt: skip


async def _import_alone(name: str) -> tuple[float, list[str]]:
    """Import in a fresh process. The first run is not counted, because it may have to compile."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", IMPORT.format(name=name), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"import {name} failed in a fresh process")
    time, modules = json.loads(output)
    return time, modules


def _site() -> set[str]:
    """Return the modules that an editable install and site hooks load before any program."""
    return {name for name in sys.modules if name.startswith(("_editable", "__editable__", "_virtualenv"))} | {
        "_distutils_hack", "_virtualenv", "sitecustomize", "usercustomize",
    }  # fmt: skip
