"""Summaries of the turns before the window, in the system message."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.context.explain import Block, Omission
from palaver.context.inputs import Material
from palaver.context.pack.ledger import Ledger, PackInputs
from palaver.context.render import summary_block
from palaver.model import Summary


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
    """Add the summaries of the turns before position `start`. Returns the pieces of the system message."""
    cover = covering_summaries(inputs.material.summaries, start)
    shown = _newest_that_fit(inputs, ledger, cover, min(cap, ledger.left))
    older = _count_older(inputs.material, start)
    covered = min(older, sum(summary.turns for summary in shown))
    pieces: list[str] = []
    if covered:
        text = summary_block(shown)
        first, end = shown[0].from_seq, shown[-1].through_seq
        reason, cost = f"stands for {covered} turns before the window", ledger.head_cost(inputs, text)
        ledger = ledger.add(Block(kind="summaries", reason=reason, tokens=cost, from_seq=first, through_seq=end))
        ledger = ledger.omit([_omission("summarised", covered, first, end, summarised=True)])
        pieces.append(text)
    dropped = cover[: len(cover) - len(shown)]
    ledger = ledger.omit(_without_summary(inputs, older - covered, dropped, cover, start))
    if older and inputs.options.note_omissions and not inputs.options.policy.recall_first:
        note, ledger = _add_note(inputs, ledger, older, covered)
        pieces += note
    return pieces, ledger


def _newest_that_fit(inputs: PackInputs, ledger: Ledger, cover: list[Summary], cap: int) -> list[Summary]:
    if cover and ledger.head_cost(inputs, summary_block(cover)) <= cap:  # as nearly always
        return cover
    kept: list[Summary] = []
    for summary in reversed(cover):
        trial = [summary, *kept]
        if ledger.head_cost(inputs, summary_block(trial)) > cap:
            break
        kept = trial
    return kept


def _count_older(material: Material, start: int) -> int:
    """Return how many turns of the view lie before the window; they were not all read."""
    inside = sum(1 for turn in material.tail if turn.position >= start)
    current = material.current
    if current is not None and current.position >= start and current not in material.tail:
        inside += 1
    return max(0, material.turn_count - inside)


def _without_summary(
    inputs: PackInputs, left: int, dropped: Sequence[Summary], cover: Sequence[Summary], start: int
) -> list[Omission]:
    """Return the omissions of `left` turns that no shown summary covers: it did not fit, or there is none yet."""
    omissions: list[Omission] = []
    did_not_fit = min(left, sum(summary.turns for summary in dropped))
    if did_not_fit:
        first, end = dropped[0].from_seq, dropped[-1].through_seq
        omissions.append(_omission("their summary did not fit", did_not_fit, first, end))
    if left > did_not_fit:
        has_share = inputs.options.policy.summaries
        reason = "not yet summarised" if has_share else "older than what this policy shows"
        first = cover[-1].through_seq if cover else 0
        omissions.append(_omission(reason, left - did_not_fit, first, _unread_through(inputs.material, start)))
    return omissions


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
