"""A program under load, for tests/upgrades/test_rolling_upgrade.py: `python load.py URL FOLDER NAME`.

It uses only what 0.1.0 has, and runs with the code of that version or of this one. Each round uses most methods; each
round that ends is a line `round`, each failure a line of JSON. It ends when its input does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import traceback
from collections.abc import Awaitable
from typing import Any

import palaver

TASKS = 4
LINES = ["I am allergic to peanuts.", "We meet in Lisbon on Friday.", "The train leaves at nine.", "Rice is fine."]


def say(line: Any) -> None:
    print(line if isinstance(line, str) else json.dumps(line), flush=True)


async def one_round(store: Any, name: str, number: int) -> None:
    """Write and read a conversation of its own and one that is shared, and forget some of it."""
    own, shared = await store.conversation(f"{name}/{number}"), await store.conversation("shared")
    for talk in (own, shared):
        for place, text in enumerate(LINES):
            key = f"{name}/{number}/{place}"
            first = await talk.append("user", f"{text} {name} {number}", idempotency_key=key)
            again = await talk.append("user", f"{text} {name} {number}", idempotency_key=key)
            assert first.id == again.id
    await own.append_many([{"role": "user", "content": text} for text in LINES])
    async with own.stream("assistant", actor="bot") as out:
        for word in ("Enjoy ", "your ", "meal."):
            await out.write(word)
    edited = await own.append("user", "What can I eat?")
    await own.append("user", "What can I eat tonight?", replaces=edited)
    file = await own.attach(b"a file " * 10, filename="notes.txt")
    await own.append("user", "Here are the notes.", attachments=[file])
    assert await own.read_attachment(file) == b"a file " * 10
    for talk in (own, shared) if number == 1 else (own,):
        await talk.remember("goals", f"book a table for {name}")
    assert await shared.working_memory()
    await own.extract_facts()
    await own.rename(f"Food {number}")
    assert len(await own.history(limit=100)) == 2 * len(LINES) + 3
    assert await own.recall("peanuts", k=2)
    assert (await own.build_context(token_budget=500, query="peanuts")).text
    await own.compact(keep_tokens=20)
    assert await own.summaries()
    await store.search("Lisbon")
    await own.search("train")
    await store.conversations(limit=5)
    await store.usage()
    await store.stats()
    await shared.history(limit=20)
    assert (await shared.build_context(token_budget=500, query="peanuts")).text
    await own.forget((await own.history(limit=100))[0])
    if number % 2:
        await own.forget()


async def is_ready(store: Any) -> None:
    """Ask as a server's readiness does; see `server/readiness.py` of 0.1.0."""
    from palaver.server.readiness import problems_of  # type: ignore[import-not-found, unused-ignore]

    problems = problems_of(await store.parts.engine.health(), 0)
    assert not problems, problems


async def reported(work: Awaitable[None]) -> None:
    try:
        await work
    except Exception as problem:
        say({"failed": repr(problem), "sqlstate": getattr(problem, "sqlstate", None), "at": traceback.format_exc()})


async def main(url: str, folder: str, name: str) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(ended.set)), daemon=True).start()
    async with palaver.open(url, tenant="acme", user="ada", files=folder, embedder="none") as store:

        async def rounds(task: int) -> None:
            number = 0
            while not ended.is_set():
                number += 1
                await reported(one_round(store, f"{name}-{task}", number))
                if hasattr(store, "parts"):
                    await reported(is_ready(store))
                say("round")

        async with asyncio.TaskGroup() as tasks:
            for task in range(TASKS):
                tasks.create_task(rounds(task))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
