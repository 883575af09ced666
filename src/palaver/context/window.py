"""The start of the window of recent turns. Pure.

A window that slides by one turn per message changes the whole prompt each time, and a provider's prompt cache is of no
use. So the start stays where it is while the window grows, and then jumps by a stride. It depends on nothing but the
thread and the size of the window: not on the question, not on summaries, and not on other contexts.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

REFINEMENTS = 6  # how often the stride is halved when turns are long


def stride_start(marks: Sequence[int], earliest: int, latest: int, stride: int) -> int:
    """Return an index between `earliest` and `latest` that stays the same while the thread grows.

    `marks[i]` is the number of tokens in the thread before unit `i`. The start is the first unit behind a multiple of
    the stride. Where long turns leave none of those between the two limits, the stride is halved.
    """
    for _ in range(REFINEMENTS):
        if stride < 1:
            break
        line = marks[earliest - 1] // stride + 1 if earliest else -(-marks[0] // stride)
        index = bisect_left(marks, line * stride, earliest)
        if index <= latest:
            return index
        stride //= 2
    return earliest


def sliding_start(costs: Sequence[int], cap: int) -> int:
    """Return the earliest index from which everything fits: the window of most systems."""
    total, start = 0, len(costs)
    while start > 0 and total + costs[start - 1] <= cap:
        start -= 1
        total += costs[start]
    return start


def latest_start(costs: Sequence[int], least: int) -> int:
    """Return the latest index from which the rest still costs at least `least`."""
    total, start = 0, len(costs)
    while start > 0 and total < least:
        start -= 1
        total += costs[start]
    return start
