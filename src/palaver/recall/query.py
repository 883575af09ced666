"""What a question says about where to look: its words, the people and the dates in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from palaver.recall.dates import When, find
from palaver.recall.terms import STOP_WORDS, terms

MAX_CHARACTERS = 2_000
MAX_STEMS = 64

# Who speaks, when nobody gave a name: no one means them by these words.
_NO_NAMES = frozenset("user assistant system tool bot agent human ai model admin".split()) | STOP_WORDS
_WORD = re.compile(r"\w+")
# In the past tense only: "what would you suggest?" is about what was not said yet.
_ASKS_ASSISTANT = re.compile(
    r"\b(?:did|have|had|were)\s+you\b"
    r"|\byou(?:['’]ve|['’]d|\s+have|\s+had)?\s+(?:just\s+|already\s+|previously\s+|originally\s+|earlier\s+)?"
    r"(?:said|told|gave|given|wrote|written|shown|made|called|put|(?:suggest|recommend|mention|explain|advis|propos|"
    r"provid|describ|list|show|shar|offer|outlin|point|warn|answer|quot|calculat|refer|promis|nam|creat|draft)e?d)\b"
    r"|\byour\s+(?:\w+\s+)?(?:advice|suggestions?|recommendations?|explanations?|answers?|proposals?|instructions?)\b",
    re.IGNORECASE,
)

_WHOLE = (
    r"(?:(?:all|our|my|the|these|of)\s+)+(?:\w+\s+)?(?:conversation|session|discussion|chat|message|question|request)s"
)
_OVERVIEW = re.compile(
    r"\b(?:summar(?:y|i[sz]e)|overview|recap|timeline|(?:the|in)\s+(?:order|sequence)\s+in\s+which|over\s+time"
    rf"|walk\s+me\s+through\s+(?:the\s+order|how\s+(?!to\b))|(?:throughout|across|over)\s+{_WHOLE})\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Query:
    """A question, taken apart. `named` are the codes of the actors named in it."""

    text: str
    stems: tuple[str, ...]
    dense_text: str  # for the embedder: with "I" for a participant's name, which would only find greetings
    named: frozenset[int] = frozenset()
    dates: tuple[When, ...] = ()
    asks_assistant: bool = False  # about something that the assistant said
    overview: bool = False  # about how things went over the whole time


def parse(text: str, actors: Sequence[str], now: datetime) -> Query:
    """Take a question apart, given the names of those who spoke. Only its beginning is looked at when it is long."""
    text = text[:MAX_CHARACTERS]
    found = _named(text, actors)
    spoken = _in_first_person(text, found.keys())
    return Query(
        text=text,
        stems=tuple(dict.fromkeys(terms(text)))[:MAX_STEMS],
        dense_text=spoken,
        named=frozenset(code for codes in found.values() for code in codes),
        dates=find(spoken, now),  # June may be somebody
        asks_assistant=_ASKS_ASSISTANT.search(text) is not None,
        overview=_OVERVIEW.search(text) is not None,
    )


def _named(text: str, actors: Sequence[str]) -> dict[str, set[int]]:
    """The words of `text` that are part of an actor's name, and whom each can mean."""
    words = {word for word in _WORD.findall(text) if word.lower() not in _NO_NAMES}
    asked = {word.lower() for word in words}
    found: dict[str, set[int]] = {}
    for code, actor in enumerate(actors):
        for name in _WORD.findall(actor):
            if name.lower() in asked and len(name) > 1 and name.isalpha():
                for word in _meant(words, name, text.islower()):
                    found.setdefault(word, set()).add(code)
    return found


def _meant(words: set[str], name: str, careless: bool) -> list[str]:
    """Which words mean the name: a rose is not Rose, unless the whole question is written small."""
    return [
        word for word in words if word.lower() == name.lower() and (word == name or careless or not word[0].islower())
    ]


def _in_first_person(text: str, names: Collection[str]) -> str:
    """`text` as the people named in it would put it: they say "I" of themselves."""
    if not names:
        return text
    name = rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b"
    full = rf"{name}(?:\s+{name})*"
    return re.sub(full, "I", re.sub(rf"{full}['’]s\b", "my", text))
