"""Counts fsyncs with a file layer for SQLite that counts the calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import apsw


@dataclass(slots=True)
class Syncs:
    count: int = 0


@contextmanager
def counted() -> Iterator[Syncs]:
    """Count the fsyncs of every database opened inside the block. Counting takes time: measure times elsewhere."""
    syncs, system = Syncs(), apsw.vfs_names()[0]

    class File(apsw.VFSFile):
        def __init__(self, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
            super().__init__(system, name, flags)

        def xSync(self, flags: int) -> None:
            syncs.count += 1
            super().xSync(flags)

    class Layer(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("counting", system, makedefault=True)

        def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> File:
            return File(name, flags)

    layer = Layer()
    try:
        yield syncs
    finally:
        layer.unregister()
