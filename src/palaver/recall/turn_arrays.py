"""What the ranking knows of every turn in a scope, as arrays. Pure.

A turn is named by its index, which stays the same when newer turns are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from palaver.recall.sessions import Codes, Flags, Ints, Links, Places, followed, linked


class Row(NamedTuple):
    """One turn, as the engine hands it over."""

    tid: int
    conversation: int
    position: int
    created: int  # microseconds, UTC
    tokens: int  # of the rendered line
    role: str
    actor: str
    standing: int  # 2 a standing instruction, 1 a preference, 0 neither
    searchable: bool  # a complete turn of a user or an assistant, with text


@dataclass(frozen=True, slots=True)
class Profile:
    """The turns of a scope, best given in order of conversation and position. It never changes."""

    tid: Ints
    conversation: Codes
    position: Ints
    created: Ints
    tokens: Codes
    assistant: Flags
    searchable: Flags
    actor: Codes
    standing: NDArray[np.int8]
    actors: tuple[str, ...]
    links: Links

    def __len__(self) -> int:
        return len(self.tid)

    @classmethod
    def build(cls, rows: Iterable[tuple[Any, ...]]) -> Profile:
        """The profile of these turns (see `Row` for what a tuple holds)."""
        columns = _columns(rows, ())
        return cls(**columns, links=linked(_places(columns)))

    def extended(self, rows: Iterable[tuple[Any, ...]]) -> Profile:
        """With more turns. They get the next indices, wherever in the scope they belong."""
        columns = _columns(rows, self.actors)
        for name in columns.keys() - {"actors"}:
            columns[name] = np.concatenate((getattr(self, name), columns[name]))
        return Profile(**columns, links=followed(self.links, _places(columns)))

    def marked(self, places: Ints, standing: Sequence[int]) -> Profile:
        """With these marks at these indices."""
        if not len(places):
            return self
        marks = self.standing.copy()
        marks[places] = standing
        return replace(self, standing=marks)

    @property
    def has_assistant(self) -> bool:
        return bool(self.assistant.any())

    @property
    def session(self) -> Codes:
        return self.links.session

    @property
    def before(self) -> Ints:
        return self.links.before

    @property
    def after(self) -> Ints:
        return self.links.after

    @property
    def nth(self) -> Codes:
        return self.links.nth


def _places(columns: dict[str, Any]) -> Places:
    return Places(*(columns[name] for name in Places._fields))


def _columns(rows: Iterable[tuple[Any, ...]], actors: tuple[str, ...]) -> dict[str, Any]:
    """The arrays of these rows, and the actors: those that were known, and the new ones."""
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(Row._fields)
    tid, conversation, position, created, tokens, role, actor, standing, searchable = columns
    codes = {name: code for code, name in enumerate(actors)}
    coded = [codes.setdefault(name, len(codes)) for name in actor]
    return {
        "tid": np.array(tid, np.int64),
        "conversation": np.array(conversation, np.int32),
        "position": np.array(position, np.int64),
        "created": np.array(created, np.int64),
        "tokens": np.array(tokens, np.int32),
        "assistant": np.array([one == "assistant" for one in role], bool),
        "searchable": np.array(searchable, bool),
        "actor": np.array(coded, np.int32),
        "standing": np.array(standing, np.int8),
        "actors": tuple(codes),
    }
