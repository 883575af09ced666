"""Numbered migrations, read from a package. An engine applies each once, under its lock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files

_NAME = re.compile(r"^(\d{4})_(\w+)\.sql$")


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    sql: str


def migrations(package: str) -> list[Migration]:
    """Return the migrations of this version, in order."""
    found = []
    for file in files(package).iterdir():
        if match := _NAME.match(file.name):
            found.append(Migration(int(match[1]), match[2], file.read_text()))
    return sorted(found, key=lambda migration: migration.number)
