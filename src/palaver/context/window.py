"""Where the window of recent turns begins. Pure.

A window that slides by one turn per message changes the whole prompt each time, and a provider's prompt cache is lost.
So the start stays where it is while the window grows, and then jumps: to the end of a summary where there is one, to a
position on a coarse grid otherwise. It never depends on the query.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaver.context.pairs import Unit

GRIDS = (64, 32, 16, 8, 4, 2, 1)


def stride_start(units: Sequence[Unit], costs: Sequence[int], cap: int, boundaries: Sequence[int]) -> int:
    """The index of the first unit in the window.

    The earliest summary boundary from which everything fits under `cap`. Where no boundary fits, summaries lag behind:
    then the coarsest grid that wastes less than half of the cap.
    """
    if sum(costs) <= cap and units:
        boundaries = [*boundaries, units[0].position]
    fitting = _fitting(costs, cap)
    for boundary in sorted(set(boundaries)):
        index = _at(units, boundary)
        if index >= fitting and index < len(units):
            return index
    return _grid_start(units, costs, cap, fitting)


def sliding_start(costs: Sequence[int], cap: int, most: int | None) -> int:
    """As much as fits, and at most so many units: what most systems do."""
    start = _fitting(costs, cap)
    return start if most is None else max(start, len(costs) - most)


def _fitting(costs: Sequence[int], cap: int) -> int:
    """The earliest index from which everything fits."""
    total, start = 0, len(costs)
    while start > 0 and total + costs[start - 1] <= cap:
        start -= 1
        total += costs[start]
    return start


def _at(units: Sequence[Unit], position: int) -> int:
    return next((index for index, unit in enumerate(units) if unit.position >= position), len(units))


def _grid_start(units: Sequence[Unit], costs: Sequence[int], cap: int, fitting: int) -> int:
    if fitting >= len(units):
        return len(units)
    for grid in GRIDS:
        floor = units[fitting].position
        index = _at(units, -(-floor // grid) * grid)
        if index < len(units) and sum(costs[index:]) * 2 >= cap:
            return index
    return fitting
