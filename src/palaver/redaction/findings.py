"""Findings in a text, and the redactor protocol. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from palaver.core.strides import between_strides

EMAIL, PHONE, CARD, IBAN, IP = "email", "phone", "card", "iban", "ip"
NATIONAL_ID, API_KEY, PASSWORD, TOKEN, PRIVATE_KEY = "national id", "api key", "password", "token", "private key"
MANY = 2_000  # parts of a text that are joined in one stride
ALL = frozenset((EMAIL, PHONE, CARD, IBAN, IP, NATIONAL_ID, API_KEY, PASSWORD, TOKEN, PRIVATE_KEY))


@dataclass(frozen=True, slots=True)
class Finding:
    """A secret or personal data at `[start, end)` of the original text."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Redacted:
    """The redacted text, and the findings in it, in order and without overlap."""

    text: str
    findings: tuple[Finding, ...]


class Redactor(Protocol):
    """Removes secrets and personal data from a text.

    The contract: findings are in order, do not overlap and lie within the text; `text` is the input with each of them
    replaced by its kind in brackets; redacting the result again changes nothing. A redactor may use a model. It is best
    run after the rules, so that numbers with a checksum never depend on the model:

        class ModelRedactor:
            def __init__(self, rules: Redactor, ask: Callable[[str], list[Finding]]) -> None:
                self._rules, self._ask = rules, ask

            def redact(self, text: str) -> Redacted:
                found = merge_findings([*self._rules.redact(text).findings, *self._ask(text)])
                return Redacted(replace_findings(text, found), found)
    """

    def redact(self, text: str) -> Redacted: ...


def merge_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort the findings and join those that overlap into one, which has the kind of the longest.

    Among equally long ones, the first given decides.
    """
    groups: list[list[Finding]] = []
    end = -1
    for finding in sorted(findings, key=lambda found: found.start):
        if finding.start < end:
            groups[-1].append(finding)
        else:
            groups.append([finding])
        end = max(end, finding.end)
    return tuple(join_findings(group) for group in groups)


def join_findings(group: Sequence[Finding]) -> Finding:
    """Return one finding over all of a group that overlaps. It has the kind of the longest, the first of several."""
    longest = max(group, key=lambda found: found.end - found.start)
    return Finding(longest.kind, group[0].start, max(found.end for found in group))


def replace_findings(text: str, findings: Iterable[Finding]) -> str:
    """Replace each finding with its kind in brackets. The findings must be in order and must not overlap."""
    done: list[str] = []
    parts: list[str] = []
    at = 0
    for finding in findings:
        parts += text[at : finding.start], f"[{finding.kind}]"
        at = finding.end
        if len(parts) >= MANY:
            done.append("".join(parts))
            parts.clear()
            between_strides()
    return "".join((*done, *parts, text[at:]))
