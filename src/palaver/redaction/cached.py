"""A redactor that remembers in which texts nothing was found. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from palaver.redaction.apply import Redact


@dataclass(slots=True)
class CachedRedactor:
    """Redacts a text, and skips the scan where it found nothing before: most of a prompt is as it was last time.

    It keeps lengths and hashes of at most `limit` texts, never a text.
    """

    redact: Redact
    limit: int = 100_000
    _clean: set[tuple[int, int]] = field(default_factory=set)

    def __call__(self, text: str) -> str:
        key = (len(text), hash(text))
        if key in self._clean:
            return text
        redacted = self.redact(text).text
        if redacted == text:
            self._remember(key)
        return redacted

    def _remember(self, key: tuple[int, int]) -> None:
        if len(self._clean) >= self.limit:
            self._clean.clear()
        self._clean.add(key)
