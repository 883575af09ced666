"""Every Python block in the README and in docs/ runs."""

from __future__ import annotations

import re
import subprocess
import sys
from os import environ
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text())]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_documented_code_runs(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The blocks of a page one after another, as a reader would try them."""
    code = "\n".join(BLOCK.findall(page.read_text()))
    more = {"DATABASE_URL": request.getfixturevalue("postgres_url")} if "DATABASE_URL" in code else {}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environ | more, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_inside_the_project_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text()):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), target
