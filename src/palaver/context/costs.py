"""The cost of turns as messages, and how a turn that costs too much is shortened. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from palaver.context import render
from palaver.context.options import Options
from palaver.context.render import Message, View
from palaver.context.tool_rounds import Unit
from palaver.model import File, Image, Turn, is_data

Count = Callable[[str], int]

UNCOUNTED = "sql"  # the adapter of turns that were inserted by SQL: their token counts are guesses
LEAST_TEXT = 24  # tokens: a shorter quotation says nothing
SEPARATOR = 2  # tokens between two parts of a message
TRIES = 3  # to shorten a unit: the marks of its lines are known once it is rendered
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
        fixed += sum(self._speaker(turn) + self._images(turn) + self._note(turn) for turn in unit.turns)
        each = (room - fixed) // texts
        for _ in range(TRIES):
            if each < LEAST_TEXT:
                return None
            entry = self._cut(unit, each)
            if entry.cost <= room:
                return entry
            each -= -(-(entry.cost - room) // texts)
        return None

    def _cut(self, unit: Unit, tokens: int) -> Entry:
        """Render a unit with at most `tokens` tokens of each text."""
        cut = lambda text: render.shorten(text, tokens, self.count)  # noqa: E731
        messages = [message for turn in unit.turns for message in render.turn_messages(turn, self.view, cut)]
        cost = sum(self.count(render.message_text(message)) + self.overhead for message in messages)
        cost += sum(MARK * render.message_marks(message) for message in messages)
        cost += sum(self._images(turn) for turn in unit.turns)
        return Entry(unit, messages, cost, verbatim=False)

    def is_over(self, turn: Turn) -> bool:
        """Return whether a turn surely costs more than the whole budget, without counting more of it than that."""
        budget = self.options.budget
        if self._is_counted(turn):
            return turn.token_count > budget
        return any(render.exceeds(text, budget, self.count) for text in render.long_texts(turn))

    def unit(self, unit: Unit) -> int:
        """Return the cost of all turns of a unit."""
        turns = unit.turns
        return self.turn(turns[0]) if len(turns) == 1 else sum([self.turn(turn) for turn in turns])

    def turn(self, turn: Turn) -> int:
        """Return the cost of a turn: its text, the overhead of each message, images, and the speaker's name.

        For a turn that cannot fit, return any number above the budget.
        """
        return self.options.budget + 1 if self.is_over(turn) else self._exact(turn)

    def question(self, turn: Turn) -> int:
        """Return the cost of the message to answer, even of one that cannot fit: the error says what it needs."""
        if not self.is_over(turn):
            return self._exact(turn)
        return max(self.options.budget + 1, sum(map(self.count, render.long_texts(turn))) + self.overhead)

    def _is_counted(self, turn: Turn) -> bool:
        """Return whether the stored count of the turn's tokens is by this counter."""
        return bool(self.counted and turn.id and turn.adapter != UNCOUNTED)

    def _exact(self, turn: Turn) -> int:
        if self._is_counted(turn) and not self.view.marks(turn):
            words = turn.token_count + (self._note(turn) if turn.attachments else 0)
        else:
            words = sum(self.count(render.message_text(message)) for message in render.turn_messages(turn, self.view))
        return words + (len(turn.tool_results) or 1) * self.overhead + self._extras(turn)

    def _speaker(self, turn: Turn) -> int:
        """Return the cost of the speaker's name, where it stands before the text."""
        prefix = self.view.prefix(turn)
        spoken = self._speakers.get(prefix)
        if spoken is None:
            spoken = self._speakers[prefix] = self.count(prefix) + 1
        return spoken

    def _extras(self, turn: Turn) -> int:
        spoken = self._speaker(turn) + MARK * render.text_marks(turn)
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
        if is_data(part):
            return 0
        if part.attachment is None:
            return self.options.file_tokens
        return self.count(render.file_label(part)) + SEPARATOR


def _calls_text(turn: Turn) -> str:
    return "\n".join(
        f"{call['name']}({call['arguments']})" for call in render.turn_messages(turn, View(""))[0]["tool_calls"]
    )
