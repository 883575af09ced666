"""Proof of derived rows: the log has their hashes (core/derived_rows.py), and readers use no row that does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from palaver.core.derived_rows import LATER_FIELDS, ROWS, derived_hash, later_values, request_keys
from palaver.core.identity import from_json, new_salt
from palaver.engines.rows import Row
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import Tx
from palaver.errors import RowUnreadable

BATCH = 200  # rows in one event

VALUES = {
    "summary": Q.summary_values,
    "notes": Q.notes_values,
    "fact": Q.fact_values,
    "file": Q.file_values,
    "request": Q.request_values,
    "body": Q.body_values,
    "item": Q.item_values,
    "source": Q.source_values,
}


def values_of(tx: Tx, cid: int, key: str) -> Row | None:
    """Read the columns of a derived row that its hash covers. None when there is no such row."""
    kind, _, id = key.partition("/")
    if kind == "notes":
        return tx.one(VALUES[kind], cid=cid)
    if kind == "summary":
        level, _, start = id.partition("/")
        return tx.one(VALUES[kind], cid=cid, level=int(level), from_seq=int(start))
    if kind == "source":
        item, _, turn = id.partition("/")
        return tx.one(VALUES[kind], cid=cid, item=item, turn=turn)
    values = tx.one(VALUES[kind], cid=cid, id=id)
    return tuple(later_values(values, kind)) if values is not None and kind in LATER_FIELDS else values


def is_covered(tx: Tx, cid: int) -> bool:
    """True if the log knows every derived row of the conversation. One from an earlier version is brought in later."""
    return tx.one(Q.is_covered, cid=cid) is not None


def prove(tx: Tx, cid: int, n: int, keys: Iterable[str]) -> dict[str, str | None]:
    """Hash derived rows as they are now, each with a new salt, for the event `n`. Returns the event's `rows`."""
    rows: dict[str, str | None] = {}
    for key in sorted(keys):
        values = values_of(tx, cid, key)
        if values is None:
            if tx.all(Q.drop_proof, cid=cid, key=key):
                rows[key] = None
        else:
            salt = new_salt()
            tx.run(Q.save_proof, cid=cid, key=key, n=n, salt=salt)
            rows[key] = derived_hash(key, salt, values)
    return rows


def restate(tx: Tx, cid: int, through: int) -> Iterator[dict[str, str | None]]:
    """Return what the events up to a number say of the rows that exist, in batches: those events are to be archived."""
    batch: dict[str, str | None] = {}
    for key, _, logged in tx.all(Q.proofs_before, cid=cid, n=through):
        hash = from_json(logged).get(key) if logged else None
        if hash is not None:
            batch[key] = hash
        if len(batch) == BATCH:
            yield batch
            batch = {}
    if batch:
        yield batch


class Proofs:
    """Compares derived rows of one conversation with the log, inside one transaction."""

    def __init__(self, tx: Tx, cid: int) -> None:
        self.tx, self.cid = tx, cid
        self._covered: bool | None = None
        self._logged: dict[int, dict[str, str | None]] = {}  # by event
        self.refused: list[str] = []  # keys of rows that did not match

    def fits(self, key: str) -> bool:
        """False for a derived row that was changed or inserted outside Palaver."""
        proof = self.tx.one(Q.proof, cid=self.cid, key=key)
        if proof is None:
            fits = not self._is_covered()
        else:
            salt, n, payload = proof
            if n not in self._logged:
                self._logged[n] = (from_json(payload).get(ROWS) or {}) if payload else {}
            logged = self._logged[n].get(key)
            fits = logged is not None and logged == self._hash(key, salt)
        if not fits:
            self.refused.append(key)
        return fits

    def _hash(self, key: str, salt: bytes) -> str | None:
        """Hash a row as it is now. None when it is not there, or cannot be read."""
        try:
            values = values_of(self.tx, self.cid, key)
        except RowUnreadable:
            return None
        return None if values is None else derived_hash(key, salt, values)

    def _is_covered(self) -> bool:
        if self._covered is None:
            self._covered = is_covered(self.tx, self.cid)
        return self._covered


def mismatched(tx: Tx, cid: int) -> list[str]:
    """Return the keys of the derived rows of a conversation that do not match the log."""
    proofs = Proofs(tx, cid)
    for (key,) in tx.all(Q.derived_keys, cid=cid):
        proofs.fits(key)
    return proofs.refused


def contradicting(tx: Tx, cid: int) -> dict[str, Row | None]:
    """Return the derived rows that do not match the log, as far as they can be read."""
    found: dict[str, Row | None] = {}
    for key in mismatched(tx, cid):
        try:
            found[key] = values_of(tx, cid, key)
        except RowUnreadable:
            found[key] = None
    return found


def repaired(tx: Tx, cid: int, before: dict[str, Row | None]) -> set[str]:
    """Return the derived rows to prove after a repair: all but those that contradict the log as they did `before`."""
    known = {key for (key,) in tx.all(Q.derived_keys, cid=cid)} | {key for (key,) in tx.all(Q.proof_keys, cid=cid)}
    return {key for key in known if _is_repaired(tx, cid, key, before)}


def _is_repaired(tx: Tx, cid: int, key: str, before: dict[str, Row | None]) -> bool:
    try:
        values = values_of(tx, cid, key)
    except RowUnreadable:  # a request, which cannot be rebuilt
        return False
    return values is None or key not in before or before[key] != values


def keys_of_requests(ids: Iterable[str]) -> list[str]:
    return [key for id in ids for key in request_keys(id)]
