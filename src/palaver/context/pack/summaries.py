"""Summaries of the turns before the window, in the system message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from palaver.context.explain import Block, Omission
from palaver.context.inputs import Material
from palaver.context.pack.filters import split_usable
from palaver.context.pack.ledger import Ledger, PackInputs
from palaver.context.render import shorten, summary_block
from palaver.context.tool_rounds import units
from palaver.model import Summary

GAP_SHARE = 2  # the turns after the last summary get half of the room, until they have a summary of their own
CONDENSINGS = 6  # tries to make summaries fit


def covering_summaries(summaries: Sequence[Summary], end: int | None = None) -> list[Summary]:
    """Return summaries that do not overlap: at each place the widest one, of those that end at or before `end`."""
    cover: list[Summary] = []
    at = 0
    for summary in sorted(summaries, key=lambda one: (one.from_seq, -one.through_seq)):
        if summary.from_seq >= at and (end is None or summary.through_seq <= end):
            cover.append(summary)
            at = summary.through_seq
    return cover


def add_summaries(inputs: PackInputs, ledger: Ledger, cap: int, start: int) -> tuple[list[str], Ledger]:
    """Add the summaries of the turns before position `start`, and a note on how many turns are missing.

    Returns the pieces of the system message.
    """
    older = _count_older(inputs.material, start)
    cap = min(cap, ledger.left)
    cover = _cover(inputs.material.summaries, start) if older and cap > 0 else []
    cover += _summarise_gap(inputs, _reach(cover), start, cap)
    text = _fit(inputs, ledger, cover, cap)
    covered = _count_covered(cover, older, start) if text else 0
    pieces: list[str] = []
    if covered:
        first, end = cover[0].from_seq, cover[-1].through_seq
        reason, cost = f"stands for {covered} turns before the window", ledger.head_cost(inputs, text)
        ledger = ledger.add(Block(kind="summaries", reason=reason, tokens=cost, from_seq=first, through_seq=end))
        ledger = ledger.omit([_omission("summarised", covered, first, min(end, start), summarised=True)])
        pieces.append(text)
    ledger = ledger.omit(_without_summary(inputs, older - covered, cover, start, did_not_fit=not text))
    if older and inputs.options.note_omissions and not inputs.options.policy.recall_first:
        note, ledger = _add_note(inputs, ledger, older, covered)
        pieces += note
    return pieces, ledger


def _summarise_gap(inputs: PackInputs, reach: int, start: int, cap: int) -> list[Summary]:
    """Summarise the turns between the last summary and the window by rules, until the worker has done it."""
    material = inputs.material
    if reach >= start or cap <= 0 or not material.compacts:
        return []
    turns = [turn for turn in material.tail if reach <= turn.position < start]
    usable, _ = split_usable(inputs.options, units(turns))
    said = tuple(turn for unit in usable for turn in unit.turns)
    if not said or material.condenser is None:
        return []
    is_read = material.reads_from_start or material.tail[0].position <= reach
    text = material.condenser.summarise(said, cap // GAP_SHARE if reach else cap)
    return [
        Summary(
            id="",
            level=0,
            from_seq=reach if is_read else turns[0].position,
            through_seq=start,
            text=text,
            model="rules",
            token_count=0,
            turns=len(turns),
            created=said[-1].created,
        )
    ]


def _cover(summaries: Sequence[Summary], start: int) -> list[Summary]:
    """Return summaries of everything before `start`; the last one may reach into the window.

    The result does not change when later turns are summarised: a prompt keeps its beginning until the window moves.
    """
    ends = [one.through_seq for one in summaries if one.level == 0 and one.through_seq >= start]
    stable = covering_summaries(summaries, min(ends, default=None))
    return stable if _reach(stable) >= _reach(covering_summaries(summaries), start) else covering_summaries(summaries)


def _reach(cover: Sequence[Summary], start: int | None = None) -> int:
    """Return up to which position a cover stands for all turns from the first one on."""
    at = 0
    for summary in cover:
        if summary.from_seq > at:
            break
        at = summary.through_seq
    return at if start is None else min(at, start)


def _fit(inputs: PackInputs, ledger: Ledger, cover: Sequence[Summary], cap: int) -> str:
    """Return the block of these summaries: as they are, or condensed to one that fits. Empty if there is no room."""
    if not cover or cap <= 0:
        return ""
    whole = summary_block(cover)
    excess = ledger.head_cost(inputs, whole) - cap
    if excess <= 0:
        return whole
    room = cap - ledger.head_cost(inputs, summary_block([]))
    for _ in range(CONDENSINGS):  # the marks of a quotation are counted with its lines, not before
        condensed = _condense(inputs, cover, room)
        block = summary_block([condensed])
        excess = ledger.head_cost(inputs, block) - cap
        if excess <= 0:
            return block
        room = min(room, inputs.count(condensed.text)) - excess  # a text may be shorter than its room
    return ""


def _condense(inputs: PackInputs, cover: Sequence[Summary], room: int) -> Summary:
    condenser, texts = inputs.material.condenser, tuple(summary.text for summary in cover)
    text = condenser.merge(texts, max(0, room)) if condenser is not None else ""
    text = text or shorten("\n".join(texts), max(0, room), inputs.count)
    return replace(cover[0], text=text, through_seq=cover[-1].through_seq)


def _count_covered(cover: Sequence[Summary], older: int, start: int) -> int:
    """Return how many of the older turns lie in the shown summaries."""
    if _reach(cover) >= start:
        return older
    return min(older, sum(summary.turns for summary in cover))


def _count_older(material: Material, start: int) -> int:
    """Return how many turns of the view lie before the window; they were not all read."""
    inside = sum(1 for turn in material.tail if turn.position >= start)
    current = material.current
    if current is not None and current.position >= start and current not in material.tail:
        inside += 1
    return max(0, material.turn_count - inside)


def _without_summary(
    inputs: PackInputs, left: int, cover: Sequence[Summary], start: int, *, did_not_fit: bool
) -> list[Omission]:
    """Return the omission of `left` turns that no shown summary covers: it did not fit, or there is none yet."""
    if not left:
        return []
    if cover and did_not_fit:
        return [_omission("their summary did not fit", left, 0, start)]
    has_share = inputs.options.policy.summaries
    reason = "not yet summarised" if has_share else "older than what this policy shows"
    reach = _reach(cover)
    unread = next((summary.from_seq for summary in cover if summary.from_seq > reach), None)
    if unread is not None:  # the beginning of the gap was not read
        return [_omission(reason, left, reach, unread)]
    return [_omission(reason, left, reach, _unread_through(inputs.material, start))]


def _unread_through(material: Material, start: int) -> int:
    """Return `start`, or where the tail begins if that is later: an answer can be longer than the budget."""
    first = material.tail[0].position if material.tail else 0
    return first if first > start + 1 else start


def _add_note(inputs: PackInputs, ledger: Ledger, older: int, covered: int) -> tuple[list[str], Ledger]:
    """Add a note on how many turns are missing, if there is room."""
    done = "summarised above" if covered == older else f"{covered} of them summarised above" if covered else ""
    text = f"[{older} earlier turns are left out here{', ' + done if done else ''}.]"
    cost = ledger.head_cost(inputs, text)
    if cost > ledger.left:
        return [], ledger
    return [text], ledger.add(Block(kind="omission note", reason="says that something is missing", tokens=cost))


def _omission(reason: str, turns: int, start: int, end: int, *, summarised: bool = False) -> Omission:
    return Omission(reason=reason, turns=turns, from_seq=start, through_seq=end, summarised=summarised)
