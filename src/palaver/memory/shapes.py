"""The shape of a subject's memory: fields that the application names for a kind, and what is never remembered. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, TypedDict

from palaver.core.validation import clean_name
from palaver.errors import InvalidInput
from palaver.memory.subjects import KINDS
from palaver.recall.terms import terms

TYPES = ("text", "number", "boolean", "date")


class SubjectShapeOptions(TypedDict, total=False):
    """The shape of one kind of subject.

    - `fields`: the names of fields, each with its type: `text`, `number`, `boolean`, `date`, or a list of allowed
      values.
    - `never`: words. A statement with one of them is not learnt from conversations, and `remember` refuses it.
    - `version`: a number that you increase when the shape changes. It is stored in the memory; 1 by default.
    """

    fields: Mapping[str, str | Sequence[str]]
    never: Sequence[str]
    version: int


@dataclass(frozen=True, slots=True)
class SubjectShape:
    """The checked shape of one kind of subject."""

    fields: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    never: frozenset[str] = frozenset()  # stems
    version: int = 1

    def allows(self, text: str) -> bool:
        """Return whether a statement may be remembered."""
        return not self.never.intersection(terms(text))

    def check(self, kind: str, text: str) -> None:
        """Refuse a kind that is not known, a value that does not have the type of its field, and what is never kept."""
        if kind not in KINDS and kind not in self.fields:
            raise InvalidInput("kind", f"must be one of {', '.join([*KINDS, *self.fields])}")
        if not self.allows(text):
            raise InvalidInput("text", "contains a word that this application does not allow to be remembered")
        wanted = self.fields.get(kind, "text")
        if not _has_type(text, wanted):
            named = wanted if isinstance(wanted, str) else f"one of {', '.join(wanted)}"
            raise InvalidInput("text", f"must be {'a ' if isinstance(wanted, str) else ''}{named} for {kind}")


def _has_type(text: str, wanted: str | tuple[str, ...]) -> bool:
    if isinstance(wanted, tuple):
        return text in wanted
    if wanted == "boolean":
        return text in ("true", "false")
    try:
        if wanted == "number":
            float(text)
        elif wanted == "date":
            date.fromisoformat(text)
    except ValueError:
        return False
    return True


def clean_shapes(given: object) -> dict[str, SubjectShape]:
    """Check the option `subjects` of a store: a shape for each kind."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidInput("subjects", "must be a mapping from kinds to shapes")
    return {clean_name("subjects", kind): _clean_shape(f"subjects.{kind}", one) for kind, one in given.items()}


def _clean_shape(place: str, given: Any) -> SubjectShape:
    if not isinstance(given, Mapping) or given.keys() - SubjectShapeOptions.__annotations__.keys():
        raise InvalidInput(place, f"must be a mapping with {', '.join(SubjectShapeOptions.__annotations__)}")
    version = given.get("version", 1)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise InvalidInput(f"{place}.version", "must be a whole number, one or more")
    fields = {name: _clean_type(f"{place}.fields.{name}", one) for name, one in (given.get("fields") or {}).items()}
    stems = frozenset(stem for word in given.get("never") or () for stem in terms(word))
    return SubjectShape(fields, stems, version)


def _clean_type(place: str, given: Any) -> str | tuple[str, ...]:
    if isinstance(given, str) and given in TYPES:
        return given
    if isinstance(given, list | tuple) and given and all(isinstance(one, str) for one in given):
        return tuple(given)
    raise InvalidInput(place, f"must be one of {', '.join(TYPES)}, or a list of texts")
