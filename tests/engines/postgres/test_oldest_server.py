"""The schema uses nothing that Postgres 15, the oldest supported server, does not have.

`make postgres URL=…` runs the tests on a given server. This file needs none: it reads the SQL.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import palaver.engines.postgres

FOLDER = Path(palaver.engines.postgres.__file__).parent
FILES = sorted(FOLDER.rglob("*.sql"))
COMMENT = re.compile(r"--[^\n]*")
# Features of Postgres 16 or later, and what to use instead.
NEWER = {
    r"pg_has_role\s*\([^;]*?'SET": "ask for 'SET' only where server_version_num says 16 or newer (see grants.sql)",
    r"\bpg_input_(is_valid|error_info)\b": "cast inside a block with an exception handler",
    r"\bIS\s+(NOT\s+)?JSON\b": "cast inside a block with an exception handler",
    r"\bany_value\s*\(": "use min or max",
    r"\barray_(sample|shuffle|sort|reverse)\s*\(": "use unnest and ORDER BY",
    r"\bWITH\s+(INHERIT|SET)\s+(TRUE|FALSE|OPTION)\b": "GRANT without options",
    r"\b(uuidv7|casefold|crc32|random_normal)\s*\(": "not in Postgres 15",
    r"\bJSON_(TABLE|QUERY|EXISTS|VALUE|SERIALIZE|SCALAR)\s*\(": "use the functions of jsonb",
    r"\bMERGE\b[^;]*\bRETURNING\b": "use INSERT … ON CONFLICT",
}


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(FOLDER).as_posix())
def test_the_oldest_server_knows_everything_that_is_used(file: Path) -> None:
    sql = COMMENT.sub("", file.read_text())
    assert {pattern: hint for pattern, hint in NEWER.items() if re.search(pattern, sql, re.IGNORECASE)} == {}


def test_the_rules_find_what_they_are_for() -> None:
    """The line that kept Postgres 15 from taking the schema."""
    line = "IF NOT pg_has_role(current_user, name, 'SET') THEN"
    assert [hint for pattern, hint in NEWER.items() if re.search(pattern, line, re.IGNORECASE)]
