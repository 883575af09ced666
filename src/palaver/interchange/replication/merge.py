"""Merges two copies of a conversation of which both continued after the same event. Pure.

The main copy keeps its log, its numbers and its view. Later rows of the other copy are added at the end of that log:
its turns with new numbers, on a branch of their own unless they simply continue the main copy's last turn; its notes,
facts, files and requests. Each added turn names the id that it had (`origin`), so that merging again adds nothing.

Deletions and changed details are not merged here: they are applied to the main copy before (see sides.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from palaver.core.branches import LoggedTree, Node
from palaver.core.derived_rows import NOTES, ROWS, derived_hash, hashed_values, item_key, kind_of, source_key
from palaver.core.identity import canonical_json, event_hash, new_salt, stamp, stub_key
from palaver.core.turn_draft import content_hash, decode_content, preview, stub_hash, words
from palaver.interchange.replication.copies import NEW_TURN, Copy, Row, changed_keys, draft_of, origins, payload_of
from palaver.memory import working_memory
from palaver.model import MEMORY_LISTS, Note, WorkingMemory
from palaver.ports.queries import Record

MINUTE = 60_000_000  # microseconds
MERGED = ("notes", "fact", "request", "item", "source")  # summaries and the texts of files are rebuilt
BATCH = 200  # derived rows in one event
PLACE = ("position", "parent", "active", "superseded_by", "status", "seq")


@dataclass(slots=True)
class Merged:
    """The result: the main copy with what was added, and the new ids of the other copy's turns."""

    copy: Copy
    moved: dict[str, str] = field(default_factory=dict)
    added: int = 0  # turns
    branched: int = 0  # those of them that lie on a branch


def merge(main: Copy, other: Copy, common: int, now: int, redact: Callable[[Row], Row] | None = None) -> Merged:
    """Add what `other` has after event `common`, the last that both have, to `main`.

    `redact` removes secrets from the fields of a turn, where the main copy is redacted and the other may not be.
    """
    return _Merge(main, other, common, now, redact or dict).run()


class _Merge:
    def __init__(self, main: Copy, other: Copy, common: int, now: int, redact: Callable[[Row], Row]) -> None:
        self.redact = redact
        self.main = Copy(dict(main.conversation), [*main.events], [*main.turns], [*main.attachments], {**main.derived})
        self.other, self.common, self.now = other, common, now
        self.tree = _tree_of(main.turns)
        self.keys = {turn["idempotency_key"]: turn for turn in main.turns if turn["idempotency_key"]}
        self.ids = {turn["id"]: turn["id"] for turn in other.turns[: other.turns_at(common)]}  # other's ids to main's
        self.origins = origins(main.events_after(common))
        self.theirs = {turn: origin for origin, turn in origins(other.events_after(common)).items()}
        self.own = {turn["id"] for turn in main.turns}
        self.same_items = _same_items(main, other)
        self.result = Merged(self.main)

    def run(self) -> Merged:
        logged = {event["turn"]: event for event in self.other.events if event["kind"] in NEW_TURN}
        for turn in self.other.turns[len(self.ids) :]:
            known = self._known(turn)
            self.ids[turn["id"]] = self._add(turn, logged.get(turn["id"])) if known is None else known
        self.result.moved = {old: new for old, new in self.ids.items() if old != new}
        self._add_files()
        self._add_derived()
        self._finish()
        return self.result

    # ---- turns

    def _known(self, turn: Row) -> str | None:
        """Return the id of a turn in the main copy, if an earlier run or the same request brought it there."""
        for name in (turn["id"], self.theirs.get(turn["id"])):
            if name is not None and (name in self.origins or name in self.own):
                return self.origins.get(name, name)
        same = self.keys.get(turn["idempotency_key"])
        return same["id"] if same is not None and _is_same_request(same, turn) else None

    def _add(self, turn: Row, event: Row | None) -> str:
        """Add a turn at the end of the log. Returns its id there."""
        id = stamp(turn["id"], self.tree.next_seq)
        parent = None if turn["parent"] is None else self.ids[turn["parent"]]
        slot = None if turn["slot"] in (None, turn["id"]) else self.ids[turn["slot"]]
        row = {**self.redact(turn), "id": id, "slot": slot}
        if turn["idempotency_key"] in self.keys:
            row["idempotency_key"] = None
        payload: dict[str, object] = {} if id == turn["id"] else {"origin": turn["id"]}
        if event is not None and (by := payload_of(event).get("by")):
            payload["by"] = by
        tip = self.tree.active[-1].slot if self.tree.active else None
        status = "pending" if turn["status"] == "aborted" else "complete"
        if slot is None and parent == tip:
            self.tree.add(id, replaces=None, discard_after=False, status=status)
        else:
            self.tree.graft(id, parent=parent, slot=slot, status=status)
            payload["branch"] = {"parent": parent, "slot": slot}
            self.result.branched += 1
        self._log_turn(row, payload)
        self.main.turns.append(row)
        self.result.added += 1
        return id

    def _log_turn(self, row: Row, payload: Mapping[str, object]) -> None:
        id, actor = row["id"], row["actor"]
        if row["status"] == "forgotten":
            self._log("append", actor, id, payload, row["content_hash"])
            row["idempotency_key"] = key = stub_key(self.main.conversation["id"], row["idempotency_key"])
            row["salt"] = None
            hash = stub_hash(id, row["role"], actor, row["created"], key, row["content_hash"])
            self._log("forget", "", id, {}, hash)
            self.tree.forget(id)
            return
        row["content_hash"] = hash = content_hash(id, draft_of(row), row["created"])
        if row["status"] == "aborted":
            self._log("open", actor, id, payload, content_hash(id, draft_of(row, content=""), row["created"]))
            self._log("abort", actor, id, {}, hash)
            self.tree.abort(id)
        else:
            self._log("append", actor, id, payload, hash)

    # ---- the log

    def _log(
        self, kind: str, actor: str, turn: str | None, payload: Mapping[str, object], hash: bytes | None = None
    ) -> int:
        """Add an event. Returns its number."""
        row = self.main.conversation
        n, at = row["next_n"], max(row["updated"] + 1, self.now)
        text = canonical_json(payload) if payload else None
        row["tip_hash"] = event_hash(row["tip_hash"], n, kind, turn, actor, at, text, hash)
        row["next_n"], row["updated"] = n + 1, at
        event = {"n": n, "kind": kind, "turn": turn, "actor": actor, "at": at, "payload": text}
        self.main.events.append({**event, "content_hash": hash, "hash": row["tip_hash"]})
        return int(n)

    def _finish(self) -> None:
        """Set the fields of the conversation, and the places of its turns, from the tree."""
        row = self.main.conversation
        for turn in self.main.turns:
            node = self.tree.nodes[turn["id"]]
            turn.update({name: getattr(node, name) for name in PLACE}, active=int(node.active))
        active = [turn for turn in self.main.turns if turn["active"]]
        tip = self.tree.active[-1] if self.tree.active else None
        row["next_seq"] = self.tree.next_seq
        row["tip_position"], row["tip_slot"] = (tip.position, tip.slot) if tip else (-1, None)
        row["turn_count"], row["token_count"] = len(active), sum(turn["token_count"] for turn in active)
        row["preview"] = _preview(active)
        row["minute"] = row["updated"] // MINUTE
        row["expires_at"] = None if row["ttl"] is None else row["updated"] + row["ttl"]

    # ---- files

    def _add_files(self) -> None:
        known = {row["id"] for row in self.main.attachments}
        added = {turn["id"] for turn in self.main.turns}
        for row in self.other.attachments:
            turn = self.ids.get(row["turn"])
            if row["id"] not in known and (row["turn"] is None or (turn in added and self._has_file(turn, row["id"]))):
                self._log("attach", row["owner"], None, {"attachment": row["id"]})
                self.main.attachments.append({**row, "turn": turn})

    def _has_file(self, turn: str | None, file: str) -> bool:
        return any(one["id"] == turn and file in (one["attachments"] or "") for one in self.main.turns)

    # ---- derived rows

    def _add_derived(self) -> None:
        """Add the notes, facts, requests and items that the other copy changed."""
        changed = changed_keys(self.main.events_after(self.common))
        wanted: dict[str, Record | None] = {}
        for key, hash in changed_keys(self.other.events_after(self.common)).items():
            if kind_of(key) in MERGED:
                self._choose(key, hash is None, key in changed, wanted)
        keys = sorted(wanted)
        for start in range(0, len(keys), BATCH):
            self._prove({key: wanted[key] for key in keys[start : start + BATCH]})

    def _choose(self, key: str, is_deleted: bool, both_changed: bool, wanted: dict[str, Record | None]) -> None:
        mine, theirs = self.main.derived.get(key), self.other.derived.get(key)
        if is_deleted or theirs is None:
            if is_deleted and mine is not None and (kind_of(key) != NOTES or not both_changed):
                wanted[key] = None
            return
        moved = self._moved(theirs)
        if moved is None or (mine is None and both_changed):
            return  # its turn is not in the view, or the main copy deleted it: that holds
        key = _key_of(moved, key)
        mine = self.main.derived.get(key)
        best = moved if mine is None else _better(mine, moved, both_changed)
        if mine is None or _values(best) != _values(mine):
            wanted[key] = best

    def _moved(self, record: Record) -> Record | None:
        """Return a derived row with the new ids of its turns. None when it is about a turn that is not in the view."""
        row = dict(record.row)
        if record.kind == "working_memory":
            return Record(record.kind, {**row, **self._moved_notes(row["memory"])})
        if record.kind == "fact" and row["source_turn"] is not None:
            row["source_turn"] = self.ids.get(row["source_turn"], row["source_turn"])
            node = self.tree.nodes.get(row["source_turn"])
            if node is None or not (node.active or node.status == "forgotten"):
                return None
        if record.kind == "request" and row["turn"] is not None:
            row["turn"] = self.ids.get(row["turn"], row["turn"])
        if record.kind == "item" and row["id"] in self.same_items:
            return None  # its sources are added to the item that says the same
        if record.kind == "source":
            row["item"] = self.same_items.get(row["item"], row["item"])
        return Record(record.kind, row)

    def _moved_notes(self, memory: str) -> Row:
        notes = working_memory.from_json(memory)
        lists: dict[str, Any] = {}
        for name in MEMORY_LISTS:
            lists[name] = tuple(filter(None, map(self._moved_note, getattr(notes, name))))
        through = min(notes.through_seq, self._divergence() - 1)
        moved = replace(notes, **lists, through_seq=through)
        return {"memory": working_memory.to_json(moved), "through_seq": through}

    def _moved_note(self, note: Note) -> Note | None:
        if note.turn is None:
            return note
        node = self.tree.nodes.get(self.ids.get(note.turn, note.turn))
        in_view = node is not None and (node.active or node.status == "forgotten")
        return replace(note, turn=node.id) if node is not None and in_view else None

    def _divergence(self) -> int:
        """Return the first position at which the other copy's view is not that of the result."""
        for turn in sorted((one for one in self.other.turns if one["active"]), key=lambda one: one["position"]):
            node = self.tree.nodes.get(self.ids[turn["id"]])
            if node is None or not node.active or node.position != turn["position"]:
                return int(turn["position"])
        return 2**62

    def _prove(self, rows: Mapping[str, Record | None]) -> None:
        salts = {key: new_salt() for key in rows}
        hashes = {key: None if one is None else _hash(key, salts[key], one) for key, one in rows.items()}
        n = self._log("prove", "", None, {ROWS: hashes})
        for key, record in rows.items():
            self.main.derived.pop(key, None)
            if record is not None:
                self.main.derived[key] = Record(record.kind, {**record.row, "salt": salts[key], "proof": n})


# ---- helpers -------------------------------------------------------------------------------------------------------


def _tree_of(turns: Sequence[Row]) -> LoggedTree:
    """Return the tree of stored turns."""
    tree = LoggedTree()
    for row in turns:
        place = (row["position"], row["parent"], row["slot"] or row["id"], bool(row["active"]), row["superseded_by"])
        node = Node(row["id"], row["seq"], *place, row["status"])
        tree.nodes[node.id] = node
        tree.in_order.append(node)
    tree.active = sorted((node for node in tree.in_order if node.active), key=lambda node: node.position)
    tree.next_seq = len(turns)
    return tree


def _same_items(main: Copy, other: Copy) -> dict[str, str]:
    """Return the items of the other copy that say what an item of the main copy says, with the id of that one."""
    known = {_meaning(one.row): one.row["id"] for one in main.derived.values() if one.kind == "item"}
    items = [one.row for one in other.derived.values() if one.kind == "item"]
    found = {row["id"]: known.get(_meaning(row)) for row in items}
    return {id: same for id, same in found.items() if same is not None and same != id}


def _meaning(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("kind", "subject", "predicate", "object", "status", "ended_at"))


def _is_same_request(stored: Row, turn: Row) -> bool:
    names = ("role", "actor", "content", "tool_calls", "tool_results", "metadata")
    return stored["status"] == turn["status"] and all(stored[name] == turn[name] for name in names)


def _preview(active: Sequence[Row]) -> str | None:
    for turn in sorted(active, key=lambda one: one["position"]):
        if turn["role"] == "user" and turn["status"] == "complete":
            line = preview(words(decode_content(turn["content"] or "", bool(turn["is_parts"]))))
            if line:
                return line
    return None


def _values(record: Record) -> list[Any]:
    return hashed_values(_kind(record), record.row)


def _kind(record: Record) -> str:
    return "notes" if record.kind == "working_memory" else record.kind


def _hash(key: str, salt: bytes, record: Record) -> str:
    return derived_hash(key, salt, _values(record))


def _key_of(record: Record, key: str) -> str:
    """Return the key of a row; that of a source contains the id of its turn."""
    if record.kind == "source":
        return source_key(record.row["item"], record.row["turn"])
    return item_key(record.row["id"]) if record.kind == "item" else key


def _better(mine: Record, theirs: Record, both_changed: bool) -> Record:
    """Return which version of a row is kept. If both sides changed it, one that has ended; notes are joined."""
    if not both_changed:
        return theirs
    if mine.kind == "working_memory":
        return Record(mine.kind, {**mine.row, **_joined_notes(mine.row["memory"], theirs.row["memory"])})
    end = {"fact": "invalidated_at", "item": "ended_at"}.get(mine.kind)
    return theirs if end and mine.row[end] is None and theirs.row[end] is not None else mine


def _joined_notes(mine: str, theirs: str) -> Row:
    first, second = working_memory.from_json(mine), working_memory.from_json(theirs)
    lists: dict[str, Any] = {name: _joined(getattr(first, name), getattr(second, name)) for name in MEMORY_LISTS}
    joined: WorkingMemory = replace(first, **lists, summary=first.summary or second.summary)
    return {"memory": working_memory.to_json(joined), "through_seq": joined.through_seq}


def _joined(first: Sequence[Note], second: Sequence[Note]) -> tuple[Note, ...]:
    known = {note.text for note in first}
    return (*first, *(note for note in second if note.text not in known))
