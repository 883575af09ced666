"""Everything that the ranking needs to know about the turns of a scope, as arrays. Pure.

A turn is identified by its index, which stays the same when newer turns are added.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from palaver.recall.sessions import Codes, Flags, Ints, Links, Places, extend_links, link_turns

# A turn as the engine reads it: number, conversation, position, created, tokens, role, actor, standing, status.
StoredRow = tuple[int, int, int, int, int, str, str, int, str]
SPEAKER_TOKENS = 3  # of "actor: " before a quoted line


class Row(NamedTuple):
    """One turn, as the arrays hold it."""

    tid: int
    conversation: int
    position: int
    created: int  # microseconds, UTC
    tokens: int  # of the rendered line
    role: str
    actor: str
    standing: int  # 2 a standing instruction, 1 a preference, 0 neither
    searchable: bool  # a complete turn of a user or an assistant, with text


class _Columns(NamedTuple):
    tid: Ints
    conversation: Ints
    position: Ints
    created: Ints
    tokens: Codes
    assistant: Flags
    searchable: Flags
    actor: Codes
    standing: NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Profile:
    """The turns of a scope; building it is fastest in order of conversation and position. Immutable."""

    tid: Ints
    conversation: Ints
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
    def build(cls, rows: Iterable[Row], *, sparse: bool = False) -> Profile:
        """Build the arrays. `sparse` says that they are some of the turns of the scope."""
        columns, actors = _columns(rows, ())
        return cls(*columns, actors, link_turns(_places(columns), sparse=sparse))

    def extend(self, rows: Iterable[Row]) -> Profile:
        """Add turns. They get the next indices, wherever in the scope they belong."""
        new, actors = _columns(rows, self.actors)
        names = _Columns._fields
        columns = _Columns(*(np.concatenate((getattr(self, name), getattr(new, name))) for name in names))
        return Profile(*columns, actors, extend_links(self.links, _places(columns)))

    def mark(self, indices: Ints, standing: Sequence[int]) -> Profile:
        """Set the marks of standing instructions at these indices."""
        if not len(indices):
            return self
        marks = self.standing.copy()
        marks[indices] = standing
        return replace(self, standing=marks)

    def hide(self, hidden: Flags) -> Profile:
        """Make turns unsearchable for one question."""
        return replace(self, searchable=self.searchable & ~hidden)

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


@dataclass(frozen=True, slots=True)
class IndexedProfile:
    """A profile that finds turns by their numbers, with the engine's stamp of when it was read."""

    profile: Profile
    stamp: tuple[int, ...]
    through: int
    order: Ints  # the indices in order of the turns' numbers
    sorted_tids: Ints
    conversations: list[int]

    @classmethod
    def of(cls, profile: Profile, stamp: tuple[int, ...], through: int) -> IndexedProfile:
        order = profile.tid.argsort(kind="stable")
        conversations = np.unique(profile.conversation).tolist()
        return cls(profile, stamp, through, order, profile.tid[order], conversations)

    def update(self, stored: Iterable[StoredRow], stamp: tuple[int, ...], through: int) -> IndexedProfile:
        """Add the turns that are not in the profile yet, and set the marks of those that are."""
        rows = {row.tid: row for row in map(read_row, stored)}
        indices, is_known = self.find(np.array(list(rows), np.int64))
        pairs = list(zip(rows.values(), is_known.tolist(), strict=True))
        profile = self.profile.mark(indices, [row.standing for row, known in pairs if known])
        if is_known.all():
            return replace(self, profile=profile, stamp=stamp, through=through)
        return IndexedProfile.of(profile.extend([row for row, known in pairs if not known]), stamp, through)

    def find(self, tids: Ints) -> tuple[Ints, Flags]:
        """Return the indices of those turns that are in the profile, and which of `tids` are."""
        if not len(self.sorted_tids):
            return self.order[:0], np.zeros(len(tids), bool)
        places = self.sorted_tids.searchsorted(tids)
        places[places == len(self.sorted_tids)] = 0
        is_known = self.sorted_tids[places] == tids
        return self.order[places[is_known]], is_known


def read_row(stored: StoredRow) -> Row:
    """Convert a stored row. Only complete turns of users and assistants that have text can be recalled."""
    tid, conversation, position, created, tokens, role, actor, standing, status = stored
    searchable = status == "complete" and role in ("user", "assistant") and tokens > 0
    return Row(tid, conversation, position, created, tokens + SPEAKER_TOKENS, role, actor, standing, searchable)


def _places(columns: _Columns) -> Places:
    return Places(columns.conversation, columns.position, columns.created, columns.assistant, columns.searchable)


def _columns(rows: Iterable[Row], actors: tuple[str, ...]) -> tuple[_Columns, tuple[str, ...]]:
    """Return the rows as arrays, and the actors: the known ones first, then new ones."""
    transposed: list[tuple[object, ...]] = list(zip(*rows, strict=True)) or [()] * len(Row._fields)
    tid, conversation, position, created, tokens, role, actor, standing, searchable = transposed
    codes: dict[object, int] = {name: code for code, name in enumerate(actors)}
    coded = [codes.setdefault(name, len(codes)) for name in actor]
    columns = _Columns(
        tid=np.array(tid, np.int64),
        conversation=np.array(conversation, np.int64),
        position=np.array(position, np.int64),
        created=np.array(created, np.int64),
        tokens=np.array(tokens, np.int32),
        assistant=np.array([one == "assistant" for one in role], bool),
        searchable=np.array(searchable, bool),
        actor=np.array(coded, np.int32),
        standing=np.array(standing, np.int8),
    )
    return columns, tuple(str(name) for name in codes)
