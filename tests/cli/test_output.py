"""Tables on terminals of any width."""

from __future__ import annotations

import pytest
from rich.console import Console

from palaver.cli import output

ROWS = [("omission note", "15", "says that something is missing"), ("memory", "1,074", "working memory and facts")]


@pytest.mark.parametrize("width", [80, 50, 40])
def test_a_narrow_terminal_cuts_only_the_wide_column(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "console", lambda: Console(width=width, markup=False))
    output.table(("block", "tokens", "why"), ROWS, wide="why")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= width
    assert all(line.split("  ")[0] == block for line, (block, *_) in zip(lines[1:], ROWS, strict=True))
    assert ("1,074" in lines[2], "tokens" in lines[0]) == (True, True)
    assert all(line.rstrip().endswith("…") for line in lines[1:]) == (width < 50)


def test_a_row_may_have_fewer_cells(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("id", "turns", "title"), [("Today",), ("a", "2", "Peanuts")], wide="title")
    assert [line.split() for line in capsys.readouterr().out.splitlines()[1:]] == [["Today"], ["a", "2", "Peanuts"]]
