"""The check of wording finds the phrases of the style guide, and leaves ordinary English alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.prose_check import Prose, find, main, markers_in, read_allowances, sentences

from tools import prose_check

FOUND = [
    ("what…", "What a store is made of."),
    ("what…", "Who must read what was written opens a store without it."),
    ("whoever", "It is closed by whoever opened it."),
    ("answers", "Delete them, and answer how many there were."),
    ("answers", "The same again answers with what was stored first."),
    ("answers", "It answers 404."),
    ("so many", "For so many days."),
    ("so many", "so long must nobody have written"),
    ("is no", "This is no key of this server"),
    ("is no", "keys that are no text"),
    ("also when", "It is deleted, also when it was edited."),
    ("anew", "Begin anew."),
    ("meanwhile", "The thread changed meanwhile."),
    ("of late", "Those that wrote of late."),
    ("beside", "It never runs beside another call."),
    ("somebody", "Unless somebody has written one."),
    ("somebody", "For one who has not counted."),
    ("tell", "The readers are told."),
    ("hear", "Those who wait hear of it."),
    ("taken for", "It is taken for dead."),
    ("came of it", "Here is what came of it."),
    ("broke off", "The answer broke off."),
    ("slip of the pen", "A slip of the pen is no silent loss."),
    ("house", "The server keeps house every minute."),
    ("verb", "Every verb needs a right."),
    ("mend", "A restart would not mend it."),
    ("goes on", "The server goes on with the rest."),
    ("the very", "It continues at the very character."),
    ("stands before", "The text stands at the head of the message."),
    ("made again", "The worker makes it again."),
    ("made again", "The index is damaged and is made again."),
    ("in the making", "An answer in the making is kept."),
    ("believe", "Nobody else is believed."),
    ("of ours", "Unless it is a block of ours."),
    ("remembered of", "What is remembered of the person."),
    ("all the same", "It is stored all the same."),
    ("to be had", "There is none to be had here."),
    ("for want of", "Left out, for want of a role."),
    ("an own", "In an own conversation."),
    ("become of", "Print what became of every message."),
    ("for good", "Delete every note for good."),
    ("by the clock", "It took 52 ms by the clock."),
    ("inside of", "The row was changed outside of Palaver."),
    ("as … as can be", "Functions as thin as can be."),
    ("in sight", "The goal is not in sight."),
    ("says so", "It is shortened, and `shortened` says so."),
    ("the latter", "The latter is kept."),
]
HARMLESS = [
    "Whether the turn is stored.",
    "What's new",
    "What is stored?",
    "Says what is stored.",
    "Whole numbers only.",
    "The answers of the model, newest first.",
    "An answer with the finish reason stop.",
    "Answers in progress.",
    "So that a typo is not ignored.",
    "It waits as long as the lock is held, and so long as nobody closes it.",
    "There is no such turn.",
    "If there are no turns, return an empty list.",
    "The turn is no longer there; it was no more than a stub.",
    "Indexed, and also in the log.",
    "Besides, it is fast.",
    "The two cannot be told apart, and no reader could tell whether it was one.",
    "Use `tell` or `hear` in code.",
    "It goes on disk, at the very latest when the store is closed.",
    "A model's count as a multiple of ours.",
    "It is refused for good reasons.",
    "Guarantees about the inside of a process.",
]


@pytest.mark.parametrize(("marker", "sentence"), FOUND)
def test_a_marker_is_found(marker: str, sentence: str) -> None:
    assert marker in [one.name for one in markers_in(sentence)]


@pytest.mark.parametrize("sentence", HARMLESS)
def test_ordinary_english_is_left_alone(sentence: str) -> None:
    assert [marker.name for piece in sentences(Prose(1, sentence)) for marker in markers_in(piece.text)] == []


def _findings(path: Path, text: str) -> list[tuple[int, str]]:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return [(finding.line, finding.marker.name) for finding in find([path])]


def test_python_docstrings_comments_and_strings_are_read(tmp_path: Path) -> None:
    text = '''"""A module.

What it does.
"""
# A comment over two lines, changed
# meanwhile. Fine.
NAME = "anew"  # made anew
MESSAGE = f"{NAME!r} is no name for a tool"
def meanwhile(): "Begin `anew`."
'''
    expected = [(3, "what…"), (5, "meanwhile"), (7, "anew"), (8, "is no")]
    assert _findings(tmp_path / "a.py", text) == expected


def test_strings_of_tests_are_data(tmp_path: Path) -> None:
    text = '"""Begin anew."""\nSAID = "I told you so, anew."\n'
    assert _findings(tmp_path / "tests" / "a.py", text) == [(1, "anew")]


def test_sql_comments_are_read_and_strings_are_not(tmp_path: Path) -> None:
    text = "-- a turn\n-- written anew\nSELECT 'told -- anew';\n/* of late */ SELECT 1;\n"
    assert _findings(tmp_path / "a.sql", text) == [(1, "anew"), (4, "of late")]


@pytest.mark.parametrize("suffix", [".ts", ".tsx", ".css"])
def test_comments_of_the_web_app_are_read_and_strings_are_not(tmp_path: Path, suffix: str) -> None:
    text = 'a = "told // anew";\n/* What is\n * shown. */\n'
    assert _findings(tmp_path / f"a{suffix}", text) == [(2, "what…")]


def test_markdown_is_read_without_code_and_headings(tmp_path: Path) -> None:
    text = "# What it is\n\nA page.\n\n```\n# told\n```\n\nBegin anew.\n"
    assert _findings(tmp_path / "a.md", text) == [(9, "anew")]


def test_a_text_file_is_read_only_if_it_is_named(tmp_path: Path) -> None:
    page = tmp_path / "llms.txt"
    page.write_text("Begin anew.\n")
    assert [one.marker.name for one in find([page])] == ["anew"]
    assert find([tmp_path]) == []


def test_some_markers_are_for_pages_only(tmp_path: Path) -> None:
    sentence = "Each verb is one transaction."
    (tmp_path / "page.md").write_text(sentence)
    (tmp_path / "module.py").write_text(f'"""{sentence}"""')
    assert [finding.path.name for finding in find([tmp_path])] == ["page.md"]


def test_an_allowed_sentence_is_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page, allowed = tmp_path / "a.md", tmp_path / "allowed.toml"
    page.write_text("The panel beside the chat. Begin anew.\n")
    allowed.write_text(
        '[[allow]]\nmarker = "beside"\ntext = "panel beside the chat"\nreason = "a place on the screen"\n'
    )
    monkeypatch.setattr(prose_check, "read_allowances", lambda: read_allowances(allowed))
    assert main([str(page)]) == 1
    printed = capsys.readouterr().out
    assert "a.md:1: anew" in printed
    assert "beside" not in printed
    assert "1 findings" in printed
    assert main([str(page), "--list"]) == 0


def test_every_allowance_has_a_reason_and_a_marker_that_exists() -> None:
    names = {marker.name for marker in prose_check.MARKERS}
    for allowance in read_allowances():
        assert allowance.reason
        assert allowance.marker in names


@pytest.mark.costly  # make lint runs it, too
def test_the_enforced_paths_are_clean() -> None:
    assert main([]) == 0
