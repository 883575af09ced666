"""The start of the window of recent turns. Pure.

A window that slides by one turn per message changes the whole prompt each time, and a provider's prompt cache is of no
use. So the start stays where it is while the window grows, and then jumps: to the end of a summary if there is one,
otherwise to a position on a coarse grid. It never depends on the query.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaver.context.tool_rounds import Unit

ROOM = 0.2  # share of the window for turns between its start and the end of the last summary
GRIDS = (64, 32, 16, 8, 4, 2, 1)


def stride_start(
    units: Sequence[Unit], costs: Sequence[int], cap: int, boundaries: Sequence[int], *, whole: bool
) -> int:
    """Return the index of the first unit in the window. `whole` says that the first unit begins the thread.

    The window starts at the earliest end of a summary (`boundaries`) that leaves it room to grow until the next
    compaction. The room is judged by the turns between the boundaries, not by the newest turns: so the start jumps when
    a summary is written, which changes the head of the prompt anyway, and stays where it is in between. If no boundary
    fits, because summaries lag behind, the window starts on the coarsest grid that wastes less than half of `cap`.
    """
    fitting = sliding_start(costs, cap)
    if not boundaries:
        return 0 if fitting == 0 else _grid_start(units, costs, cap, fitting)
    last = _index_at(units, max(boundaries))
    starts = sorted({_index_at(units, boundary) for boundary in boundaries} | ({0} if whole else set()))
    for index in starts:
        if fitting <= index < len(units) and sum(costs[index:last]) <= cap * ROOM:
            return index
    late = [index for index in starts if fitting <= index < len(units)]
    return late[0] if late else _grid_start(units, costs, cap, fitting)


def sliding_start(costs: Sequence[int], cap: int) -> int:
    """Return the earliest index from which everything fits: the window of most systems."""
    total, start = 0, len(costs)
    while start > 0 and total + costs[start - 1] <= cap:
        start -= 1
        total += costs[start]
    return start


def _index_at(units: Sequence[Unit], position: int) -> int:
    """Return the index of the first unit at or after a position."""
    return next((index for index, unit in enumerate(units) if unit.position >= position), len(units))


def _grid_start(units: Sequence[Unit], costs: Sequence[int], cap: int, fitting: int) -> int:
    if fitting >= len(units):
        return len(units)
    for grid in GRIDS:
        floor = units[fitting].position
        index = _index_at(units, -(-floor // grid) * grid)
        if index < len(units) and sum(costs[index:]) * 2 >= cap:
            return index
    return fitting
