"""Extracting the text of a file. Runs in a separate process, with limits: see sandbox.py."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser
from io import BytesIO
from xml.parsers import expat

from palaver.files import kinds

MAX_CHARACTERS = 1_000_000
MAX_XML = 100_000_000  # bytes of one part of a document
CHUNK = 65_536

Attributes = dict[str, str]


class Unreadable(Exception):
    """The file has no readable text. The message never quotes the file."""


def text_of(kind: str, data: bytes) -> str:
    """Extract the text of a file, at most MAX_CHARACTERS of it."""
    reader = READERS.get(kind, _plain)
    pieces: list[str] = []
    room = MAX_CHARACTERS
    for piece in reader(data):
        pieces.append(piece[:room])
        room -= len(piece)
        if room <= 0:
            break
    return _tidy("".join(pieces))


def _tidy(text: str) -> str:
    """Remove control characters, which databases reject, and long gaps."""
    text = re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", " ", text.replace("\r\n", "\n"))
    text = text.encode("utf-8", "replace").decode()
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip()


def _plain(data: bytes) -> Iterator[str]:
    text = kinds.decoded(data)
    if text is None:
        raise Unreadable("is not text")
    yield text


# ---- PDF -----------------------------------------------------------------------------------------------------------


def _pdf(data: bytes) -> Iterator[str]:
    from pypdf import PasswordType, PdfReader

    reader = PdfReader(BytesIO(data))
    if reader.is_encrypted and reader.decrypt("") == PasswordType.NOT_DECRYPTED:
        raise Unreadable("needs a password")
    for page in reader.pages:
        yield page.extract_text() + "\n\n"


# ---- HTML ----------------------------------------------------------------------------------------------------------


class _Page(HTMLParser):
    """The text between the tags, without scripts and styles."""

    SILENT = frozenset({"script", "style", "template", "noscript"})
    BREAKS = frozenset("p div br li tr h1 h2 h3 h4 h5 h6 section article title table blockquote pre".split())

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self.silent = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.silent += tag in self.SILENT
        if tag in self.BREAKS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self.silent -= tag in self.SILENT and self.silent > 0
        if tag in self.BREAKS:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.pieces.append(data)


def _html(data: bytes) -> Iterator[str]:
    page = _Page()
    for text in _plain(data):
        page.feed(text[: 4 * MAX_CHARACTERS])
    yield re.sub(r"[ \t]{2,}", " ", "".join(page.pieces))


# ---- office documents: zips of XML ---------------------------------------------------------------------------------


def _docx(data: bytes) -> Iterator[str]:
    parts = ("document", "footnotes", "endnotes", "comments")
    yield from _parts(data, [rf"word/{part}\.xml" for part in parts], Words("t", "p", {"tab": "\t", "br": "\n"}))


def _pptx(data: bytes) -> Iterator[str]:
    parts = [r"ppt/slides/slide(\d+)\.xml", r"ppt/notesSlides/notesSlide(\d+)\.xml"]
    yield from _parts(data, parts, Words("t", "p", {"br": "\n"}))


def _open_document(data: bytes) -> Iterator[str]:
    yield from _parts(data, [r"content\.xml"], Words("body", "p h", {"tab": "\t", "s": " ", "line-break": "\n"}))


def _xlsx(data: bytes) -> Iterator[str]:
    with zipfile.ZipFile(BytesIO(data)) as archive:
        shared = Shared()
        for _ in _parse(archive, _names(archive, r"xl/sharedStrings\.xml"), shared):
            pass
        cells = Cells(shared.strings)
        yield from _parse(archive, _names(archive, r"xl/worksheets/sheet(\d+)\.xml"), cells)


class Words:
    """The text inside certain elements, with a line break after others."""

    def __init__(self, inside: str, lines: str, between: dict[str, str]) -> None:
        self.inside, self.lines, self.between = inside, frozenset(lines.split()), between
        self.depth = 0
        self.pieces: list[str] = []

    def start(self, name: str, _: Attributes) -> None:
        self.depth += name == self.inside
        self.pieces.append(self.between.get(name, ""))

    def end(self, name: str) -> None:
        self.depth -= name == self.inside
        if name in self.lines:
            self.pieces.append("\n")

    def data(self, text: str) -> None:
        if self.depth > 0:
            self.pieces.append(text)

    def take(self) -> str:
        text, self.pieces = "".join(self.pieces), []
        return text


class Shared(Words):
    """The shared strings of a workbook, to which cells refer by number."""

    def __init__(self) -> None:
        super().__init__("t", "", {})
        self.strings: list[str] = []
        self.spoken = 0  # depth of phonetic hints, which are not part of the string

    def start(self, name: str, attributes: Attributes) -> None:
        self.spoken += name == "rPh"
        super().start(name, attributes)

    def end(self, name: str) -> None:
        self.spoken -= name == "rPh"
        super().end(name)
        if name == "si":
            self.strings.append(super().take())

    def data(self, text: str) -> None:
        if not self.spoken:
            super().data(text)

    def take(self) -> str:
        return ""


class Cells(Words):
    """The values of a sheet: a tab between cells, a line per row."""

    def __init__(self, strings: Sequence[str]) -> None:
        super().__init__("v", "row", {})
        self.strings, self.points, self.value = strings, False, ""

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "c":
            self.points, self.value = attributes.get("t") == "s", ""
        self.depth += name in ("v", "t")

    def end(self, name: str) -> None:
        self.depth -= name in ("v", "t")
        if name == "c" and self.value:
            self.pieces += [self._text(), "\t"]
        elif name in ("row", "worksheet"):
            self.pieces.append("\n")

    def data(self, text: str) -> None:
        if self.depth > 0:
            self.value += text

    def _text(self) -> str:
        if not self.points:
            return self.value
        place = int(self.value) if self.value.isdigit() else -1
        return self.strings[place] if 0 <= place < len(self.strings) else ""


def _parts(data: bytes, patterns: Sequence[str], words: Words) -> Iterator[str]:
    with zipfile.ZipFile(BytesIO(data)) as archive:
        for pattern in patterns:
            yield from _parse(archive, _names(archive, pattern), words)


def _names(archive: zipfile.ZipFile, pattern: str) -> list[str]:
    """Return the parts whose names match, in the order of their numbers."""
    found = [match for name in archive.namelist() if (match := re.fullmatch(pattern, name))]
    return [match.group() for match in sorted(found, key=lambda match: int((match.groups() or ("0",))[0]))]


def _parse(archive: zipfile.ZipFile, names: Sequence[str], words: Words) -> Iterator[str]:
    for name in names:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = lambda tag, attributes: words.start(tag.rpartition(":")[2], attributes)
        parser.EndElementHandler = lambda tag: words.end(tag.rpartition(":")[2])
        parser.CharacterDataHandler = words.data
        parser.StartDoctypeDeclHandler = _no_doctype
        with archive.open(name) as part:
            read = 0
            while piece := part.read(CHUNK):
                read += len(piece)
                if read > MAX_XML:
                    raise Unreadable("is too large to be read")
                parser.Parse(piece)
                yield words.take()
            parser.Parse(b"", True)
            yield words.take() + "\n"


def _no_doctype(*_: object) -> None:
    """Reject a document type declaration: office documents have none, and its entities could expand without limit."""
    raise Unreadable("contains a document type declaration, which documents of this kind never do")


READERS: dict[str, Callable[[bytes], Iterator[str]]] = {
    kinds.PDF: _pdf,
    kinds.DOCX: _docx,
    kinds.XLSX: _xlsx,
    kinds.PPTX: _pptx,
    kinds.ODT: _open_document,
    kinds.ODS: _open_document,
    kinds.ODP: _open_document,
    kinds.HTML: _html,
    kinds.SVG: _html,
}
