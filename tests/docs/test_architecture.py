"""ARCHITECTURE.md names only files and folders that exist."""

from __future__ import annotations

import re
from pathlib import Path

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
