"""A question taken apart: its words, and the people and dates that it names. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from palaver.recall.dates import When, find_dates
from palaver.recall.foreign_cues import cues_of
from palaver.recall.languages import Language, recognise
from palaver.recall.terms import STOP_WORDS, AskedTerm, asked_terms, terms

MAX_CHARACTERS = 2_000
MAX_STEMS = 64

# Default names of speakers: a question that contains such a word does not mean them.
_NO_NAMES = frozenset("user assistant system tool bot agent human ai model admin".split()) | STOP_WORDS
_WORD = re.compile(r"\w+")
# In the past tense only: "what would you suggest?" does not ask about an earlier turn.
_ASKS_ASSISTANT = re.compile(
    r"\b(?:did|have|had|were)\s+you\b"
    r"|\byou(?:['’]ve|['’]d|\s+have|\s+had)?\s+(?:just\s+|already\s+|previously\s+|originally\s+|earlier\s+)?"
    r"(?:said|told|gave|given|wrote|written|shown|made|called|put|(?:suggest|recommend|mention|explain|advis|propos|"
    r"provid|describ|list|show|shar|offer|outlin|point|warn|answer|quot|calculat|refer|promis|nam|creat|draft)e?d)\b"
    r"|\byour\s+(?:\w+\s+)?(?:advice|suggestions?|recommendations?|explanations?|answers?|proposals?|instructions?)\b",
    re.IGNORECASE,
)

_RECOLLECTS = re.compile(r"\b(?:did|have|had)\s+(?:i|we)\b", re.IGNORECASE)
# At the end: a question in the middle of a longer message is often not what the message is about.
_QUESTION = re.compile(r"[?\u037e\u061f\uff1f][\s\"'\u201d\u2019)\]]*$")

_WHOLE = (
    r"(?:(?:all|our|my|the|these|of)\s+)+(?:\w+\s+)?(?:conversation|session|discussion|chat|message|question|request)s"
)
_OVERVIEW = re.compile(
    r"\b(?:summar(?:y|i[sz]e)|overview|recap|timeline|(?:the|in)\s+(?:order|sequence)\s+in\s+which|over\s+time"
    rf"|walk\s+me\s+through\s+(?:the\s+order|how\s+(?!to\b))|(?:throughout|across|over)\s+{_WHOLE})\b",
    re.IGNORECASE,
)


# A question for several things: a number, an order, or "what" and "which" before a plural.
_COLLECTS = re.compile(
    r"\b(?:how\s+(?:many|often|much)|in\s+(?:which|what)\s+order|list|name\s+(?:the|all|some)"
    r"|(?:what|which)\s+(?:(?:are|were|kinds?|types?|sorts?|different|other|all|the|some|specific|new)\s+)*(?:of\s+)?"
    r"(?:\w+\s+){0,2}?\w{2,}s\b)",
    re.IGNORECASE,
)

# English. Asks what happened.
_PAST = re.compile(r"\b(?:did|has|have|had|was|were)\b", re.IGNORECASE)

# Words of a request for an overview that do not say of what.
_TALK = re.compile(
    r"\b(?:please|give|show|write|make|need|want|like|let|short|brief|quick|whole|entire|complete|full|everything|anything|"
    r"thing\w*|far|now|today|here|summar\w*|sum|overview|recap|timeline|order|sequence|over\s+time|walk|through\w*|across|"
    r"(?:conversation|session|discussion|chat|message|question|request|thread|topic)s?|talk\w*|discuss\w*|chat\w*|said)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Query:
    """A question, taken apart. `named` are the codes of the actors that it names."""

    text: str
    stems: tuple[str, ...]
    dense_text: str  # for the embedder: with "I" for a participant's name, which would only find greetings
    named: frozenset[int] = frozenset()
    dates: tuple[When, ...] = ()
    asks_assistant: bool = False  # about something that the assistant said
    overview: bool = False  # about how things went over the whole time
    is_question: bool = False  # as opposed to a statement or a request
    recollects: bool = False  # asks what the speaker said or did
    collects: bool = False  # asks for several things: a list, a number, an order
    past: bool = False  # asks what happened
    topic: bool = True  # names a topic; "sum up our conversation" does not
    language: Language | None = "en"  # None: not clear
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # other stems that mean the same word
    words_first: bool = False  # the embedder does not know its language: words count more than meaning

    @property
    def is_english(self) -> bool:
        """Whether it is English, or nothing says that it is not."""
        return self.language in ("en", None)

    @property
    def all_stems(self) -> tuple[str, ...]:
        """The stems, and the others that stand for them."""
        return tuple(dict.fromkeys((*self.stems, *(other for others in self.others.values() for other in others))))


def parse(text: str, actors: Sequence[str], now: datetime) -> Query:
    """Take a question apart, given the names of the speakers. Only the beginning of a long question is used."""
    text = text[:MAX_CHARACTERS]
    found = _find_actors(text, actors)
    in_first_person = _in_first_person(text, found.keys())
    language = recognise(text)
    cues, asked = cues_of(language), asked_terms(text, language)[:MAX_STEMS]
    is_question = _QUESTION.search(text) is not None
    overview = bool(_OVERVIEW.search(text) or (cues and cues.overview.search(text)))
    collects = bool(_COLLECTS.search(text) or (cues and cues.collects.search(text)))
    return Query(
        text=text,
        stems=tuple(one.stem for one in asked),
        dense_text=in_first_person,
        named=frozenset(code for codes in found.values() for code in codes),
        dates=find_dates(in_first_person, now, language),  # June may be a participant
        asks_assistant=bool(_ASKS_ASSISTANT.search(text) or (cues and cues.asks_assistant.search(text))),
        overview=overview,
        is_question=is_question,
        recollects=bool(_RECOLLECTS.search(text) or (cues and cues.recollects.search(text))),
        collects=is_question and not overview and collects,
        past=is_question and not overview and language in ("en", None) and _PAST.search(text) is not None,
        topic=_has_topic(text, language),
        language=language,
        others=_others(asked),
    )


def _others(asked: Sequence[AskedTerm]) -> dict[str, tuple[str, ...]]:
    """Return other stems of the first words, as far as there is room for them."""
    room = MAX_STEMS - len(asked)
    found = {}
    for stem, others in asked:
        room -= len(others)
        if room < 0:
            break
        if others:
            found[stem] = others
    return found


def _has_topic(text: str, language: Language | None) -> bool:
    cues = cues_of(language)
    if cues is None:
        return bool(terms(_TALK.sub(" ", text)))
    return bool(asked_terms(cues.talk.sub(" ", text), language))


def _find_actors(text: str, actors: Sequence[str]) -> dict[str, set[int]]:
    """Return the words of `text` that are part of an actor's name, and the codes of the actors they can mean."""
    words = {word for word in _WORD.findall(text) if word.lower() not in _NO_NAMES}
    asked = {word.lower() for word in words}
    found: dict[str, set[int]] = {}
    for code, actor in enumerate(actors):
        for name in _WORD.findall(actor):
            if name.lower() in asked and len(name) > 1 and name.isalpha():
                for word in _words_for(name, words, ignore_case=text.islower()):
                    found.setdefault(word, set()).add(code)
    return found


def _words_for(name: str, words: set[str], *, ignore_case: bool) -> list[str]:
    """Return the words that mean the name: a rose is not Rose, unless the whole question is in lower case."""
    same = [word for word in words if word.lower() == name.lower()]
    return [word for word in same if word == name or ignore_case or not word[0].islower()]


def _in_first_person(text: str, names: Collection[str]) -> str:
    """Replace the names of participants with "I" and "my", because that is how they refer to themselves."""
    if not names:
        return text
    name = rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b"
    full = rf"{name}(?:\s+{name})*"
    return re.sub(full, "I", re.sub(rf"{full}['’]s\b", "my", text))
