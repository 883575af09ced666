"""The window: the most recent turns, word for word and in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from palaver.context.costs import Entry
from palaver.context.explain import Omission
from palaver.context.inputs import Material
from palaver.context.options import Options
from palaver.context.pack.filters import split_usable
from palaver.context.pack.ledger import Ledger, PackInputs, unit_omission
from palaver.context.render import OPENING
from palaver.context.tool_rounds import Unit
from palaver.context.window import sliding_start, stride_start

LONG_SHARE = 3  # a unit may take a third of the window before it is shortened
# Compaction is requested when the turns without a summary fill this much of the window; it leaves KEPT_TAIL of it.
NEARLY_FULL, KEPT_TAIL = 0.96, 0.12


@dataclass(frozen=True, slots=True)
class Window:
    """The recent turns that are in. Turns before the position `start` are left to summaries."""

    entries: tuple[Entry, ...]
    start: int
    outgrown: int | None = None  # if compaction should run: how much it may leave without a summary


NO_WINDOW = Window((), 0)


class _Sized(NamedTuple):
    """A unit and its cost; `shortened` is set where it was too long."""

    unit: Unit
    cost: int
    shortened: Entry | None = None


def add_window(inputs: PackInputs, ledger: Ledger, past: Sequence[Unit], cap: int) -> tuple[Window, Ledger]:
    """Add the newest of the units that fit into `cap`; the policy decides where the window begins."""
    opening = inputs.count(OPENING) + inputs.overhead
    cap -= opening
    usable, unusable = split_usable(inputs.options, past)
    sized, too_long = _size_units(inputs, usable, limit=max(1, cap // LONG_SHARE))
    start = _window_start(inputs, sized, cap)
    # Units before the start are accounted for together with the summaries.
    entries = tuple(one.shortened or inputs.costs.entry(one.unit, one.cost) for one in sized[start:])
    ledger = ledger.omit([*unusable, *too_long]).add_entries(entries, "recent", "the last turns, word for word")
    if entries and entries[0].messages[0]["role"] == "assistant":
        ledger = ledger.reserve(opening)  # a provider whose threads begin with a user gets an opening line
    outgrown = _outgrown(inputs.material, sized, cap) if inputs.options.policy.strides else None
    return Window(entries, _start_position(inputs.material, entries), outgrown), ledger


def _size_units(inputs: PackInputs, found: Sequence[Unit], limit: int) -> tuple[list[_Sized], list[Omission]]:
    """Return each unit with its cost, shortened where it is too long, and those that cannot be shortened enough."""
    sized: list[_Sized] = []
    too_long: list[Omission] = []
    for unit in found:
        cost = inputs.costs.unit(unit)
        if cost <= limit or (len(unit.turns) == 1 and cost <= limit * 2):
            sized.append(_Sized(unit, cost))
        elif (shorter := inputs.costs.shorten(unit, limit)) is not None:
            sized.append(_Sized(unit, shorter.cost, shorter))
        else:
            too_long.append(unit_omission("longer than its share of the budget", unit))
    return sized, too_long


def _window_start(inputs: PackInputs, sized: Sequence[_Sized], cap: int) -> int:
    """Return the index of the first unit in the window."""
    material = inputs.material
    costs = [one.cost for one in sized]
    if inputs.options.policy.strides:
        boundaries = [summary.through_seq for summary in material.summaries if summary.level == 0]
        is_whole = material.turn_count <= len(material.tail)
        start = stride_start([one.unit for one in sized], costs, cap, boundaries, whole=is_whole)
    else:
        start = sliding_start(costs, cap)
    most = _most_units(inputs.options)
    return start if most is None else max(start, len(sized) - most)


def _most_units(options: Options) -> int | None:
    return options.recent_turns if options.recent_turns is not None else options.policy.recent_turns


def _outgrown(material: Material, sized: Sequence[_Sized], cap: int) -> int | None:
    """Request compaction before the turns without a summary, and one more exchange like the last, do not fit."""
    summarized = max((summary.through_seq for summary in material.summaries), default=0)
    costs = [one.cost for one in sized if one.unit.position >= summarized]
    is_nearly_full = sum(costs) > cap * NEARLY_FULL or sum(costs) + sum(costs[-2:]) > cap
    has_unread = material.turn_count > len(material.tail)
    return int(cap * KEPT_TAIL) if is_nearly_full or (has_unread and not material.summaries) else None


def _start_position(material: Material, entries: Sequence[Entry]) -> int:
    """Return the position from which on no turn needs a summary."""
    if entries:
        return entries[0].unit.position
    if material.current is not None:
        return material.current.position
    return material.tail[-1].position + 1 if material.tail else material.turn_count
