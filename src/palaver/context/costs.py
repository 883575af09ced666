"""The cost of turns as messages, and how a turn that costs too much is shortened. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from palaver.context import render
from palaver.context.options import Options
from palaver.context.render import Message, View
from palaver.context.tool_rounds import Unit
from palaver.model import File, Image, Turn

Count = Callable[[str], int]

UNCOUNTED = "sql"  # the adapter of turns that were inserted by SQL: their token counts are guesses
LEAST_TEXT = 24  # tokens: a shorter quotation says nothing
SEPARATOR = 2  # tokens between two parts of a message
MARK = 2  # tokens, or characters, of the mark that `Context.text` puts before a line that begins like a message


@dataclass(frozen=True, slots=True)
class Entry:
    """A unit that is in the prompt: its messages, their cost, and whether they are word for word."""

    unit: Unit
    messages: list[Message]
    cost: int
    verbatim: bool = True


class Costs:
    """Costs by one counter, for one viewer. `counted` says that the stored counts of turns are by this counter."""

    def __init__(self, view: View, options: Options, count: Count, *, counted: bool) -> None:
        self.view, self.options, self.count, self.counted = view, options, count, counted
        self.overhead = options.overhead
        self._speakers: dict[str, int] = {"": 0}  # the cost of a speaker's name

    def entry(self, unit: Unit, cost: int) -> Entry:
        """Render a unit whose cost is known."""
        return Entry(unit, [message for turn in unit.turns for message in render.turn_messages(turn, self.view)], cost)

    def shorten(self, unit: Unit, room: int) -> Entry | None:
        """Leave out the middle of the unit's texts, so that it costs at most `room`. None if that is not possible."""
        if not self.options.shorten:
            return None
        texts = sum(max(1, len(turn.tool_results)) for turn in unit.turns)
        calls = sum(self.count(_calls_text(turn)) + 1 for turn in unit.turns if turn.tool_calls)
        fixed = texts * (self.overhead + 4) + calls
        fixed += sum(self._extras(turn) + self._note(turn) for turn in unit.turns)
        each = (room - fixed) // texts
        if each < LEAST_TEXT:
            return None
        cut = lambda text: render.shorten(text, each, self.count)  # noqa: E731
        messages = [message for turn in unit.turns for message in render.turn_messages(turn, self.view, cut)]
        cost = sum(self.count(render.message_text(message)) + self.overhead for message in messages)
        cost += sum(self._images(turn) + MARK * render.text_marks(turn) for turn in unit.turns)
        return Entry(unit, messages, cost, verbatim=False) if cost <= room else None

    def unit(self, unit: Unit) -> int:
        """Return the cost of all turns of a unit."""
        turns = unit.turns
        return self.turn(turns[0]) if len(turns) == 1 else sum([self.turn(turn) for turn in turns])

    def turn(self, turn: Turn) -> int:
        """Return the cost of a turn: its text, the overhead of each message, images, and the speaker's name."""
        if self.counted and turn.id and turn.adapter != UNCOUNTED and not self.view.marks(turn):
            words = turn.token_count + (self._note(turn) if turn.attachments else 0)
        else:
            words = sum(self.count(render.message_text(message)) for message in render.turn_messages(turn, self.view))
        return words + (len(turn.tool_results) or 1) * self.overhead + self._extras(turn)

    def _extras(self, turn: Turn) -> int:
        prefix = self.view.prefix(turn)
        spoken = self._speakers.get(prefix)
        if spoken is None:
            spoken = self._speakers[prefix] = self.count(prefix) + 1
        spoken += MARK * render.text_marks(turn)
        if isinstance(turn.content, str) and not turn.attachments:  # nearly always
            return spoken
        return self._images(turn) + spoken

    def _note(self, turn: Turn) -> int:
        """Return the cost of naming the turn's files; their text is not part of the turn."""
        note = render.attached_note(turn)
        return self.count(note) + 2 if note else 0

    def _images(self, turn: Turn) -> int:
        attached = len(render.attached_images(turn)) if turn.attachments else 0
        parts = () if isinstance(turn.content, str) else turn.content
        images = sum(isinstance(part, Image) for part in parts) + attached
        files = sum(self._file(part) for part in parts if isinstance(part, File))
        return images * self.options.image_tokens + files

    def _file(self, part: File) -> int:
        """Return the cost of a file in a message. One that is stored here is named; its text is counted elsewhere."""
        if part.attachment is None:
            return self.options.file_tokens
        return self.count(render.file_label(part)) + SEPARATOR


def _calls_text(turn: Turn) -> str:
    return "\n".join(
        f"{call['name']}({call['arguments']})" for call in render.turn_messages(turn, View(""))[0]["tool_calls"]
    )
