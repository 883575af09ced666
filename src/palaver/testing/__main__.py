"""`python -m palaver.testing`: run the conformance kit on SQLite, in a folder of its own."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory

from palaver.testing import Database, DatabaseAt, check


@asynccontextmanager
async def fresh() -> AsyncIterator[Database]:
    with TemporaryDirectory(prefix="palaver-") as folder:
        yield DatabaseAt(f"sqlite:///{folder}/chat.db")


if __name__ == "__main__":
    sys.exit(0 if asyncio.run(check(fresh)).ok else 1)
