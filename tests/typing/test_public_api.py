"""The public names keep their parameters and fields, and a program that is checked by mypy uses all methods."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.public_api import broken_promises, public_api, read_recorded

from palaver import Conversation, Store, Subject

PROGRAMS = [Path(__file__).with_name(name) for name in ("every_verb.py", "correct.py")]


def test_no_public_name_parameter_or_field_is_gone() -> None:
    """After an intended change, `python -m tools.public_api --write` records it."""
    assert broken_promises(read_recorded(), public_api()) == []


def test_a_removed_name_and_a_new_required_parameter_break_a_promise() -> None:
    recorded = ["class p.A", "p.f -> None", "p.f([0]x: int)", "p.g -> None"]
    now = ["class p.A", "class p.B", "p.f -> None", "p.f([0]x: int)", "p.f([1]y: int = 3)", "p.f(z: int)"]
    assert broken_promises(recorded, now) == ["- p.g -> None", "+ p.f(z: int)"]


@pytest.mark.parametrize("owner", [Store, Conversation, Subject])
def test_the_checked_programs_call_every_method(owner: type) -> None:
    called = set(re.findall(r"\.(\w+)\(", "".join(path.read_text() for path in PROGRAMS)))
    methods = {name for name, value in vars(owner).items() if callable(value) and not name.startswith("_")}
    assert methods <= called
