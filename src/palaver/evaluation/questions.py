"""Questions with the turns or texts that answer them, one JSON object on each line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from palaver.errors import InvalidInput

FIELDS = frozenset({"question", "conversation", "turns", "texts"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question to a conversation (its id or key). The answer is in all of `turns` (ids) and `texts`."""

    question: str
    conversation: str
    turns: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    def to_line(self) -> str:
        """Return the question as a line of a file."""
        return json.dumps({name: value for name, value in asdict(self).items() if value}, ensure_ascii=False)


def read_questions(lines: Iterable[str]) -> Iterator[Question]:
    """Read a file of questions; `InvalidInput` names the line and the field."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _question(f"line {number}", line)


def _question(where: str, line: str) -> Question:
    try:
        data = json.loads(line)
    except ValueError:
        raise InvalidInput(where, "is not JSON") from None
    if not isinstance(data, dict):
        raise InvalidInput(where, "must be an object with question, conversation, and turns or texts")
    if unknown := data.keys() - FIELDS:
        raise InvalidInput(where, f"{sorted(unknown)[0]!r} is unknown; the fields are {', '.join(sorted(FIELDS))}")
    for name in ("question", "conversation"):
        if not isinstance(data.get(name), str) or not data[name].strip():
            raise InvalidInput(where, f"{name} must be a text")
    gold = {name: _strings(where, name, data.get(name, [])) for name in ("turns", "texts")}
    if not any(gold.values()):
        raise InvalidInput(where, "needs turns (ids) or texts that answer the question")
    return Question(question=data["question"], conversation=data["conversation"], **gold)


def _strings(where: str, name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one.strip() for one in value):
        raise InvalidInput(where, f"{name} must be a list of texts")
    return tuple(value)
