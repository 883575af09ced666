"""Named queries: each name stands for one statement."""

from pathlib import Path

import pytest

from palaver.engines.sql import Queries


def test_two_queries_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "with_two_of_a_name"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "queries.sql").write_text("-- one: a reason\nSELECT 1\n\n-- one: another\nSELECT 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="'one'"):
        Queries(package.name)
