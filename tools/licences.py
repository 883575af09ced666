"""Write docs/reference/licences.md: the licence of every package that an install brings, from the packages' metadata.

`python -m tools.licences` runs in an environment with `palaver[all]`; `make licences` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs/reference/licences.md"
BASE, ALL = "palaver", "palaver[all]"
INTRO = """# Licences of dependencies

For lawyers and packagers. Afterwards you know the licences of the packages that an install of Palaver brings.

Palaver itself: Apache-2.0. This page is written by `make licences` from the packages' own metadata; `make sbom` writes
the same as CycloneDX, with versions. The web app inside the wheel has lists of its own, `LICENSES.md` and
`LICENSES-diagrams.md` in `palaver/server/web/static`. The model for recall is Apache-2.0: see its `NOTICE`.
"""
_NAME = re.compile(r"^([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")


def packages(requirement: str) -> dict[str, Distribution]:
    """Return every installed package that a requirement needs, directly or through others, by its name."""
    found: dict[str, Distribution] = {}
    todo, seen = [requirement], set()
    while todo:
        one = todo.pop()
        if one in seen:
            continue
        seen.add(one)
        name, extras = _parse(one)
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue  # for another system or version of Python
        found[normal(name)] = package
        todo += _needs(package, extras)
    found.pop("palaver", None)
    return found


def _parse(requirement: str) -> tuple[str, set[str]]:
    match = _NAME.match(requirement)
    assert match is not None, requirement
    return match[1], {extra.strip() for extra in (match[2] or "").split(",") if extra.strip()}


def _needs(package: Distribution, extras: set[str]) -> Iterator[str]:
    for requirement in package.requires or ():
        what, _, condition = requirement.partition(";")
        named = _EXTRA.findall(condition)
        if not named or set(named) & extras:
            yield _NAME.match(what.strip())[0]  # type: ignore[index]


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
