"""From rows to passages that are to be embedded, for both engines: which of them are worth a vector."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from palaver.core.identity import from_json
from palaver.core.turn_draft import decode_content, words
from palaver.engines.file_passages import FILE_PARTS
from palaver.engines.rows import Row
from palaver.memory.working_memory import are_own_words
from palaver.ports.recall import ToEmbed
from palaver.recall.terms import segments, terms

EMBED_PARTS = {"user": 3, "assistant": 2}  # how many passages of a turn are worth a vector
EMBED_FILE_PARTS = 24  # the same for each of its files: about two thousand words
MAX_PARTS_READ = 24  # the first passages of a turn are searched for standing instructions


def to_embed(rows: Iterable[Row], place: tuple[str, int] = ("", 0)) -> list[ToEmbed]:
    """Make passages from rows of (pid, part, tid, turn, role, is_parts, content, metadata), in order."""
    found = []
    pieces: dict[int, list[str]] = {}
    for pid, part, tid, turn, role, is_parts, content, metadata in rows:
        if part >= FILE_PARTS:
            found.append(_file_passage(pid, part, tid, turn, content or "", place))
            continue
        if content is not None and tid not in pieces:
            pieces[tid] = _passages(words(decode_content(content, bool(is_parts))))
        text = "" if content is None else "".join(pieces[tid][part : part + 1])
        found.append(
            ToEmbed(
                pid=pid,
                tid=tid or 0,
                turn=turn,
                part=part,
                text=text,
                worth_a_vector=bool(text) and part < EMBED_PARTS.get(role, 0),
                own_words=role == "user" and are_own_words(from_json(metadata) if metadata else {}),
                place=place,
            )
        )
    return found


def _file_passage(pid: int, part: int, tid: int | None, turn: str | None, text: str, place: tuple[str, int]) -> ToEmbed:
    """Make a passage of a file. It never contains a standing instruction: it is not what a participant said."""
    worth = bool(text) and part % FILE_PARTS < EMBED_FILE_PARTS
    return ToEmbed(
        pid=pid, tid=tid or 0, turn=turn, part=part, text=text, worth_a_vector=worth, own_words=False, place=place
    )


def _passages(text: str) -> list[str]:
    """Return the first passages of a text, numbered as in the index, which skips those without a word."""
    return list(islice((piece for piece in segments(text) if terms(piece)), MAX_PARTS_READ))
