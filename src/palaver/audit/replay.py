"""Replays the log of one conversation, and so finds what its turns must be now. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from palaver.audit.derived import DerivedRows
from palaver.audit.erasure import names_erased, tombstone_digest
from palaver.audit.rows import EventPayload, RecordedEvent, require
from palaver.core.branches import LoggedTree
from palaver.core.identity import event_hash, from_json, genesis
from palaver.errors import VerificationFailed

CHANGED = "it was changed, or something before it was removed"


@dataclass(slots=True, eq=False)
class ResetEvent:
    """A `reset`, which forgot every turn. Its hash covers the hashes of all `stubs`, in order."""

    name: str
    hash: bytes
    stubs: list[bytes] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Chunk:
    """One piece of a streamed turn: its first and last position in the text, and its hash."""

    start: int
    end: int
    hash: bytes


class LogReplay:
    """The state of a conversation after the events so far."""

    def __init__(self, conversation: str) -> None:
        self.conversation = conversation
        self.last_hash = genesis(conversation)
        self.count = 0
        self.created = self.updated = 0
        self.tree = LoggedTree()
        self.details_hash: bytes | None = None
        self.content_hashes: dict[str, bytes] = {}  # by turn
        self.opening_hashes: dict[str, bytes] = {}  # by pending turn: what it was opened with
        self.lengths: dict[str, int] = {}  # by pending turn: characters so far
        self.chunks: dict[str, list[Chunk]] = {}  # by streamed turn
        self.stub_hashes: dict[str, bytes] = {}  # by forgotten turn: what must be left of it
        self.resets: dict[str, ResetEvent] = {}  # by turn that a reset forgot
        self.salted: set[str] = set()  # retired turns that keep the salt of their hash
        self.tombstones: dict[int, bytes] = {}  # by number: digests of events that lost the name of an erased person
        self.erased: dict[int, bytes] = {}  # by number: what those digests must be
        self.erased_stubs: dict[str, tuple[bytes, bytes]] = {}  # by turn: hashes of its stub, before and after
        self.derived = DerivedRows(conversation)

    def add(self, row: RecordedEvent) -> None:
        """Check that an event is the next one and unchanged, then apply it."""
        name = self._check_next(row, self.last_hash)
        self._require(row["kind"] in HANDLERS, name, f"the kind {row['kind']!r} is unknown")
        payload: EventPayload = from_json(row["payload"]) if row["payload"] else {}
        self.derived.add(row, payload)
        try:
            HANDLERS[row["kind"]](self, row, payload)
        except (KeyError, IndexError):
            raise VerificationFailed(self.conversation, name, "it contradicts the events before it") from None

    def _check_next(self, row: RecordedEvent, previous: bytes) -> str:
        """Check that an event is the next one after the hash `previous`. Returns how it is named in an error."""
        self.count += 1
        name = f"event {row['n']}"
        self._require(row["n"] == self.count, name, f"event {self.count} should be here")
        if hash_of(row, previous) != row["hash"]:
            self._require(self._note_tombstone(row, previous), name, CHANGED)
        self.last_hash, self.updated = row["hash"], row["at"]
        self.created = self.created or row["at"]
        return name

    def _note_tombstone(self, row: RecordedEvent, previous: bytes) -> bool:
        """Return whether an event, whose hash does not fit, has the form of one that lost an erased person's name.

        Then a later `erase` must list it.
        """
        if not names_erased(row["actor"], row["payload"]):
            return False
        self.tombstones[row["n"]] = tombstone_of(row, previous)
        return True

    def require_tombstones(self) -> None:
        """Check, after the last event, that every tombstone is one that an `erase` left."""
        for n, digest in self.tombstones.items():
            self._require(self.erased.get(n) == digest, f"event {n}", CHANGED)

    def _require(self, fits: bool, name: str, problem: str) -> None:
        require(fits, self.conversation, name, problem)

    # ---- kinds of events

    def _set_details(self, row: RecordedEvent, payload: EventPayload) -> None:
        self.details_hash = row["content_hash"]

    def _append(self, row: RecordedEvent, payload: EventPayload) -> None:
        self._add_turn(row, payload, "complete")
        self.content_hashes[row["turn"]] = row["content_hash"]

    def _open(self, row: RecordedEvent, payload: EventPayload) -> None:
        self._add_turn(row, payload, "pending")
        self.opening_hashes[row["turn"]] = row["content_hash"]
        self.lengths[row["turn"]] = 0

    def _add_turn(self, row: RecordedEvent, payload: EventPayload, status: str) -> None:
        branch = payload.get("branch")
        if branch is not None:  # it came from another store, where both had continued
            self.tree.graft(row["turn"], parent=branch["parent"], slot=branch["slot"], status=status)
            return
        replaces, discard = payload.get("replaces"), payload.get("discard_after", False)
        self.tree.add(row["turn"], replaces=replaces, discard_after=discard, status=status)

    def _add_chunk(self, row: RecordedEvent, payload: EventPayload) -> None:
        turn, start, end = row["turn"], payload["from"], payload["to"]
        if self.lengths[turn] != start:
            raise KeyError(turn)
        self.lengths[turn] = end
        self.chunks.setdefault(turn, []).append(Chunk(start, end, row["content_hash"]))

    def _commit(self, row: RecordedEvent, payload: EventPayload) -> None:
        self.tree.commit(row["turn"])
        self._end_stream(row)

    def _abort(self, row: RecordedEvent, payload: EventPayload) -> None:
        self.tree.abort(row["turn"])
        self._end_stream(row)

    def _end_stream(self, row: RecordedEvent) -> None:
        self.content_hashes[row["turn"]] = row["content_hash"]
        del self.lengths[row["turn"]]

    def _switch(self, row: RecordedEvent, payload: EventPayload) -> None:
        self.tree.switch(row["turn"])

    def _forget(self, row: RecordedEvent, payload: EventPayload) -> None:
        self.tree.forget(row["turn"])
        self.lengths.pop(row["turn"], None)
        self.stub_hashes[row["turn"]] = row["content_hash"]
        self.salted.discard(row["turn"])

    def _retire(self, row: RecordedEvent, payload: EventPayload) -> None:
        self._forget(row, payload)
        if payload.get("salt"):
            self.salted.add(row["turn"])

    def _reset(self, row: RecordedEvent, payload: EventPayload) -> None:
        reset = ResetEvent(f"event {row['n']}", row["content_hash"])
        # A large conversation is reset in slices: each names the last turn that it forgot, and the last slice none.
        for id in self.tree.forget_through(payload.get("through")):
            self.resets[id] = reset
            self.lengths.pop(id, None)

    def _erase(self, row: RecordedEvent, payload: EventPayload) -> None:
        try:
            self.erased |= {n: bytes.fromhex(digest) for n, digest in payload.get("events", ())}
            for turn, before, after in payload.get("stubs", ()):
                self.erased_stubs[turn] = bytes.fromhex(before), bytes.fromhex(after)
        except (ValueError, TypeError):
            raise KeyError(row["n"]) from None

    def stub_before_erasure(self, turn: str, stub: bytes) -> bytes | None:
        """Return the hash that a stub had before the name in it was erased; `stub` itself if none was.

        None when the stub is not what the erasure left.
        """
        before, after = self.erased_stubs.get(turn, (stub, stub))
        return before if stub == after else None

    def _ignore(self, row: RecordedEvent, payload: EventPayload) -> None:
        pass


def tombstone_of(row: RecordedEvent, previous: bytes) -> bytes:
    """Return the digest of an event that has lost a name."""
    return tombstone_digest(
        previous,
        row["n"],
        row["kind"],
        row["turn"],
        row["actor"],
        row["at"],
        row["payload"],
        row["content_hash"],
        row["hash"],
    )


def hash_of(row: RecordedEvent, previous: bytes) -> bytes:
    """Return the hash that an event must have after another."""
    return event_hash(
        previous,
        row["n"],
        row["kind"],
        row["turn"],
        row["actor"],
        row["at"],
        row["payload"],
        row["content_hash"],
    )


HANDLERS: Mapping[str, Callable[[LogReplay, RecordedEvent, EventPayload], None]] = {
    "create": LogReplay._set_details,
    "update": LogReplay._set_details,
    "append": LogReplay._append,
    "open": LogReplay._open,
    "chunk": LogReplay._add_chunk,
    "commit": LogReplay._commit,
    "abort": LogReplay._abort,
    "switch": LogReplay._switch,
    "forget": LogReplay._forget,
    "retire": LogReplay._retire,
    "reset": LogReplay._reset,
    "erase": LogReplay._erase,
    # `DerivedRows` has the hashes of derived rows in these.
    "prove": LogReplay._ignore,
    "summarize": LogReplay._ignore,
    "remember": LogReplay._ignore,
    "extract_facts": LogReplay._ignore,
    "forget_fact": LogReplay._ignore,
    "learn": LogReplay._ignore,  # and those of a subject's memory
    "correct": LogReplay._ignore,
    "approve": LogReplay._ignore,
    "drop_item": LogReplay._ignore,
    "stop": LogReplay._ignore,  # a caller asked to stop an answer; the next event of its turn says how it ended
    "attach": LogReplay._ignore,  # the turn that takes the file proves its hash
    "archive": LogReplay._ignore,  # the events before a number were moved to a file: see PartialReplay
    "detach": LogReplay._ignore,  # a file that no turn took was deleted
}
