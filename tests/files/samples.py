"""Files of every kind that is taken, as small as they can be, and some that are not."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile

from palaver.files.kinds import DOCX, ODT, PPTX, XLSX


def zipped(files: dict[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            packed = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED  # as OpenDocument has it
            archive.writestr(name, data, packed)
    return out.getvalue()


def tarred(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def docx(xml: str) -> bytes:
    return zipped({"[Content_Types].xml": "<Types/>", "word/document.xml": xml})


def pdf(*pages: str, password: str | None = None) -> bytes:
    from reportlab.lib import pdfencrypt
    from reportlab.pdfgen.canvas import Canvas

    out = io.BytesIO()
    canvas = Canvas(out, encrypt=pdfencrypt.StandardEncryption(password) if password else None)
    for page in pages:
        canvas.drawString(72, 700, page)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


WORD = docx(
    '<w:document xmlns:w="w"><w:body><w:p><w:r><w:t>The zanzibar clause</w:t></w:r></w:p>'
    "<w:p><w:r><w:t>ends in</w:t><w:tab/><w:t>March.</w:t></w:r></w:p></w:body></w:document>"
)
SHEET = zipped(
    {
        "[Content_Types].xml": "<Types/>",
        "xl/workbook.xml": "<workbook/>",
        "xl/sharedStrings.xml": "<sst><si><t>Name</t></si><si><r><t>Zan</t></r><r><t>zibar</t></r></si></sst>",
        "xl/worksheets/sheet1.xml": '<worksheet><sheetData><row><c t="s"><v>0</v></c><c><v>42</v></c></row>'
        '<row><c t="s"><v>1</v></c><c t="inlineStr"><is><t>inline</t></is></c></row></sheetData></worksheet>',
    }
)
SLIDES = zipped(
    {
        "[Content_Types].xml": "<Types/>",
        "ppt/presentation.xml": "<p/>",
        "ppt/slides/slide10.xml": '<p:sld xmlns:p="p" xmlns:a="a"><a:p><a:t>Tenth</a:t></a:p></p:sld>',
        "ppt/slides/slide2.xml": '<p:sld xmlns:p="p" xmlns:a="a"><a:p><a:t>Second</a:t></a:p></p:sld>',
    }
)
LETTER = zipped(
    {
        "mimetype": ODT,
        "content.xml": '<o:document-content xmlns:o="o" xmlns:text="t"><o:body><text:h>Title</text:h>'
        "<text:p>Some <text:span>words</text:span></text:p></o:body></o:document-content>",
    }
)

TAKEN: dict[str, tuple[str, bytes]] = {
    "png": ("image/png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(40)),
    "jpg": ("image/jpeg", b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01" + bytes(50)),
    "gif": ("image/gif", b"GIF89a" + bytes(30)),
    "webp": ("image/webp", b"RIFF\x24\0\0\0WEBPVP8 " + bytes(30)),
    "bmp": ("image/bmp", b"BM" + struct.pack("<I", 100) + bytes(90)),
    "tiff": ("image/tiff", b"II*\0" + bytes(40)),
    "avif": ("image/avif", b"\0\0\0\x1cftypavif" + bytes(30)),
    "heic": ("image/heic", b"\0\0\0\x18ftypheic" + bytes(30)),
    "pdf": ("application/pdf", b"%PDF-1.7\n%\xe2\xe3\n" + b" " * 50),
    "docx": (DOCX, WORD),
    "xlsx": (XLSX, SHEET),
    "pptx": (PPTX, SLIDES),
    "odt": (ODT, LETTER),
    "doc": ("application/msword", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(500)),
    "mp3": ("audio/mpeg", b"ID3\x04\0\0\0\0\0\0" + bytes(40)),
    "wav": ("audio/wav", b"RIFF\x24\0\0\0WAVEfmt " + bytes(30)),
    "flac": ("audio/flac", b"fLaC\0\0\0\x22" + bytes(30)),
    "ogg": ("audio/ogg", b"OggS\0\x02" + bytes(22) + b"\x01\x1e\x01vorbis" + bytes(20)),
    "m4a": ("audio/mp4", b"\0\0\0\x1cftypM4A " + bytes(30)),
    "mp4": ("video/mp4", b"\0\0\0\x18ftypisom\0\0\0\0isomiso2" + bytes(30)),
    "mov": ("video/quicktime", b"\0\0\0\x14ftypqt  " + bytes(30)),
    "webm": ("video/webm", b"\x1aE\xdf\xa3\x9fB\x86\x81\x01B\xf7\x81\x01B\xf2\x81\x04B\x82\x84webm" + bytes(30)),
    "avi": ("video/x-msvideo", b"RIFF\x24\0\0\0AVI LIST" + bytes(30)),
    "zip": ("application/zip", zipped({"a.txt": "x"})),
    "gz": ("application/gzip", gzip.compress(b"hello")),
    "bz2": ("application/x-bzip2", bz2.compress(b"hello")),
    "xz": ("application/x-xz", lzma.compress(b"hello")),
    "tar": ("application/x-tar", tarred({"a.txt": b"abc"})),
    "txt": ("text/plain", b"BMW and MZ and ID3 are words."),
    "md": ("text/markdown", b"# Title"),
    "csv": ("text/csv", "Straße,1\n".encode("cp1252")),
    "json": ("application/json", b'{"a": 1}'),
    "html": ("text/html", b"<!DOCTYPE html><html><script>alert(1)</script>"),
    "svg": ("image/svg+xml", b'<?xml version="1.0"?><!-- x --><svg xmlns="http://www.w3.org/2000/svg"/>'),
    "py": ("text/x-python", "print('ü')".encode()),
}  # fmt: skip
REFUSED: dict[str, bytes] = {
    "elf": b"\x7fELF\x02\x01\x01" + bytes(40),
    "exe": b"MZ\x90\0" + bytes(60),
    "class": b"\xca\xfe\xba\xbe\0\0\0\x37" + bytes(30),
    "7z": b"7z\xbc\xaf\x27\x1c" + bytes(40),
    "rar": b"Rar!\x1a\x07\x01\0" + bytes(30),
    "sqlite": b"SQLite format 3\0" + bytes(50),
    "bytes": bytes(range(256)),
    "broken zip": b"PK\x03\x04" + bytes(60),
}
