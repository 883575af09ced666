"""How long the words are kept. Pure.

`full` keeps them. `audit-only` keeps, once they are summarised, their hash and its salt: a copy that somebody else has
can still be proven. `ephemeral` keeps, once they are summarised, nothing but that something was said.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from palaver.errors import InvalidInput

Retention = Literal["full", "audit-only", "ephemeral"]
RETENTIONS: tuple[Retention, ...] = ("full", "audit-only", "ephemeral")


def retention_of(settings: Mapping[str, Any]) -> Retention:
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
