"""`python -m palaver.testing`: run the conformance kit on SQLite, in a folder of its own.

`python -m palaver.testing postgresql://…`: attack a Postgres database, as an administrator's address allows.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory

from palaver.errors import MissingExtra, PalaverError
from palaver.testing import Database, DatabaseAt, check


@asynccontextmanager
async def fresh() -> AsyncIterator[Database]:
    with TemporaryDirectory(prefix="palaver-") as folder:
        yield DatabaseAt(f"sqlite:///{folder}/chat.db")


async def attack(url: str) -> bool:
    try:
        from palaver.testing import rls_probe
    except ModuleNotFoundError as problem:
        raise MissingExtra("postgres", "The cross-tenant suite") from problem
    report = await rls_probe.attack(url, say=print)
    print(*report.breaches, report, sep="\n")
    return report.ok


async def main(urls: list[str]) -> bool:
    if not urls:
        return (await check(fresh)).ok
    return all([await attack(url) for url in urls])


if __name__ == "__main__":
    try:
        sys.exit(0 if asyncio.run(main(sys.argv[1:])) else 1)
    except PalaverError as problem:
        sys.exit(f"{problem}")
