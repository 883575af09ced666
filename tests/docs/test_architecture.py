"""ARCHITECTURE.md and the other pages for contributors name only files, folders and commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
# `conversations/append.py` is a file of the package; `tests/crash` is a path of the repository.
NAMED = re.compile(r"`((?:[a-z_]+/)+[a-z_]*(?:\.py|\.md)?|[a-z_]+\.py)`")


def test_every_path_exists() -> None:
    paths = NAMED.findall(PAGE)
    missing = [path for path in paths if not (ROOT / path).exists() and not (ROOT / "src/palaver" / path).exists()]
    assert len(paths) > 30
    assert not missing


def test_every_package_is_in_the_tree() -> None:
    packages = {one.name for one in (ROOT / "src/palaver").iterdir() if one.is_dir() and not one.name.startswith("__")}
    shown = set(re.findall(r"^  ([a-z]+)/ ", PAGE, re.MULTILINE))
    assert shown == packages


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "ARCHITECTURE.md", "CHANGELOG.md"])
def test_every_path_and_make_target_of_a_page_exists(name: str) -> None:
    page = (ROOT / name).read_text()
    targets = set(" ".join(re.findall(r"^([a-z][\w -]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)).split())
    assert set(re.findall(r"(?:^|`)make ([a-z][\w-]*)", page, re.MULTILINE)) <= targets
    paths = re.findall(r"`((?:tests|docs|tools|deploy|examples|bench|clients)/[\w./-]*)`", page)
    assert [path for path in paths if not (ROOT / path).exists()] == []
