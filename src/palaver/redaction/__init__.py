"""Finding and replacing secrets and personal data in text. Pure.

Promises, each with a test:

* **Nothing in part.** Findings that overlap become one, over all their characters.
* **Once is enough.** Redacting redacted text changes nothing.
* **Linear.** The time grows with the length of the text, whatever it holds.
* **In pieces as at once.** `StreamRedactor` returns the same as `RuleRedactor.redact` for the whole text.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from palaver.redaction.findings import Finding as Finding
    from palaver.redaction.findings import Redacted as Redacted
    from palaver.redaction.findings import Redactor as Redactor
    from palaver.redaction.findings import merge_findings as merge_findings
    from palaver.redaction.findings import replace_findings as replace_findings
    from palaver.redaction.scan import RuleRedactor as RuleRedactor
    from palaver.redaction.stream import StreamRedactor as StreamRedactor

_MODULES = {
    **dict.fromkeys(("Finding", "Redacted", "Redactor", "merge_findings", "replace_findings"), "findings"),
    "RuleRedactor": "scan",
    "StreamRedactor": "stream",
}


def __getattr__(name: str) -> object:
    """Load a public name at its first use: the patterns take some milliseconds to compile."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
