"""Removing old bytes that SQLite leaves between the cells of a page, in spite of `secure_delete`.

When a page of a B-tree is rebuilt, copies of cells that moved to a neighbour remain in the unused space between the
page's header and its cells. A later deletion overwrites the cell, not those copies: of turns forgotten in a busy file,
about one in a hundred left words in such a gap.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct

import apsw

PAGES_AT_ONCE = 64
MOST_PAGES = 2_000  # that one call overwrites, so that writing them to the disk does not take long
STRIDE_SECONDS, REST_SECONDS = 0.002, 0.0005  # so that other threads get the interpreter's lock
FILE_HEADER = 100
# The kind of page, the first free block, the number of cells, and where the cells start.
_PAGE_HEADER = Struct(">BHHH")
_HEADER_SIZES = {2: 12, 5: 12, 10: 8, 13: 8}  # by kind: interior index, interior table, leaf index, leaf table
_ZEROS = bytes(65_536)


@dataclass(frozen=True, slots=True)
class Cleared:
    """The pages that had something in their gap, and the first page that was not looked at; None: all were."""

    found: list[int]
    rest: int | None


def clear_all_gaps(path: str) -> None:
    """Overwrite the gaps of all pages of a file that nobody uses with zeros, and write it to the disk."""
    rest: int | None = 0
    while rest is not None:
        rest = clear_gaps(path, first=rest).rest
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def clear_gaps(path: str, pages: Sequence[int] | None = None, *, first: int = 0) -> Cleared:
    """Overwrite gaps with zeros: of these pages, or of all, from the page `first` on; of `MOST_PAGES` pages at most.

    They are on the disk after the next checkpoint of the whole WAL. `xSync` is not called for it, because it keeps the
    interpreter's lock until the disk has finished.

    While this runs, nothing else may write to the file: the WAL is empty, and the caller holds the write lock or a
    transaction that reads the file without the WAL (see `scrubbing`). Readers may continue, because they never read a
    gap. The file is opened through SQLite, because closing it in any other way would drop this process's locks on it.
    """
    file = apsw.VFSFile("", path, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE, 0])
    found: list[int] = []
    try:
        for page, start, size in _gaps(file, pages, first):
            if len(found) == MOST_PAGES:
                return Cleared(found, page)
            file.xWrite(_ZEROS[:size], start)
            found.append(page)
        return Cleared(found, None)
    finally:
        file.xClose()


def _gaps(file: apsw.VFSFile, pages: Sequence[int] | None, first: int) -> Iterator[tuple[int, int, int]]:
    """Yield the page, the offset and the size of each gap that is not zero."""
    header, end = file.xRead(FILE_HEADER, 0), file.xFileSize()
    if len(header) < FILE_HEADER:
        return
    page_size = int.from_bytes(header[16:18], "big")
    page_size = 65_536 if page_size == 1 else page_size
    usable = page_size - header[20]
    resumed = time.perf_counter()
    for offset, length in _strides(end, page_size, pages, first):
        data = file.xRead(length, offset)
        if time.perf_counter() - resumed > STRIDE_SECONDS:
            time.sleep(REST_SECONDS)
            resumed = time.perf_counter()
        for base in range(0, len(data), page_size):
            gap = _gap(data, base, FILE_HEADER if offset + base == 0 else 0, usable)
            if gap is not None:
                yield (offset + base) // page_size, offset + gap[0], gap[1] - gap[0]


def _strides(end: int, page_size: int, pages: Sequence[int] | None, first: int) -> Iterator[tuple[int, int]]:
    """Yield the offset and the length of each part of the file to read."""
    if pages is not None:
        inside = (page for page in sorted(pages) if page >= first and (page + 1) * page_size <= end)
        yield from ((page * page_size, page_size) for page in inside)
        return
    step = page_size * PAGES_AT_ONCE
    for offset in range(first * page_size, end, step):
        yield offset, min(step, end - offset)


def _gap(data: bytes, base: int, header: int, usable: int) -> tuple[int, int] | None:
    kind, _, cells, content = _PAGE_HEADER.unpack_from(data, base + header)
    size = _HEADER_SIZES.get(kind)
    if size is None:
        return None  # a free page, or an overflow page of a long row: secure_delete overwrites those completely
    start, end = base + header + size + 2 * cells, base + (content or 65_536)
    if start >= end or end > base + usable or _ZEROS.startswith(data[start:end]):
        return None
    # An overflow page starts with a page number, which in a file of many terabytes could look like a kind of page.
    pointers = data[start - 2 * cells : start]
    inside = all(content <= int.from_bytes(pointers[i : i + 2], "big") < usable for i in range(0, 2 * cells, 2))
    return (start, end) if inside else None
