"""The figures of a small package that was counted by hand."""

from __future__ import annotations

from pathlib import Path

from tools.code_metrics import ROWS, is_documented, load

SOURCE = '''"""What this holds."""
from typing import Any

# a comment
def first(one: Any, *rest: int, **more: str) -> None:
    """Say hello to one."""
    try:
        print(one)  # type: ignore
    except Exception:
        pass

class Second:
    def go(self, where): return where
'''


def test_the_figures_of_a_small_package(tmp_path: Path) -> None:
    package = tmp_path / "small_package_that_is_not_installed"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "one.py").write_text(SOURCE)
    figures = {label: measure(load(str(package))) for label, measure in ROWS}
    assert figures == {
        "modules n / median / max": "1 / 13 / 13",
        "LOC": "13",
        "function length median / p95 / max": "4 / 1 / 6",
        "parameters p95 / max": "1 / 3",
        "catch-alls per 1,000 lines": "76.9",
        "Any per 1,000 lines": "153.8",
        "ignores per 1,000 lines": "76.9",
        "public functions with docstring %": "50",
        "returns typed %": "50",
        "module docstring %": "100",
        "comment lines per 1,000": "76.9",
        "top-level modules": "1",
        "docstrings with markers %": "50",
        "exported names without docstring": "-",
    }


def test_a_docstring_that_repeats_the_name_says_nothing() -> None:
    def read_all_turns() -> None:
        """Read all turns."""

    def stop() -> None:
        """Cancel the running model call."""

    assert not is_documented("read_all_turns", read_all_turns)
    assert is_documented("stop", stop)
