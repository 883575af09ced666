"""The page of licences has every package that an install brings."""

from __future__ import annotations

import re

from tools.licences import PAGE, licence_of, needs, packages


def test_the_page_lists_the_base_install() -> None:
    """After a change of dependencies, `make licences` writes it."""
    listed = set(re.findall(r"^\| ([a-z0-9-]+) \|", PAGE.read_text(), re.MULTILINE))
    found = packages("palaver")
    assert {"numpy", "apsw", "typer", "pydantic-core"} <= found.keys()
    assert found.keys() <= listed
    assert all(licence_of(package) for package in found.values())


def test_a_requirement_of_other_pythons_or_extras_is_left_out() -> None:
    """A package that is installed for another reason must not appear on the page."""
    requirements = [
        "plain>=1",
        "backport; python_version < '3.11'",
        "backport-with-patch; python_full_version < '3.11.3'",
        "newer; python_version >= '3.14'",
        "wanted[some]; extra == 'files' and python_version >= '3.8'",
        "both; extra == 'files' and python_version < '3.11'",
        "unwanted; extra == 'dev'",
        "elsewhere; sys_platform == 'an operating system that nobody has'",
    ]
    assert [one.name for one in needs(requirements, {"files"})] == ["plain", "backport-with-patch", "newer", "wanted"]
