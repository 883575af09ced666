"""Ids, canonical JSON and the hash chain.

Hashes run over length-prefixed bytes, so that SQL can compute them too: each field is a 4-byte big-endian length and
its UTF-8 bytes; an absent field is the length 0xFFFFFFFF and nothing else; numbers are decimal text.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

# The tags name the version of each recipe, so that a later change of one is visible.
TURN_TAG, EVENT_TAG, CONVERSATION_TAG, KEY_TAG = (
    "palaver/turn/1",
    "palaver/event/1",
    "palaver/conversation/1",
    "sha256:",
)

SALT_BYTES = 16
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
ID_LENGTH, STAMP = 26, 7  # letters; 45 random bits per millisecond and conversation remain
_EXACT = 2**52  # up to the year 2112 a float of seconds is exact to the microsecond
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PAIRS = [a + b for a in CROCKFORD for b in CROCKFORD]  # two letters for each number below 1,024
_ABSENT = b"\xff\xff\xff\xff"
_FEW = 512
_LENGTHS = [length.to_bytes(4, "big") for length in range(_FEW)]
_HASHED_KEY = re.compile(KEY_TAG + "[0-9a-f]{64}")
_encoder = msgspec.json.Encoder(order="deterministic")


# Random bytes are drawn in bulk, because each draw is a system call that also releases the interpreter's lock.
_salts: list[bytes] = []
_endings: list[str] = []  # of ids
os.register_at_fork(after_in_child=_salts.clear)
os.register_at_fork(after_in_child=_endings.clear)


def new_salt() -> bytes:
    while True:
        try:
            return _salts.pop()
        except IndexError:
            _salts.extend(_random(SALT_BYTES))


def new_id() -> str:
    """Make a ULID with fresh randomness. (Monotonic ULIDs would differ only in the letters that `stamp` overwrites.)"""
    now, pairs = time.time_ns() // 1_000_000, _PAIRS
    while True:
        try:
            ending = _endings.pop()
        except IndexError:
            _endings.extend(map(_letters, _random(10)))
        else:
            high = pairs[now >> 40] + pairs[now >> 30 & 1023] + pairs[now >> 20 & 1023]
            return high + pairs[now >> 10 & 1023] + pairs[now & 1023] + ending


def _random(size: int) -> list[bytes]:
    data = os.urandom(size * 256)
    return [data[at : at + size] for at in range(0, len(data), size)]


def _letters(data: bytes) -> str:
    number = int.from_bytes(data, "big")
    return "".join([_PAIRS[number >> shift & 1023] for shift in range(len(data) * 8 - 10, -1, -10)])


def stamp(id: str, seq: int) -> str:
    """Put a turn's seq into the last seven letters of its id, so that the row can be found by the id alone."""
    high = CROCKFORD[seq >> 30] + _PAIRS[seq >> 20 & 1023]
    return id[:-STAMP] + high + _PAIRS[seq >> 10 & 1023] + _PAIRS[seq & 1023]


def stamped_seq(id: str) -> int | None:
    """Return the seq in an id; None when the text does not have the form of an id."""
    seq = 0
    for letter in id[-STAMP:]:
        digit = CROCKFORD.find(letter)
        if digit < 0:
            return None
        seq = seq * 32 + digit
    return seq if len(id) == ID_LENGTH else None


def is_id(text: str) -> bool:
    """True if a text has the form of an id. A key of that form cannot be distinguished from an id."""
    return len(text) == ID_LENGTH and set(text) <= set(CROCKFORD)


def time_of_id(id: str) -> datetime:
    """Return when an id was made, to the millisecond."""
    millis = 0
    for letter in id[:10]:
        millis = millis * 32 + max(0, CROCKFORD.find(letter))
    return moment(millis * 1_000)


def canonical_json(value: object) -> str:
    """Encode a value as the same text every time: keys sorted, no spaces."""
    return _encoder.encode(value).decode()


def from_json(text: str) -> Any:
    return msgspec.json.decode(text)


def micros(moment: datetime) -> int:
    """Return microseconds since 1970, exactly (float seconds are not exact)."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def optional_micros(moment: datetime | None) -> int | None:
    """Return `micros` of a time; None for none."""
    return None if moment is None else micros(moment)


def moment(micros: int) -> datetime:
    """Return the time that is this many microseconds after 1970."""
    if 0 <= micros < _EXACT:  # the faster way, where it is exact
        return datetime.fromtimestamp(micros / 1_000_000, UTC)
    return _EPOCH + timedelta(microseconds=micros)


def digest(fields: Iterable[str | int | bytes | None]) -> bytes:
    """Hash a sequence of fields, as the docstring of this module says."""
    out: list[bytes] = []
    for field in fields:
        if field is None:
            out.append(_ABSENT)
            continue
        data = field if isinstance(field, bytes) else (field if isinstance(field, str) else str(field)).encode()
        size = len(data)
        out += _LENGTHS[size] if size < _FEW else size.to_bytes(4, "big"), data
    return hashlib.sha256(b"".join(out)).digest()


def genesis(conversation: str) -> bytes:
    """Return the hash that the first event of a conversation is chained to."""
    return digest((EVENT_TAG, conversation))


def event_hash(
    previous: bytes,
    n: int,
    kind: str,
    turn: str | None,
    actor: str,
    at: int,
    payload: str | None,
    content_hash: bytes | None,
) -> bytes:
    return digest((previous, n, kind, turn, actor, at, payload, content_hash))


def key_hash(conversation: str, key: str) -> str:
    """Hash an idempotency key. The hash remains when its turn is forgotten, so that a retry is still refused."""
    return KEY_TAG + digest((conversation, key)).hex()


def stub_key(conversation: str, key: str | None) -> str | None:
    """Return what a stub keeps of an idempotency key: its hash. A key that was stored as its hash stays as it is."""
    return key if key is None or _HASHED_KEY.fullmatch(key) else key_hash(conversation, key)


def file_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
