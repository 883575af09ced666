"""Proving what happened: the log is replayed, and every stored row is compared with it. Pure.

`Verifier` is fed the records of one conversation, in order: the conversation, its events, its turns, its attachments.
It raises `VerificationFailed` at the first row that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, NoReturn

from palaver.core.branches import LoggedTree, Node
from palaver.core.identity import CONVERSATION_TAG, digest, event_hash, from_json, genesis
from palaver.core.turn_draft import TurnDraft, chunk_hash, content_hash, decode_content, preview, stub_hash, words
from palaver.errors import VerificationFailed
from palaver.model import Verified
from palaver.ports.queries import Record


@dataclass(slots=True)
class Details:
    """The fields of a conversation that only `create` and `update` set, as stored."""

    id: str
    owner: str
    key: str | None
    workspace: str | None
    agent: str | None
    model: str | None
    title: str | None
    participants: str
    metadata: str | None
    settings: str | None
    ttl: int | None


DETAILS = tuple(one.name for one in fields(Details))
DRAFT = tuple(name for name in TurnDraft.__struct_fields__ if name != "preview")
# Columns that must be empty in a forgotten turn.
EMPTY_IN_A_STUB = (
    "content", "tool_calls", "tool_results", "attachments", "sources", "metadata", "salt", "model", "adapter",
    "finish_reason", "prompt_tokens", "completion_tokens",
)  # fmt: skip
# Columns that a forgotten turn keeps, in the order of `stub_hash`.
STUB = ("id", "role", "actor", "created", "idempotency_key", "content_hash")


def details_hash(salt: bytes | None, details: Details) -> bytes:
    return digest((CONVERSATION_TAG, salt, *(getattr(details, name) for name in DETAILS)))


@dataclass(slots=True, eq=False)
class _Reset:
    """An event that forgot every turn, and what is left of them."""

    name: str
    hash: bytes
    stubs: list[bytes] = field(default_factory=list)


class Verifier:
    def __init__(self) -> None:
        self.path = LoggedTree()
        self.hashes: dict[str, bytes] = {}  # turn id → the content hash that the log gives it
        self.openings: dict[str, bytes] = {}  # pending turn → what it was opened with
        self.lengths: dict[str, int] = {}  # pending turn → characters so far, by its chunk events
        self.chunks: dict[str, list[tuple[int, int, bytes]]] = {}  # streamed turn → from, to and hash of each piece
        self.stubs: dict[str, bytes] = {}  # forgotten turn → the hash of what remains of it
        self.resets: dict[str, _Reset] = {}  # turn forgotten by a reset → that reset
        self.preview: tuple[int, str] | None = None  # position and line of the first thing that a person said
        self.created = self.updated = 0
        self.details: bytes | None = None
        self.salted: set[str] = set()  # retired turns that keep the salt of their hash
        self.files: dict[str, dict[str, Any]] = {}
        self.events = self.turns = self.attachments = 0
        self.turn_count = self.token_count = 0

    # ---- the conversation

    def conversation(self, row: dict[str, Any]) -> None:
        self.row, self.id = row, row["id"]
        self.previous = genesis(self.id)

    def feed(self, records: Iterable[Record]) -> None:
        for record in records:
            getattr(self, record.kind)(record.row)

    def finish(self) -> Verified:
        """Everything was fed: what is missing?"""
        row = self.row
        self._match("conversation", row["tip_hash"] == self.previous, "its tip is not the last event of the log")
        self._match("conversation", row["next_n"] == self.events + 1, "events are missing at the end of the log")
        self._match("conversation", row["next_seq"] == self.path.next_seq, "next_seq does not fit the log")
        self._match("conversation", self.turns == len(self.path.nodes), "turns are missing at the end")
        self._match("conversation", row["turn_count"] == self.turn_count, "turn_count does not fit its turns")
        self._match("conversation", row["token_count"] == self.token_count, "token_count does not fit its turns")
        tip = self.path.active[-1] if self.path.active else None
        told = (tip.position, tip.slot) if tip else (-1, None)
        self._match("conversation", (row["tip_position"], row["tip_slot"]) == told, "its tip does not fit the log")
        clock = (row["created"], row["updated"], row["minute"])
        told_clock = (self.created, self.updated, self.updated // 60_000_000)
        self._match("conversation", clock == told_clock, "its times are not those of its first and last event")
        ends = None if row["ttl"] is None else self.updated + row["ttl"]
        self._match("conversation", row["expires_at"] == ends, "its end does not fit its time to live")
        line = self.preview[1] if self.preview else None
        self._match("conversation", row["preview"] == line, "its preview is not what was said first")
        for reset in set(self.resets.values()):
            self._match(reset.name, digest(reset.stubs) == reset.hash, "what it left of the turns was changed")
        details = Details(**{name: row[name] for name in DETAILS})
        fits = details_hash(row["salt"], details) == row["content_hash"] == self.details
        self._match("conversation", fits, "its title, owner, settings or other details were changed")
        if "members" in row:  # an export has not got them
            told_members = sorted(from_json(row["participants"])) == sorted(from_json(row["members"]))
            self._match("conversation", told_members, "users other than its participants may see it")
        self._match("attachments", not self.files, "the row of a turn's file is missing")
        return Verified(self.id, self.events, self.turns, self.attachments, self.previous.hex())

    # ---- the log

    def event(self, row: dict[str, Any]) -> None:
        self.events += 1
        name = f"event {row['n']}"
        self._match(name, row["n"] == self.events, f"event {self.events} should be here")
        hash = event_hash(
            self.previous,
            row["n"],
            row["kind"],
            row["turn"],
            row["actor"],
            row["at"],
            row["payload"],
            row["content_hash"],
        )
        self._match(name, hash == row["hash"], "it was changed, or something before it was removed")
        self.previous, self.updated = hash, row["at"]
        self.created = self.created or row["at"]
        replay = getattr(self, f"_on_{row['kind']}", None)
        if replay is None:
            self._fail(name, f"nothing is known of the kind {row['kind']!r}")
        try:
            replay(row, from_json(row["payload"]) if row["payload"] else {})
        except (KeyError, IndexError):
            self._fail(name, "it does not fit what the log says before it")

    def _on_create(self, row: dict[str, Any], payload: dict[str, Any]) -> None:
        self.details = row["content_hash"]

    _on_update = _on_create

    def _on_append(self, row: dict[str, Any], payload: dict[str, Any]) -> None:
        self._add(row, payload, "complete")
        self.hashes[row["turn"]] = row["content_hash"]

    def _on_open(self, row: dict[str, Any], payload: dict[str, Any]) -> None:
        self._add(row, payload, "pending")
        self.openings[row["turn"]] = row["content_hash"]
        self.lengths[row["turn"]] = 0

    def _add(self, row: dict[str, Any], payload: dict[str, Any], status: str) -> None:
        self.path.add(
            row["turn"],
            replaces=payload.get("replaces"),
            discard_after=payload.get("discard_after", False),
            status=status,
        )

    def _on_chunk(self, row: dict[str, Any], payload: dict[str, Any]) -> None:
        if self.lengths[row["turn"]] != payload["from"]:
            raise KeyError(row["turn"])
        self.lengths[row["turn"]] = payload["to"]
        piece = (payload["from"], payload["to"], row["content_hash"])
        self.chunks.setdefault(row["turn"], []).append(piece)

    def _on_commit(self, row: dict[str, Any], payload: dict[str, Any]) -> None:
        self.path.commit(row["turn"])
        self.hashes[row["turn"]] = row["content_hash"]
        del self.lengths[row["turn"]]

    def _on_abort(self, row: dict[str, Any], payload: dict[str, Any]) -> None:
        self.path.abort(row["turn"])
        self.hashes[row["turn"]] = row["content_hash"]
        del self.lengths[row["turn"]]

    def _on_switch(self, row: dict[str, Any], payload: dict[str, Any]) -> None:
        self.path.switch(row["turn"])

    def _on_forget(self, row: dict[str, Any], payload: dict[str, Any]) -> None:
        self.path.forget(row["turn"])
        self.lengths.pop(row["turn"], None)
        self.stubs[row["turn"]] = row["content_hash"]
        self.salted.discard(row["turn"])

    def _on_retire(self, row: dict[str, Any], payload: dict[str, Any]) -> None:
        self._on_forget(row, payload)
        if payload.get("salt"):
            self.salted.add(row["turn"])

    def _on_reset(self, row: dict[str, Any], payload: dict[str, Any]) -> None:
        reset = _Reset(f"event {row['n']}", row["content_hash"])
        for id, node in self.path.nodes.items():
            if node.status != "forgotten":
                self.resets[id] = reset
            self.path.forget(id)
        self.lengths.clear()

    def _on_summarize(self, row: dict[str, Any], payload: dict[str, Any]) -> None:
        """Memory is derived and can be derived again."""

    _on_remember = _on_extract_facts = _on_forget_fact = _on_summarize

    def _on_stop(self, row: dict[str, Any], payload: dict[str, Any]) -> None:
        """A caller asked to stop an answer; the next event of its turn says how it ended."""

    def _on_attach(self, row: dict[str, Any], payload: dict[str, Any]) -> None:
        """A file was stored; the turn that takes it vouches for its hash."""

    def _on_detach(self, row: dict[str, Any], payload: dict[str, Any]) -> None:
        """A file that no turn had taken was swept."""

    # ---- the rows

    def turn(self, row: dict[str, Any]) -> None:
        name = f"turn {row['id']} (seq {row['seq']})"
        node = self.path.nodes.get(row["id"])
        self._match(name, row["seq"] == self.turns, f"the turn with seq {self.turns} should be here")
        if node is None:
            self._fail(name, "the log knows nothing of it")
        self.turns += 1
        self._check_place(name, row, node)
        if node.status == "forgotten":
            self._check_stub(name, row)
        elif node.status == "pending":
            self._match(name, len(row["content"] or "") == self.lengths[node.id], "its text does not fit its chunks")
            self._check_opening(name, row)
        else:
            self._check_content(name, row)
        if node.status != "forgotten":
            self._check_chunks(name, row)
        if node.active:
            self.turn_count += 1
            self.token_count += row["token_count"]
            self._hear(row)
        for file in from_json(row["attachments"]) if row["attachments"] else ():
            self.files[file["id"]] = {**file, "turn": row["id"]}

    def _check_place(self, name: str, row: dict[str, Any], node: Node) -> None:
        stored = (
            row["seq"], row["position"], row["parent"], row["slot"] or row["id"], row["active"],
            row["superseded_by"], row["status"],
        )  # fmt: skip
        told = (node.seq, node.position, node.parent, node.slot, int(node.active), node.superseded_by, node.status)
        self._match(name, stored == told, "its place in the thread is not what the log says")

    def _check_stub(self, name: str, row: dict[str, Any]) -> None:
        kept = ("salt",) if row["id"] in self.salted else ()
        left = [field for field in EMPTY_IN_A_STUB if row.get(field) is not None and field not in kept]
        self._match(name, not left, f"it was forgotten, yet {', '.join(left)} is still there")
        self._match(name, row["token_count"] == row["is_parts"] == 0, "it was forgotten, yet it weighs something")
        fits = row["content_hash"] == self.hashes.get(row["id"])
        self._match(name, fits, "its hash is not the one in the log")
        stub = stub_hash(*(row[field] for field in STUB))
        if row["id"] in self.resets:
            self.resets[row["id"]].stubs.append(stub)
        else:
            self._match(name, stub == self.stubs[row["id"]], "it is not what forgetting left of it")

    def _check_opening(self, name: str, row: dict[str, Any]) -> None:
        """A pending turn is what it was opened with, but for its text."""
        draft = TurnDraft(**{field: row[field] for field in DRAFT if field != "content"}, content="")
        fits = (
            row["content_hash"] is None and content_hash(row["id"], draft, row["created"]) == self.openings[row["id"]]
        )
        self._match(name, fits, "it is not what it was opened as")

    def _check_chunks(self, name: str, row: dict[str, Any]) -> None:
        text = row["content"] or ""
        for start, end, hash in self.chunks.pop(row["id"], ()):
            fits = chunk_hash(row["salt"], text[start:end]) == hash
            self._match(name, fits, f"letters {start} to {end} are not what was written")

    def _hear(self, row: dict[str, Any]) -> None:
        if row["role"] == "user" and row["status"] == "complete":
            line = preview(words(decode_content(row["content"], bool(row["is_parts"]))))
            if line and (self.preview is None or row["position"] < self.preview[0]):
                self.preview = (row["position"], line)

    def _check_content(self, name: str, row: dict[str, Any]) -> None:
        draft = TurnDraft(**{field: row[field] for field in DRAFT})
        hash = content_hash(row["id"], draft, row["created"])
        fits = hash == row["content_hash"] == self.hashes.get(row["id"])
        self._match(name, fits, "its content is not what was stored")

    def attachment(self, row: dict[str, Any]) -> None:
        self.attachments += 1
        name = f"attachment {row['id']}"
        if row["turn"] is None:
            return
        told = self.files.pop(row["id"], None)
        if told is None:
            self._fail(name, "no turn knows of it")
        fits = all(row[field] == told[field] for field in told)
        self._match(name, fits, "it is not what its turn says")

    def _match(self, row: str, fits: bool, problem: str) -> None:
        if not fits:
            self._fail(row, problem)

    def _fail(self, row: str, problem: str) -> NoReturn:
        raise VerificationFailed(self.id, row, problem)
