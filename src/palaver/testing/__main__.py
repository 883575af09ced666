"""`python -m palaver.testing`: run the conformance kit on SQLite, in a folder of its own.

`python -m palaver.testing postgresql://admin@host/chat`: run everything against a Postgres server, with the URL of an
administrator: the strangers (`rls_probe`) and the insider attack that database and leave nothing behind, then the
conformance kit runs in databases of its own. With `--strangers`, `--insider` or `--conformance`, only those that are
named; with `--only NAME`, which can be repeated, only these functions, tables and guarantees.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory

from palaver.errors import MissingExtra, PalaverError
from palaver.testing import GUARANTEES, Database, DatabaseAt, Guarantee, check

Only = frozenset[str] | None


@asynccontextmanager
async def fresh() -> AsyncIterator[Database]:
    with TemporaryDirectory(prefix="palaver-") as folder:
        yield DatabaseAt(f"sqlite:///{folder}/chat.db")


def chosen(only: Only) -> list[Guarantee]:
    return [one for one in GUARANTEES if only is None or one.name in only]


async def strangers(url: str, only: Only) -> bool:
    from palaver.testing import rls_probe

    report = await rls_probe.attack(url, only=only, say=print)
    print(*report.breaches, report, sep="\n")
    return report.ok


async def insider(url: str, only: Only) -> bool:
    from palaver.testing import insider

    report = await insider.probe(url, only=only, say=print)
    print(*report.breaches, report, sep="\n")
    return report.ok


async def conformance(url: str, only: Only) -> bool:
    from palaver.testing.postgres import databases_on

    async with databases_on(url) as factory:
        return (await check(factory, guarantees=chosen(only))).ok


PARTS: dict[str, Callable[[str, Only], Awaitable[bool]]] = {
    "strangers": strangers,
    "insider": insider,
    "conformance": conformance,
}


async def main(args: Sequence[str]) -> bool:
    parser = argparse.ArgumentParser(prog="python -m palaver.testing", description="Check a database.")
    parser.add_argument("url", nargs="*", help="postgresql://… of an administrator; without one, SQLite is checked")
    for name in PARTS:
        parser.add_argument(f"--{name}", action="store_true", help="run this part only")
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="a function, table or guarantee; can be repeated"
    )
    options = parser.parse_args(args)
    only = None if options.only is None else frozenset(options.only)
    if not options.url:
        return (await check(fresh, guarantees=chosen(only))).ok
    parts = [name for name in PARTS if getattr(options, name)] or list(PARTS)
    try:
        return all([await PARTS[name](url, only) for url in options.url for name in parts])
    except ModuleNotFoundError as problem:
        raise MissingExtra("postgres", "Checking a Postgres database") from problem


if __name__ == "__main__":
    try:
        sys.exit(0 if asyncio.run(main(sys.argv[1:])) else 1)
    except PalaverError as problem:
        sys.exit(f"{problem}")
