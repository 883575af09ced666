"""Pages look the same on the site and on the repository's page: both read their lists, tables and headings alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
READ_BY_PEOPLE = ("docs/**/*.md", "*.md", "llms.txt", "examples/*.md", "clients/typescript/*.md")
PAGES = sorted(page for pattern in READ_BY_PEOPLE for page in ROOT.glob(pattern))
FENCE = re.compile(r" *(```+|~~~+)")
HEADING = re.compile(r"#+ (.+)")
ITEM = re.compile(r"( *)(?:[-+*]|(\d+)[.)]) ")
# Admonitions, tabs, snippets, icons and attribute lists: a repository page shows them as text.
ONLY_ON_THE_SITE = re.compile(r" *(?:!!!|\?\?\?\+?|===) |\{:|--8<--|:(?:material|octicons|fontawesome)-|\[TOC\]")
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")


def columns(row: str) -> int:
    return len(re.findall(r"(?<!\\)\|", row)) - 1


def lines_outside_code(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the number, the previous line and the line itself. A line of a code block yields nothing."""
    fence, before = "", ""
    for number, line in enumerate(text.splitlines(), 1):
        if found := FENCE.match(line):
            fence = "" if fence else found[1]
        elif not fence:
            yield number, before, line
        before = line
    if fence:
        yield number + 1, before, fence


def faults_of(text: str) -> Iterator[str]:
    """Yield what a reader of one of the two forms would see wrongly."""
    titles: set[str] = set()
    in_list, columns_of_table, last_numbers = False, 0, dict[int, int]()
    for number, before, line in lines_outside_code(text):
        follows_text = bool(before.strip())
        if title := HEADING.fullmatch(line):
            if title[1] in titles:
                yield f"{number}: a second heading {title[1]!r}"
            titles.add(title[1])
        if ONLY_ON_THE_SITE.search(CODE.sub("", line)):
            yield f"{number}: syntax that only the site knows: {line}"
        if FENCE.fullmatch(line):
            yield f"{number}: a code block without an end"
        if item := ITEM.match(line):
            indent, given = len(item[1]), int(item[2] or 0)
            if follows_text and not in_list:
                yield f"{number}: a sentence goes into a line that begins like a list: {line}"
            elif indent % 4:
                yield f"{number}: a list that is not indented by a multiple of four: {line}"
            elif given and given != last_numbers.get(indent, 0) + 1:
                yield f"{number}: item {given} after item {last_numbers.get(indent, 0)}"
            last_numbers = {depth: last for depth, last in last_numbers.items() if depth < indent} | {indent: given}
            in_list = True
        elif line.strip() and not follows_text and not line.startswith(" "):
            in_list, last_numbers = False, {}
        if not line.lstrip().startswith("|"):
            columns_of_table = 0
        elif not columns_of_table:
            columns_of_table = columns(line)
            if follows_text:
                yield f"{number}: a table without an empty line before it"
        elif columns(line) != columns_of_table:
            yield f"{number}: {columns(line)} columns instead of {columns_of_table}: {line}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_no_fault(page: Path) -> None:
    assert list(faults_of(page.read_text())) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("It was 6 and is now\n8. On a busier machine", "2: a sentence"),
        ("One, two\n- or three", "2: a sentence"),
        ("- one\n- two\n\n  8. three", "4: a list that is not"),
        ("- one\n\n    - two", ""),
        ("1. one\n2. two\n    - a\n    - b\n3. three", ""),
        ("1. one\n    was 6 and is now\n8. On a busier machine", "3: item 8 after item 1"),
        ("1. one\n3. three", "2: item 3 after item 1"),
        ("| a | b |\n|---|---|\n| 1 | 2 | 3 |", "3: 3 columns instead of 2"),
        ("| a | b |\n|---|---|\n| `x \\| y` | 2 |", ""),
        ("Text\n| a |\n|---|", "2: a table without"),
        ("# One\n\n## Two\n\n## Two", "5: a second heading 'Two'"),
        ("```\n# no heading\n8. no item\n```", ""),
        ("Text\n\n```python\nx = 1", "5: a code block without an end"),
        ("!!! note\n    Text", "1: syntax that only"),
        ("`{: .attribute}` is code", ""),
    ],
)
def test_each_fault_is_found(text: str, fault: str) -> None:
    found = list(faults_of(text))
    assert len(found) == bool(fault), found
    assert not fault or found[0].startswith(fault)
