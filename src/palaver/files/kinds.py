"""The kinds of files that are accepted, by their bytes; the name and the declared type must agree. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping

from palaver.errors import FileRefused, InvalidInput

PLAIN, HTML, SVG, PDF, ZIP = "text/plain", "text/html", "image/svg+xml", "application/pdf", "application/zip"
_OFFICE = "application/vnd.openxmlformats-officedocument."
_OPEN = "application/vnd.oasis.opendocument."
DOCX, XLSX = _OFFICE + "wordprocessingml.document", _OFFICE + "spreadsheetml.sheet"
PPTX = _OFFICE + "presentationml.presentation"
ODT, ODS, ODP = _OPEN + "text", _OPEN + "spreadsheet", _OPEN + "presentation"

# Kinds that are recognised by their bytes, and their file extensions. The first of several is the usual one.
BINARY: Mapping[str, str] = {
    "image/png": "png",
    "image/jpeg": "jpg jpeg jpe jfif",
    "image/gif": "gif",
    "image/webp": "webp",
    "image/avif": "avif",
    "image/heic": "heic heif",
    "image/tiff": "tif tiff",
    "image/bmp": "bmp dib",
    PDF: "pdf",
    DOCX: "docx",
    XLSX: "xlsx",
    PPTX: "pptx",
    ODT: "odt",
    ODS: "ods",
    ODP: "odp",
    "application/msword": "doc",
    "application/vnd.ms-excel": "xls",
    "application/vnd.ms-powerpoint": "ppt",
    "audio/mpeg": "mp3 mpga",
    "audio/wav": "wav",
    "audio/flac": "flac",
    "audio/aac": "aac",
    "audio/ogg": "ogg oga opus",
    "audio/mp4": "m4a",
    "audio/webm": "weba",
    "video/mp4": "mp4 m4v",
    "video/quicktime": "mov",
    "video/webm": "webm",
    "video/x-matroska": "mkv",
    "video/ogg": "ogv",
    "video/x-msvideo": "avi",
    "video/mpeg": "mpg mpeg",
    "application/gzip": "gz tgz",
    "application/x-bzip2": "bz2 tbz2",
    "application/x-xz": "xz txz",
    "application/x-tar": "tar",
    ZIP: "zip",
}
TEXT: Mapping[str, str] = {
    PLAIN: "txt text log",
    "text/markdown": "md markdown",
    "text/csv": "csv",
    "text/tab-separated-values": "tsv",
    HTML: "html htm xhtml",
    "text/css": "css",
    "text/javascript": "js mjs cjs",
    "text/calendar": "ics",
    "text/vcard": "vcf",
    "text/rtf": "rtf",
    "text/x-python": "py",
    "application/json": "json",
    "application/x-ndjson": "jsonl ndjson",
    "application/xml": "xml",
    "application/yaml": "yaml yml",
    "application/toml": "toml",
    "application/sql": "sql",
    "application/x-sh": "sh",
    SVG: "svg",
}
# Programs, and archives whose size cannot be measured without unpacking them.
REFUSED = frozenset("exe dll com scr msi so dylib jar apk dmg iso deb rpm class wasm 7z rar cab".split())

ALIASES: Mapping[str, str] = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/heif": "image/heic",
    "image/x-ms-bmp": "image/bmp",
    "audio/mp3": "audio/mpeg",
    "audio/wave": "audio/wav",
    "audio/x-wav": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "audio/x-flac": "audio/flac",
    "audio/x-m4a": "audio/mp4",
    "audio/m4a": "audio/mp4",
    "audio/opus": "audio/ogg",
    "application/ogg": "audio/ogg",
    "video/avi": "video/x-msvideo",
    "application/x-matroska": "video/x-matroska",
    "application/x-gzip": "application/gzip",
    "application/x-zip-compressed": ZIP,
    "application/x-zip": ZIP,
    "application/rtf": "text/rtf",
    "text/xml": "application/xml",
    "application/javascript": "text/javascript",
    "application/x-javascript": "text/javascript",
    "text/x-markdown": "text/markdown",
    "application/x-yaml": "application/yaml",
    "text/yaml": "application/yaml",
    "text/x-sh": "application/x-sh",
    "application/csv": "text/csv",
}
NO_CLAIM = ("application/octet-stream", "binary/octet-stream")
# Containers whose first bytes do not show their content.
FAMILIES: tuple[frozenset[str], ...] = (
    frozenset({"video/mp4", "audio/mp4", "video/quicktime"}),
    frozenset({"video/webm", "audio/webm", "video/x-matroska"}),
    frozenset({"audio/ogg", "video/ogg"}),
    frozenset({"application/msword", "application/vnd.ms-excel", "application/vnd.ms-powerpoint"}),
    frozenset(TEXT) - {SVG},
)
INSIDE_A_ZIP: Mapping[str, str] = {"word/document.xml": DOCX, "xl/workbook.xml": XLSX, "ppt/presentation.xml": PPTX}
ZIPPED = frozenset({ZIP, DOCX, XLSX, PPTX, ODT, ODS, ODP})
ARCHIVES = ZIPPED | {"application/gzip", "application/x-bzip2", "application/x-xz", "application/x-tar"}
READABLE = frozenset({PDF, DOCX, XLSX, PPTX, ODT, ODS, ODP}) | frozenset(TEXT)

_HEAD = 65_536  # bytes; the magic of a tar is at the end of its first header
_END_OF_ZIP, _LAST_OF_ZIP = b"PK\x05\x06", 65_557  # bytes: the record and the longest comment after it
_OPEN_DOCUMENT = re.compile(
    rb"PK\x03\x04.{22}\x08\0.{2}mimetype(application/vnd\.oasis\.opendocument\.(?:text|spreadsheet|presentation))PK",
    re.DOTALL,
)
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_HTML = re.compile(r"<(?:!doctype\s+html|html|head|body|script|iframe)\b", re.IGNORECASE)
# Possessive, so that a text full of comments takes linear time.
_SVG = re.compile(r"\A(?>\s+|<\?xml[^>]*>|<!doctype[^>]*>|<!--.*?-->)*<(?:svg:)?svg[\s>/]", re.IGNORECASE | re.DOTALL)
_BY_NAME = {ending: kind for table in (BINARY, TEXT) for kind, endings in table.items() for ending in endings.split()}
# Characters that reverse the rest of a name, so that it seems to have another extension.
_TURNING = frozenset("\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")


def checked(data: bytes, filename: str | None, claimed: str | None) -> str:
    """Return the media type of a file. Raises `FileRefused` when it is not accepted, or not what it claims to be."""
    found = sniff(data)
    by_header, by_name = _claim(claimed), _from_name(filename)
    for field, said in (("media_type", by_header), ("filename", by_name)):
        if said is not None and not _agree(said, found):
            raise FileRefused(field, f"says {said}, but the bytes are {found}", media_type=found)
    if found in ZIPPED:
        return found
    return next((said for said in (by_header, by_name) if said is not None and said != PLAIN), by_header or found)


def check_name(filename: str) -> str:
    """Check a file name: no path, no line break, no characters that make it look like another."""
    if "/" in filename or "\\" in filename or filename.strip() in ("", ".", ".."):
        raise InvalidInput("filename", "must be a name without a path")
    if any(unicodedata.category(letter) == "Cc" or letter in _TURNING for letter in filename):
        raise InvalidInput("filename", "must not contain control characters")
    return filename


def ending_of(media_type: str) -> str:
    """Return the usual extension, with its dot."""
    endings = BINARY.get(media_type) or TEXT.get(media_type, "")
    return "." + endings.split()[0] if endings else ""


def _claim(claimed: str | None) -> str | None:
    said = (claimed or "").partition(";")[0].strip().lower()
    if not said or said in NO_CLAIM:
        return None
    said = ALIASES.get(said, said)
    if said in BINARY or said in TEXT:
        return said
    if said.startswith("text/"):
        return PLAIN
    raise FileRefused("media_type", f"is not supported. Supported types: {TAKEN}", media_type=said)


def _from_name(filename: str | None) -> str | None:
    ending = (filename or "").rpartition(".")[2].lower() if "." in (filename or "") else ""
    if ending in REFUSED:
        raise FileRefused(
            "filename", f"ends in .{ending}, which is not accepted. Supported types: {TAKEN}", media_type=None
        )
    return _BY_NAME.get(ending)


TAKEN = "images, PDF, text, office documents, audio, video, and archives (zip, tar, gzip, bzip2, xz)"


def _agree(said: str, found: str) -> bool:
    if said == found or (said == ZIP and found in ZIPPED):
        return True
    if found in (SVG, HTML) and said in TEXT and said != SVG:
        return True  # the source of a page is text too
    return any(said in family and found in family for family in FAMILIES)


# ---- recognising the bytes -----------------------------------------------------------------------------------------


def sniff(data: bytes) -> str:
    """Recognise the bytes, whatever the file claims to be. Raises `FileRefused` when they are of no accepted kind."""
    text = decoded(data[: _HEAD + 4], cut=len(data) > _HEAD + 4)
    if text is not None and not data.startswith(b"%PDF-") and not _holds_control(data):
        return SVG if _SVG.match(text) else HTML if _HTML.search(text[:4096]) else PLAIN
    found = _known(_magic(data[:_HEAD]))
    if found == ZIP or (found is not None and found in ZIPPED):
        return _inside(data)
    if found is None:
        raise FileRefused("data", f"is of an unsupported type. Supported types: {TAKEN}", media_type=None)
    return found


def _holds_control(data: bytes) -> bool:
    """Return whether binary data follows a beginning that is text."""
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    return not wide and _CONTROL.search(data) is not None


def decoded(data: bytes, *, cut: bool = False) -> str | None:
    """Decode bytes; None when they are not text. `cut` says that the last character may be incomplete."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return _decode(data[: len(data) & ~1], "utf-16", cut)
    if _CONTROL.search(data):
        return None
    text = _decode(data, "utf-8-sig", cut)
    if text is not None:
        return text
    foreign = sum(byte > 127 for byte in data[:4096])
    return data.decode("cp1252", "replace") if foreign * 3 < len(data[:4096]) else None


def _decode(data: bytes, encoding: str, cut: bool) -> str | None:
    for end in range(len(data), max(0, len(data) - (4 if cut else 1)), -1):
        try:
            text = data[:end].decode(encoding)
        except UnicodeDecodeError:
            continue
        return None if "\0" in text else text
    return "" if not data else None


def _magic(head: bytes) -> list[tuple[float, str]]:
    import puremagic

    try:
        matches = puremagic.magic_string(head)
    except (puremagic.PureError, ValueError):
        return []
    return [(match.confidence, match.mime_type) for match in matches if match.mime_type]


_RANK = {kind: place for place, kind in enumerate(BINARY)}


def _known(matches: Iterable[tuple[float, str]]) -> str | None:
    """Return the likeliest match, if it is of an accepted kind."""
    named = [(-sure, ALIASES.get(kind, kind)) for sure, kind in matches]
    named.sort(key=lambda one: (one[0], _RANK.get(one[1], len(_RANK))))
    return named[0][1] if named and named[0][1] in BINARY else None


def _inside(data: bytes) -> str:
    """Return the kind of a zip by its entries. Its directory is searched, not parsed: it may have a million entries."""
    end = data.rfind(_END_OF_ZIP, max(0, len(data) - _LAST_OF_ZIP))
    if end < 0 or len(data) < end + 22:
        raise FileRefused("data", "begins like a zip file, but is not one", media_type=None)
    declared = _OPEN_DOCUMENT.match(data)
    if declared:
        return declared.group(1).decode()
    size = int.from_bytes(data[end + 12 : end + 16], "little")
    directory = data[max(0, end - size) : end]
    if not _entry("[Content_Types].xml").search(directory):
        return ZIP
    return next((kind for name, kind in INSIDE_A_ZIP.items() if _entry(name).search(directory)), ZIP)


def _entry(name: str) -> re.Pattern[bytes]:
    """Return whether a zip's directory has an entry with exactly this name."""
    header = rb"PK\x01\x02.{24}" + re.escape(len(name).to_bytes(2, "little")) + rb".{16}"
    return re.compile(header + re.escape(name.encode()), re.DOTALL)
