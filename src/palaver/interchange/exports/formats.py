"""The formats of other products that can be imported, and which one a file has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from palaver.errors import InvalidInput
from palaver.interchange.exports import chatgpt, claude, claude_code, codex, letta, librechat, open_webui
from palaver.interchange.exports.databases import LangGraph, Mem0, OpenAIAgents
from palaver.interchange.exports.documents import Advance, Source, open_source
from palaver.interchange.exports.values import Entry


class Format(Protocol):
    """A format: its name, what a person calls it, how to recognise it and how to read it."""

    NAME: str
    TITLE: str

    def matches(self, source: Source) -> bool:
        """Return whether a source has this format."""
        ...

    def read(self, source: Source, advance: Advance) -> Iterator[Entry]:
        """Yield the conversations of a source."""
        ...


FORMATS = cast(
    "tuple[Format, ...]",
    (chatgpt, claude, claude_code, codex, open_webui, librechat, letta, OpenAIAgents(), LangGraph(), Mem0()),
)
NAMES = tuple(one.NAME for one in FORMATS)


@dataclass(frozen=True, slots=True)
class Export:
    """A file, folder or archive and the format that it has."""

    source: Source
    format: Format


def open_export(path: Path, name: str | None = None) -> Export | None:
    """Open an export. Without the name of a format it is recognised; None when it has none of them."""
    source = open_source(path)
    if name is not None:
        found = next((one for one in FORMATS if name == one.NAME), None)
        if found is None:
            raise InvalidInput("--format", f"must be one of {', '.join(NAMES)}")
        return Export(source, found)
    found = next((one for one in FORMATS if one.matches(source)), None)
    return None if found is None else Export(source, found)
