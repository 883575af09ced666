"""Which files are taken: by their bytes, and only when a name or a type says nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.errors import FileRefused, InvalidInput
from palaver.files.kinds import DOCX, ZIP, check_name, checked, decoded, sniff
from tests.files.samples import REFUSED, TAKEN, zipped
from tests.support.examples import examples


@pytest.mark.parametrize("ending", TAKEN)
def test_what_is_taken_has_its_type_with_a_name_and_by_itself(ending: str) -> None:
    kind, data = TAKEN[ending]
    assert checked(data, f"File.{ending.upper()}", None) == kind
    assert checked(data, None, kind) == kind
    assert checked(data, f"file.{ending}", "application/octet-stream") == kind
    checked(data, None, None)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_something_else_is_refused(name: str) -> None:
    with pytest.raises(FileRefused):
        checked(REFUSED[name], None, None)


ALIKE = ({"mp4", "m4a", "mov"}, {"txt", "md", "csv", "json", "html", "py"})  # the bytes cannot tell these apart
PACKED = {"docx", "xlsx", "pptx", "odt"}


def is_true(said: str, real: str) -> bool:
    is_source = real == "svg" and said in ALIKE[1]
    return said == real or any({said, real} <= one for one in ALIKE) or is_source or (said == "zip" and real in PACKED)


@pytest.mark.parametrize("real", TAKEN)
def test_a_lie_is_found_out_whichever_way_it_is_told(real: str) -> None:
    data = TAKEN[real][1]
    for said in TAKEN:
        for name, header in ((f"x.{said}", None), (None, TAKEN[said][0])):
            if is_true(said, real):
                checked(data, name, header)
                continue
            with pytest.raises(FileRefused) as refusal:
                checked(data, name, header)
            assert refusal.value.field == ("filename" if name else "media_type")


def test_a_document_that_calls_itself_a_zip_is_what_it_is_and_a_zip_is_no_document() -> None:
    assert checked(TAKEN["docx"][1], "x.zip", ZIP) == DOCX
    with pytest.raises(FileRefused):
        checked(zipped({"word/document.xml": "<x/>"}), "x.docx", DOCX)


@pytest.mark.parametrize("name", ["setup.exe", "lib.so", "archive.rar", "archive.7z", "app.jar"])
def test_programs_are_refused_by_name_as_well(name: str) -> None:
    with pytest.raises(FileRefused) as refusal:
        checked(b"only text", name, None)
    assert refusal.value.field == "filename"


@pytest.mark.parametrize("kind", ["application/x-msdownload", "application/java-archive", "x", "image/x-unheard-of"])
def test_a_type_that_nobody_takes_is_refused(kind: str) -> None:
    with pytest.raises(FileRefused) as refusal:
        checked(b"only text", None, kind)
    assert refusal.value.field == "media_type"


def test_text_of_any_kind_is_text() -> None:
    assert sniff(b"") == "text/plain"
    assert sniff("日本語".encode("utf-16")) == "text/plain"
    assert checked(b"fn main() {}", "main.rs", "text/x-rust") == "text/plain"
    assert decoded(b"ab\0") is None
    assert sniff(("x" * 65_539 + "ü" * 10).encode()) == "text/plain", "a letter that is cut in two is still one"
    with pytest.raises(FileRefused):
        sniff(b"text at first " * 10_000 + b"\0\x01\x02")


def test_a_text_full_of_comments_is_looked_at_in_no_time() -> None:
    assert sniff(b"<!---->" * 9_000) == "text/plain"  # or never: the time doubles with each comment


@pytest.mark.parametrize(
    "name", ["../x", "a/b", "a\\b", "..", ".", " ", "a\nb", "a\0b", "x\u202egnp.exe", "x\u061cy.txt"]
)
def test_a_path_is_no_name(name: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        check_name(name)
    assert refusal.value.field == "filename"
    assert name not in str(refusal.value) or len(name) < 3


@given(st.binary(max_size=300), st.text(max_size=20), st.text(max_size=20))
@examples(50)
def test_whatever_comes_is_taken_or_refused(data: bytes, name: str, kind: str) -> None:
    for start in (b"", b"PK\x03\x04", b"%PDF-", b"\x1f\x8b", b"<svg", b"\xff\xfe"):
        try:
            checked(start + data, name, kind)
        except FileRefused:
            pass
