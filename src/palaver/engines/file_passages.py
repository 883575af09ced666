"""The words of a file in the pieces that an index holds, whatever database it is."""

from __future__ import annotations

from typing import NamedTuple

from palaver.recall.terms import segments, terms

FILE_PARTS = 100_000  # passages of one file, at most; below that are the turn's own words


class FilePiece(NamedTuple):
    text: str
    stems: str  # nothing where there is no word


def pieces_of(text: str) -> list[FilePiece]:
    """Together they are the text."""
    return [FilePiece(piece, " ".join(terms(piece))) for piece in segments(text)][:FILE_PARTS]


def place(nth: int) -> int:
    """The number of the first piece of a turn's nth file."""
    return FILE_PARTS * (nth + 1)
