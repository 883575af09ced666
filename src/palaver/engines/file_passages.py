"""The text of a file, split into the passages that both engines index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from palaver.recall.languages import recognise
from palaver.recall.terms import index_terms, segments

FILE_PARTS = 100_000  # the most passages of one file; smaller part numbers are passages of the turn itself


class FilePassage(NamedTuple):
    text: str
    stems: str  # empty for a passage without a word


def split_into_passages(text: str) -> list[FilePassage]:
    """Split a text into passages that together are the whole text."""
    whole = recognise(text)
    return [FilePassage(piece, " ".join(index_terms(piece, whole))) for piece in segments(text)][:FILE_PARTS]


def stored_passages(row: Mapping[str, Any]) -> tuple[int, list[FilePassage]]:
    """Return the number of the first passage of a stored file text, and its passages.

    The row is a record of the kind `file_text`: `pieces` has the number and the length of each passage.
    """
    text, whole, at = row["text"], recognise(row["text"]), 0
    sizes = [tuple(map(int, piece.split(":"))) for piece in (row["pieces"] or "").split(",") if piece]
    passages = []
    for _, size in sizes:
        piece = text[at : at + size]
        passages.append(FilePassage(piece, " ".join(index_terms(piece, whole))))
        at += size
    return (sizes[0][0] if sizes else 0), passages


def first_part(nth: int) -> int:
    """Return the part number of the first passage of a turn's nth file."""
    return FILE_PARTS * (nth + 1)
