"""Archives that unpack to more than they look like, whichever way they do it."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Any

import pytest

from palaver.files.archives import MAX_ENTRIES, Bomb, Damaged, weigh
from tests.files.samples import docx, tarred, zipped

ZEROS = bytes(30_000_000)


def inside(levels: int, data: bytes) -> bytes:
    for level in range(levels):
        data = zipped({f"{level}.zip": data})
    return data


def overlapping() -> bytes:
    """Many names for the same bytes: the directory says so, and the file is small."""
    data = zipped({"a": b"x" * 1_000_000})
    with zipfile.ZipFile(BytesIO(data)) as archive:
        (info,) = archive.infolist()
    start = data.index(b"PK\x01\x02")
    entry = data[start : data.index(b"PK\x05\x06")]
    many = 5_000
    end = bytearray(data[data.index(b"PK\x05\x06") :])
    end[8:10] = end[10:12] = many.to_bytes(2, "little")
    end[12:16] = (len(entry) * many).to_bytes(4, "little")
    assert info.file_size == 1_000_000
    return data[:start] + entry * many + bytes(end)


def many_levels() -> bytes:
    """Each level holds the one below several times: it doubles, and doubles, and doubles."""
    data = zipped({"a": bytes(9_000_000)})
    for _ in range(3):
        data = zipped({f"{n}.zip": data + bytes(n) for n in range(16)})
    return data


BOMBS: dict[str, Callable[[], bytes]] = {
    "zip": lambda: zipped({"a": ZEROS}),
    "gzip": lambda: gzip.compress(ZEROS),
    "bzip2": lambda: bz2.compress(ZEROS),
    "xz": lambda: lzma.compress(ZEROS),
    "gzip-in-gzip": lambda: gzip.compress(gzip.compress(ZEROS)),
    "tar.gz": lambda: gzip.compress(tarred({"a": ZEROS})),
    "docx": lambda: docx("<a>" + " " * 30_000_000 + "</a>"),
    "zip-in-zips": lambda: inside(2, zipped({"a": ZEROS})),
    "too-deep": lambda: inside(8, b"x"),
    "many-levels": many_levels,
    "too-many-files": lambda: zipped({str(n): "" for n in range(MAX_ENTRIES + 1)}),
    "zip-in-tar": lambda: tarred({"inner.zip": zipped({"a": ZEROS})}),
}


@pytest.mark.costly
@pytest.mark.parametrize("make", BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_found(make: Callable[[], bytes]) -> None:
    with pytest.raises(Bomb):
        weigh(make())


def test_a_bomb_of_overlapping_entries_is_refused() -> None:
    with pytest.raises((Bomb, Damaged)):
        weigh(overlapping())


@pytest.mark.costly
@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress], ids="gzip bzip2 xz".split())
def test_streams_are_weighed_to_the_byte(pack: Callable[[bytes], bytes]) -> None:
    """Those that are hardly smaller than what is in them, and those that are nearly nothing; one behind the other."""
    noise, nothing = os.urandom(200_001), bytes(9_000_000)
    assert weigh(pack(noise)) == 200_001
    assert weigh(pack(nothing)) == 9_000_000
    assert weigh(pack(noise) + pack(b"") + pack(b"x") + bytes(100)) == 200_002
    for cut in (1, 8, 100):
        with pytest.raises(Damaged):
            weigh(pack(noise)[:-cut])


def test_a_large_stream_is_handed_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not its rest again with every piece: an honest file would take too long and be refused."""
    handed: list[int] = []

    class Counting:
        def __init__(self, *options: int) -> None:
            self.stream = real(*options)

        def decompress(self, data: bytes, most: int) -> bytes:
            handed.append(len(data))
            return self.stream.decompress(data, most)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.stream, name)

    real = zlib.decompressobj
    packed = gzip.compress(os.urandom(2_000_000))
    monkeypatch.setattr("palaver.files.archives.zlib.decompressobj", Counting)
    assert weigh(packed) == 2_000_000
    assert sum(handed) < 2 * len(packed)


def test_ordinary_archives_are_weighed() -> None:
    noise = os.urandom(300_000)
    assert weigh(zipped({"a": noise, "b/c": b"x" * 1_000})) == 301_000
    assert weigh(gzip.compress(noise)) == 300_000
    assert weigh(gzip.compress(b"a") + gzip.compress(b"b")) == 2, "one stream behind another"
    assert weigh(bz2.compress(noise)) == 300_000
    assert weigh(lzma.compress(noise)) == 300_000
    assert weigh(tarred({"a": noise})) == 300_000
    assert weigh(zipped({"inner.zip": zipped({"a": b"abc"})})) > 3


@pytest.mark.parametrize(
    "data",
    [gzip.compress(os.urandom(1_000))[:-200], zipped({"a": os.urandom(1_000)})[:-40]],
    ids=["gzip", "zip"],
)
def test_half_an_archive_is_damaged(data: bytes) -> None:
    with pytest.raises(Damaged):
        weigh(data)
