"""docs/reference/library.md names what there is, as it is: its tables are compared with the code."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

import palaver
import palaver.testing
from palaver import errors
from palaver.audit.replay import HANDLERS
from palaver.context.options import OPTIONS
from palaver.conversations import arguments, attachments, memory, open_options
from palaver.conversations.options import CONVERSATION_FIELDS
from palaver.core import validation
from palaver.core.turn_options import TURN_FIELDS
from palaver.files import archives, texts
from palaver.generation.options import DECIDED, OWN_OPTIONS
from palaver.recall import service

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "library.md").read_text()
ROW = re.compile(r"^\| (.+?) \|(.*)\|$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")


def section(title: str) -> str:
    """Return the text under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def rows(title: str) -> list[tuple[str, str]]:
    """The first cell and the others of each row, without the heads of the tables."""
    return [(first, rest.strip()) for first, rest in ROW.findall(section(title)) if first.startswith("`")]


def signature(function: Any) -> str:
    """As one would write it: without types."""
    own = [one for name, one in inspect.signature(function).parameters.items() if name != "self"]
    bare = inspect.Signature([one.replace(annotation=inspect.Parameter.empty) for one in own])
    return str(bare).replace("'", '"')


@pytest.mark.parametrize(
    "kind", [palaver.Store, palaver.Conversation, palaver.Subject, palaver.TurnWriter], ids=lambda one: one.__name__
)
def test_every_verb_is_there_with_its_parameters(kind: type) -> None:
    told = [CODE.findall(first)[0] for first, _ in rows(kind.__name__) if "(" in first]
    public = {name: value for name, value in vars(kind).items() if not name.startswith("_")}
    others = {name for name, value in public.items() if isinstance(value, property)}
    assert sorted(told) == sorted(name + signature(value) for name, value in public.items() if name not in others)
    assert [name for name in others if not re.search(rf"[`.]{name}`", section(kind.__name__))] == []


def test_every_parameter_of_open_is_there_with_its_default() -> None:
    table = section("palaver.open").split("| parameter |")[1].split("\n\n")[0]
    told = [(CODE.findall(first)[0], CODE.findall(rest)[0]) for first, rest in ROW.findall(table) if "`" in first]
    parameters = inspect.signature(palaver.open).parameters.values()
    named = [one for one in parameters if one.kind is not one.VAR_KEYWORD]
    assert told == [(one.name, repr(one.default).replace("'", '"')) for one in named]


def test_every_group_of_options_of_open_is_there() -> None:
    table = section("palaver.open").split("| group |")[1].split("\n\n")[0]
    told = {name for line in table.splitlines() for name in CODE.findall("|".join(line.split("|")[:3]))}
    groups = (kind.__annotations__ for kind in open_options.GROUPS.values())
    assert told >= {name for group in groups for name in group}
    assert told >= open_options.FlatOptions.__annotations__.keys() - {"counter"}


def test_every_option_of_generate_and_of_a_context_is_there() -> None:
    options = section("Conversation").split("| option of generate | |")[1].split("\n\n")[0]
    told = [name for first, _ in ROW.findall(options) for name in CODE.findall(first)]
    assert sorted(told) == sorted(OWN_OPTIONS)
    assert all(name in section("Conversation") for name in DECIDED)
    context = (DOCS / "explanation" / "context.md").read_text().split("## Options")[1]
    told = [name for first, _ in ROW.findall(context) for name in CODE.findall(first)]
    assert sorted(told) == sorted(OPTIONS)


def test_every_field_that_can_be_set_is_there() -> None:
    words = " ".join(PAGE.split())
    assert f"`fields` of a turn: {', '.join(TURN_FIELDS)}." in words
    assert f"for a new one: {', '.join(CONVERSATION_FIELDS)}." in words


def names_of(value: Any) -> list[str]:
    return [one.name for one in fields(value)] if is_dataclass(value) else list(value.__struct_fields__)


def test_every_value_is_there_with_its_fields() -> None:
    told = {}
    for first, rest in rows("Values"):
        kinds = CODE.findall(first)
        lists = [CODE.findall(part.split(": ")[0]) for part in rest.split("; ")]
        told.update(zip(kinds, lists if len(kinds) > 1 and len(lists) > 1 else [lists[0]] * len(kinds), strict=False))
    public = {name: getattr(palaver, name) for name in palaver.__all__}
    values = {name: one for name, one in public.items() if is_dataclass(one) or hasattr(one, "__struct_fields__")}
    assert told.keys() == values.keys()
    for name, value in values.items():
        assert told[name][: len(names_of(value))] == names_of(value), name


def test_every_public_name_is_there() -> None:
    assert [name for name in palaver.__all__ if name not in PAGE] == []
    assert [name for name in palaver.testing.__all__ if f"`{name}`" not in section("palaver.testing")] == []


def test_every_kind_of_event_is_there() -> None:
    kinds = HANDLERS.keys() | {"expire"}
    told = section("Values").split("Kinds of events:")[1].split(". Settings")[0]
    assert set(CODE.findall(told)) == kinds


def test_every_error_is_there_with_its_status_over_http() -> None:
    tree = [one for one in vars(errors).values() if isinstance(one, type) and one is not errors.PalaverError]
    told = {CODE.findall(first)[0]: rest for first, rest in rows("Errors")}
    assert list(told) == [one.__name__ for one in tree]
    for one in tree:
        status, slug = errors._http(one.__new__(one))
        over_http = told[one.__name__].split(" | ")[0]
        assert over_http == ("202" if one is errors.ScrubPending else f"{status} `{slug}`")


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
    "lists and objects in one another": (validation, "MAX_DEPTH"),
    "a time to live": (validation, "MAX_TTL"),
    "turns, events or conversations in one call": (arguments, "MAX_READ"),
    "an upload's time": (attachments, "MAX_UPLOAD_SECONDS"),
    "tokens of turns that one `extract_facts` reads": (memory, "MAX_EXTRACT"),
    "a query of recall, which is cut": (service, "MAX_QUERY"),
    "words of a file that are kept": (texts, "MAX_CHARACTERS"),
    "what an archive unpacks to": (archives, "MAX_UNPACKED"),
    "the same, as a multiple of its size": (archives, "MAX_RATIO"),
    "files in an archive": (archives, "MAX_ENTRIES"),
    "archives in one another": (archives, "MAX_DEPTH"),
}


def test_every_limit_is_there_with_its_figure() -> None:
    told = {first: rest.split()[0] for first, rest in ROW.findall(section("Limits")) if rest.strip()[0].isdigit()}
    assert told == {name: f"{getattr(module, constant):,}" for name, (module, constant) in LIMITS.items()}
    known = {constant for _, constant in LIMITS.values()}
    assert {
        name
        for module in (validation, arguments, attachments, memory)
        for name in vars(module)
        if name.startswith("MAX_")
    } <= known
