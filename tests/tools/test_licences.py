"""The page of licences has every package that an install brings."""

from __future__ import annotations

import re

from tools.licences import PAGE, licence_of, packages


def test_the_page_lists_the_base_install() -> None:
    """After a change of dependencies, `make licences` writes it."""
    listed = set(re.findall(r"^\| ([a-z0-9-]+) \|", PAGE.read_text(), re.MULTILINE))
    found = packages("palaver")
    assert {"numpy", "apsw", "typer", "pydantic-core"} <= found.keys()
    assert found.keys() <= listed
    assert all(licence_of(package) for package in found.values())
