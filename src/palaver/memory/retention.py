"""How long the text of turns is kept. Pure.

`full` keeps it. `audit-only` deletes it once the turn is summarised and keeps its hash and salt, so that a copy kept
elsewhere can still be proven. `ephemeral` keeps only the record that there was a turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from palaver.errors import InvalidInput

Retention = Literal["full", "audit-only", "ephemeral"]
RETENTIONS: tuple[Retention, ...] = ("full", "audit-only", "ephemeral")


def retention_of(settings: Mapping[str, object]) -> Retention:
    """Return the retention of a conversation; `full` when its settings name none."""
    for one in RETENTIONS:
        if settings.get("retention", "full") == one:
            return one
    return "full"


def check_settings(settings: Mapping[str, Any]) -> None:
    if settings.get("retention", "full") not in RETENTIONS:
        raise InvalidInput("settings.retention", f"must be one of {', '.join(RETENTIONS)}")
    for name in ("redact", "facts"):
        if not isinstance(settings.get(name, False), bool):
            raise InvalidInput(f"settings.{name}", "must be true or false")
