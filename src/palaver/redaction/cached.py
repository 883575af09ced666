"""A redactor that remembers which texts are clean. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from palaver.redaction.apply import Redact

REMEMBERED = 100_000  # texts in which nothing was found


@dataclass(slots=True)
class CleanTexts:
    """A redactor that knows which texts it found nothing in: most of a prompt is as it was before. It keeps no text."""

    redact: Callable[[], Redact]
    _clean: set[tuple[int, int]] = field(default_factory=set)

    def __call__(self, text: str) -> str:
        key = (len(text), hash(text))
        if key in self._clean:
            return text
        shown = self.redact()(text).text
        if shown == text:
            if len(self._clean) >= REMEMBERED:
                self._clean.clear()
            self._clean.add(key)
        return shown
