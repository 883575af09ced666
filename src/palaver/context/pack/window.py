"""The window: the most recent turns, word for word and in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from palaver.context.costs import Entry
from palaver.context.explain import Omission
from palaver.context.inputs import Material
from palaver.context.options import Options
from palaver.context.pack.budget import CHARACTERS, WindowShare
from palaver.context.pack.filters import split_usable
from palaver.context.pack.ledger import Ledger, PackInputs, unit_omission
from palaver.context.render import OPENING
from palaver.context.tool_rounds import Unit
from palaver.context.window import latest_start, sliding_start, stride_start

TOO_LONG = "longer than its share of the budget"
LONG_SHARE = 2  # a unit may take half of the window before it is shortened


@dataclass(frozen=True, slots=True)
class Window:
    """The recent turns that are in. Turns before the position `start` are left to summaries."""

    entries: tuple[Entry, ...]
    start: int
    is_whole: bool = False  # the thread is shown from its first turn on


NO_WINDOW = Window((), 0)


class _Sized(NamedTuple):
    """A unit and its cost; `shortened` is set where it was too long."""

    unit: Unit
    cost: int
    shortened: Entry | None = None


def add_whole_thread(
    inputs: PackInputs, ledger: Ledger, past: Sequence[Unit], cap: int
) -> tuple[Window, Ledger] | None:
    """Add all turns before the question, if they were read from the first one on and fit into `cap`."""
    material = inputs.material
    policy = inputs.options.policy
    is_limited = inputs.options.recent_turns is not None or (
        policy.recent_turns is not None and not policy.recall_first
    )
    if is_limited or not material.reads_from_start:
        return None
    usable, unusable = split_usable(inputs.options, past)
    sized = [_Sized(unit, inputs.costs.unit(unit)) for unit in usable]
    opening = inputs.count(OPENING) + inputs.overhead
    if sum(one.cost for one in sized) + opening > cap:
        return None
    start = past[0].position if past else _start_position(material, ())
    window, ledger = _show(inputs, ledger.omit(unusable), sized)
    return Window(window, start, is_whole=True), ledger


def add_window(
    inputs: PackInputs, ledger: Ledger, past: Sequence[Unit], share: WindowShare, most_turns: int | None
) -> tuple[Window, Ledger]:
    """Add the newest of the units that fit, at most `most_turns`; the policy decides where the window begins."""
    cap = share.cap - inputs.count(OPENING) - inputs.overhead
    usable, unusable = split_usable(inputs.options, past)
    sized, too_long = _size_units(inputs, usable, limit=max(1, min(share.most // LONG_SHARE, cap)))
    start = _window_start(inputs, sized, cap, share)
    most = most_turns if inputs.options.recent_turns is None else inputs.options.recent_turns
    start = start if most is None else max(start, len(sized) - most)
    shown = sized[start:]
    if not _strides(inputs.options) and start > 0 and most is None:
        shown = [*_shorten_first(inputs, sized[start - 1], cap - sum(one.cost for one in shown)), *shown]
    # Units before the start are accounted for together with the summaries.
    entries, ledger = _show(inputs, ledger.omit([*unusable, *too_long]), shown)
    return Window(entries, _start_position(inputs.material, entries)), ledger


def _show(inputs: PackInputs, ledger: Ledger, shown: Sequence[_Sized]) -> tuple[tuple[Entry, ...], Ledger]:
    entries = tuple(one.shortened or inputs.costs.entry(one.unit, one.cost) for one in shown)
    ledger = ledger.add_entries(entries, "recent", "the last turns, word for word")
    if entries and entries[0].messages[0]["role"] == "assistant":
        # A provider whose threads begin with a user gets an opening line.
        ledger = ledger.reserve(inputs.count(OPENING) + inputs.overhead)
    return entries, ledger


def _size_units(inputs: PackInputs, found: Sequence[Unit], limit: int) -> tuple[list[_Sized], list[Omission]]:
    """Return each unit with its cost, shortened where it is too long, and those that cannot be shortened enough."""
    sized: list[_Sized] = []
    too_long: list[Omission] = []
    for unit in found:
        cost = inputs.costs.unit(unit)
        if cost <= limit:
            sized.append(_Sized(unit, cost))
        elif (shorter := inputs.costs.shorten(unit, limit)) is not None:
            sized.append(_Sized(unit, shorter.cost, shorter))
        else:
            too_long.append(unit_omission(TOO_LONG, unit))
    return sized, too_long


def _shorten_first(inputs: PackInputs, one: _Sized, room: int) -> list[_Sized]:
    """Return the unit before the window, shortened to the room that is left; nothing if that says too little."""
    shorter = inputs.costs.shorten(one.unit, room)
    return [] if shorter is None else [_Sized(one.unit, shorter.cost, shorter)]


def _strides(options: Options) -> bool:
    return options.policy.strides and not options.policy.recall_first


def _window_start(inputs: PackInputs, sized: Sequence[_Sized], cap: int, share: WindowShare) -> int:
    """Return the index of the first unit that may be in the window."""
    costs = [one.cost for one in sized]
    earliest = sliding_start(costs, cap)
    if not _strides(inputs.options) or earliest == len(sized):
        return earliest
    latest = min(latest_start(costs, share.least - share.asked), _half_window(costs, cap))
    unit = 1 if inputs.options.char_budget is None else CHARACTERS
    return stride_start(_marks(inputs.material, sized), earliest, latest, share.stride // unit)


def _half_window(costs: Sequence[int], cap: int) -> int:
    """Return where the window of half the budget would begin. A larger budget never shows fewer turns."""
    limit = max(1, cap // (2 * LONG_SHARE))
    return sliding_start([min(cost, limit) for cost in costs], cap // 2)


def _marks(material: Material, sized: Sequence[_Sized]) -> list[int]:
    """Return how many tokens of the thread lie before each unit."""
    before = dict(
        zip(
            (turn.id for turn in material.tail),
            accumulate((turn.token_count for turn in material.tail), initial=material.tokens_before),
            strict=False,
        )
    )
    return [before[one.unit.first.id] for one in sized]


def _start_position(material: Material, entries: Sequence[Entry]) -> int:
    """Return the position from which on no turn needs a summary."""
    if entries:
        return entries[0].unit.position
    if material.current is not None:
        return material.current.position
    return material.tail[-1].position + 1 if material.tail else material.turn_count
