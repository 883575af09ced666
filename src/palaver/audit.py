"""Proving what happened: the log is replayed, and every stored row is compared with it. Pure.

`Verifier` is fed the records of one conversation, in order: the conversation, its events, its turns, its attachments.
It raises `VerificationFailed` at the first row that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, NoReturn

from palaver.drafts import Draft, content_hash
from palaver.errors import VerificationFailed
from palaver.identity import CONVERSATION_TAG, digest, event_hash, from_json, genesis
from palaver.model import Verified
from palaver.ports import Record
from palaver.tree import Node, Path


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


DETAILS = tuple(field.name for field in fields(Details))
DRAFT = tuple(field.name for field in fields(Draft) if field.name != "preview")
# What a forgotten turn must not hold any more.
EMPTY_IN_A_STUB = (
    "content", "tool_calls", "tool_results", "attachments", "sources", "metadata", "salt", "model", "adapter",
    "finish_reason", "prompt_tokens", "completion_tokens",
)  # fmt: skip


def details_hash(salt: bytes | None, details: Details) -> bytes:
    return digest((CONVERSATION_TAG, salt, *(getattr(details, name) for name in DETAILS)))


class Verifier:
    def __init__(self) -> None:
        self.path = Path()
        self.hashes: dict[str, bytes] = {}  # turn id → the content hash that the log gives it
        self.lengths: dict[str, int] = {}  # pending turn → characters so far, by its chunk events
        self.details: bytes | None = None
        self.forgotten: set[str] = set()
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
        details = Details(**{name: row[name] for name in DETAILS})
        fits = details_hash(row["salt"], details) == row["content_hash"] == self.details
        self._match("conversation", fits, "its title, owner, settings or other details were changed")
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
        self.previous = hash
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

    def _on_reset(self, row: dict[str, Any], payload: dict[str, Any]) -> None:
        for id in self.path.nodes:
            self.path.forget(id)
        self.lengths.clear()

    def _on_attach(self, row: dict[str, Any], payload: dict[str, Any]) -> None:
        """A file was stored; the turn that takes it vouches for its hash."""

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
        else:
            self._check_content(name, row)
        if node.active:
            self.turn_count += 1
            self.token_count += row["token_count"]
        for file in from_json(row["attachments"]) if row["attachments"] else ():
            self.files[file["id"]] = {**file, "turn": row["id"]}

    def _check_place(self, name: str, row: dict[str, Any], node: Node) -> None:
        stored = (
            row["seq"], row["position"], row["parent"], row["slot"] or row["id"], bool(row["active"]),
            row["superseded_by"], row["status"],
        )  # fmt: skip
        told = (node.seq, node.position, node.parent, node.slot, node.active, node.superseded_by, node.status)
        self._match(name, stored == told, "its place in the thread is not what the log says")

    def _check_stub(self, name: str, row: dict[str, Any]) -> None:
        left = [field for field in EMPTY_IN_A_STUB if row.get(field) is not None]
        self._match(name, not left, f"it was forgotten, yet {', '.join(left)} is still there")
        fits = row["content_hash"] == self.hashes.get(row["id"])
        self._match(name, fits, "its hash is not the one in the log")

    def _check_content(self, name: str, row: dict[str, Any]) -> None:
        draft = Draft(**{field: row[field] for field in DRAFT})
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
