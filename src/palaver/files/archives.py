"""What an archive unpacks to, without keeping any of it. Runs in a process of its own: see sandbox.py.

A bomb is an archive that unpacks to far more than it is: by one entry, by many, or by archives inside archives.
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
MAX_RATIO = 200  # to the size of the file; deflate alone can reach a thousand
SMALL = 10_000_000  # bytes that anything may unpack to
MAX_ENTRIES = 10_000
MAX_DEPTH = 4  # of archives inside archives
MAX_INNER = 50_000_000  # bytes of an archive that is looked into
CHUNK = 65_536

MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "zip"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\0", "xz"),
)


class Bomb(Exception):
    """The message says which limit, and never what is in the archive."""


class Damaged(Exception):
    pass


@dataclass(slots=True)
class Scales:
    """What has been unpacked so far."""

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
    """How many bytes an archive unpacks to. Raises Bomb or Damaged."""
    scales = Scales(len(data))
    try:
        _look_into(data, scales, depth=0)
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, tarfile.TarError, OSError, EOFError, ValueError):
        raise Damaged("cannot be unpacked") from None
    except (NotImplementedError, RuntimeError):
        raise Damaged("is packed in a way that cannot be looked into") from None
    return scales.unpacked


def _look_into(data: bytes, scales: Scales, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise Bomb(f"holds archives inside archives, more than {MAX_DEPTH} deep")
    kind = _kind(data)
    if kind == "zip":
        _zip(data, scales, depth)
    elif kind == "tar":
        _tar(data, scales, depth)
    elif kind is not None:
        _weigh_entry(_stream(kind, data), scales, depth)


def _kind(head: bytes) -> str | None:
    if head[257:262] == b"ustar":
        return "tar"
    return next((kind for magic, kind in MAGIC if head.startswith(magic)), None)


def _zip(data: bytes, scales: Scales, depth: int) -> None:
    with zipfile.ZipFile(BytesIO(data)) as archive:
        infos = archive.infolist()
        if sum(info.file_size for info in infos) > MAX_UNPACKED:
            raise Bomb(f"unpacks to more than {MAX_UNPACKED:,} bytes")
        for info in infos:
            scales.enter()
            if info.flag_bits & 1:  # with a password: what it says of itself has to do
                scales.add(info.file_size)
                continue
            with archive.open(info) as entry:
                _weigh_entry(_pieces(entry), scales, depth)


def _tar(data: bytes, scales: Scales, depth: int) -> None:
    with tarfile.open(fileobj=BytesIO(data), mode="r:") as archive:
        for info in archive:
            scales.enter()
            entry = archive.extractfile(info) if info.isreg() else None
            if entry is not None:
                _weigh_entry(_pieces(entry), scales, depth)


def _weigh_entry(pieces: Iterator[bytes], scales: Scales, depth: int) -> None:
    """Count what comes; keep it as long as it may be an archive itself."""
    first = next(pieces, b"")
    scales.add(len(first))
    inner = bytearray(first) if _kind(first) is not None else None
    for piece in pieces:
        scales.add(len(piece))
        if inner is not None:
            inner += piece
            if len(inner) > MAX_INNER:
                raise Bomb(f"holds an archive of more than {MAX_INNER:,} bytes")
    if inner is not None:
        _look_into(bytes(inner), scales, depth + 1)


def _pieces(entry: IO[bytes] | Any) -> Iterator[bytes]:
    while piece := entry.read(CHUNK):
        yield piece


def _stream(kind: str, data: bytes) -> Iterator[bytes]:
    """A compressed stream, piece by piece; several may follow each other."""
    new: Callable[[], Any] = {
        "gzip": lambda: zlib.decompressobj(31),
        "bzip2": bz2.BZ2Decompressor,
        "xz": lzma.LZMADecompressor,
    }[kind]
    rest = memoryview(data)  # what follows is never copied as a whole: that would be done once for each piece
    while rest:
        stream, taken = new(), 0
        while not stream.eof:
            given = getattr(stream, "unconsumed_tail", b"")  # zlib hands back what it has not used; the others keep it
            if not given and getattr(stream, "needs_input", True):
                given = bytes(rest[taken : taken + CHUNK])
                taken += len(given)
            piece = stream.decompress(given, CHUNK)
            if piece:
                yield piece
            elif not given and not stream.eof:
                raise EOFError
        rest = _behind(rest[taken - len(stream.unused_data) :])


def _behind(rest: memoryview) -> memoryview:
    """What follows a stream; it may be filled up with zeros."""
    at = 0
    while at < len(rest) and not rest[at]:
        at += 1
    return rest[at:]
