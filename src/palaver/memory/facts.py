"""Facts: subject, predicate, object, each with the turn that said it. Pure.

The rules take only plain statements about the speaker and what is theirs; questions, wishes, reported speech and
denials give no fact. A fact that a model proposes is kept only if the turns that it cites support it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from palaver.core.quotes import BY_MCP, is_through_mcp
from palaver.memory.facts_over_time import MAX_OBJECT, is_correction
from palaver.memory.keywords import RUN, keywords, words_of
from palaver.memory.periods import Period, find_period
from palaver.memory.quoted_items import is_quoted
from palaver.memory.standing_instructions import is_question, is_reported, own_words, sentences
from palaver.memory.working_memory import RULES, cited, parse_object, was_handed_in
from palaver.model import Fact, Turn
from palaver.recall.terms import terms

MAX_NAME = 100  # characters of a subject or a predicate
MAX_FACTS = 50  # that a model may propose in one answer


@dataclass(frozen=True, slots=True, kw_only=True)
class FactDraft:
    """A fact that is not stored yet."""

    subject: str
    predicate: str
    object: str
    source_turn: str
    confidence: float
    valid_from: datetime
    by: str = "rules"
    valid_to: datetime | None = None
    learnt: datetime | None = None  # when it was said


class Statement(Protocol):
    """Anything that says something of a subject."""

    @property
    def subject(self) -> str: ...
    @property
    def predicate(self) -> str: ...
    @property
    def object(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Reconciled:
    """The facts to store, and the stored facts that they end, each with the draft that takes its place."""

    new: list[FactDraft]
    invalidated: list[tuple[Fact, FactDraft]]
    superseded: list[tuple[FactDraft, FactDraft]] = field(default_factory=list)  # drafts that a later one replaces


# ---- by rule -------------------------------------------------------------------------------------------------------

# An object ends where the next thought begins.
_STOP = (
    r"(?=[.,;:!?()\n]|\s[-–—]\s| (?:and|but|so|because|which|who|when|where|since|if|though|although|as|than|then)\b|$)"
)
_OBJECT = rf"(?P<object>[^.,;:!?()\n]{{1,80}}?){_STOP}"
_OBJECT_BEFORE_DATE = r"(?P<object>[a-z][a-z -]{1,60}?)(?= (?:until|till|from|through|between)\b)"
# Several things at once: a fact for each.
_LIST = (
    r"(?P<list>[^.;:!?()\n]{1,120}?)(?=[.;:!?()\n]| (?:but|so|because|which|when|since|if|though)\b|, (?:but|so)\b"
    r"|,? (?:and )?(?:i|we|he|she|they|you)(?:\b|')|$)"
)
_A_BIT = re.compile(r"^(?:an?|some) (?:bit|little) (?:of )?|^(?:some|basic) (?=[A-Z])")
_BETWEEN = re.compile(r",? (?:and|or) |, ")
# A place, a date or a name may have a comma or a dot inside: "Portland, Oregon", "3 May 2024", "Dr. Okafor".
_PROPER = (
    r"(?P<object>(?-i:[A-Z])[\w.'’-]*(?:,? (?-i:[A-Z])[\w'’-]*| (?:of|de|la|the|and) (?!I\b)(?-i:[A-Z])[\w'’-]*){0,4})"
)
_DATE = rf"(?P<object>[^.;:!?()\n]{{2,40}}?){_STOP}"
_I_AM = r"\b(?:i'm|i am)(?: also| now| currently| really| still| severely| very| both)*"
_I = r"\bi(?: also| now| currently| really| still| just| mostly| usually| absolutely)*"
_OWNED = r"my (?P<owned>[\w-]+(?: [\w-]+)?)"
_KIN = (
    "dog|cat|puppy|kitten|parrot|rabbit|horse|hamster|wife|husband|son|daughter|brother|sister|girlfriend|boyfriend"
    "|partner|fiancée?|boss|manager|mother|father|mom|mum|dad|friend|best friend|roommate|colleague|teacher|grandma"
    "|grandpa"
)
_NUMBER = "(?:[0-9]+|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_STATE = (
    "vegetarian|vegan|pescatarian|diabetic|colou?r-?blind|dyslexic|left-handed|married|divorced|engaged|single|retired"
)
_INTOLERANT = "lactose|gluten|fructose|histamine"
_FOOD = "gluten|dairy|lactose|meat|pork|beef|fish|shellfish|seafood|nuts|peanuts|eggs|soy|sugar|wheat|milk"
# Things in statements of not having one: "I don't have a car" is a fact, "I don't have a clue" is not.
_OWNED_THINGS = f"{_KIN}|car|house|garden|children|kids|siblings|pets?|bike|licen[cs]e|television|tv|smartphone"
_INSTRUMENT = "cello|piano|guitar|violin|viola|drums|flute|trumpet|bass|saxophone|clarinet|harp|organ|ukulele|banjo"
_GAME = (
    "tennis|chess|football|soccer|basketball|volleyball|golf|badminton|cricket|rugby|hockey|handball|squash|padel|poker"
)
_WORN = "glasses|contact lenses|contacts|h[e]aring aids?|braces|a wig|a hijab|a prosthesis"
_LANGUAGE = r"(?-i:[A-Z])[a-z]+"
_FOR = r"(?P<subject> for [\w -]{2,40}?)?"
# The beginning of a statement about oneself; not inside "the thing that I love".
_CLAUSE = r"(?:^|[,;:—–-] |\b(?:and|but|so|because|yes|yeah|well|too|honestly|actually|also) )"
_LIKES = {
    "like": "likes", "love": "likes", "adore": "likes", "enjoy": "likes",
    "hate": "dislikes", "dislike": "dislikes", "can't stand": "dislikes", "detest": "dislikes",
    "don't like": "dislikes", "prefer": "prefers",
}  # fmt: skip

# Predicate, confidence, pattern. `object` is the object; `owned` makes the subject "actor's owned"; `subject` is one.
_RULES = tuple(
    (predicate, confidence, re.compile(pattern, re.I))
    for predicate, confidence, pattern in (
        ("name", 0.95, rf"\bmy name(?:'s| is) {_PROPER}"),
        ("is called", 0.9, rf"\b(?:call me|i go by) {_PROPER}"),
        ("name", 0.9, rf"\b{_OWNED}'s name is {_PROPER}"),
        ("is called", 0.8, rf"\b(?:everyone|everybody|people|(?:my )?friends) calls? me {_PROPER}"),
        ("name", 0.85, rf"\b(?:my|our) (?:\w+ )?(?P<owned>{_KIN}) is (?:called |named )?{_PROPER}"),
        ("name", 0.7, rf"\bmy (?:\w+ )?(?P<owned>{_KIN}),? (?:(?:mrs|mr|ms|dr)\.? )?{_PROPER}"),
        ("name", 0.85, rf"\b(?:i|we) (?:have|got) an? (?:\w+ )?(?P<owned>{_KIN}) (?:named|called) {_PROPER}"),
        ("birthday", 0.9, rf"\bmy birthday(?:'s| is)(?: on)? {_DATE}"),
        ("birthday", 0.85, rf"\b(?P<subject>(?-i:[A-Z])\w+)'s birthday is(?: on)? {_DATE}"),
        ("birthday", 0.85, rf"\b{_OWNED}'s birthday is(?: on)? {_DATE}"),
        ("birthday", 0.85, r"\bi was born (?:on|in) (?P<object>[^.;:!?()\n,]{0,20}[0-9]{4})\b"),
        ("age", 0.85, rf"{_I_AM} (?P<object>[0-9]{{1,3}}) years old"),
        ("age", 0.8, r"\bi(?:'ve)?(?: just| recently)? turned (?P<object>[0-9]{1,3})\b"),
        ("lives in", 0.9, rf"{_I} live in {_PROPER}"),
        ("lives in", 0.85, rf"\b(?:i|we)(?:'ve| have)?(?: just| recently)? (?:moved|relocated) to {_PROPER}"),
        ("lives in", 0.85, rf"\b(?:i|we)(?:'ve| have) been living in {_PROPER}"),
        ("lives in", 0.85, rf"\b(?:i'm|i am|we're|we are)(?: currently| now)? (?:based|living) in {_PROPER}"),
        ("lives in", 0.8, rf"\bmy (?:home|flat|apartment|house) is in {_PROPER}"),
        ("lives in", 0.85, rf"\b(?:i|we)(?P<past> lived) in {_PROPER}"),
        ("lives in", 0.85, rf"\b(?:i|we)(?:'ve| have) lived in {_PROPER}(?= since\b)"),
        ("comes from", 0.85, rf"\bi was raised in {_PROPER}"),
        ("comes from", 0.85, rf"(?:{_I_AM}(?: originally)? from|\bi come from|\bi grew up in) {_PROPER}"),
        ("works at", 0.9, rf"{_I} work (?:at|for) (?:a |an |the )?{_PROPER}"),
        ("works at", 0.85, rf"\bi(?:'ve| have)?(?: just| recently)? (?:joined|started at|got hired by) {_PROPER}"),
        ("works at", 0.85, rf"\b(?:i|we)(?P<past> worked) (?:at|for) (?:a |an |the )?{_PROPER}"),
        ("works at", 0.85, rf"\bi(?:'ve| have) (?:worked|been working) (?:at|for) {_PROPER}(?= since\b)"),
        ("works as", 0.85, rf"\bi(?P<past> worked) as (?:an? )?{_OBJECT_BEFORE_DATE}"),
        ("works as", 0.9, rf"(?:{_I} work|{_I_AM} working) as (?:an? )?{_OBJECT}"),
        ("works as", 0.7, r"\bi (?P<teach>teach) (?:\w+ ){0,2}(?:at|in) (?:a|an|the|my|our) "),
        ("is a", 0.6, rf"{_I_AM} an? (?P<object>(?:[\w-]+ ){{0,2}}(?:\w{{3,}}(?:er|or|ist|ian|ect|eer)|nurse|chef))\b"),
        ("is allergic to", 0.95, rf"{_I_AM} allergic to {_LIST}"),
        ("is allergic to", 0.9, rf"\bi have an? (?:\w+ )?allergy to {_LIST}"),
        ("is not allergic to", 0.85, rf"\b(?:i'm|i am) not allergic to (?!any){_OBJECT}"),
        ("cannot eat", 0.85, rf"\bi (?:can't|cannot|don't|can not) eat (?P<object>{_FOOD})\b"),
        ("is", 0.85, rf"{_I_AM}(?: an?)? (?P<object>{_STATE})(?! \w+(?:er|or|ist)\b)\b"),
        ("is", 0.85, rf"{_I_AM} (?P<object>(?:{_INTOLERANT})[ -]intolerant)\b"),
        ("is", 0.8, r"\b(?:i|we) got (?P<object>married|divorced|engaged)\b"),
        ("is not", 0.85, rf"\b(?:i'm|i am) not (?:an? )?(?P<object>{_STATE})\b"),
        ("does not have", 0.8, rf"\b(?:i|we) (?:don't|do not) have (?:an? |any )?(?P<object>{_OWNED_THINGS})\b"),
        ("is learning", 0.8, rf"{_I_AM} learning (?P<object>{_LANGUAGE})\b"),
        ("plays", 0.8, rf"{_I} play (?:the )?(?P<object>{_INSTRUMENT}|{_GAME})\b"),
        ("drives", 0.8, rf"{_I} drive an? (?P<object>(?:\w+ )?(?-i:[A-Z])[\w-]+)"),
        ("studies", 0.8, rf"{_I} study (?P<object>[a-z]+(?: [a-z]+)?)(?= at\b|[.,;!]|$)"),
        ("wears", 0.75, rf"{_I} wear (?P<object>{_WORN})\b"),
        ("pronouns", 0.9, r"\bmy pronouns are (?P<object>[a-z]+/[a-z]+(?:/[a-z]+)?)"),
        ("likes", 0.75, rf"{_I_AM} an? (?:big|huge|great)? ?fan of (?P<fan>){_OBJECT}"),
        ("has", 0.8, rf"\b(?:i|we)(?: have|'ve got) (?P<object>{_NUMBER} [\w-]+(?: [\w-]+)?){_STOP}"),
        ("has", 0.8, rf"\b(?:i|we)(?: have|'ve got) (?P<object>an? (?:\w+ )?(?:{_KIN}|baby|car|house|garden)){_STOP}"),
        ("favourite", 0.9, rf"\bmy favou?rite (?P<owned>[\w-]+(?: [\w-]+)?) (?:is|are) {_OBJECT}"),
        ("time zone", 0.9, r"\bmy time ?zone is (?P<object>[\w/+:-]+(?: [\w/+:-]+){0,2})"),
        ("speaks", 0.8, rf"{_I} speak (?=(?-i:[A-Z])){_LIST}"),
        (
            "deadline",
            0.85,
            rf"\b(?:the|our|my) deadline{_FOR}(?: is|'s| (?:has |was )?moved to)(?: on| now| by)* {_DATE}",
        ),
        (
            "budget",
            0.85,
            rf"\b(?:the|our|my) budget{_FOR} is(?: now)? (?P<object>[$€£]?[0-9][\w.,]*(?: [a-z]+)?){_STOP}",
        ),
        (
            "uses",
            0.8,
            r"\bwe(?:'re)?(?: now| currently)? (?:use|using|switched to) (?P<object>[\w.+# -]{1,40}?) for "
            rf"(?P<purpose>[\w -]{{2,40}}?){_STOP}",
        ),
        (
            "likes",
            0.7,
            rf"{_CLAUSE}i(?: really| absolutely| also| still| just)? (?P<verb>{'|'.join(_LIKES)}) {_OBJECT}",
        ),
    )
)
# Not a thing that one can like for long: it points at something else, or it is a manner of speaking.
_VAGUE = re.compile(
    r"\b(?:it|that|this|these|those|you|your|him|his|her|them|their)\b"
    r"|^(?:to$|to (?:know|see|think|hear|say|be)|how|what|when|where|every|all the|is|makes"
    r"|the (?:idea|way|fact|thought))\b",
    re.I,
)
_UNREAL = re.compile(
    r"\b(?:if|wish|used to|would(?! like)|could|might|maybe|perhaps|imagine|pretend|suppose|not sure|don't think)\b",
    re.I,
)


# Speech of others: "I live in Tokyo", said the hero.
_QUOTED_SPEECH = re.compile(r"[\"“](?=[^\"”]*\b(?:i|my|we|our|i'm)\b)[^\"”]{4,}[\"”]", re.I)


def without_sentences(draft: FactDraft) -> FactDraft:
    """Return the fact with keywords in place of every part that is longer than a name."""
    return replace(
        draft,
        subject=_brief(draft.subject),
        predicate=_brief(draft.predicate),
        object=_brief(draft.object),
    )


def _brief(text: str) -> str:
    return text if len(words_of(text)) < RUN else keywords(text, RUN - 1)


def extract(turns: Sequence[Turn]) -> list[FactDraft]:
    """Return the facts that users stated in `turns`, in order, repeated only if another held in between."""
    found: list[FactDraft] = []
    holds: dict[tuple[str, ...], tuple[str, ...]] = {}
    for turn in turns:
        if turn.role == "user" and not was_handed_in(turn.metadata) and turn.status == "complete":
            for draft in _stated(turn):
                key = (*identity(draft), "is over") if is_over(draft) else identity(draft)
                place = key if is_over(draft) else slot_of(draft) or key
                if holds.get(place) != key:
                    found.append(draft)
                holds[place] = key
    return found


def _stated(turn: Turn) -> Iterator[FactDraft]:
    for sentence in sentences(own_words(turn.text)):
        if is_question(sentence) or is_reported(sentence) or _UNREAL.search(sentence):
            continue
        plain = _QUOTED_SPEECH.sub(" ", sentence[:1_000])
        period = find_period(plain, turn.created)
        for predicate, confidence, pattern in _RULES:
            for match in pattern.finditer(plain):
                parts = match.groupdict()
                if parts.get("past") and not period.is_over(turn.created):
                    continue  # "I lived in Berlin": nobody knows until when
                when = period if predicate in LASTING else Period()
                for object in _objects(parts):
                    if predicate == "likes" and _VAGUE.search(object):
                        continue
                    yield FactDraft(
                        subject=_subject(turn.actor, predicate, parts),
                        predicate=_predicate(predicate, parts),
                        object=object,
                        source_turn=turn.id,
                        confidence=confidence,
                        valid_from=when.first or min(turn.created, when.last or turn.created),
                        by=_noted_by(RULES, turn),
                        valid_to=when.last,
                        learnt=turn.created,
                    )


def _objects(parts: Mapping[str, str | None]) -> list[str]:
    listed = parts.get("list")
    if parts.get("teach"):
        return ["teacher"]
    found = _BETWEEN.split(listed) if listed else [parts["object"] or ""]
    plain = (_A_BIT.sub("", object.strip(" '\"“”-").rstrip(".,")) for object in found)
    return [object for object in plain if object]


def _subject(actor: str, predicate: str, parts: Mapping[str, str | None]) -> str:
    if predicate in ("deadline", "budget"):
        return predicate + (parts["subject"] or "").rstrip()
    if predicate == "uses":
        return "we"
    if parts.get("owned") and predicate != "favourite":
        return f"{actor}'s {parts['owned']}"
    return parts.get("subject") or actor


def _predicate(predicate: str, parts: Mapping[str, str | None]) -> str:
    if predicate in ("deadline", "budget"):
        return "is"
    if predicate == "uses":
        return f"use for {parts['purpose']}"
    if predicate == "favourite":
        return f"favourite {parts['owned']}"
    return _LIKES[(parts["verb"] or "").lower()] if predicate == "likes" and parts.get("verb") else predicate


# ---- against what is known -----------------------------------------------------------------------------------------

# Predicates with one value per subject: the newest holds.
SINGLE_VALUED = frozenset(
    {"name", "is called", "birthday", "age", "lives in", "works at", "works as", "comes from", "time zone", "pronouns"}
)


# Predicates whose statement may say from when until when it holds.
LASTING = frozenset(
    {"lives in", "works at", "works as", "has", "plays", "studies", "drives", "is learning", "uses", "is", "is a"}
)


def reconcile(existing: Sequence[Fact], drafts: Sequence[FactDraft]) -> Reconciled:
    """Return the drafts that are new, and the existing facts that they end.

    Drafts that are known already are dropped. Where a subject has one value at a time, the newer ends the older, even
    between two drafts; a draft that is older than the stored fact is dropped. All others accumulate. Facts that were
    invalidated before do not count. A person's correction is not ended, and what it corrected is not read again from
    the turns before it.
    """
    wanted = [draft for draft in drafts if not _is_corrected(existing, draft)]
    valid = [fact for fact in existing if fact.invalidated_at is None]
    over = _reconcile_past(valid, [draft for draft in wanted if is_over(draft)])
    current = _reconcile_current(
        [fact for fact in valid if not is_over(fact)], [draft for draft in wanted if not is_over(draft)]
    )
    return Reconciled([*over.new, *current.new], [*over.invalidated, *current.invalidated], current.superseded)


def _said(fact: Fact | FactDraft) -> datetime:
    return fact.learnt or fact.valid_from


def is_over(fact: Fact | FactDraft) -> bool:
    """Return whether a statement says of itself that it no longer holds."""
    return fact.valid_to is not None and fact.valid_to <= _said(fact)


def _reconcile_past(valid: Sequence[Fact], drafts: Sequence[FactDraft]) -> Reconciled:
    """Return statements about the past. Each ends the same statement without an end, and excludes no other."""
    new: dict[tuple[str, ...], FactDraft] = {}
    ended: list[tuple[Fact, FactDraft]] = []
    for draft in drafts:
        same = [fact for fact in valid if identity(fact) == identity(draft)]
        if identity(draft) in new or any(is_over(fact) for fact in same):
            continue
        begins = min([fact.valid_from for fact in same], default=draft.valid_from)
        draft = replace(draft, valid_from=min(begins, draft.valid_from))
        new[identity(draft)] = draft
        ended += [(fact, draft) for fact in same]
    return Reconciled(list(new.values()), ended)


def _reconcile_current(valid: Sequence[Fact], drafts: Sequence[FactDraft]) -> Reconciled:
    known = {identity(fact) for fact in valid}
    new: list[FactDraft] = []
    superseded: list[tuple[FactDraft, FactDraft]] = []
    for draft in sorted(drafts, key=_said):
        slot = slot_of(draft)
        newer = [fact for fact in valid if slot and slot_of(fact) == slot and _said(fact) > _said(draft)]
        if newer or any(identity(other) == identity(draft) for other in new):
            continue
        older = [other for other in new if slot and slot_of(other) == slot]
        new = [other for other in new if other not in older]
        superseded += [(other, draft) for other in older]
        if identity(draft) not in known:
            new.append(draft)
    ends = [(fact, draft) for draft in new for fact in valid if slot_of(draft) and slot_of(fact) == slot_of(draft)]
    held = {identity(draft) for draft in new}  # after moving back, the place is one fact again
    return Reconciled(new, ends, [(old, draft) for old, draft in superseded if identity(old) not in held])


def _is_corrected(existing: Sequence[Fact], draft: FactDraft) -> bool:
    """Return whether a person's correction stands against a draft."""
    corrections = {fact.id: fact for fact in existing if is_correction(fact.by)}
    slot, said = slot_of(draft), _said(draft)
    held = (fact for fact in corrections.values() if fact.invalidated_at is None)
    undone = ((fact, corrections.get(fact.invalidated_by or "")) for fact in existing)
    return any(slot is not None and slot_of(fact) == slot for fact in held) or any(
        by is not None and identity(fact) == identity(draft) and said <= _said(by) for fact, by in undone
    )


def identity(fact: Statement) -> tuple[str, ...]:
    """Return a key that is equal for facts that differ only in spelling."""
    return (fact.subject.casefold(), fact.predicate.casefold(), *_stems(fact.object))


def slot_of(fact: Statement) -> tuple[str, ...] | None:
    """Return a key that is equal for facts of which only one can hold; None for a fact that excludes no other."""
    subject, predicate = fact.subject.casefold(), fact.predicate.casefold()
    if predicate in SINGLE_VALUED or predicate.startswith(("favourite ", "use for ")):
        return (subject, predicate)
    if predicate == "is" and subject.startswith(("deadline", "budget")):
        return (subject, predicate)
    if predicate in ("likes", "dislikes"):
        return (subject, "likes or not", *_stems(fact.object))
    if predicate in ("is", "is not") and not subject.startswith(("deadline", "budget")):
        return (subject, "is or not", *_stems(fact.object))
    if predicate in ("is allergic to", "is not allergic to"):
        return (subject, "is allergic or not", *_stems(fact.object))
    if predicate in ("has", "does not have"):  # three cats become four cats
        return (subject, "has or not", *(_stems(fact.object)[1:] if predicate == "has" else _stems(fact.object)))
    return None


def _stems(text: str) -> list[str]:
    return terms(text) or [text.casefold()]


# ---- with a model --------------------------------------------------------------------------------------------------

FACTS_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "facts": {
            "type": "array",
            "maxItems": MAX_FACTS,
            "items": {
                "type": "object",
                "properties": {
                    "subject": {"type": "string", "maxLength": MAX_NAME},
                    "predicate": {"type": "string", "maxLength": MAX_NAME},
                    "object": {"type": "string", "maxLength": MAX_OBJECT},
                    "confidence": {"type": "number", "minimum": 0, "maximum": 1},
                    "turn_ids": {"type": "array", "items": {"type": "string"}, "minItems": 1},
                },
                "required": ["subject", "predicate", "object", "confidence", "turn_ids"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["facts"],
    "additionalProperties": False,
}


def validate_model_facts(
    raw: str | Mapping[str, Any], turns: Sequence[Turn], *, by: str = "model", quotes: bool = False
) -> list[FactDraft]:
    """Return the facts that a model proposed and that the turns support; drop the others.

    A fact must cite turns that were read, all of them existing; one of them, by a user or an assistant, must contain
    every stem of the object. Its subject must be the actor of a turn, or something that a turn names.
    With `quotes`, it must also quote one of them. Raises InvalidInput when the answer is not an object at all, so that
    the caller can ask again.
    """
    proposed = parse_object(raw, "facts").get("facts")
    known = {turn.id: turn for turn in turns}
    named = {stem for turn in turns for stem in terms(f"{turn.actor} {turn.text}")}
    found: dict[tuple[str, ...], FactDraft] = {}
    for item in proposed[:MAX_FACTS] if isinstance(proposed, list) else ():
        draft = _checked(item, known, named, by)
        if draft and (not quotes or is_quoted(item, [turn.text for turn in cited(item, known)])):
            found.setdefault(identity(draft), draft)
    return list(found.values())


def count_dropped_facts(raw: str | Mapping[str, Any], kept: Sequence[FactDraft]) -> int:
    """Return how many of the proposed facts were not kept."""
    proposed = parse_object(raw, "facts").get("facts")
    return len(proposed) - len(kept) if isinstance(proposed, list) else 0


def _checked(item: Any, known: Mapping[str, Turn], named: set[str], by: str) -> FactDraft | None:
    sources = cited(item, known)
    if not sources or not all(_is_text(item.get(key), limit) for key, limit in _LIMITS):
        return None
    wanted = set(terms(item["object"]))
    source = next(
        (turn for turn in sources if wanted and turn.role in _WITNESSES and wanted <= set(terms(turn.text))), None
    )
    if source is None:
        return None
    subject = _flat(item["subject"])
    if subject.casefold() in ("user", "the user", "i", "me"):
        subject = source.actor
    elif not set(terms(subject)) <= named:
        return None
    return FactDraft(
        subject=subject,
        predicate=_flat(item["predicate"]),
        object=_flat(item["object"]),
        source_turn=source.id,
        confidence=_confidence(item.get("confidence")),
        valid_from=source.created,
        by=_noted_by(by, source),
        learnt=source.created,
    )


def _noted_by(by: str, source: Turn) -> str:
    return by + BY_MCP if is_through_mcp(source.metadata) else by


_LIMITS = (("subject", MAX_NAME), ("predicate", MAX_NAME), ("object", MAX_OBJECT))
_WITNESSES = ("user", "assistant")


def _is_text(value: Any, limit: int) -> bool:
    return isinstance(value, str) and bool(value.strip()) and len(value) <= limit


def _confidence(value: Any) -> float:
    """Return a confidence between 0 and 1; 0.5 when the model gave none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return 0.5
    return float(min(1.0, max(0.0, value)))


def _flat(text: str) -> str:
    return " ".join(text.split())
