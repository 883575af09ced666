"""The limit on model calls of background work, and how work is postponed when it is reached. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from palaver.errors import InvalidInput
from palaver.model import Summary

CALLS_PER_DAY = 20  # per conversation: summaries of about 400 turns, with the summaries of those
NOT_IN_USE = "not in use yet"  # reasons why the rules wrote in place of a model
LIMIT_REACHED = "daily limit reached"
BUDGET_REACHED = "budget used up"
REASONS = (NOT_IN_USE, LIMIT_REACHED, BUDGET_REACHED)
IN_USE = 2**53 - 1  # argument of a compaction job: a context was built, and no turns need to be summarised for it


def check_limit(field: str, value: object) -> int | None:
    """Check a number of calls per day; None means no limit."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31):
        raise InvalidInput(field, "must be a whole number, 0 or more, or None for no limit")
    return value


def name_postponed(rules: str, model: str | None, reason: str) -> str:
    """Return the name of the writer of a summary that a model may write again later."""
    return f"{rules} (in place of {model}: {reason})"


def postponed_for(writer: str) -> str | None:
    """Return why no model was called for a summary that the rules wrote; None if that is not how it was written."""
    return next((reason for reason in REASONS if writer.endswith(f": {reason})")), None)


def is_postponed(writer: str) -> bool:
    """Return whether the rules wrote a summary because no model was to be called then."""
    return postponed_for(writer) is not None


def rewrite_order(summaries: Sequence[Summary]) -> list[Summary]:
    """Return the postponed summaries in the order to rewrite them: the newest first, each one after its own parts."""
    parts: dict[str, list[Summary]] = {}
    roots: list[Summary] = []
    above = {level: [one for one in summaries if one.level == level] for level in {one.level for one in summaries}}
    for one in summaries:
        whole = next((other for other in above.get(one.level + 1, ()) if _covers(other, one)), None)
        (roots if whole is None else parts.setdefault(whole.id, [])).append(one)
    order = [one for root in _newest_first(roots) for one in _parts_first(root, parts)]
    return [one for one in order if is_postponed(one.model)]


def _parts_first(summary: Summary, parts: Mapping[str, Sequence[Summary]]) -> Iterator[Summary]:
    for part in _newest_first(parts.get(summary.id, ())):
        yield from _parts_first(part, parts)
    yield summary


def _newest_first(summaries: Sequence[Summary]) -> list[Summary]:
    return sorted(summaries, key=lambda one: -one.through_seq)


def _covers(whole: Summary, part: Summary) -> bool:
    return whole.from_seq <= part.from_seq and part.through_seq <= whole.through_seq
