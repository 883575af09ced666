"""The reference pages are those that the code gives, and the tables of other pages name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import palaver
from palaver import errors
from palaver.context.options import OPTIONS
from palaver.conversations import arguments, attachments, memory
from palaver.core import validation
from palaver.files import archives, texts
from palaver.recall import service
from tools import reference

DOCS = Path(__file__).parents[2] / "docs"
ROW = re.compile(r"^\| (.+?) \|(.*)\|$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


@pytest.mark.costly
def test_the_pages_are_current() -> None:
    """When this fails: `python -m tools.reference` writes them again."""
    assert reference.outdated() == []


def test_every_public_name_has_an_entry_in_the_library_or_the_errors() -> None:
    pages = (DOCS / "reference/library.md").read_text() + (DOCS / "reference/errors.md").read_text()
    entries = set(re.findall(r"^(?:#+ (?:palaver\.)?|\| `)(\w+)`?(?: \||$)", pages, re.MULTILINE))
    assert [name for name in palaver.__all__ if name not in entries] == ["PalaverError"]  # the root, above the tables


def test_every_error_says_what_to_do() -> None:
    silent = [one.__name__ for one in reference.error_classes()[1:] if "\n\nWay out: " not in reference.described(one)]
    assert silent == []


def test_a_problem_document_holds_the_meaning_without_the_way_out() -> None:
    assert errors.DatabaseFull("x").to_problem()["detail"] == errors.summary_of(errors.DatabaseFull)
    assert "Way out" not in errors.summary_of(errors.DatabaseFull)


def test_every_setting_of_the_server_is_explained() -> None:
    assert [name for _, name, _, text in reference.setting_rows() if not text] == []


def test_every_option_of_a_context_is_there() -> None:
    context = (DOCS / "explanation/context.md").read_text().split("## Options")[1]
    named = [name for first, _ in ROW.findall(context) for name in CODE.findall(first)]
    assert sorted(named) == sorted(OPTIONS)


LIMITS = {
    "content and tool fields of a turn": (validation, "MAX_CONTENT"),
    "metadata, sources or settings": (validation, "MAX_METADATA"),
    "turns in one `append_many`": (validation, "MAX_BATCH"),
    "an id, a key, an actor or another name": (validation, "MAX_NAME"),
    "a title": (validation, "MAX_TITLE"),
    "a preview, which is cut": (validation, "MAX_PREVIEW"),
    "participants": (validation, "MAX_PARTICIPANTS"),
    "files of a message": (validation, "MAX_ATTACHMENTS"),
    "files of a tool turn": (validation, "MAX_TOOL_FILES"),
    "a file": (validation, "MAX_FILE"),
    "depth of nested lists and objects": (validation, "MAX_DEPTH"),
    "a time to live": (validation, "MAX_TTL"),
    "turns, events or conversations in one call": (arguments, "MAX_READ"),
    "how long an upload URL is valid": (attachments, "MAX_UPLOAD_SECONDS"),
    "tokens of turns that one `extract_facts` reads": (memory, "MAX_EXTRACT"),
    "a query of recall, which is cut": (service, "MAX_QUERY"),
    "text of a file that is kept": (texts, "MAX_CHARACTERS"),
    "unpacked size of an archive": (archives, "MAX_UNPACKED"),
    "unpacked size of an archive, as a multiple of its own size": (archives, "MAX_RATIO"),
    "files in an archive": (archives, "MAX_ENTRIES"),
    "depth of archives inside archives": (archives, "MAX_DEPTH"),
}


def test_every_limit_is_there_with_its_figure() -> None:
    page = (DOCS / "explanation/limits.md").read_text()
    shown = {first: rest.split()[0] for first, rest in ROW.findall(page) if rest.strip()[:1].isdigit()}
    assert shown == {name: f"{getattr(module, constant):,}" for name, (module, constant) in LIMITS.items()}
    modules = (validation, arguments, attachments, memory)
    every = {name for module in modules for name in vars(module) if name.startswith("MAX_")}
    assert every <= {constant for _, constant in LIMITS.values()}
