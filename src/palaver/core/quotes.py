"""Marks of quoted text, so that what a turn says imitates neither a speaker, a date, a block nor its end. Pure.

In a quoted block, only our own lines begin in the first column: tags, dates, speakers (or a `+` for the one above),
labels. A turn's lines after its first are indented by one space; one that looks like one of our lines also gets a `>`.
The space is the cheapest mark: most words with a space before them are one token, as they are without it. Empty lines
have no mark: they say nothing.

Messages of the live thread are marked only where they imitate something: their role already says who speaks.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from palaver.model import Turn

TAGS = ("recalled", "memory", "summaries", "history", "conversation", "file", "person")
LINE = 300  # characters of a line that are looked at: more than any of our marks has
THROUGH_MCP = "mcp"  # the `origin` of turns that an assistant wrote through MCP
BY_MCP = ", through MCP"  # at the end of the author of a fact or note
MCP_MARK = "written by an assistant through MCP"
ROLE_WORDS = frozenset({"system", "developer", "user", "the user", "human", "assistant", "ai", "tool"})

# Everything that a reader may show as the end of a line.
_BREAK = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_LINE = "(?:^|(?<=[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]))"
# Letters and marks that look like those in our own lines. NFKC, which maps full-width forms, leaves them as they are.
_LOOK_ALIKES = str.maketrans("‹〈⟨˂ᐸ❮❬⟦〔【᚜аеорсухѕіјһԁӏ∶ː꞉", "<<<<<<<[[[<aeopcyxsijhdl:::")
_OPENER = re.compile("[<＜﹤‹〈\u2329⟨˂ᐸ❮❬᚜]")
_BRACKET = re.compile(r"[\[［⟦〔【]")
_COLON = re.compile("[:：﹕︓∶ː꞉]")
# Controls, invisible and bidirectional format characters, line and paragraph separators.
_INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
_FORMAT = re.compile(
    "[\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f]"
)

# Repetitions are bounded: a text of nothing but line ends must not take quadratic time.
_A_TAG = "(?:" + "|".join(TAGS) + ")"
_OPEN, _CLOSE = r"<[ \t]{0,4}", r"<[ \t]{0,4}/[ \t]{0,4}"
_SPEAKER = r"[ \t]{0,16}(?:[\w@](?:[\w .@+'’()/|#&,~*!$%-]|:(?=\S)){0,120}|[\"'][^\"\n]{1,120}[\"']):(?=\s|$)"
_ROLE = r"[^\w\n]{0,8}(?:system|developer|assistant)[^\w\n]{0,3}:"
_DATE = r"\[[ \t]{0,4}\d{4}-\d\d-\d\d[ \t]{0,4}\]"
_LABEL = r"\[[ \t]{0,4}(?:attached|from|calls|result|image|file)\b"
_REMARK = r"\[[ \t]{0,4}(?:superseded\b|…|\.{3})"  # about a quoted turn: a gap, or that it was replaced

_TAG_LINE = re.compile(
    rf"{_LINE}[ \t>]{{0,16}}(?:{_OPEN}|{_CLOSE}){_A_TAG}\b|{_CLOSE}{_A_TAG}\b|{_OPEN}{_A_TAG}(?:-\d+)?\s{{1,4}}note\b"
)
_DATE_LINE = re.compile(rf"{_LINE}[ \t>]{{0,16}}{_DATE}")
_LABEL_LINE = re.compile(rf"{_LINE}[ \t>]{{0,16}}(?:{_LABEL}[^\n]{{0,600}}\battachment\b|\[(?:calls|result)\b)")
_ROLE_LINE = re.compile(_LINE + _ROLE)
_SPEAKER_LINE = re.compile(_LINE + _SPEAKER)
_MESSAGE_LINE = re.compile(f"{_LINE}(?:{_SPEAKER}|{_ROLE})")
_OUR_LINE = re.compile(
    rf"[ \t]{{0,16}}(?:>|\[[ \t]{{0,4}}\d{{4}}|{_LABEL}|{_REMARK}|(?:{_OPEN}|{_CLOSE}){_A_TAG}\b)|{_SPEAKER}|{_ROLE}"
)
_OUR_OBJECT = re.compile(rf"[ \t]{{0,16}}(?:{_DATE}|{_LABEL}|{_REMARK}|(?:{_OPEN}|{_CLOSE}){_A_TAG}\b)")
_BLOCK = re.compile(rf'^<({_A_TAG}(?:-\d+)?) note="[^"\n]*">\n(?:.*\n)*?</\1>$', re.M)
_SENT = re.compile(rf'<({_A_TAG}(?:-\d+)?) note="')
_CLOSED = re.compile(rf"</{_A_TAG}(?:-\d+)?>")
_MARKS = re.compile(r"^(?: *> ?)+|^ ", re.M)
_NAME = re.compile(r"[\w@](?:[\w.@+'’()/|#&,~=*!$%-]|:(?=\S)| (?=\S))*")


def skeleton(text: str) -> str:
    """Return the text as it looks: without case and invisible characters, look-alikes as plain letters."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _FORMAT.sub("", text)).translate(_LOOK_ALIKES)
    return text.casefold()


# ---- marks ---------------------------------------------------------------------------------------------------------


def quote(text: str, *, is_named: bool = True) -> str:
    """Mark every line after the first, which stands behind the name of its speaker.

    Without a name, the first line is marked as well if it looks like one of our lines.
    """
    ours = _OUR_OBJECT if is_named else _OUR_LINE
    return quote_label(f"> {text}" if ours.match(skeleton(text[:LINE])) else text)


def quote_label(text: str) -> str:
    """Mark every line after the first, which is ours: the label of a tool call, a result or a file."""
    first, *rest = _BREAK.split(text)
    return "\n".join([first, *map(_mark, rest)])


def has_lines(text: str) -> bool:
    """Return whether a text has more than one line."""
    return bool(_BREAK.search(text))


def quote_all(text: str) -> str:
    """Mark every line, for text that does not stand behind a name."""
    return "\n".join(map(_mark, _BREAK.split(text)))


def unquote(text: str) -> str:
    """Remove the marks from the lines of a quotation, or of a whole prompt.

    A line that began with white space or `>` itself loses that as well.
    """
    return _MARKS.sub("", text)


def indent(text: str) -> str:
    """Indent every line by a space, for a block whose own lines are nothing but its tags."""
    return "\n".join(line and f" {line}" for line in _BREAK.split(text))


def one_line(text: str) -> str:
    """Return the text on one line, with single spaces and without invisible characters that break or turn lines."""
    return " ".join(_INVISIBLE.sub(" ", text).split())


def _mark(line: str) -> str:
    if not line:
        return line
    return f" > {line}" if _OUR_LINE.match(skeleton(line[:LINE])) else f" {line}"


# ---- text of the live thread ---------------------------------------------------------------------------------------


def imitates_block(text: str) -> bool:
    """Return whether a text contains one of our tags, a date on a line of its own, or a label of a file."""
    if _OPENER.search(text) and _TAG_LINE.search(skeleton(text)):
        return True
    if not _BRACKET.search(text):
        return False
    seen = skeleton(text)
    return bool(_DATE_LINE.search(seen) or _LABEL_LINE.search(seen))


def imitates_role(text: str) -> bool:
    """Return whether a line of the text begins like a message of the system or the assistant."""
    return bool(_COLON.search(text) and _ROLE_LINE.search(skeleton(text)))


def imitates_speaker(text: str) -> bool:
    """Return whether a line of the text begins with something like a name and a colon."""
    return bool(_COLON.search(text) and _SPEAKER_LINE.search(skeleton(text)))


def without_blocks(text: str) -> str:
    """Remove our blocks that a client or a model has sent back. If a block was cut, remove the rest of it as well."""
    kept, at = [], 0
    while opened := _SENT.search(text, at):
        kept.append(_after_blocks(text[at : opened.start()]))
        end = text.find(f"</{opened[1]}>", opened.end())
        if end < 0:
            return "".join(kept)
        at = end + len(opened[1]) + 3
    return "".join([*kept, _after_blocks(text[at:])])


def _after_blocks(text: str) -> str:
    """Return what follows the last end of a block whose beginning is missing."""
    ends = [one.end() for one in _CLOSED.finditer(text)]
    return text[ends[-1] :] if ends else text


def mark_speakers(text: str) -> str:
    """Mark each line of a message, except its first, that begins like another message. Our blocks stay as they are.

    For a prompt that is written as one text, where a name and a colon are all that separates two messages.
    """
    if not has_lines(text):
        return text
    pieces, at = [], 0
    for block in _BLOCK.finditer(text):
        pieces += [_mark_lines(text[at : block.start()], is_start=at == 0), block.group()]
        at = block.end()
    return "".join([*pieces, _mark_lines(text[at:], is_start=at == 0)])


def count_speakers(text: str) -> int:
    """Return how many lines `mark_speakers` marks, or a few more."""
    return len(_MESSAGE_LINE.findall(skeleton(text))) if _COLON.search(text) else 0


def _mark_lines(text: str, *, is_start: bool) -> str:
    if not count_speakers(text):
        return text
    lines = _BREAK.split(text)
    marked = [f"> {line}" if _MESSAGE_LINE.match(skeleton(line)) else line for line in lines]
    return "\n".join([lines[0], *marked[1:]] if is_start else marked)


# ---- names ---------------------------------------------------------------------------------------------------------


def name_of(actor: str, role: str = "") -> str:
    """Return the name of a speaker as it stands before a colon.

    A name that could be read as something else is put in quotation marks: one with unusual characters, or the name of
    a role that the speaker does not have.
    """
    flat = one_line(actor)
    if flat == actor and _NAME.fullmatch(flat) and (flat == role or skeleton(flat) not in ROLE_WORDS):
        return flat
    return '"' + re.sub('["“”„‟＂]', "'", flat) + '"'


def speaker_of(turn: Turn) -> str:
    """Return the name of a turn's speaker. Turns that an assistant wrote through MCP say so."""
    name = name_of(turn.actor or turn.role, turn.role)
    return f"{name} ({MCP_MARK})" if is_through_mcp(turn.metadata) else name


def is_through_mcp(metadata: Mapping[str, object]) -> bool:
    """Return whether an assistant wrote a turn through MCP, by its metadata."""
    return metadata.get("origin") == THROUGH_MCP


# ---- blocks --------------------------------------------------------------------------------------------------------


def fence(name: str, note: str, body: str) -> str:
    """Put `body` between tags that do not occur in it, whatever their case."""
    tag = name
    if _OPENER.search(body):
        used = set(re.findall(rf"(?:{_OPEN}|{_CLOSE}){re.escape(name)}(-\d+)?", skeleton(body)))
        number = 2
        while f"-{number}" in used:
            number += 1
        tag = f"{name}-{number}" if used else name
    return f'<{tag} note="{note}">\n{body}\n</{tag}>'
