"""Files of the current message: their text stands at its head, whole if there is room for it.

They count as part of the message. Together they take at most half of what instructions and message leave, and up to
three quarters where the thread before it does not need the rest. Several files share that fairly: what a small one
does not need, larger ones get. A file that does not fit is shown in part: its beginning, and the passages that fit the
question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from palaver.context.costs import LEAST_TEXT
from palaver.context.explain import ContextFile, FileState
from palaver.context.inputs import ReadFile
from palaver.context.pack.ledger import PackInputs
from palaver.context.render import Span, attached_images, exceeds, file_block, merge_spans, not_shown
from palaver.context.render.neutral import MAX_IMAGE
from palaver.core.quotes import indent
from palaver.model import Attachment, Image, Turn

SHARE, MOST = 1 / 2, 3 / 4  # of what is left: always, and where the thread does not need the rest
BEGINNING = 1 / 3  # of the room of a file that has passages which fit the question
SEPARATOR = 2  # tokens between two blocks
GAP_COST = 12  # tokens of the mark for what is left out
LONGEST_TOKEN = 16  # characters; a text that is longer per token of room does not fit, and is not counted

AS_IMAGE = "sent as an image"
NO_ROOM = "no room"
NO_TEXT = "no text found"
STILL_READING = "still being read"


@dataclass(frozen=True, slots=True)
class FilesBlock:
    """The text for the head of the current message, its cost, and the state of each file."""

    text: str = ""
    cost: int = 0
    files: tuple[ContextFile, ...] = ()
    room: int | None = None  # that the files had; None without files


class _Shown(NamedTuple):
    """The quoted text of one file, empty if none is shown, and its state."""

    text: str
    file: ContextFile


def pack_files(inputs: PackInputs, turn: Turn, left: int) -> FilesBlock:
    """Choose what to show of the files of the current message, in a part of the `left` tokens."""
    if not inputs.material.files:
        return FilesBlock()
    kept = inputs.material.file_room
    room = _whole_room(inputs, turn, left) if kept is None else min(kept, left)
    images = _image_ids(turn)
    rooms = _share(inputs, [one for one in inputs.material.files if one.text and one.attachment.id not in images], room)
    shown = [
        _image(inputs, one) if one.attachment.id in images else _show(inputs, one, rooms.get(one.attachment.id, 0))
        for one in inputs.material.files
    ]
    text = _with_notes(inputs, shown, room)
    cost = inputs.count(text) + SEPARATOR if text else 0
    return FilesBlock(text, cost, tuple(one.file for one in shown), room)


# ---- the room ------------------------------------------------------------------------------------------------------


def _whole_room(inputs: PackInputs, turn: Turn, left: int) -> int:
    """Return what all files together may take."""
    material, least = inputs.material, int(left * SHARE)
    if material.turn_count > len(material.tail):  # there is more of the thread than was read
        return least
    before = [one for one in material.tail if one.position < turn.position]
    memory = [*material.memory_lines, *material.standing]
    needed = sum(inputs.costs.turn(one) for one in before) + sum(inputs.count(line) for line in memory)
    return max(least, min(int(left * MOST), left - needed))


def _share(inputs: PackInputs, files: Sequence[ReadFile], room: int) -> dict[str, int]:
    """Share the room: each file gets the same, or what it needs if that is less."""
    needs = {one.attachment.id: _need(inputs, one, room) for one in files}
    rooms: dict[str, int] = {}
    for index, (id, need) in enumerate(sorted(needs.items(), key=lambda item: item[1])):
        rooms[id] = min(need, room // (len(needs) - index))
        room -= rooms[id]
    return rooms


def _need(inputs: PackInputs, file: ReadFile, room: int) -> int:
    """Return the cost of the whole file, or `room` if it is more than that."""
    if len(file.text) > room * LONGEST_TOKEN:
        return room
    if exceeds(file.text, room, inputs.count):
        return room
    return min(room, inputs.count(_block(file, [(0, len(file.text))])) + SEPARATOR)


# ---- one file ------------------------------------------------------------------------------------------------------


def _image_ids(turn: Turn) -> set[str | None]:
    """Return the attachments of a turn that are sent as images."""
    parts = () if isinstance(turn.content, str) else turn.content
    return {one.id for one in attached_images(turn)} | {part.attachment for part in parts if isinstance(part, Image)}


def _image(inputs: PackInputs, file: ReadFile) -> _Shown:
    return _Shown("", _state(file.attachment, "in full", AS_IMAGE, inputs.options.image_tokens))


def _show(inputs: PackInputs, file: ReadFile, room: int) -> _Shown:
    if not file.text:
        return _Shown("", _state(file.attachment, "not sent", _describe_problem(file)))
    whole = [(0, len(file.text))]
    spans = whole if _fits(inputs, file, whole, room) else _choose(inputs, file, room)
    if not spans:
        return _Shown("", _state(file.attachment, "not sent", NO_ROOM))
    text = _block(file, spans)
    cost = inputs.count(text) + SEPARATOR
    if merge_spans(spans) == whole:
        return _Shown(text, _state(file.attachment, "in full", "its whole text", cost))
    return _Shown(text, _state(file.attachment, "in part", _describe_part(file, spans), cost))


def _state(file: Attachment, state: FileState, reason: str, tokens: int = 0) -> ContextFile:
    return ContextFile(name=file.filename, attachment=file.id, state=state, reason=reason, tokens=tokens)


def _describe_problem(file: ReadFile) -> str:
    kind, size = file.attachment.media_type, file.attachment.bytes
    if kind.startswith("image/"):
        limit = f"larger than {MAX_IMAGE // 1_000_000} MB"
        return limit if size > MAX_IMAGE else "images of this type are not sent"
    if file.problem is None:
        return STILL_READING
    return NO_TEXT if file.problem in ("", "holds no text") else f"{NO_TEXT} ({file.problem})"


def _describe_part(file: ReadFile, spans: Sequence[Span]) -> str:
    merged = merge_spans(spans)
    has_beginning = merged[0][0] == 0
    passages = len(merged) - has_beginning
    fitting = "1 passage that fits the question" if passages == 1 else f"{passages} passages that fit the question"
    what = " and ".join([*(["its beginning"] if has_beginning else []), *([fitting] if passages else [])])
    shown = sum(end - start for start, end in merged)
    return f"{what}: {shown:,} of {len(file.text):,} characters"


def _block(file: ReadFile, spans: Sequence[Span]) -> str:
    return file_block(file.attachment.filename, file.attachment.id, file.text, spans)


def _fits(inputs: PackInputs, file: ReadFile, spans: Sequence[Span], room: int) -> bool:
    length = sum(end - start for start, end in spans)
    return length <= room * LONGEST_TOKEN and inputs.count(_block(file, spans)) + SEPARATOR <= room


# ---- a part of a file ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Choice:
    """Spans of a file that were chosen so far, in the order of the choice."""

    inputs: PackInputs
    file: ReadFile
    left: int
    spans: list[Span] = field(default_factory=list)

    def add(self, index: int, room: int) -> bool:
        """Add a passage if it fits into `room`. True if it is in now."""
        span = self.file.passage(index)
        if span in self.spans:
            return True
        is_next = any(span[0] == end for _, end in self.spans[-1:])
        cost = self.inputs.count(indent(self.file.text[slice(*span)])) + (1 if is_next else GAP_COST)
        if cost > min(room, self.left):
            return False
        self.spans.append(span)
        self.left -= cost
        return True

    def add_beginning(self, room: int) -> None:
        """Add passages from the first on, as many as fit into `room`; of the first, at least a part."""
        until = self.left - room
        for index in range(len(self.file.ends)):
            if not self.add(index, self.left - until):
                break
        if not self.spans and (end := self._cut(self.file.passage(0), room)):
            self.spans.append((0, end))
            self.left -= room

    def _cut(self, span: Span, room: int) -> int:
        """Return the end of the longest beginning of a span that fits into `room`; 0 if that says nothing."""
        (start, high), low = span, 0
        while low < high and room >= LEAST_TEXT:
            middle = (low + high + 1) // 2
            fits = self.inputs.count(indent(self.file.text[start:middle])) + GAP_COST <= room
            low, high = (middle, high) if fits else (low, middle - 1)
        return low


def _choose(inputs: PackInputs, file: ReadFile, room: int) -> list[Span]:
    """Choose the beginning of a file and passages that fit the question, or nothing if there is too little room."""
    choice = _Choice(inputs, file, room - inputs.count(_block(file, [])) - SEPARATOR)
    if choice.left < LEAST_TEXT:
        return []
    choice.add_beginning(int(choice.left * BEGINNING) if file.ranking else choice.left)
    for index in file.ranking:
        choice.add(index, choice.left)
    choice.add_beginning(choice.left)
    spans = choice.spans
    while spans and not _fits(inputs, file, spans, room):  # joined, passages may cost a little more
        spans.pop()
    return spans


# ---- files that are not shown --------------------------------------------------------------------------------------


def _with_notes(inputs: PackInputs, shown: Sequence[_Shown], room: int) -> str:
    """Return the quoted files, and behind them, where there is room, why others are not shown."""
    text = "\n\n".join(one.text for one in shown if one.text)
    for _, file in shown:
        if file.state == "not sent":
            longer = "\n\n".join(piece for piece in (text, not_shown(file.name, file.attachment, file.reason)) if piece)
            text = longer if inputs.count(longer) + SEPARATOR <= room else text
    return text
