"""A redactor that is loaded when it is first used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palaver.redaction import Redacted, Redactor


@dataclass(slots=True)
class LazyRedactor:
    """The application's redactor, or else the built-in rules. Compiling the rules takes time that most stores save."""

    chosen: Redactor | None = None

    def redact(self, text: str) -> Redacted:
        if self.chosen is None:
            from palaver.redaction.scan import RuleRedactor

            self.chosen = RuleRedactor()
        return self.chosen.redact(text)
