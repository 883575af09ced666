"""Runs the guarantees of the release, whose code it is run with: `python kit.py ADMINISTRATOR_URL TEMPLATE FOLDER`.

Each guarantee gets a copy of the database TEMPLATE, with this version's schema. Prints the failures, and their number.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg

from palaver.testing import GUARANTEES, DatabaseAt

LOGIN = f"palaver_tester:{quote('not a secret')}"  # tests/support/postgres_server.py


async def main(administrator: str, template: str, folder: str) -> None:
    parts, failed = urlsplit(administrator), 0
    admin = await asyncpg.connect(administrator)
    for number, guarantee in enumerate(GUARANTEES):
        name = f"{template}_{number}"
        place = f"{LOGIN}@{parts.netloc.rpartition('@')[2]}"
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        try:
            url = urlunsplit(parts._replace(netloc=place, path=f"/{name}"))
            await guarantee.function(DatabaseAt(url, files=Path(folder) / name))
        except Exception as problem:
            failed += 1
            print(f"{guarantee}: {problem!r}")
        finally:
            await admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    await admin.close()
    print(f"{len(GUARANTEES)} guarantees, {failed} failed")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
