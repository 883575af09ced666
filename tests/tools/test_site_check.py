"""The check of the built documentation finds what a reader without JavaScript would miss."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.site_check import check

SOURCE = "# Backups\n\nFor operators. Afterwards you can [restore](other.md#steps).\n"
WHOLE = "<h1>Backups</h1><p>For operators. Afterwards you can <a href='other.html#steps'>restore</a>.</p>"
OTHER = "<h2 id='steps'>Steps</h2><p>For everybody. Afterwards you know.</p>"


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    docs, site = tmp_path / "docs", tmp_path / "site"
    docs.mkdir()
    site.mkdir()
    (docs / "backups.md").write_text(SOURCE)
    (docs / "other.md").write_text("# Other\n\nFor everybody. Afterwards you know.\n")
    (site / "other.html").write_text(OTHER)
    return docs, site


@pytest.mark.parametrize(
    ("html", "problem"),
    [
        (WHOLE, ""),
        (f"<script>document.write(`{WHOLE}`)</script>", "first paragraph is not in it without JavaScript"),
        (WHOLE.replace("other.html", "gone.html"), "gone.html#steps leads nowhere"),
        (WHOLE.replace("#steps", "#gone"), "other.html#gone names an anchor that is not there"),
        (WHOLE + "<a href='../docs/backups.md'>out</a>", "../docs/backups.md leads nowhere"),
        (WHOLE + "<img src='https://example.org/x.png'>", "loads https://example.org/x.png from another host"),
        (WHOLE + "<script src='//example.org/x.js'></script>", "loads //example.org/x.js from another host"),
        (WHOLE + "<img src='gone.png'>", "gone.png leads nowhere"),
        (WHOLE + "<a href='https://example.org'>a link</a><link rel=canonical href='https://example.org'>", ""),
        (None, "is not built"),
    ],
)
def test_each_fault_is_named(folders: tuple[Path, Path], html: str | None, problem: str) -> None:
    docs, site = folders
    if html is not None:
        (site / "backups.html").write_text(html)
    found = check(site, docs)
    assert len(found) == bool(problem), found
    assert not problem or problem in found[0]


def test_a_site_is_read_again_when_it_was_built_again(folders: tuple[Path, Path]) -> None:
    docs, site = folders
    for html, problems in ((WHOLE, 0), (WHOLE + "<img src='gone.png'>", 1)):
        (site / "backups.html").write_text(html)
        assert len(check(site, docs)) == problems
