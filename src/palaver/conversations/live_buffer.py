"""Text that writers of this process have not flushed yet, for live readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class Growing:
    """A pending turn's text so far, stored or not."""

    turn: str
    pieces: list[str] = field(default_factory=list)
    length: int = 0

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.length += len(text)

    def since(self, offset: int) -> str:
        """Return the text after the first `offset` characters."""
        found: list[str] = []
        missing = self.length - offset
        for piece in reversed(self.pieces):
            if missing <= 0:
                break
            found.append(piece[-missing:])
            missing -= len(piece)
        return "".join(reversed(found))


class Unflushed:
    """The pending turns that this process is writing, and the listeners that want their text before it is stored."""

    def __init__(self) -> None:
        self._growing: dict[str, dict[str, Growing]] = {}
        self._listeners: dict[str, set[Callable[[], None]]] = {}

    def opened(self, conversation: str, turn: str) -> None:
        self._growing.setdefault(conversation, {})[turn] = Growing(turn)

    def wrote(self, conversation: str, turn: str, text: str) -> None:
        growing = self._growing.get(conversation, {}).get(turn)
        if growing is not None:
            growing.add(text)
            for listener in self._listeners.get(conversation, ()):
                listener()

    def sealed(self, conversation: str, turn: str) -> None:
        here = self._growing.get(conversation, {})
        here.pop(turn, None)
        if not here:
            self._growing.pop(conversation, None)

    def of(self, conversation: str) -> list[Growing]:
        return list(self._growing.get(conversation, {}).values())

    @contextmanager
    def listening(self, conversation: str, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener` whenever something was written."""
        here = self._listeners.setdefault(conversation, set())
        here.add(listener)
        try:
            yield
        finally:
            here.discard(listener)
            if not here:
                self._listeners.pop(conversation, None)
