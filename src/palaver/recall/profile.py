"""What the ranking knows of every turn in a scope, as arrays. Pure.

A turn is named by its index, which stays the same when newer turns are added.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

HOUR = 3_600_000_000  # microseconds

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]


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


@dataclass(slots=True)
class Profile:
    """The turns of a scope, best given in order of conversation and position.

    `session` counts stretches without a pause of an hour inside one conversation. `before` and `after` are the indices
    of the searchable neighbours in the same session, -1 where there is none. `nth` counts the turns of people in their
    session from 0; it is -1 for every other turn.
    """

    tid: Ints
    conversation: Codes
    position: Ints
    created: Ints
    tokens: Codes
    assistant: Flags
    searchable: Flags
    actor: Codes
    standing: NDArray[np.int8]
    actors: list[str]
    session: Codes = field(init=False)
    before: Ints = field(init=False)
    after: Ints = field(init=False)
    nth: Codes = field(init=False)

    def __post_init__(self) -> None:
        self._connect()

    def __len__(self) -> int:
        return len(self.tid)

    @classmethod
    def build(cls, rows: Iterable[tuple[Any, ...]]) -> Profile:
        """The profile of these turns (see `Row` for what a tuple holds)."""
        actors: list[str] = []
        return cls(**_columns(rows, actors), actors=actors)

    def extend(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add turns. They get the next indices, wherever in the scope they belong."""
        new = _columns(rows, self.actors)
        for name, column in new.items():
            setattr(self, name, np.concatenate((getattr(self, name), column)))
        if len(new["tid"]):
            self._connect()

    @property
    def has_assistant(self) -> bool:
        return bool(self.assistant.any())

    def _connect(self) -> None:
        """Find the sessions and, in them, who follows whom."""
        order = _order(self.conversation, self.position)
        conversation, created = self.conversation[order], self.created[order]
        starts = np.ones(len(order), bool)
        starts[1:] = (conversation[1:] != conversation[:-1]) | (np.abs(np.diff(created)) >= HOUR)
        self.session = np.empty(len(order), np.int32)
        self.session[order] = np.cumsum(starts) - 1
        self._link(order[self.searchable[order]])
        self._number(order[(self.searchable & ~self.assistant)[order]])

    def _link(self, heard: Ints) -> None:
        together = self.session[heard[1:]] == self.session[heard[:-1]]
        self.before, self.after = np.full(len(self), -1), np.full(len(self), -1)
        self.before[heard[1:][together]] = heard[:-1][together]
        self.after[heard[:-1][together]] = heard[1:][together]

    def _number(self, people: Ints) -> None:
        session = self.session[people]
        self.nth = np.full(len(self), -1, np.int32)
        self.nth[people] = np.arange(len(people)) - np.searchsorted(session, session)


def _order(conversation: Codes, position: Ints) -> Ints:
    """The indices in order of conversation and position; nearly always they are so already."""
    later = conversation[1:] > conversation[:-1]
    if bool((later | ((conversation[1:] == conversation[:-1]) & (position[1:] > position[:-1]))).all()):
        return np.arange(len(conversation))
    return np.lexsort((position, conversation))


def _columns(rows: Iterable[tuple[Any, ...]], actors: list[str]) -> dict[str, Any]:
    """The arrays of these rows; an actor who is new is added to `actors`."""
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(Row._fields)
    tid, conversation, position, created, tokens, role, actor, standing, searchable = columns
    codes = {name: code for code, name in enumerate(actors)}
    coded = [codes.setdefault(name, len(codes)) for name in actor]
    actors.extend(list(codes)[len(actors) :])
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
    }
