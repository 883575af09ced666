"""Write docs/reference/licences.md: the licence of every package that an install brings, from the packages' metadata.

`python -m tools.licences` runs in an environment with `palaver[all]`; `make licences` does. What else is
installed there does not change the page: a requirement counts only if its marker is true on a version of Python that
Palaver supports.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

PAGE = Path(__file__).parents[1] / "docs/reference/licences.md"
BASE, ALL = "palaver", "palaver[all]"
INTRO = """# Licences of dependencies

This page is for lawyers and packagers.
By the end, you know the licences of the packages that an install of Palaver brings.

Palaver itself: Apache-2.0. This page is written by `make licences` from the packages' own metadata; `make sbom` writes
the same as CycloneDX, with versions. The web app inside the wheel has lists of its own, `LICENSES.md` and
`LICENSES-diagrams.md` in `palaver/server/web/static`. The model for recall is Apache-2.0: see its `NOTICE`. The token
tables `cl100k_base` and `o200k_base` are those of tiktoken (MIT License, Copyright 2022 OpenAI, Shantanu Jain).
"""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def packages(requirement: str) -> dict[str, Distribution]:
    """Return every installed package that a requirement needs, directly or through others, by its name."""
    found: dict[str, Distribution] = {}
    todo, seen = [Requirement(requirement)], set()
    while todo:
        one = todo.pop()
        key = (normal(one.name), frozenset(one.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            package = distribution(one.name)
        except PackageNotFoundError:
            continue  # for another system
        found[normal(one.name)] = package
        todo += needs(package.requires or (), one.extras)
    found.pop("palaver", None)
    return found


def needs(requirements: Iterable[str], extras: Iterable[str]) -> Iterator[Requirement]:
    """Yield those that apply with these extras, on this system and a version of Python that Palaver supports."""
    for text in requirements:
        one = Requirement(text)
        environments = [
            {"python_version": version, "python_full_version": f"{version}.0", "extra": extra}
            for version in PYTHONS
            for extra in ("", *extras)
        ]
        if one.marker is None or any(one.marker.evaluate(environment) for environment in environments):
            yield one


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def licence_of(package: Distribution) -> str:
    """Return the SPDX expression, or what an older package says instead."""
    if expression := package.metadata.get("License-Expression"):
        return str(expression)
    classifiers = package.metadata.get_all("Classifier") or []
    named = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License ::")]
    short = str(package.metadata.get("License") or "").strip().splitlines()
    return ", ".join(named) or (short[0] if short and len(short[0]) < 60 else "see the package")


def table(found: dict[str, Distribution]) -> str:
    rows = [f"| {name} | {licence_of(package)} |" for name, package in sorted(found.items())]
    return "\n".join(["| package | licence |", "|---|---|", *rows])


def main() -> None:
    base = packages(BASE)
    more = {name: package for name, package in packages(ALL).items() if name not in base}
    parts = [
        INTRO,
        "## `pip install palaver`\n",
        table(base),
        "",
        '## In addition with `"palaver[all]"`\n',
        table(more),
    ]
    PAGE.write_text("\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
