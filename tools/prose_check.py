"""Find the wording that the style guide asks to rewrite, in docstrings, comments and messages.

    python -m tools.prose_check                        the paths that pyproject.toml enforces; exit 1 on a finding
    python -m tools.prose_check --list src docs        list the findings of any paths
    python -m tools.prose_check --count src web/src    count them per path and marker

Enforced paths are in pyproject.toml under `[tool.palaver.prose]`. Sentences that are right as they are stand in
`prose_allowed.toml`, each with its reason.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
ALLOWED = Path(__file__).with_name("prose_allowed.toml")
SKIPPED_DIRECTORIES = {"node_modules", "static", "__pycache__", "results", ".venv", "dist"}
MINIMUM_WORDS = 2  # a shorter string constant is a name or a key, not a sentence


@dataclass(frozen=True, slots=True)
class Marker:
    """A wording to rewrite. `strong` ones are counted by `code_metrics`."""

    name: str
    pattern: re.Pattern[str]
    advice: str
    strong: bool = False
    at_start: bool = False  # looked for only at the beginning of a sentence that is not a question
    only_pages: bool = False  # looked for only in Markdown: in code the word may be a name


def _marker(name: str, pattern: str, advice: str, *, strong: bool = False, at_start: bool = False) -> Marker:
    flags = 0 if at_start else re.IGNORECASE
    return Marker(name, re.compile(pattern, flags), advice, strong, at_start)


def _of_pages(name: str, pattern: str, advice: str) -> Marker:
    return Marker(name, re.compile(pattern, re.IGNORECASE), advice, only_pages=True)


_COMPARATIVES = "longer|more|less|fewer|later|earlier|greater|larger|smaller|bigger|better|worse|different|higher|lower"
_IDIOMS = "one|use|reason|need|secret|doubt"
_RETURNED = r"with|None|True|False|how|whether|what|nothing|it"
_NOT_A_NOUN = r"(?<!\ban )(?<!\bthe )(?<!\bits )(?<!\bno )(?<!\bone )(?<!\bof )(?<!, )"
_NOT_ABLE_TO = r"(?<!\bcan )(?<!\bcannot )(?<!\bcould )(?<!\bnot )"
MARKERS = (
    _marker("what…", r"(?:What(?:ever)?|Who) ", "begin with a verb or a noun", strong=True, at_start=True),
    _marker("whoever", r"\bwhoever\b", "name the subject: the caller, the reader", strong=True),
    _marker("answers", rf"{_NOT_A_NOUN}\b(?:answers? (?:{_RETURNED})\b|answers \d)", "returns", strong=True),
    _marker("so many", r"\bso (?:many|long)\b(?! as\b)", "give the number or its name", strong=True),
    _marker(
        "is no",
        rf"(?<!there )\b(?:is|are|was|were) no (?!(?:{_COMPARATIVES}|{_IDIOMS})\b)(?=\w)",
        "is not a",
        strong=True,
    ),
    _marker("also when", r"\balso (?:when|if)\b", "even when", strong=True),
    _marker("anew", r"\banew\b", "again", strong=True),
    _marker("meanwhile", r"\bmeanwhile\b", "say when: while the lock is held", strong=True),
    _marker("of late", r"\bof late\b", "recently", strong=True),
    _marker("beside", r"\bbeside\b", "next to, together with, at the same time as", strong=True),
    _marker("somebody", r"\b(?:somebody|one who)\b", "name the subject: a caller, another process"),
    _marker("tell", rf"{_NOT_ABLE_TO}\b(?:tells?|telling|told)\b(?! (?:\w+ ){{0,3}}apart\b)", "emit, send, report"),
    _marker("hear", r"\b(?:hears?|hearing|heard)\b", "receive, get"),
    _marker("taken for", r"\b(?:is|are|was|were|be|been) taken for\b", "is treated as"),
    _marker("came of it", r"\b(?:came|comes|become|becomes) of (?:it|them|this|that)\b", "name the result"),
    _marker("broke off", r"\b(?:br[eo]aks?|broke|broken|breaking) off\b", "is interrupted, ends early"),
    _marker("slip of the pen", r"\bslips? of the pen\b", "typo"),
    _marker("house", r"\b(?:keep(?:s|ing)?|kept) house\b|\bown rooms?\b", "maintenance; internal"),
    _marker("mend", r"\bmend(?:s|ed|ing)?\b", "repair, correct"),
    _marker("goes on", r"\b(?:go(?:es)?|going|went) on\b(?! (?:disk|to)\b)", "continues"),
    _marker("in the making", r"\bin the making\b", "in progress"),
    _marker("comes to be", r"\bcomes? to be\b", "say what happens"),
    _marker("the very", r"\bthe very\b(?! (?:first|last|\w+est)\b)", "the same, exactly"),
    _marker("made again", r"\bma[dk]es? (?:it|them) again\b|\bmade again\b", "is rebuilt"),
    _marker("believe", r"\b(?:not|is|are) believed?\b", "trust"),
    _marker("of ours", r"(?<!\bmultiple )\bof ours\b", "one of our, Palaver's"),
    _marker("remembered of", r"\bremember(?:s|ed)? of\b", "remembered about"),
    _marker("all the same", r"\ball the same\b", "still, in any case"),
    _marker("to be had", r"\b(?:to|can|cannot|could not) be had\b", "is available"),
    _marker("for want of", r"\bfor want of\b", "because there is no"),
    _marker("an own", r"\ban own\b", "its own, a separate"),
    _marker("become of", r"\b(?:becomes?|became) of\b", "say what happens"),
    _marker("for good", r"\bfor good\b(?! (?:measure|or ill|practice|reasons?|results?)\b)", "permanently"),
    _marker("by the clock", r"\bby the clock\b", "wall-clock time"),
    _marker("inside of", r"(?<!the )\b(?:in|out)side of\b", "inside, outside"),
    _marker(
        "replace by",
        r"\breplac(?:es?|ing) (?:[\w:…`'-]+ ){1,8}(?<!one )by (?:an?|the|its|their|this|one|data|[\"`])",
        "replace … with",
    ),
    _marker("a SQLite", r"\ba SQLite\b", "an SQLite"),
    _marker("those are {}", r"\b(?:those|there|known|supported) are (?=\{)", "known names: …"),
    _marker("as … as can be", r"\bas \w+ as can be\b", "say how much, and compared with what"),
    _of_pages("change of", r"\bchanges? of (?:the|an?|any|every|each|`)", "change to"),
    _of_pages("in sight", r"\b(?:in|out of) sight\b", "say whether it is reached, shown or expected"),
    _of_pages("says so", r"\bsays? so\b", "name the field and what it has"),
    _of_pages("the latter", r"\bthe (?:former|latter)\b", "repeat the noun"),
    _of_pages("verb", r"\bverbs?\b", "method, operation"),
    _of_pages("lets go", r"\blets? go\b", "ends, releases"),
    _of_pages("stands before", r"\bstands? (?:before|at|in front|next to|back)\b", "is, comes, is checked"),
    _of_pages("hand", r"\bhand(?:s|ed)? (?:the|it|in|to|over)\b", "give, pass"),
    _of_pages("whichever", r"\bwhich(?:ever)? \w+ is asked\b", "name the subject"),
)
STRONG_MARKERS = tuple(marker for marker in MARKERS if marker.strong)


@dataclass(frozen=True, slots=True)
class Prose:
    """A piece of text and the line on which it begins."""

    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    path: Path
    line: int
    marker: Marker
    sentence: str


@dataclass(frozen=True, slots=True)
class Allowance:
    """A sentence that may keep its marker: `text` is a part of it."""

    marker: str
    text: str
    reason: str

    def covers(self, finding: Finding) -> bool:
        return self.marker == finding.marker.name and _flat(self.text) in finding.sentence


# Sentences and their markers


def sentences(prose: Prose) -> Iterator[Prose]:
    """Split at full stops, blank lines and list items. Code between backticks becomes `…`."""
    text = re.sub(r"``?[^`]+``?", lambda code: "`…`" + "\n" * code.group().count("\n"), prose.text)
    breaks = [m.end() for m in re.finditer(r"(?:[.!?][)\"”]?\s+(?=[^a-z\s])|\n\s*\n\s*|\n\s*[-*•]\s+|\s\|\s)", text)]
    starts = [0, *breaks]
    for start, end in zip(starts, [*breaks, len(text)], strict=True):
        piece = text[start:end]
        line = prose.line + text.count("\n", 0, start) + (len(piece) - len(piece.lstrip("\n")))
        if piece.strip():
            yield Prose(line, _flat(piece))


def markers_in(sentence: str, markers: Sequence[Marker] = MARKERS) -> Iterator[Marker]:
    for marker in markers:
        if marker.at_start:
            bare = sentence.lstrip("-*#>(\"'“ ")
            if marker.pattern.match(bare) and not sentence.rstrip(")\"'” ").endswith("?"):
                yield marker
        elif marker.pattern.search(sentence):
            yield marker


def has_strong_marker(text: str) -> bool:
    return any(next(markers_in(one.text, STRONG_MARKERS), None) for one in sentences(Prose(1, text)))


def _flat(text: str) -> str:
    return " ".join(text.split())


# The prose of a file, by its kind


def prose_of(path: Path) -> list[Prose]:
    text = path.read_text(encoding="utf-8")
    is_test = path.suffix == ".py" and "tests" in path.parts
    return list(test_file_prose(text) if is_test else NAMED_READERS[path.suffix](text))


def python_prose(text: str) -> Iterator[Prose]:
    """Docstrings, other strings of two words and more, and comments."""
    yield from python_comments(text)
    tree = ast.parse(text)
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        value = _string(node, id(node) in inside)
        if value is not None and len(value.split()) >= MINIMUM_WORDS:
            yield Prose(node.lineno, value)  # type: ignore[attr-defined]


def _string(node: ast.AST, is_part: bool) -> str | None:
    """The text of a string constant or of a whole f-string, whose fields become `{}`."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and not is_part:
        return node.value
    return None


def test_file_prose(text: str) -> Iterator[Prose]:
    """Comments and docstrings only: other strings of a test are its data."""
    yield from python_comments(text)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False):
            yield Prose(node.body[0].lineno, ast.get_docstring(node, clean=False) or "")


def python_comments(text: str) -> Iterator[Prose]:
    """Comments; those on lines of their own that follow each other are one text."""
    block: list[tuple[int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, is_whole_line = token.start[0], not token.line[: token.start[1]].strip()
        if block and not (is_whole_line and line == block[-1][0] + 1):
            yield _joined(block)
            block = []
        block.append((line, token.string.lstrip("#!: ")))
        if not is_whole_line:
            yield _joined(block)
            block = []
    if block:
        yield _joined(block)


def _joined(lines: Sequence[tuple[int, str]]) -> Prose:
    return Prose(lines[0][0], "\n".join(text for _, text in lines))


SQL = re.compile(r"(?P<string>'(?:[^']|'')*')|(?P<comment>--[^\n]*(?:\n[ \t]*--[^\n]*)*|/\*.*?\*/)", re.DOTALL)
SCRIPT = re.compile(
    r"(?P<string>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)"
    r"|(?P<comment>//[^\n]*(?:\n[ \t]*//[^\n]*)*|/\*.*?\*/)",
    re.DOTALL,
)


def sql_prose(text: str) -> Iterator[Prose]:
    return _comments(SQL, text)


def script_prose(text: str) -> Iterator[Prose]:
    return _comments(SCRIPT, text)


def _comments(pattern: re.Pattern[str], text: str) -> Iterator[Prose]:
    starts = [m.start() for m in re.finditer(r"^", text, re.MULTILINE)]
    for match in pattern.finditer(text):
        if comment := match["comment"]:
            bare = re.sub(r"^[ \t]*(?:--|//+|/\*+|\*(?!/))|\*/", "", comment, flags=re.MULTILINE)
            yield Prose(bisect_right(starts, match.start()), bare)


def markdown_prose(text: str) -> Iterator[Prose]:
    """Everything but fenced code and headings, which may well begin with "What"."""
    blanked = re.sub(r"^```.*?^```", lambda code: "\n" * code.group().count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    blanked = re.sub(r"^#+ .*$", "", blanked, flags=re.MULTILINE)
    return iter([Prose(1, blanked)])


READERS = {
    ".py": python_prose,
    ".sql": sql_prose,
    ".md": markdown_prose,
    **dict.fromkeys((".ts", ".tsx", ".css", ".mjs", ".js"), script_prose),
}
# Of a folder, only the files with an ending of READERS are read: a `.txt` there is data.
NAMED_READERS = {**READERS, ".txt": markdown_prose}


# Files, the allow-list, and the report


def files_under(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = (one for one in sorted(path.rglob("*")) if one.suffix in READERS and one.is_file())
    return [one for one in found if not SKIPPED_DIRECTORIES & set(one.parts)]


def findings_in(path: Path) -> Iterator[Finding]:
    markers = [one for one in MARKERS if path.suffix == ".md" or not one.only_pages]
    for piece in prose_of(path):
        for sentence in sentences(piece):
            for marker in markers_in(sentence.text, markers):
                yield Finding(path, sentence.line, marker, sentence.text)


def find(paths: Iterable[Path]) -> list[Finding]:
    files = dict.fromkeys(file for path in paths for file in files_under(path))
    return sorted((one for file in files for one in findings_in(file)), key=lambda one: (str(one.path), one.line))


def read_allowances(path: Path = ALLOWED) -> list[Allowance]:
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("allow", [])
    return [Allowance(entry["marker"], entry["text"], entry["reason"]) for entry in entries]


def outside(findings: Iterable[Finding], allowances: Sequence[Allowance]) -> list[Finding]:
    return [one for one in findings if not any(allowance.covers(one) for allowance in allowances)]


def enforced_paths(root: Path = ROOT) -> list[Path]:
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return [root / path for path in settings.get("tool", {}).get("palaver", {}).get("prose", {}).get("paths", [])]


def report(finding: Finding) -> str:
    path = finding.path.resolve()
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return f"{shown}:{finding.line}: {finding.marker.name} ({finding.marker.advice}): {finding.sentence}"


def count_table(paths: Sequence[Path], allowances: Sequence[Allowance]) -> str:
    columns = [Counter(one.marker.name for one in outside(find([path]), allowances)) for path in paths]
    rows = [(marker.name, *(str(column[marker.name]) for column in columns)) for marker in MARKERS]
    total = ("total", *(str(column.total()) for column in columns))
    return "\n".join(_row(row) for row in [("marker", *map(str, paths)), *rows, total])


def _row(cells: Sequence[str]) -> str:
    return cells[0].ljust(12) + "".join(cell.rjust(11) for cell in cells[1:])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Find the wording that the style guide asks to rewrite.")
    parser.add_argument("paths", nargs="*", type=Path, help="default: the enforced paths of pyproject.toml")
    parser.add_argument("--list", action="store_true", help="list the findings and exit 0")
    parser.add_argument("--count", action="store_true", help="count per path and marker and exit 0")
    given = parser.parse_args(arguments)
    paths, allowances = given.paths or enforced_paths(), read_allowances()
    if given.count:
        print(count_table(paths, allowances))
        return 0
    found = outside(find(paths), allowances)
    for finding in found:
        print(report(finding))
    print(f"prose: {len(found)} findings in {len(paths)} paths")
    return 1 if found and not given.list else 0


if __name__ == "__main__":
    sys.exit(main())
