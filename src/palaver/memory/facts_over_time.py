"""Facts as they were believed at a time. Pure, and apart from the rules, which take longer to load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from palaver.model import Fact


def facts_believed_at(facts: Sequence[Fact], at: datetime) -> list[Fact]:
    """Return the facts that were known at a time and not replaced by then. Facts of old versions have no time of their
    own: they count from when they began to hold."""
    learnt = {fact.id: fact.learnt or fact.valid_from for fact in facts}
    known = [fact for fact in facts if learnt[fact.id] <= at]
    held = [fact for fact in known if fact.invalidated_by is None or learnt.get(fact.invalidated_by, at) > at]
    return [replace(fact, invalidated_at=None, invalidated_by=None, valid_to=None) for fact in held]
