"""Steps of a migration that would hold a lock for long: indexes, validation, and changes of many rows.

They are in `migrations/NNNN_name.online.sql`, one statement per step, after a line `-- step: name`. They run after the
migration is committed, each outside a transaction, while all versions of the code keep working. A step that is
interrupted runs again, so each can be repeated. `-- step: name, repeat` is a statement that changes one batch of rows;
it runs until it changes none.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

WAIT_SECONDS = 1.0
_FILE = re.compile(r"^(\d{4})_\w+\.online\.sql$")
_STEP = re.compile(r"^-- step: (\w+)(, repeat)?$", re.MULTILINE)
_INDEX = re.compile(r"\bINDEX CONCURRENTLY IF NOT EXISTS (\w+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    sql: str
    repeat: bool = False


def read(package: str, after: int) -> list[Step]:
    """Return the steps of the migrations after a number, in order."""
    found = sorted((file.name, file) for file in files(package).iterdir() if _FILE.match(file.name))
    return [step for name, file in found if int(name[:4]) > after for step in parse(file.read_text())]


def parse(text: str) -> list[Step]:
    pieces = _STEP.split(text)[1:]  # before the first step is a comment
    steps = zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    return [Step(name, sql.strip(), repeat is not None) for name, repeat, sql in steps]


def editor_script(steps: Sequence[Step]) -> str:
    """Return the steps for psql, which runs each statement on its own."""
    head = "\n-- Each of the following statements runs on its own, outside a transaction.\n"
    return head + "\n".join(_in_loop(step) if step.repeat else step.sql for step in steps)


def _in_loop(step: Step) -> str:
    body = step.sql.rstrip(";")
    return f"DO $repeat$ BEGIN LOOP {body}; EXIT WHEN NOT FOUND; COMMIT; END LOOP; END $repeat$;"


@asynccontextmanager
async def one_at_a_time(connection: Connection, lock: int) -> AsyncIterator[None]:
    """Hold a lock of the session. It is polled: a waiting statement would hold up CREATE INDEX CONCURRENTLY."""
    while not await connection.fetchval("SELECT pg_try_advisory_lock($1)", lock):  # noqa: ASYNC110
        await asyncio.sleep(WAIT_SECONDS)
    try:
        yield
    finally:
        await connection.execute("SELECT pg_advisory_unlock($1)", lock)


async def run(connection: Connection, steps: Sequence[Step]) -> None:
    await connection.execute("SET statement_timeout = 0")
    try:
        for step in steps:
            await _drop_unfinished_index(connection, step)
            while (await connection.execute(step.sql)).rpartition(" ")[2] != "0" and step.repeat:
                pass
    finally:
        if not connection.is_closed():
            await connection.execute("RESET statement_timeout")


async def _drop_unfinished_index(connection: Connection, step: Step) -> None:
    """Drop an index whose creation was interrupted: it is invalid, and IF NOT EXISTS would keep it."""
    match = _INDEX.search(step.sql)
    broken = "SELECT 1 FROM pg_index WHERE indexrelid = to_regclass($1) AND NOT indisvalid"
    if match and await connection.fetchval(broken, f"palaver.{match[1]}"):
        await connection.execute(f"DROP INDEX CONCURRENTLY palaver.{match[1]}")
