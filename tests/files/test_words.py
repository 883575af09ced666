"""The text of files, read in a separate process, which is stopped if it takes too much time or memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from palaver.errors import FileRefused
from palaver.files import sandbox
from palaver.files.kinds import DOCX, ODT, PDF, PPTX, XLSX
from palaver.files.texts import MAX_CHARACTERS
from tests.files.samples import LETTER, SHEET, SLIDES, TAKEN, WORD, docx, pdf, zipped

pytestmark = pytest.mark.process  # each file is read in one

PAGE = b"<title>T</title><script>bad()</script><style>p{}</style><p>One</p><p>Two &amp; more"


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        (PDF, pdf("The zanzibar clause", "ends in March."), "The zanzibar clause\n\nends in March."),
        (DOCX, WORD, "The zanzibar clause\nends in\tMarch."),
        (XLSX, SHEET, "Name\t42\nZanzibar\tinline"),
        (PPTX, SLIDES, "Second\n\nTenth"),
        (ODT, LETTER, "Title\nSome words"),
        ("text/html", PAGE, "T\n\nOne\n\nTwo & more"),
        ("text/plain", "Größe\r\nzwei".encode("utf-16"), "Größe\nzwei"),
        ("text/csv", "Straße".encode("cp1252"), "Straße"),
    ],
    ids="pdf docx xlsx pptx odt html utf-16 cp1252".split(),
)  # fmt: skip
async def test_words_are_read(kind: str, data: bytes, text: str) -> None:
    assert await sandbox.extract(kind, data) == sandbox.Extracted(text)


@pytest.mark.parametrize(
    ("kind", "data", "problem"),
    [
        (PDF, pdf("secret", password="x"), "needs a password"),
        (PDF, b"%PDF-1.7\nnothing", "is damaged"),
        (PDF, pdf(""), "holds no text"),
        (DOCX, b"PK\x03\x04 no zip", "is damaged"),
        (DOCX, docx("<a><b></a>"), "is damaged"),
        (DOCX, docx('<!DOCTYPE a [<!ENTITY x "ha">]><a>&x;</a>'), "contains a document type declaration"),
        (XLSX, zipped({"xl/worksheets/sheet1.xml": '<s><row><c t="s"><v>9</v></c></row></s>'}), "holds no text"),
        ("image/png", TAKEN["png"][1], "holds no text"),
        ("application/zip", TAKEN["zip"][1], "holds no text"),
    ],
    ids="password damaged empty no-zip no-xml entities lost-strings picture archive".split(),
)
async def test_what_cannot_be_read_says_why_in_our_own_words(kind: str, data: bytes, problem: str) -> None:
    found = await sandbox.extract(kind, data)
    assert found.text == ""
    assert problem in (found.problem or "")


async def test_no_more_is_read_than_anybody_wants() -> None:
    found = await sandbox.extract("text/plain", b"word " * 1_000_000)
    assert len(found.text) <= MAX_CHARACTERS
    xml = "<w:document><w:p><w:t>" + "word " * 2_000_000 + "</w:t></w:p></w:document>"
    assert len((await sandbox.extract(DOCX, docx(xml))).text) <= MAX_CHARACTERS


async def test_a_file_that_takes_too_long_is_given_up() -> None:
    assert (await sandbox.extract(PDF, pdf("slow"), wait_seconds=0.001)).problem == sandbox.TOO_SLOW
    with pytest.raises(FileRefused):
        await sandbox.check_archive("application/zip", TAKEN["zip"][1], wait_seconds=0.001)


def child(code: str) -> subprocess.CompletedProcess[str]:
    script = f"from palaver.files import child; child.SECONDS = 1; child.limit()\n{code}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)


def test_the_process_has_little_memory_little_time_and_writes_nothing(tmp_path: Path) -> None:
    assert "MemoryError" in child("bytearray(3_000_000_000)").stderr
    assert child("while True: pass").returncode < 0, "the system has ended it"
    assert child(f"open({str(tmp_path / 'x')!r}, 'w').write('x' * 100_000)").returncode != 0
    assert not (tmp_path / "x").exists() or not (tmp_path / "x").read_bytes()


async def test_so_many_processes_at_once_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may take a gigabyte: a client that sends a hundred archives at once must not get a hundred processes."""
    now, most = 0, 0

    async def asked(*_: object) -> dict[str, str]:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return {"text": "read"}

    monkeypatch.setattr(sandbox, "run_child", asked)
    found = await asyncio.gather(*(sandbox.extract("text/plain", b"x") for _ in range(20)))
    assert [one.text for one in found] == ["read"] * 20
    assert most == sandbox.AT_ONCE


async def test_the_process_knows_no_secret(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    shown = tmp_path / "python"
    shown.write_text("#!/bin/sh\ncat >/dev/null\nprintf '{\"text\": \"%s\"}' \"$(env | cut -d= -f1 | tr '\\n' ' ')\"\n")
    shown.chmod(0o755)
    monkeypatch.setattr(sandbox.sys, "executable", str(shown))
    names = (await sandbox.extract("text/plain", b"x")).text.split()
    assert "PATH" in names
    assert "OPENAI_API_KEY" not in names


async def test_an_answer_that_is_none_is_no_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for says in ("garbage", "[1]", ""):
        shown = tmp_path / "python"
        shown.write_text(f"#!/bin/sh\ncat >/dev/null\nprintf '{says}'\n")
        shown.chmod(0o755)
        monkeypatch.setattr(sandbox.sys, "executable", str(shown))
        found = await sandbox.extract("text/plain", b"x")
        assert found.text == ""
        assert found.problem
