"""Copies the next part of a conversation, so that a large one is never in memory as a whole.

This is for events that only add: turns at the end, and derived rows. Anything else (`NotPlain`) changes older rows, and
the conversation is copied as a whole.

Slices end at multiples of `SLICE`. So an interrupted copy is recognised: it ends at such a number, and then all
derived rows are sent again, which go with the last slice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from palaver.audit.replay import hash_of
from palaver.audit.rows import RecordedEvent
from palaver.core.derived_rows import derived_hash, hashed_values, kind_of
from palaver.core.identity import genesis
from palaver.core.turn_draft import content_hash
from palaver.errors import ConversationBusy
from palaver.interchange.replication.copies import NEW_TURN, Copy, changed_keys, draft_of
from palaver.interchange.replication.sides import Moved, Side
from palaver.model import ConversationInfo, Event, Tip
from palaver.ports.queries import Adoption, RecordRange

SLICE = 2_000  # events
MINUTE = 60_000_000  # microseconds
# Kinds of events after which every row that was there before is as it was.
PLAIN = frozenset(
    {"create", "update", "append", "open", "chunk", "commit", "abort", "attach", "stop", "archive", "prove"}
    | {"summarize", "remember", "extract_facts", "forget_fact", "learn", "correct", "approve", "drop_item"}
)

WRITTEN = (*NEW_TURN, "commit", "abort")  # kinds of events with the hash of a turn


class NotPlain(Exception):
    """The next events change older rows: copy the conversation as a whole."""


@dataclass(frozen=True, slots=True)
class _Slice:
    """The events after one number up to another, and the turns that they add."""

    after: int
    through: int
    from_seq: int
    before_seq: int
    is_last: bool


async def copy_next_slice(source: Side, target: Side, ahead: ConversationInfo, behind: ConversationInfo | None) -> None:
    """Copy the next events of a conversation, with the turns and, at the end, the derived rows that belong to them.

    `behind` is what the target has of it: the beginning of the same log, or None.
    """
    after, seq = (behind.last_event, behind.next_seq) if behind else (0, 0)
    through = min(ahead.last_event, after - after % SLICE + SLICE)
    events = await source.events(ahead.id, after, through - after)
    if len(events) != through - after or not all(map(_is_plain, events)):
        raise NotPlain
    added = sum(event.kind in NEW_TURN for event in events)
    part = _Slice(after, through, seq, seq + added, through == ahead.last_event)
    copy = await _read(source, ahead.id, part)
    _check_rows(copy)
    if behind is None:
        _check_chain(copy, genesis(ahead.id))
        await target.restore(copy, source)
        return
    tip = await target.event(behind.id, behind.last_event)
    if tip is None:
        raise Moved
    _check_chain(copy, bytes.fromhex(tip.hash))
    dropped = tuple(key for key, hash in changed_keys(copy.events).items() if hash is None)
    expected = Tip(conversation=behind.id, n=tip.n, hash=tip.hash)
    await target.adopt(Adoption(expected=expected, records=copy.records(), whole=False, dropped=dropped), source)


def _is_plain(event: Event) -> bool:
    return event.kind in PLAIN and not {"replaces", "branch"} & event.payload.keys()


async def _read(source: Side, id: str, part: _Slice) -> Copy:
    numbers = RecordRange(after=part.after, through=part.through, from_seq=part.from_seq, before_seq=part.before_seq)
    copy = await source.copy(id, derived=part.is_last, part=numbers)
    is_last = part.is_last and copy.tip.n == part.through
    if part.is_last and not is_last:
        raise Moved  # it continued since: its derived rows may be later ones
    if copy.is_pending:
        raise ConversationBusy(id, "a turn is still being written")
    turns = {turn["id"] for turn in copy.turns}
    copy.attachments = [row for row in copy.attachments if row["turn"] in turns or (is_last and row["turn"] is None)]
    if is_last:
        _choose_derived(copy, part, {row["id"] for row in copy.attachments})
    else:
        copy.derived = {}
        _end_early(copy, part)
    return copy


def _choose_derived(copy: Copy, part: _Slice, files: set[str]) -> None:
    """Keep the derived rows that the slice changed; all of them where an earlier run may have been interrupted."""
    changed = [key.partition("/")[2] for key in changed_keys(copy.events) if kind_of(key) == "file"]
    if not files.issuperset(changed):
        raise NotPlain  # the text of an older file was extracted
    since = 0 if part.after % SLICE == 0 else part.after
    copy.derived = {
        key: one
        for key, one in copy.derived.items()
        if (one.row.get("proof") or since + 1) > since and (kind_of(key) != "file" or one.row["id"] in files)
    }


def _end_early(copy: Copy, part: _Slice) -> None:
    """Make the row of the conversation that of its state after the slice, as far as the slice says it."""
    row, last = copy.conversation, copy.events[-1]
    row["next_n"], row["tip_hash"], row["next_seq"] = part.through + 1, last["hash"], part.before_seq
    row["updated"], row["minute"] = last["at"], last["at"] // MINUTE
    row["expires_at"] = None if row["ttl"] is None else row["updated"] + row["ttl"]
    active = [turn for turn in copy.turns if turn["active"]]
    if not active:
        raise NotPlain  # the end of the view is not in the slice
    row["tip_position"], row["tip_slot"] = active[-1]["position"], active[-1]["slot"] or active[-1]["id"]


def _check_rows(copy: Copy) -> None:
    """Check that turns and derived rows are what the events say. If one is not, copy the whole: that is verified."""
    logged = {event["turn"]: event for event in copy.events if event["kind"] in WRITTEN}
    for turn in copy.turns:
        event, hash = logged.get(turn["id"]), content_hash(turn["id"], draft_of(turn), turn["created"])
        is_later = event is not None and event["kind"] == "open"  # the end of the turn is in the next slice
        if hash != turn["content_hash"] or event is None or not (is_later or event["content_hash"] == hash):
            raise NotPlain
    for key, hash_of_row in changed_keys(copy.events).items():
        row = copy.derived[key].row if key in copy.derived else None
        if row and (not row["salt"] or derived_hash(key, row["salt"], hashed_values(kind_of(key), row)) != hash_of_row):
            raise NotPlain


def _check_chain(copy: Copy, previous: bytes) -> None:
    """Check that the events follow the last one that the target has.

    If one does not, it may have lost the name of an erased person, which only the whole log can prove.
    """
    for event in copy.events:
        if hash_of(cast(RecordedEvent, event), previous) != event["hash"]:
            raise NotPlain
        previous = event["hash"]
