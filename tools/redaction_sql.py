"""Write `functions/redaction_rules.sql` from the rules in `palaver.redaction`: python -m tools.redaction_sql

The database looks for secrets with the same patterns as the library. Python's and Postgres' regular expressions differ,
so each pattern is parsed and written again:

* Classes such as `\\w` are spelled out, so that the locale of a database does not matter (functions use COLLATE "C").
* Postgres prefers the longest match, Python the first. So the count of a lazy repetition is left open (`{@}`), for the
  database to try each count in turn, and an alternative with a value becomes one pattern for each branch.
* Postgres has no possessive repetition and counts up to 255.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from re import _constants as c  # type: ignore[attr-defined]  # the parser of `re` itself
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from palaver.redaction.findings import ALL
from palaver.redaction.rules import RULES, numbers, personal, secrets
from palaver.redaction.rules.rule import Rule

FILE = Path(__file__).parents[1] / "src/palaver/engines/postgres/functions/redaction_rules.sql"
SPECIAL = r"\.^$*+?()[]{}|@"
MOST = 255  # repetitions that Postgres counts
SPACES = r"\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
LETTERS = "@L"  # the letters of all scripts: the database puts them in


def letters() -> str:
    """Return the ranges of letters: those of Unicode 3.2, which every version of Python knows, with gaps left out."""
    unicode = unicodedata.ucd_3_2_0
    ranges: list[list[int]] = []
    inside = False
    for code in range(0x80, 0x10000):
        category = unicode.category(chr(code))
        if category in ("Cn", "Co", "Cs"):  # no character
            continue
        if category.startswith("L"):
            ranges = ranges if inside else [*ranges, [code, code]]
            ranges[-1][1] = code
        inside = category.startswith("L")
    return "A-Za-z" + "".join(f"\\u{first:04x}-\\u{last:04x}" for first, last in ranges)


# Patterns that the checks in functions/redaction.sql use.
PATTERNS = {
    "issuers": rf"(?:{numbers._ISSUERS.pattern})$",
    "url login": personal._URL_LOGIN,
    "ssh path": personal._SSH_PATH,
    "version before": personal._VERSION_BEFORE,
    "nobody": personal._NOBODY,
    "calling codes": personal._CALLING_CODES,
    "counted before": personal._COUNTED_BEFORE,
    "phone before": personal._PHONE_BEFORE,
    "counted after": personal._COUNTED_AFTER,
    "date": personal._DATE,
    "unbroken": rf"(?:{personal._UNBROKEN.pattern})$",
    "name": secrets._NAME,
    "uuid": rf"{secrets._UUID.pattern}$",
    "masked": rf"(?:{secrets._MASKED.pattern})$",
    "value end": secrets._VALUE_END,
    "sentence end": secrets._SENTENCE_END,
    "symbol": secrets._SYMBOL,
}
# Patterns that Python matches where it stands, and not further on.
HERE = {
    "issuers",
    "ssh path",
    "nobody",
    "calling codes",
    "counted after",
    "date",
    "unbroken",
    "name",
    "uuid",
    "masked",
    "sentence end",
}


# ---- one pattern ---------------------------------------------------------------------------------------------------


class Writer:
    """Writes a parsed pattern for Postgres. `names` are its named groups, by their number there.

    With `counted`, the counts of lazy repetitions are left open; `most` is the largest one.
    """

    def __init__(self, pattern: re.Pattern[str], *, counted: bool = False) -> None:
        self.counted, self.most = counted, 0
        self.ascii = bool(pattern.flags & re.ASCII)
        self.any_case = bool(pattern.flags & re.IGNORECASE)
        self.groups = {number: name for name, number in pattern.groupindex.items()}
        self.names: dict[str, int] = {}
        self.numbers: dict[int, int] = {}

    def write(self, items: Iterable[Any]) -> str:
        body = "".join(self._item(op, value) for op, value in items)
        return f"(?i){body}" if self.any_case else body

    def _all(self, items: Iterable[Any]) -> str:
        return "".join(self._item(op, value) for op, value in items)

    def _item(self, op: Any, value: Any) -> str:
        match op:
            case c.LITERAL:
                return self._literal(value)
            case c.NOT_LITERAL:
                return f"[^{_code(value)}]"
            case c.ANY:
                return r"[^\u000a]"
            case c.IN:
                return self._set(value)
            case c.BRANCH:
                return f"(?:{'|'.join(self._all(branch) for branch in value[1])})"
            case c.SUBPATTERN:
                return self._group(value)
            case c.GROUPREF:
                return f"\\{self.numbers[value]}"
            case c.MIN_REPEAT if self.counted:
                self.most = int(value[1])
                return f"{self._atom(value[2])}{{@}}"
            case c.MAX_REPEAT | c.MIN_REPEAT | c.POSSESSIVE_REPEAT:
                return self._repeat(*value)
            case c.ASSERT | c.ASSERT_NOT:
                direction, inner = value
                sign = "=" if op is c.ASSERT else "!"
                return f"(?{'<' if direction < 0 else ''}{sign}{self._all(inner)})"
            case c.AT:
                return {c.AT_END: "$", c.AT_BEGINNING: "^", c.AT_BOUNDARY: r"\y"}[value]
        raise ValueError(f"no way to write {op}")

    def _literal(self, code: int) -> str:
        letter = chr(code)
        if self.any_case and not letter.isascii():
            forms = {letter, letter.lower(), letter.upper()}
            return f"[{''.join(_code(ord(one)) for one in sorted(forms) if len(one) == 1)}]"
        return letter if letter.isascii() and letter.isprintable() and letter not in SPECIAL else f"\\u{code:04x}"

    def _set(self, items: Sequence[Any]) -> str:
        negated = items[0][0] is c.NEGATE
        rest = items[1:] if negated else items
        kinds = [value for op, value in rest if op is c.CATEGORY]
        if negated and c.CATEGORY_NOT_WORD in kinds:  # [^\W\d_]: letters
            return f"[{'A-Za-z' if self.ascii else LETTERS}]"
        if len(rest) == 1 and kinds and kinds[0] in (c.CATEGORY_NOT_SPACE, c.CATEGORY_NOT_WORD, c.CATEGORY_NOT_DIGIT):
            return f"[^{self._category(kinds[0])}]"
        body = "".join(self._member(op, value) for op, value in rest)
        return f"[{'^' if negated else ''}{body}]"

    def _member(self, op: Any, value: Any) -> str:
        if op is c.CATEGORY:
            return self._category(value)
        if op is c.RANGE:
            return f"{_code(value[0])}-{_code(value[1])}"
        if self.any_case and not chr(value).isascii():
            return self._literal(value).strip("[]")
        return _code(value)

    def _category(self, kind: Any) -> str:
        if kind in (c.CATEGORY_DIGIT, c.CATEGORY_NOT_DIGIT):
            return "0-9"
        if kind in (c.CATEGORY_SPACE, c.CATEGORY_NOT_SPACE):
            return r"\u0009-\u000d\u0020" if self.ascii else SPACES
        return "A-Za-z0-9_" if self.ascii else f"0-9_{LETTERS}"

    def _group(self, value: Any) -> str:
        number, _, _, inner = value
        if number is None:
            return f"(?:{self._all(inner)})"
        self.numbers[number] = len(self.numbers) + 1
        if number in self.groups:
            self.names[self.groups[number]] = self.numbers[number]
        return f"({self._all(inner)})"

    def _atom(self, inner: Any) -> str:
        atom = self._all(inner)
        single = len(inner) == 1 and inner[0][0] in (c.LITERAL, c.IN, c.ANY, c.NOT_LITERAL, c.SUBPATTERN)
        return atom if single else f"(?:{atom})"

    def _repeat(self, least: int, most: Any, inner: Any) -> str:
        if most is c.MAXREPEAT or int(most) > MOST:
            return f"{self._atom(inner)}{{{least},}}"
        return self._atom(inner) + (f"{{{least}}}" if least == most else f"{{{least},{int(most)}}}")


def _code(code: int) -> str:
    """Return a character as it may stand in brackets."""
    letter = chr(code)
    return letter if letter.isascii() and letter.isprintable() and letter not in r"\]^-[@" else f"\\u{code:04x}"


def variants(items: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield the pattern once for each branch of an alternative between values, in Python's order."""
    for place, (op, value) in enumerate(items):
        inside = value[3] if op is c.SUBPATTERN else ()
        if len(inside) == 1 and inside[0][0] is c.BRANCH and _has_values(inside[0][1][1]):
            for branch in inside[0][1][1]:
                yield [*items[:place], *branch, *items[place + 1 :]]
            return
        if op is c.BRANCH and _has_values(value[1]):
            for branch in value[1]:
                yield [*items[:place], *branch, *items[place + 1 :]]
            return
    yield list(items)


def _has_values(branches: Iterable[Any]) -> bool:
    """Return whether every branch has a named group of its own, as `quoted` and `value`."""
    return all(any(op is c.SUBPATTERN and value[0] is not None for op, value in branch) for branch in branches)


def translate(pattern: re.Pattern[str] | str, *, here: bool = False) -> str:
    """Return a pattern for Postgres; with `here`, one that matches only at the beginning."""
    compiled = re.compile(pattern) if isinstance(pattern, str) else pattern
    writer = Writer(compiled)
    body = writer.write(parser.parse(compiled.pattern, compiled.flags))
    start = "(?i)" if writer.any_case else ""
    whole = f"{start}^(?:{body.removeprefix('(?i)')})" if here else body
    return whole.replace(LETTERS, letters())


# ---- the rules -----------------------------------------------------------------------------------------------------


def check_name(rule: Rule) -> str:
    """Return the name of a rule's check: its own, or that of the test inside it."""
    cells = getattr(rule.check, "__closure__", None) or ()
    tests = [cell.cell_contents for cell in cells if callable(cell.cell_contents)]
    own = rule.check.__qualname__.split(".")[0].lstrip("_")
    return f"{own}:{tests[0].__name__.lstrip('_')}" if tests else own


def rule_rows() -> list[str]:
    rows = []
    for place, rule in enumerate(RULES, 1):
        tree = list(parser.parse(rule.pattern.pattern, rule.pattern.flags))
        forms, most = [], 0
        for variant in variants(tree):
            writer = Writer(rule.pattern, counted=True)
            forms.append({"pattern": writer.write(variant), **writer.names})
            most = max(most, writer.most)
        words = sorted({form for word in rule.words for form in _forms(word.split("_")[0])})
        anywhere = Writer(rule.pattern).write(tree)
        rows.append(
            f"  ({place}, {_quote(rule.kind)}, {_quote(check_name(rule))}, {rule.figures}, {most}, "
            f"{_quote(json.dumps(words, ensure_ascii=False))}::jsonb,\n    {_quote(anywhere)},\n"
            f"    {_quote(json.dumps(forms, ensure_ascii=False))}::jsonb)"
        )
    return rows


def _forms(word: str) -> set[str]:
    """The forms of a word in a text whose ASCII letters are in lower case."""
    lower = str.maketrans({letter: letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"})
    return {form.translate(lower) for form in (word, word.capitalize(), word.upper())}


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def script() -> str:
    lengths = json.dumps(dict(sorted(numbers._IBAN_LENGTHS.items())))
    words = json.dumps(sorted(secrets._NOT_A_PASSWORD), ensure_ascii=False)
    patterns = "\n".join(
        f"    WHEN {_quote(name)} THEN {_quote(translate(pattern, here=name in HERE))}"
        for name, pattern in PATTERNS.items()
    )
    kinds = "|".join(sorted(ALL))
    rows = ",\n".join(rule_rows())
    return f"""-- Written by tools/redaction_sql.py from the rules in palaver/redaction: do not edit.

-- redaction_rules: where a secret may be. `anywhere` finds candidates. The match is the first of the `forms` that
-- matches there, with the smallest count from 0 to `most` in place of its @. `@L` stands for the letters of all scripts
CREATE OR REPLACE FUNCTION palaver.redaction_rules() RETURNS TABLE (n integer, kind text, "check" text,
  figures integer, most integer, words jsonb, anywhere text, forms jsonb)
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, palaver, pg_temp AS $rules$
VALUES
{rows}
$rules$;

-- redaction_pattern: a pattern that the checks use
CREATE OR REPLACE FUNCTION palaver.redaction_pattern(name text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN CASE name
{patterns}
    WHEN 'letters' THEN {_quote(letters())}
    WHEN 'placeholder' THEN '\\[({kinds})\\]'
  END;

CREATE OR REPLACE FUNCTION palaver.iban_lengths() RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN {_quote(lengths)}::jsonb;

CREATE OR REPLACE FUNCTION palaver.not_passwords() RETURNS jsonb LANGUAGE sql IMMUTABLE PARALLEL SAFE
  RETURN {_quote(words)}::jsonb;
"""


if __name__ == "__main__":
    FILE.write_text(script(), encoding="utf-8")
    sys.stdout.write(f"{FILE.name}: {len(RULES)} rules\n")
