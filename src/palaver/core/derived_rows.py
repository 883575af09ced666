"""Rows that are derived from turns, and requests: how each is named in the log, and how it is hashed.

An event says which of these rows its transaction changed: its payload has `rows`, an object from the row's key to the
hash of the row, or to null when the row was deleted. An event with `"proof": 1` says that from there on the log knows
every such row of the conversation. The hash is salted. The salt lies in the table `proofs`, and is deleted with the
row: the log then says nothing of deleted words. In Postgres this is functions/proof.sql.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from palaver.core.identity import digest

DERIVED_TAG = "palaver/derived/1"
ROWS: Final = "rows"  # the field of an event's payload
PROOF: Final = "proof"  # the field of the event from which on every row is known
COVERED: Final = ""  # the key in `proofs` that says that there is such an event; a new conversation has it in its first
NOTES: Final = "notes"
# The columns that a row's hash covers, in order, by the kind of the row, which its key begins with. `file` stands for
# all passages of a file: `pieces` has the number and the length of each, `text` is all of them in order.
FIELDS: Mapping[str, tuple[str, ...]] = {
    "summary": (
        "id", "level", "from_seq", "through_seq", "turns", "tokens", "text", "token_count", "model", "stale", "created",
    ),
    "notes": ("memory", "through_seq"),
    "fact": (
        "id", "subject", "predicate", "object", "source_turn", "confidence", "valid_from", "invalidated_at",
        "invalidated_by", "by", "created",
    ),
    "file": ("characters", "problem", "pieces", "text"),
    "request": ("id", "turn", "purpose", "at", "model", "adapter", "next_seq", "explanation", "response"),
    "body": ("body",),
    "item": (
        "id", "kind", "subject", "predicate", "object", "confidence", "valid_from", "valid_to", "learnt", "ended_at",
        "ended_by", "origin", "status", "said_by", "by", "created",
    ),
    "source": ("item", "conversation", "turn", "said"),
}  # fmt: skip
# Columns that a later version added: covered by the hash of a row that has a value in any of them.
LATER_FIELDS: Mapping[str, tuple[str, ...]] = {"fact": ("valid_to", "learnt")}
# A body is deleted when a turn that it may quote is, even from another conversation; the text of a file is deleted when
# the index is rebuilt, and extracted again; an item of a subject's memory is deleted with the last turn that says it,
# in the transaction that deletes the turn. So one of these may be missing, whatever the log says.
MAY_VANISH = ("body", "file", "item", "source")
EXACT = 2**53  # a confidence is hashed as a whole number of these parts, which every engine computes alike


def summary_key(level: int, from_seq: int) -> str:
    return f"summary/{level}/{from_seq}"


def fact_key(id: str) -> str:
    return f"fact/{id}"


def file_key(attachment: str) -> str:
    return f"file/{attachment}"


def request_keys(id: str) -> tuple[str, str]:
    """Return the keys of a request and of its body, which is often deleted first."""
    return f"request/{id}", f"body/{id}"


def item_key(id: str) -> str:
    return f"item/{id}"


def source_key(item: str, turn: str) -> str:
    return f"source/{item}/{turn}"


def kind_of(key: str) -> str:
    return key.partition("/")[0]


def derived_hash(key: str, salt: bytes | None, values: Sequence[Any]) -> str:
    """Hash a row: the values of `FIELDS`, in order, with a confidence as a whole number."""
    return digest((DERIVED_TAG, salt, key, *values)).hex()


def hashed_values(kind: str, row: Mapping[str, Any]) -> list[Any]:
    """Return the values of a row in the order and the form that `derived_hash` takes."""
    values = {name: row[name] for name in FIELDS[kind]}
    if kind in ("fact", "item"):
        values["confidence"] = int(values["confidence"] * EXACT)
    return later_values([*values.values(), *(row.get(name) for name in LATER_FIELDS.get(kind, ()))], kind)


def later_values(values: Sequence[Any], kind: str) -> list[Any]:
    """Return the values without those of `LATER_FIELDS`, if the row has none of these: an older version wrote it."""
    known = len(FIELDS[kind])
    return list(values) if any(value is not None for value in values[known:]) else list(values[:known])
