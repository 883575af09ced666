"""Print precision and recall of the redaction rules on both sets of samples: `python -m tools.redaction_quality`

With `--errors` it also lists the texts that the rules get wrong.

`samples.jsonl` is the set that the rules were made with. `second_samples.jsonl` was written before the rules were last
changed, and no rule was changed to fit one of its texts; docs/how-to/redaction.md has the first result and the
one after it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from palaver.redaction.findings import ALL, Finding
from palaver.redaction.scan import RuleRedactor

FOLDER = Path(__file__).parents[1] / "tests/redaction"
FIRST, SECOND = FOLDER / "samples.jsonl", FOLDER / "second_samples.jsonl"
HEAD = "| kind | in the samples | found | false | missed | precision | recall |\n|---|--:|--:|--:|--:|--:|--:|"


@dataclass(frozen=True)
class Sample:
    text: str
    findings: frozenset[Finding]
    lang: str


def read_samples(file: Path) -> list[Sample]:
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    return [Sample(row["text"], frozenset(Finding(*span) for span in row["spans"]), row["lang"]) for row in rows]


def quality_table(samples: Iterable[Sample], rules: RuleRedactor) -> str:
    """Return precision and recall by kind. A finding counts only if its kind and both its ends are exact."""
    right: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    for sample in samples:
        found = frozenset(rules.redact(sample.text).findings)
        right.update(finding.kind for finding in found & sample.findings)
        wrong.update(finding.kind for finding in found - sample.findings)
        missed.update(finding.kind for finding in sample.findings - found)
    rows = [_row(kind, right[kind], wrong[kind], missed[kind]) for kind in sorted(ALL)]
    return "\n".join((HEAD, *rows, _row("**all**", right.total(), wrong.total(), missed.total())))


def _row(kind: str, right: int, wrong: int, missed: int) -> str:
    precision, recall = _share(right, right + wrong), _share(right, right + missed)
    return f"| {kind} | {right + missed} | {right} | {wrong} | {missed} | {precision} | {recall} |"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "–"


def _errors(samples: Iterable[Sample], rules: RuleRedactor) -> str:
    lines = []
    for sample in samples:
        found = frozenset(rules.redact(sample.text).findings)
        for label, spans in (("false", found - sample.findings), ("missed", sample.findings - found)):
            lines += [f"{label} {one.kind}: {sample.text[one.start : one.end]!r} in {sample.text!r}" for one in spans]
    return "\n".join(lines)


if __name__ == "__main__":
    rules = RuleRedactor()
    for file in (FIRST, SECOND):
        samples = read_samples(file)
        print(f"{file.name}: {len(samples)} texts\n\n{quality_table(samples, rules)}\n")
        if "--errors" in sys.argv:
            print(_errors(samples, rules), end="\n\n")
