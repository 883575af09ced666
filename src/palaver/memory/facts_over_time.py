"""Facts as they were believed at a time, and corrections. Pure, and apart from the rules, which take longer to load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from palaver.errors import InvalidInput, NotFound
from palaver.model import Fact

BY_PERSON = "person:"  # the beginning of `Fact.by` of a correction
MAX_OBJECT = 300  # characters


def facts_believed_at(facts: Sequence[Fact], at: datetime) -> list[Fact]:
    """Return the facts that were known at a time and not replaced by then. Facts of old versions have no time of their
    own: they count from when they began to hold."""
    learnt = {fact.id: fact.learnt or fact.valid_from for fact in facts}
    known = [fact for fact in facts if learnt[fact.id] <= at]
    held = [fact for fact in known if fact.invalidated_by is None or learnt.get(fact.invalidated_by, at) > at]
    return [replace(fact, invalidated_at=None, invalidated_by=None, valid_to=None) for fact in held]


def is_correction(by: str) -> bool:
    """Return whether a person wrote a fact, by its field `by`."""
    return by.startswith(BY_PERSON)


def correctable(facts: Sequence[Fact], id: str, text: str) -> Fact:
    """Return the fact of that id, if `text` may take its place."""
    fact = next((one for one in facts if one.id == id), None)
    if fact is None:
        raise NotFound("no such fact in this conversation")
    if fact.invalidated_at is not None:
        raise InvalidInput("fact", f"was replaced by {fact.invalidated_by}: correct that one")
    same = [one for one in facts if one.invalidated_at is None and one.object == text]
    if any((one.subject, one.predicate) == (fact.subject, fact.predicate) for one in same):
        raise InvalidInput("text", "is already the value of this fact or of another one")
    return fact


def corrected(fact: Fact, id: str, text: str, author: str, now: datetime) -> Fact:
    """Return the fact that takes the place of another one: the same source and the same beginning, another object."""
    return replace(
        fact, id=id, object=text, by=f"{BY_PERSON}{author}", confidence=1.0, valid_to=None, learnt=now, created=None
    )


def clean_object(text: str) -> str:
    """Check the object of a fact that a person writes."""
    words = " ".join(text.split())
    if not words:
        raise InvalidInput("text", "must not be empty")
    if len(words) > MAX_OBJECT:
        raise InvalidInput("text", f"has {len(words):,} characters, and at most {MAX_OBJECT} are kept: shorten it")
    return words
