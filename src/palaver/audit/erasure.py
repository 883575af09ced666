"""Erased persons: their pseudonyms in the log, the tombstones that outlive a backup, and receipts. Pure.

An event that names an erased person is a tombstone: the name is replaced by a pseudonym, and the hash stays, which no
longer fits. An event `erase` later in the same log lists its number and the digest of the tombstone, so that `verify`
accepts exactly this row in this place.

The pseudonym is derived from the name with a random key. The key is deleted at the end, so that nobody can tell whose
pseudonym it is.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from palaver.core.identity import canonical_json, digest, moment
from palaver.errors import InvalidInput, VerificationFailed
from palaver.model import ErasureReceipt
from palaver.ports.queries import Erasure

ERASED = "erased:"  # how every pseudonym begins
RECEIPT_FORMAT = "palaver/erasure-receipt/1"
TOMBSTONE_FORMAT = "palaver/erasure/1"
TOMBSTONE_TAG, PERSON_TAG, DELETED_TAG = "palaver/erased/1", "palaver/person/1", "palaver/deleted/1"
TOMBSTONE_BYTES = 16
NAMING = ("by", "name")  # fields of a payload that may hold a person's name


# ---- pseudonyms ----------------------------------------------------------------------------------------------------


def new_key() -> str:
    return secrets.token_hex(32)


def pseudonym(key: str, user: str) -> str:
    """Return the name under which an erased person stays in the log."""
    return ERASED + hmac.new(bytes.fromhex(key), user.encode(), hashlib.sha256).hexdigest()[:32]


def person_digest(salt: str, user: str) -> str:
    """Return what is stored of an erased person's name."""
    return digest((PERSON_TAG, salt, user)).hex()


def conversation_digest(salt: str, id: str) -> str:
    return digest((DELETED_TAG, salt, id)).hex()[:32]


# ---- tombstones in a log -------------------------------------------------------------------------------------------


def names_erased(actor: object, payload: str | None) -> bool:
    """Return whether an event has the form of a tombstone: it names a pseudonym. The row may be damaged."""
    try:
        fields = msgspec.json.decode(payload) if payload else {}
    except (msgspec.DecodeError, TypeError):
        return False
    named = map(fields.get, NAMING) if isinstance(fields, dict) else ()
    return any(isinstance(one, str) and one.startswith(ERASED) for one in (actor, *named))


def tombstone_digest(
    previous: bytes,
    n: int,
    kind: str,
    turn: str | None,
    actor: str,
    at: int,
    payload: str | None,
    content_hash: bytes | None,
    hash: bytes,
) -> bytes:
    """Return the digest that proves an event without its names, in its place after the hash `previous`."""
    return digest((TOMBSTONE_TAG, previous, n, kind, turn, actor, at, payload, content_hash, hash))[:TOMBSTONE_BYTES]


def without_name(actor: str, payload: str | None, user: str, name: str) -> tuple[str, str | None]:
    """Return an event's actor and payload with the user's name replaced."""
    fields = msgspec.json.decode(payload) if payload else {}
    for one in NAMING:
        if fields.get(one) == user:
            fields[one] = name
    return name if actor == user else actor, canonical_json(fields) if payload else None


# ---- tombstones that travel ----------------------------------------------------------------------------------------


def tombstone_line(tenant: str, erasure: Erasure) -> str:
    """Return one erased person as a line of JSON, without the name."""
    fields = {"tenant": tenant, "digest": erasure.digest, "salt": erasure.salt, "at": erasure.at}
    return canonical_json({"kind": "erasure", "row": {"format": TOMBSTONE_FORMAT, **fields}
                           | {"conversations": list(erasure.conversations)}})  # fmt: skip


class _Tombstone(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    tenant: str
    digest: str
    salt: str
    at: int
    conversations: list[str]


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    kind: str
    row: _Tombstone


def read_tombstones(lines: Iterable[str]) -> list[tuple[str, Erasure]]:
    """Read lines that `tombstone_line` wrote: each is a tenant, and who was erased there."""
    found = [_read_tombstone(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    return [(tenant, one) for tenant, one in found if one.at > 0]


def _read_tombstone(number: int, line: str) -> tuple[str, Erasure]:
    try:
        read = msgspec.json.decode(line, type=_Line)
    except msgspec.MsgspecError:
        raise InvalidInput(f"line {number}", "is not in the format of `palaver erasures export`") from None
    row = read.row
    if read.kind != "erasure" or row.format != TOMBSTONE_FORMAT:
        raise InvalidInput(f"line {number}", f"is not an erasure in the format {TOMBSTONE_FORMAT}")
    return row.tenant, Erasure(row.digest, row.salt, row.at, row.at, conversations=tuple(row.conversations))


class ErasedPersons:
    """The tombstones of a tenant, to look names and conversations up in."""

    def __init__(self, erasures: Iterable[Erasure]) -> None:
        self.by_digest = {one.digest: one for one in erasures}
        self.salts = sorted({one.salt for one in self.by_digest.values()})
        self._deleted = {one for erasure in self.by_digest.values() for one in erasure.conversations}
        self._known: dict[str, Erasure | None] = {}

    def find(self, name: str) -> Erasure | None:
        """Return the erasure of the person with this name."""
        if name not in self._known:
            digests = (person_digest(salt, name) for salt in self.salts)
            self._known[name] = next((self.by_digest[one] for one in digests if one in self.by_digest), None)
        return self._known[name]

    def is_deleted(self, conversation: str) -> bool:
        return any(conversation_digest(salt, conversation) in self._deleted for salt in self.salts)


# ---- receipts ------------------------------------------------------------------------------------------------------


def receipt_fields(receipt: ErasureReceipt) -> dict[str, Any]:
    """Return a receipt as JSON writes it."""
    return {
        "format": RECEIPT_FORMAT,
        "tenant": receipt.tenant,
        "person": {"salt": receipt.salt, "digest": receipt.digest},
        "started": receipt.started.isoformat(),
        "finished": receipt.finished.isoformat(),
        "counts": {kind: len(ids) for kind, ids in sorted(receipt.erased.items())},
        "erased": {kind: list(ids) for kind, ids in sorted(receipt.erased.items())},
        "scrubbed": receipt.scrubbed,
        "signature": receipt.signature,
    }


def read_receipt(fields: Mapping[str, Any]) -> ErasureReceipt:
    """Read what `receipt_fields` returned."""
    try:
        if fields["format"] != RECEIPT_FORMAT:
            raise KeyError("format")
        return ErasureReceipt(
            tenant=str(fields["tenant"]),
            salt=str(fields["person"]["salt"]),
            digest=str(fields["person"]["digest"]),
            started=datetime.fromisoformat(fields["started"]),
            finished=datetime.fromisoformat(fields["finished"]),
            erased={str(kind): tuple(map(str, ids)) for kind, ids in fields["erased"].items()},
            scrubbed=bool(fields["scrubbed"]),
            signature=fields["signature"],
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise InvalidInput("receipt", "is not a receipt of an erasure") from None


def sign(receipt: ErasureReceipt, key: bytes) -> ErasureReceipt:
    fields = receipt_fields(replace(receipt, signature=None))
    return replace(receipt, signature=hmac.new(key, canonical_json(fields).encode(), hashlib.sha256).hexdigest())


def check_signature(receipt: ErasureReceipt, key: bytes) -> None:
    """Raise `VerificationFailed` unless the receipt is unchanged and was signed with this key."""
    if receipt.signature is None:
        raise VerificationFailed("receipt", "signature", "the receipt is not signed")
    if not hmac.compare_digest(sign(receipt, key).signature or "", receipt.signature):
        raise VerificationFailed("receipt", "signature", "it was changed, or was not signed with this key")


def receipt_of(tenant: str, erasure: Erasure, finished: int, items: Mapping[str, Iterable[str]]) -> ErasureReceipt:
    erased = {kind: tuple(sorted(ids)) for kind, ids in items.items()}
    return ErasureReceipt(
        tenant=tenant,
        salt=erasure.salt,
        digest=erasure.digest,
        started=moment(erasure.started),
        finished=moment(finished),
        erased=erased,
    )
