"""The files of an export: one file, a folder, or a zip archive. Nothing is ever unpacked to disk under its own name.

A list of conversations may have a gigabyte. It is split into its elements without parsing it as a whole; the elements
wait in a temporary file without a name, which a killed process does not leave behind.
"""

from __future__ import annotations

import json
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any

from palaver.core.validation import MAX_FILE
from palaver.errors import InvalidInput
from palaver.interchange.exports.values import Entry, ExportedConversation

CHUNK = 1 << 20
MAX_ELEMENT = 512_000_000  # bytes of one conversation
MAX_ENTRIES = 200_000  # files of an archive
MAX_RATIO = 1_000  # of an archive's unpacked size to its own; deflate cannot exceed it by much
STRUCTURE = re.compile(rb'["{}\[\]]')
STRING_END = re.compile(rb'["\\]')

Advance = Callable[[int], None]
Parse = Callable[[dict[str, Any]], ExportedConversation]


@dataclass(frozen=True, slots=True)
class Source:
    """Where an export is read from. `names` are the paths in it, with slashes; `open_file` opens one of them."""

    path: Path
    names: tuple[str, ...]
    open_file: Callable[[str], IO[bytes]]

    def matching(self, *patterns: str) -> list[str]:
        """Return the names whose last part fits one of the patterns, sorted."""
        return sorted(name for name in self.names if any(fnmatch(name.rpartition("/")[2], one) for one in patterns))

    def head(self, name: str, size: int = 65_536) -> bytes:
        """Return the first bytes of a file, to see what it is."""
        with self.open_file(name) as file:
            return file.read(size)

    def reader(self, name: str) -> Callable[[], bytes]:
        """Return a function that reads a file that a message has attached."""

        def read() -> bytes:
            with self.open_file(name) as file:
                data = file.read(MAX_FILE + 1)
            if len(data) > MAX_FILE:
                raise InvalidInput("file", f"has more than {MAX_FILE:,} bytes")
            return data

        return read


def open_source(path: Path) -> Source:
    """Open a file, a folder or a zip archive."""
    if path.is_dir():
        inside = [one for one in path.rglob("*") if one.is_file() and not one.is_symlink()]
        found = {one.relative_to(path).as_posix(): one for one in inside}
        return Source(path, tuple(found), lambda name: found[name].open("rb"))
    if not path.is_file():
        raise InvalidInput("FILE", f"there is no file or folder {str(path)!r}")
    if zipfile.is_zipfile(path):
        return _open_archive(path)
    return Source(path, (path.name,), lambda _: path.open("rb"))


def _open_archive(path: Path) -> Source:
    archive = zipfile.ZipFile(path)
    infos = [info for info in archive.infolist() if not info.is_dir()]
    if len(infos) > MAX_ENTRIES:
        raise InvalidInput("FILE", f"the archive holds more than {MAX_ENTRIES:,} files")
    if sum(info.file_size for info in infos) > MAX_RATIO * max(path.stat().st_size, 1):
        raise InvalidInput("FILE", f"the archive unpacks to more than {MAX_RATIO:,} times its size")
    if any(info.flag_bits & 1 for info in infos):
        raise InvalidInput("FILE", "the archive is encrypted: unpack it first and name the folder")
    return Source(path, tuple(info.filename for info in infos), lambda name: _open_member(archive, name))


def _open_member(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    try:
        return archive.open(name)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as problem:
        raise InvalidInput("FILE", f"{name} in the archive cannot be read ({type(problem).__name__})") from None


# ---- lists of conversations ----------------------------------------------------------------------------------------


def read_lists(
    source: Source,
    names: list[str],
    parse: Parse,
    updated: Callable[[dict[str, Any]], float],
    advance: Advance,
) -> Iterator[Entry]:
    """Yield the conversations of files that hold a list of them, or one. Their bytes wait in an unnamed file."""
    spool = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the entries
    for name in names:
        with source.open_file(name) as file:
            for element in split_elements(file, name, advance):
                yield _spooled(spool, element, name, parse, updated)


def _spooled(
    spool: IO[bytes], element: bytes, name: str, parse: Parse, updated: Callable[[dict[str, Any]], float]
) -> Entry:
    start, size = spool.seek(0, 2), len(element)
    spool.write(element)
    try:
        when = updated(decode(element, name))
    except InvalidInput:
        when = 0.0  # reported when it is loaded

    def load() -> ExportedConversation:
        spool.seek(start)
        return parse(decode(spool.read(size), name))

    return Entry(when, load)


def decode(element: bytes, name: str) -> dict[str, Any]:
    """Return one JSON object."""
    try:
        found = json.loads(element)
    except (ValueError, RecursionError):
        raise InvalidInput(name, "holds an entry that is not JSON") from None
    if not isinstance(found, dict):
        raise InvalidInput(name, "holds an entry that is not an object")
    return found


def split_elements(file: IO[bytes], name: str, advance: Advance = lambda _: None) -> Iterator[bytes]:
    """Yield the top-level objects of a JSON list, or the one object that the file is, as bytes."""
    splitter = _Splitter(name)
    while chunk := _read(file, name):
        advance(len(chunk))
        yield from splitter.feed(chunk)
    splitter.finish()


def _read(file: IO[bytes], name: str) -> bytes:
    try:
        return file.read(CHUNK)
    except (zipfile.BadZipFile, EOFError, OSError) as problem:
        raise InvalidInput(name, f"is damaged ({type(problem).__name__})") from None


class _Splitter:
    """Finds where objects begin and end by their braces, and skips what is inside strings."""

    def __init__(self, name: str) -> None:
        self.name, self.depth, self.in_string, self.escaped = name, 0, False, False
        self.pending = bytearray()
        self.is_object = False
        self.outside = 0  # the depth around the object

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        start = at = 0
        if self.escaped and chunk:
            at, self.escaped = 1, False
        while True:
            found = (STRING_END if self.in_string else STRUCTURE).search(chunk, at)
            if found is None:
                break
            at = found.end()
            sign = found.group()
            if self.in_string:
                if sign == b"\\":
                    self.escaped = at == len(chunk)
                    at += 1
                else:
                    self.in_string = False
            elif sign == b'"':
                self.in_string = True
            elif sign in b"{[":
                if sign == b"{" and not self.is_object and self.depth <= 1:
                    self.is_object, start = True, found.start()
                    self.outside = self.depth
                self.depth += 1
            else:
                self.depth -= 1
                if self.is_object and self.depth == self.outside:
                    yield bytes(self.pending) + chunk[start:at]
                    self.pending.clear()
                    self.is_object = False
        if self.is_object:
            self.pending += chunk[start:]
            if len(self.pending) > MAX_ELEMENT:
                raise InvalidInput(self.name, f"holds a conversation of more than {MAX_ELEMENT:,} bytes")

    def finish(self) -> None:
        if self.is_object or self.depth > 0 or self.in_string:
            raise InvalidInput(self.name, "was cut short: its last conversation is not complete")


def json_lines(source: Source, name: str, advance: Advance = lambda _: None) -> Iterator[dict[str, Any] | None]:
    """Yield the objects of a file with one on each line; None for a line that is not one."""
    with source.open_file(name) as file:
        for line in file:
            advance(len(line))
            if line.strip():
                try:
                    yield decode(line, name)
                except InvalidInput:
                    yield None
