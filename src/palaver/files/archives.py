"""Measuring the unpacked size of an archive, without storing it. Runs in a separate process: see sandbox.py.

A bomb is an archive that unpacks to far more than its size: by one entry, by many, or by archives inside archives.
"""

from __future__ import annotations

import bz2
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import IO, Any

MAX_UNPACKED = 1_000_000_000  # bytes of everything in it, archives inside included
MAX_RATIO = 200  # of the unpacked size to the size of the file; deflate can reach 1,000
SMALL = 10_000_000  # bytes up to which the ratio does not matter
MAX_ENTRIES = 10_000
MAX_DEPTH = 4  # of archives inside archives
MAX_INNER = 50_000_000  # bytes of an archive inside another
CHUNK = 65_536

MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "zip"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
)


class Bomb(Exception):
    """The archive exceeds a limit. The message names the limit, and never quotes the archive."""


class Damaged(Exception):
    """The archive cannot be unpacked."""


@dataclass(slots=True)
class UnpackedTotals:
    """Totals of what has been unpacked so far, checked against the limits."""

    size: int  # of the file
    unpacked: int = 0
    entries: int = 0

    def add(self, count: int) -> None:
        self.unpacked += count
        if self.unpacked > MAX_UNPACKED:
            raise Bomb(f"unpacks to more than {MAX_UNPACKED:,} bytes")
        if self.unpacked > SMALL and self.unpacked > MAX_RATIO * self.size:
            raise Bomb(f"unpacks to more than {MAX_RATIO} times its size")

    def enter(self) -> None:
        self.entries += 1
        if self.entries > MAX_ENTRIES:
            raise Bomb(f"holds more than {MAX_ENTRIES:,} files")


def weigh(data: bytes) -> int:
    """Return how many bytes an archive unpacks to. Raises Bomb or Damaged."""
    totals = UnpackedTotals(len(data))
    try:
        _look_into(data, totals, depth=0)
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, tarfile.TarError, OSError, EOFError, ValueError):
        raise Damaged("cannot be unpacked") from None
    except (NotImplementedError, RuntimeError):
        raise Damaged("is packed in a way that cannot be inspected") from None
    return totals.unpacked


def _look_into(data: bytes, totals: UnpackedTotals, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise Bomb(f"contains archives inside archives, nested more than {MAX_DEPTH} deep")
    kind = _kind(data)
    if kind == "zip":
        _zip(data, totals, depth)
    elif kind == "tar":
        _tar(data, totals, depth)
    elif kind is not None:
        _weigh_entry(_stream(kind, data), totals, depth)


def _kind(head: bytes) -> str | None:
    if head[257:262] == b"ustar":
        return "tar"
    return next((kind for magic, kind in MAGIC if head.startswith(magic)), None)


def _zip(data: bytes, totals: UnpackedTotals, depth: int) -> None:
    with zipfile.ZipFile(BytesIO(data)) as archive:
        infos = archive.infolist()
        if sum(info.file_size for info in infos) > MAX_UNPACKED:
            raise Bomb(f"unpacks to more than {MAX_UNPACKED:,} bytes")
        for info in infos:
            totals.enter()
            if info.flag_bits & 1:  # encrypted: only the size in its header is known
                totals.add(info.file_size)
                continue
            with archive.open(info) as entry:
                _weigh_entry(_pieces(entry), totals, depth)


def _tar(data: bytes, totals: UnpackedTotals, depth: int) -> None:
    with tarfile.open(fileobj=BytesIO(data), mode="r:") as archive:
        for info in archive:
            totals.enter()
            entry = archive.extractfile(info) if info.isreg() else None
            if entry is not None:
                _weigh_entry(_pieces(entry), totals, depth)


def _weigh_entry(pieces: Iterator[bytes], totals: UnpackedTotals, depth: int) -> None:
    """Count the bytes of an entry; if it is an archive itself, measure that too."""
    first = next(pieces, b"")
    totals.add(len(first))
    inner = bytearray(first) if _kind(first) is not None else None
    for piece in pieces:
        totals.add(len(piece))
        if inner is not None:
            inner += piece
            if len(inner) > MAX_INNER:
                raise Bomb(f"holds an archive of more than {MAX_INNER:,} bytes")
    if inner is not None:
        _look_into(bytes(inner), totals, depth + 1)


def _pieces(entry: IO[bytes] | Any) -> Iterator[bytes]:
    while piece := entry.read(CHUNK):
        yield piece


def _stream(kind: str, data: bytes) -> Iterator[bytes]:
    """Yield the pieces of a compressed stream. Several streams may follow each other."""
    new: Callable[[], Any] = {
        "gzip": lambda: zlib.decompressobj(31),
        "bzip2": bz2.BZ2Decompressor,
        "xz": lzma.LZMADecompressor,
    }[kind]
    rest = memoryview(data)  # a view: copying the rest for each piece would be quadratic
    while rest:
        stream, taken = new(), 0
        while not stream.eof:
            given = getattr(stream, "unconsumed_tail", b"")  # zlib returns unused input; the others keep it
            if not given and getattr(stream, "needs_input", True):
                given = bytes(rest[taken : taken + CHUNK])
                taken += len(given)
            piece = stream.decompress(given, CHUNK)
            if piece:
                yield piece
            elif not given and not stream.eof:
                raise EOFError
        rest = _skip_padding(rest[taken - len(stream.unused_data) :])


def _skip_padding(rest: memoryview) -> memoryview:
    """Skip the zeros that may pad the end of a stream."""
    at = 0
    while at < len(rest) and not rest[at]:
        at += 1
    return rest[at:]
