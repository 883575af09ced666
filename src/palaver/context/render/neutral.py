"""Turns as neutral messages.

A neutral message is `{"role", "content"}`, with `tool_calls` on an assistant's and `tool_call_id` on a tool's. The
content is text or a list of parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaver.core.identity import canonical_json
from palaver.core.quotes import (
    count_speakers,
    has_lines,
    imitates_block,
    imitates_role,
    imitates_speaker,
    is_through_mcp,
    mark_speakers,
    name_of,
    one_line,
    quote,
    quote_all,
    speaker_of,
)
from palaver.model import Attachment, File, Image, Text, ToolResult, Turn, is_data

Message = dict[str, Any]
Part = dict[str, Any]
MessageContent = str | list[Part]
Count = Callable[[str], int]

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})  # that every provider accepts
MAX_IMAGE = 5_000_000  # bytes; the limit of the strictest provider
CUT = "\n[… {} left out here …]\n"
OPENING = "(The conversation starts here.)"
MAX_SEARCHED = 100_000  # characters of an owner's text that are searched for names of other speakers
CHARACTERS_PER_TOKEN = 16  # prose has four, code fewer, white space more


# ---- turns ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class View:
    """The participant for whom the thread is rendered: its own turns are the assistant's, all others are users'.

    `several` says that other people than the owner take part.
    """

    owner: str
    viewer: str | None = None
    several: bool = False

    def role(self, turn: Turn) -> str:
        if self.viewer is None or turn.role in ("tool", "system"):
            return turn.role
        return "assistant" if turn.actor == self.viewer else "user"

    def prefix(self, turn: Turn) -> str:
        """Return the name of the speaker, where the role does not tell who it is.

        The owner is named only where others take part and the text could be read as theirs.
        """
        if is_through_mcp(turn.metadata) and turn.role != "system":
            return f"{speaker_of(turn)}: "
        if self.role(turn) != "user" or not turn.actor:
            return ""
        is_owner = turn.actor in ("user", self.owner)
        if is_owner and not (self.several and _may_imitate_speaker(turn.text)):
            return ""
        return f"{name_of(turn.actor, turn.role)}: "

    def marks(self, turn: Turn) -> bool:
        """Return whether lines of the turn get marks that its stored count of tokens does not hold."""
        if turn.role == "system":
            return False
        if turn.role == "tool":
            return any(_imitates(turn, _as_json_text(one.content)) for one in turn.tool_results)
        return _imitates(turn, turn.text) or (bool(self.prefix(turn)) and has_lines(turn.text))


def turn_messages(turn: Turn, view: View, cut: Callable[[str], str] | None = None) -> list[Message]:
    """Render one turn; a tool turn becomes one message per result. `cut` is applied to every text."""
    cut = cut or _unchanged
    if turn.role == "tool":
        return [
            {
                "role": "tool",
                "tool_call_id": one.id,
                "content": _guard(turn, cut(_as_json_text(one.content))),
                **error_mark(one),
            }
            for one in turn.tool_results
        ]
    content = _render_content(turn, view.prefix(turn), cut)
    message: Message = {"role": view.role(turn), "content": _add_files(turn, content) if turn.attachments else content}
    if turn.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": _as_json_text(call.arguments)} for call in turn.tool_calls
        ]
    return [message]


def _may_imitate_speaker(text: str) -> bool:
    """Return whether a text could be read as another speaker's words; True for a huge text, which is not searched."""
    return len(text) > MAX_SEARCHED or imitates_speaker(text)


def _imitates(turn: Turn, text: str) -> bool:
    """Return whether the text of a turn could be read as one of Palaver's blocks, or as a message of another role."""
    if turn.role == "system":  # the application's own words
        return False
    return imitates_block(text) or (turn.role != "assistant" and imitates_role(text))


def _guard(turn: Turn, text: str) -> str:
    """Mark the lines of a text that could be read as something else."""
    return quote_all(text) if _imitates(turn, text) else text


def error_mark(result: ToolResult) -> dict[str, bool]:
    """Return the field that marks the message of a failed tool."""
    return {"is_error": True} if result.is_error else {}


def _unchanged(text: str) -> str:
    return text


def _as_json_text(value: object) -> str:
    return value if isinstance(value, str) else canonical_json(value)


def _render_content(turn: Turn, prefix: str, cut: Callable[[str], str]) -> MessageContent:
    if isinstance(turn.content, str):
        return _say(turn, prefix, cut(turn.content))
    parts: list[Part] = []
    for part in turn.content:
        if isinstance(part, Text):
            parts.append({"type": "text", "text": cut(part.text)})
        elif isinstance(part, Image):
            parts.append({"type": "image", "url": part.url, "attachment": part.attachment})
        elif isinstance(part, File) and not is_data(part):
            parts.append(_file_part(part))
    if all(part["type"] == "text" for part in parts):
        return _say(turn, prefix, "\n".join(part["text"] for part in parts))
    mark = quote_all if prefix or _imitates(turn, turn.text) else _unchanged
    marked = [{**part, "text": mark(part["text"])} if part["type"] == "text" else part for part in parts]
    return [{"type": "text", "text": prefix}, *marked] if prefix else marked


def _say(turn: Turn, prefix: str, text: str) -> str:
    return prefix + quote(text) if prefix else _guard(turn, text)


def _file_part(part: File) -> Part:
    return {"type": "file", "url": part.url, "attachment": part.attachment, "filename": part.filename}


# ---- files of a turn -----------------------------------------------------------------------------------------------


def attached_images(turn: Turn) -> list[Attachment]:
    """Return the images that a user attached and that models accept: they are sent, not only named."""
    if turn.role != "user":
        return []
    return [one for one in _attached_only(turn) if one.media_type in IMAGE_TYPES and one.bytes <= MAX_IMAGE]


def attached_note(turn: Turn) -> str:
    """Name the files of a turn with their ids, images too. Files inside the content are named in their place."""
    return "\n".join(_label(one) for one in _attached_beside(turn, (File,)))


def _attached_only(turn: Turn) -> list[Attachment]:
    """Return the attachments that are not a part of the content."""
    return _attached_beside(turn, (Image, File))


def _attached_beside(turn: Turn, kinds: tuple[type[Image] | type[File], ...]) -> list[Attachment]:
    """Return the attachments that are not named in the content by a part of these kinds; none of a tool's result."""
    if turn.role == "tool":
        return []
    parts = () if isinstance(turn.content, str) else turn.content
    in_content = {part.attachment for part in parts if isinstance(part, kinds)}
    return [one for one in turn.attachments if one.id not in in_content]


def _label(one: Attachment) -> str:
    return f"[attached: {one_line(one.filename)} ({one.media_type}, attachment {one.id})]"


def _add_files(turn: Turn, content: MessageContent) -> MessageContent:
    images, note = attached_images(turn), attached_note(turn)
    if not images:
        return _add_note(content, note) if note else content
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    parts = [part for part in parts if part.get("text") != ""]
    parts += [{"type": "image", "url": None, "attachment": one.id} for one in images]
    return [*parts, {"type": "text", "text": note}] if note else parts


def _add_note(content: MessageContent, note: str) -> MessageContent:
    if isinstance(content, str):
        return f"{content}\n{note}" if content else note
    return [*content, {"type": "text", "text": note}]


# ---- text ----------------------------------------------------------------------------------------------------------


def turn_text(turn: Turn) -> str:
    """Return everything that a turn says as plain text, tool calls and the names of files included."""
    if isinstance(turn.content, str) and not (turn.tool_calls or turn.tool_results or turn.attachments):
        return turn.content  # most turns
    return "\n".join(piece for piece in (turn.text, *turn_labels(turn)) if piece)


def turn_labels(turn: Turn) -> list[str]:
    """Return what a turn holds besides its text, one label each: tool calls, results, files."""
    labels = [f"[calls {call.name} {_as_json_text(call.arguments)}]" for call in turn.tool_calls]
    labels += [f"[result {_as_json_text(result.content)}]" for result in turn.tool_results]
    if not isinstance(turn.content, str):
        labels += [_name_part(part) for part in turn.content if isinstance(part, Image | File) and not is_data(part)]
    return labels + [_label(one) for one in _attached_only(turn)]


def _name_part(part: Image | File) -> str:
    if isinstance(part, File):
        return file_label(part)
    return part_text({"type": "image", "attachment": part.attachment})


def message_text(message: Mapping[str, Any]) -> str:
    """Return everything textual in a message, as it is counted."""
    content = message["content"]
    pieces = [content] if isinstance(content, str) else [part.get("text") or "" for part in content]
    pieces += [f"{call['name']}({call['arguments']})" for call in message.get("tool_calls", ())]
    return "\n".join(piece for piece in pieces if piece)


def messages_text(messages: Sequence[Message]) -> str:
    """Return the context as one string. A line inside a message that begins like another message is marked."""
    return "\n\n".join(f"{message['role']}: {_marked_text(message)}" for message in messages)


def _marked_text(message: Message) -> str:
    text = message_text(message)
    return text if message["role"] == "system" else mark_speakers(text)


def text_marks(turn: Turn) -> int:
    """Return how many lines of a turn `messages_text` marks, or a few more."""
    results = sum(count_speakers(_as_json_text(one.content)) for one in turn.tool_results)
    return results + (count_speakers(turn.text) if turn.role != "system" else 0)


def message_marks(message: Message) -> int:
    """Return how many lines of a message `messages_text` marks, or a few more."""
    return count_speakers(message_text(message)) if message["role"] != "system" else 0


def long_texts(turn: Turn) -> list[str]:
    """Return the texts of a turn that may be long: what it says, and the results of tools."""
    return [turn.text, *(_as_json_text(one.content) for one in turn.tool_results)]


def part_text(part: Part) -> str:
    """Return a part as text: one that cannot be sent is named."""
    if part["type"] == "text":
        return str(part["text"]) or "[text]"
    filename = f" {one_line(part['filename'])}" if part.get("filename") else ""
    attachment = f" (attachment {part['attachment']})" if part.get("attachment") else ""
    return f"[{part['type']}{filename}{attachment}]"


def file_label(part: File) -> str:
    """Return the text by which a file in a message is named."""
    return part_text(_file_part(part))


def prepend(message: Message, head: str) -> Message:
    """Return the message with `head` before its content."""
    content = message["content"]
    if isinstance(content, str):
        return {**message, "content": f"{head}\n\n{content}"}
    return {**message, "content": [{"type": "text", "text": head}, *content]}


def shorten(text: str, tokens: int, count: Count) -> str:
    """Leave out the middle of `text`, visibly, so that it counts at most `tokens`.

    The time depends on `tokens`, not on the text: no more of it is counted than is needed.
    """
    if not exceeds(text, tokens, count) and count(text) <= tokens:
        return text
    most = len(text) // 2
    low, high = 0, min(most, max(1, CHARACTERS_PER_TOKEN * tokens))
    while high < most and count(_without_middle(text, high)) <= tokens:
        low, high = high, min(most, 2 * high)
    while low < high:
        middle = (low + high + 1) // 2
        if count(_without_middle(text, middle)) <= tokens:
            low = middle
        else:
            high = middle - 1
    return _without_middle(text, low)


def _without_middle(text: str, keep: int) -> str:
    left_out = f"{len(text) - 2 * keep:,} characters"
    return text[:keep] + CUT.format(left_out) + (text[-keep:] if keep else "")


def exceeds(text: str, tokens: int, count: Count) -> bool:
    """Return whether `text` surely counts more than `tokens`, because a beginning of it counts twice as much.

    A beginning may count a little more than its share of the whole, never twice as much.
    """
    size = CHARACTERS_PER_TOKEN * max(1, tokens)
    while size < len(text):
        if count(text[:size]) > 2 * tokens:
            return True
        size *= 2
    return False
