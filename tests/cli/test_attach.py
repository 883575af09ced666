"""palaver attach, attachments, attachment: files in, listed, and out again."""

from __future__ import annotations

from pathlib import Path

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


def test_files_are_stored_listed_and_got_back(ok, lines):
    Path("note.txt").write_text("The gate opens at nine.")
    Path("cat.png").write_bytes(PNG)
    assert "2 files with turn 0" in ok("attach", "support/42", "note.txt", "cat.png", "--text", "See these.")
    (turn,) = lines("show", "support/42")
    assert turn["content"] == "See these."
    picture, note = lines("attachments", "support/42")
    assert (picture["filename"], picture["media_type"], picture["turn"]) == ("cat.png", "image/png", turn["id"])
    assert "path" not in picture
    assert "cat.png" in ok("attachments", "support/42")
    ok("attachment", "support/42", picture["id"], "-o", "back.png")
    assert Path("back.png").read_bytes() == PNG
    assert ok("attachment", "support/42", note["id"], "--text").strip() == "The gate opens at nine."


def test_nothing_is_overwritten_and_a_picture_says_nothing(ok, cli, lines):
    Path("cat.png").write_bytes(PNG)
    ok("attach", "support/42", "cat.png")
    (file,) = lines("attachments", "support/42")
    refused = cli("attachment", "support/42", file["id"])
    assert refused.exit_code == 1
    assert "exists already: name another file with -o" in refused.stderr
    assert lines("attachment", "support/42", file["id"], "--text")[0]["problem"] == "holds no text"


def test_a_file_that_lies_is_refused_and_stores_nothing(cli, lines):
    Path("cat.png").write_text("no cat")
    refused = cli("attach", "support/42", "cat.png")
    assert refused.exit_code == 1
    assert "says image/png, but the bytes are text/plain" in refused.stderr
    assert lines("show", "support/42") == []


def test_files_live_where_the_environment_says(ok, monkeypatch, tmp_path):
    monkeypatch.setenv("PALAVER_FILES", str(tmp_path / "elsewhere"))
    Path("note.txt").write_text("x")
    ok("attach", "support/42", "note.txt")
    assert [one.read_text() for one in (tmp_path / "elsewhere").rglob("*.txt")] == ["x"]
