"""Memory of a subject: items from turns, by the trust in their origin, against what is known. Pure.

Only what a person said in a user turn of their own is approved by itself. Statements by another participant, an
assistant, a tool, a file or a client are proposed, and so are those that contradict a correction by a person. Text that
Palaver put into a prompt, and sentences in which an assistant repeats what is known, teach nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Literal

from msgspec import structs

from palaver.core.quotes import is_through_mcp, without_blocks
from palaver.memory.facts import FactDraft, Statement, extract, identity, slot_of
from palaver.memory.standing_instructions import is_question, is_reported, own_words, sentences, standing
from palaver.memory.working_memory import RULES, are_own_words, find_notes, note_key, was_handed_in
from palaver.model import ItemOrigin, ItemSource, ItemStatus, MemoryItem, Turn
from palaver.recall.terms import terms

Review = Literal["auto", "review", "off"]
REVIEWS: tuple[Review, ...] = ("auto", "review", "off")
KINDS = ("fact", "preference", "instruction", "goal")
MAX_TEXT = 300  # characters of an object
KEPT_STEMS = 16_384  # texts
MAX_FILE = 20_000  # characters of a file that are read for the memory of persons
FILE_ITEMS = 20  # that one file may propose
ALIKE = 0.75  # share of common stems from which on two statements with the same predicate say the same
PREFERENCES = ("likes", "dislikes", "prefers", "favourite")
OF_THE_WORK = ("we", "deadline", "budget")  # subjects of facts that are not about the speaker


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemDraft:
    """An item that is not stored yet, with the turn that says it."""

    kind: str
    subject: str
    predicate: str
    object: str
    confidence: float
    valid_from: datetime | None
    learnt_at: datetime
    source: ItemSource | None
    valid_to: datetime | None = None
    origin: ItemOrigin = "said"
    status: ItemStatus = "approved"
    said_by: str | None = None
    by: str = RULES


@dataclass(slots=True)
class ItemChanges:
    """Changes to store: new items, those that end (with the time and the successor), and new sources of stored ones."""

    new: dict[str, MemoryItem] = field(default_factory=dict)
    ended: list[tuple[str, datetime, str]] = field(default_factory=list)
    sources: list[tuple[str, ItemSource]] = field(default_factory=list)
    approved: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.new or self.ended or self.sources or self.approved)


# ---- from turns ----------------------------------------------------------------------------------------------------


def drafts_from_turn(turn: Turn, person: str, people: Sequence[str], review: Review) -> list[ItemDraft]:
    """Return what a turn says of a person who owns the conversation or speaks in it.

    `people` are all persons of the conversation: with several, "you" in an answer may be any of them.
    """
    if turn.status != "complete" or was_handed_in(turn.metadata):
        return []
    clean = structs.replace(turn, content=without_blocks(turn.text))
    if turn.role == "user" and turn.actor == person:
        if not is_through_mcp(turn.metadata):
            return list(_own_statements(clean, person))
        return _proposed(_own_statements(clean, person), "mcp", review)
    if turn.role == "user":
        return _proposed(_reported_statements(clean, person), "reported", review)
    if turn.role == "assistant":
        text = _as_first_person(clean.text) if len(people) == 1 else ""
        told = structs.replace(clean, content=text, role="user", actor=person)
        found = [*(_facts(told, person) if text else ()), *_reported_statements(clean, person)]
        return _proposed(found, "assistant", review)
    if turn.role == "tool":
        said = "\n".join(str(result.content) for result in turn.tool_results)
        whole = structs.replace(clean, content=f"{clean.text}\n{said}")
        return _proposed(_reported_statements(whole, person), "tool", review)
    return []


def drafts_from_file(turn: Turn, text: str, person: str, review: Review) -> list[ItemDraft]:
    """Return what the text of an attached file says of a person by name.

    `turn` is the one that has the file. A sentence in the first person may be anybody's, so it says nothing.
    """
    if turn.status != "complete" or was_handed_in(turn.metadata):
        return []
    read = structs.replace(turn, content=without_blocks(text[:MAX_FILE]), role="tool")
    return _proposed(_reported_statements(read, person), "file", review)[:FILE_ITEMS]


def _proposed(drafts: Iterable[ItemDraft], origin: ItemOrigin, review: Review) -> list[ItemDraft]:
    """Return drafts of an origin that is not trusted, as the setting says. A wish of another is not an instruction."""
    if review == "off":
        return []
    status: ItemStatus = "approved" if review == "auto" else "proposed"
    return [replace(one, origin=origin, status=status) for one in drafts if one.kind != "instruction"]


def _own_statements(turn: Turn, person: str) -> Iterator[ItemDraft]:
    yield from _facts(turn, person)
    for wish in standing(turn.text):
        if wish.kind == "instruction":
            yield _noted(turn, "instruction", person, wish.text)
    for name, text in find_notes(turn):
        if name == "goals":
            yield _noted(turn, "goal", person, plain_goal(text))


# Where a goal ends and the story behind it begins, and a detail with a figure ("with 8 cards", "from 65 %").
_BEHIND_GOAL = re.compile(
    r"(?:,? (?:and|but|so) (?:i|we|it|now|currently)\b|, (?:but|so|especially|i|we|it)\b| [-–—] |;"
    r"|,? (?:which|because|since|considering|so that)\b).*",
    re.I | re.S,
)
_DETAIL = re.compile(r" (?:with|of|from|at|on|for)(?: [\w'’-]+){0,2} [$€£]?\d.*", re.S)
SHORTEST_GOAL = 5  # words


def plain_goal(text: str) -> str:
    """Return a goal without its story and its figures: those change, and a goal is not where they are corrected."""
    for pattern in (_BEHIND_GOAL, _DETAIL):
        shorter = pattern.sub("", text).rstrip(" .,;:") + "."
        if shorter != text and len(shorter.split()) >= SHORTEST_GOAL:
            text = shorter
    return text


def _facts(turn: Turn, person: str) -> Iterator[ItemDraft]:
    for fact in extract([turn]):
        if fact.subject.split()[0] in OF_THE_WORK:
            continue
        yield ItemDraft(
            kind="preference" if fact.predicate.startswith(PREFERENCES) else "fact",
            subject=fact.subject,
            predicate=fact.predicate,
            object=fact.object[:MAX_TEXT],
            confidence=fact.confidence,
            valid_from=None if fact.valid_from == fact.valid_to else fact.valid_from,  # only the end is known
            valid_to=fact.valid_to,
            learnt_at=turn.created,
            source=source_of(turn),
        )


def drafts_from_fact(fact: FactDraft, turn: Turn, person: str) -> ItemDraft | None:
    """Return a fact that a model found as an item of a person: approved only if that person said it of themselves."""
    about, name = fact.subject.casefold(), person.casefold()
    if about != name and not about.startswith(f"{name}'s "):
        return None
    is_own = turn.role == "user" and turn.actor == person and are_own_words(turn.metadata)
    origin: ItemOrigin = "said" if is_own else "assistant" if turn.role == "assistant" else "reported"
    return ItemDraft(
        kind="preference" if fact.predicate.startswith(PREFERENCES) else "fact",
        subject=person if about == name else fact.subject,
        predicate=fact.predicate,
        object=fact.object[:MAX_TEXT],
        confidence=fact.confidence,
        valid_from=fact.valid_from,
        valid_to=fact.valid_to,
        learnt_at=turn.created,
        source=source_of(turn),
        origin=origin,
        status="approved" if is_own else "proposed",
        said_by=None if is_own or turn.role != "user" else turn.actor,
        by=fact.by,
    )


def _noted(turn: Turn, kind: str, person: str, text: str) -> ItemDraft:
    return ItemDraft(
        kind=kind,
        subject=person,
        predicate="",
        object=text[:MAX_TEXT],
        confidence=0.8,
        valid_from=turn.created,
        learnt_at=turn.created,
        source=source_of(turn),
    )


def statements_of(draft: ItemDraft) -> ItemDraft:
    """Return a remembered sentence as a fact with a predicate, if the rules can read it as one."""
    turn = Turn(
        id="", conversation="", seq=0, position=0, role="user", actor=draft.subject, content=draft.object,
        created=draft.learnt_at,
    )  # fmt: skip
    found = list(_facts(turn, draft.subject))
    if len(found) != 1:
        return draft
    (one,) = found
    return replace(draft, kind=one.kind, subject=one.subject, predicate=one.predicate, object=one.object)


def source_of(turn: Turn) -> ItemSource:
    """Return a turn as the source of an item."""
    return ItemSource(conversation=turn.conversation, turn=turn.id, said=turn.created)


# Statements about a person who is named: "Ada lives in Rome", "Ada's birthday is 3 May".
_THIRD = (
    (r"lives? in", "live in"), (r"works? (?:at|for)", "work at"), (r"works? as", "work as"),
    (r"(?:is|are) allergic to", "am allergic to"), (r"(?:is|are)", "am"), (r"(?:has|have)", "have"),
    (r"(?:likes|loves|enjoys|hates|dislikes|prefers)", ""), (r"speaks?", "speak"),
    (r"(?:moved|relocated) to", "moved to"),
)  # fmt: skip


def _reported_statements(turn: Turn, person: str) -> Iterator[ItemDraft]:
    """Return what a text says of a person by name, in the third person."""
    name = re.escape(person)
    pattern = re.compile(rf"(?:^|(?<=[\s,;(\"]))(?:{name}|the user)(?P<of>'s)? (?P<rest>[^.!?\n]{{2,200}})", re.I)
    speaker = None if turn.role != "user" else turn.actor
    for sentence in sentences(own_words(turn.text)):
        found = None if is_question(sentence) else pattern.search(sentence)
        if found is None:
            continue
        text = f"My {found['rest']}." if found["of"] else _first_person(found["rest"])
        told = structs.replace(turn, content=text, role="user", actor=person, metadata={})
        for draft in _facts(told, person) if text else ():
            yield replace(draft, said_by=speaker, confidence=draft.confidence * 0.7, source=source_of(turn))


def _first_person(rest: str) -> str:
    """Return a statement about a person as if that person made it: the rules read that."""
    for theirs, mine in _THIRD:
        found = re.match(rf"{theirs}\b", rest, re.I)
        if found:
            verb = mine or found[0].lower().removesuffix("s")
            return f"I {verb}{rest[found.end() :]}."
    return ""


_YOURS = ((r"\byou(?:'re| are)\b", "I am"), (r"\byou've\b", "I've"), (r"\byour\b", "my"), (r"\byou\b", "I"))


def _as_first_person(text: str) -> str:
    """Return an answer's sentences about "you" as if the person had said them."""
    kept = [one for one in sentences(own_words(text)) if re.search(r"\byou", one, re.I) and not is_reported(one)]
    said = " ".join(one for one in kept if not is_question(one))
    for theirs, mine in _YOURS:
        said = re.sub(theirs, mine, said, flags=re.I)
    return said


# ---- against what is known -----------------------------------------------------------------------------------------


def reconcile(existing: Sequence[MemoryItem], drafts: Iterable[ItemDraft], new_id: Callable[[], str]) -> ItemChanges:
    """Return what the drafts change. `existing` are all items, ended ones included.

    A draft that repeats a known item adds its source. Where only one value can be true, the later statement ends the
    earlier one, whatever the order in which they are read. A proposal ends nothing, and a draft that contradicts an
    item that a person wrote is a proposal. An assistant, a tool or another participant that repeats a known item, even
    an ended one, teaches nothing.
    """
    changes = ItemChanges()
    known: dict[str, MemoryItem] = {item.id: item for item in existing}
    for draft in sorted(drafts, key=lambda one: one.learnt_at):
        _apply(changes, known, draft, new_id)
    return changes


def _apply(changes: ItemChanges, known: dict[str, MemoryItem], draft: ItemDraft, new_id: Callable[[], str]) -> None:
    same = [item for item in known.values() if says_the_same(item, draft)]
    holding = next((item for item in same if item.ended_at is None), None)
    if holding is not None and draft.origin == "said" and _is_over(draft) and not _is_over(holding):
        _end(changes, known, holding, draft, new_id())
        return
    if draft.origin != "said" and same:
        return
    if holding is not None:
        _confirm(changes, known, holding, draft)
        return
    rivals = [item for item in known.values() if _excludes(item, draft)]
    if any(item.origin == "manual" for item in rivals):
        draft = replace(draft, status="proposed")
    item = _item(draft, new_id())
    known[item.id] = changes.new[item.id] = item
    if draft.status == "approved":
        _settle(changes, known, item, rivals)


def _end(changes: ItemChanges, known: dict[str, MemoryItem], item: MemoryItem, draft: ItemDraft, id: str) -> None:
    """Put a statement that says until when it held in the place of the same one without an end."""
    known_from = [at for at in (item.valid_from, draft.valid_from) if at and draft.valid_to and at < draft.valid_to]
    begins = min(known_from, default=None)
    status = "proposed" if item.origin == "manual" else draft.status
    new = replace(_item(draft, id), valid_from=begins, status=status)
    known[id] = changes.new[id] = new
    if status == "approved":
        known[item.id] = replace(item, ended_at=draft.learnt_at, ended_by=id)
        changes.ended.append((item.id, draft.learnt_at, id))


def _is_over(item: MemoryItem | ItemDraft) -> bool:
    """Return whether a statement says of itself that it no longer holds."""
    return item.valid_to is not None and item.valid_to <= item.learnt_at


def _confirm(changes: ItemChanges, known: dict[str, MemoryItem], item: MemoryItem, draft: ItemDraft) -> None:
    """Add a source to an item; what was proposed is approved once the person says it."""
    if draft.source is not None and all(one.turn != draft.source.turn for one in item.sources):
        whole = replace(item, sources=(*item.sources, draft.source))
        known[item.id] = whole
        if item.id in changes.new:
            changes.new[item.id] = whole
        else:
            changes.sources.append((item.id, draft.source))
    if item.status == "proposed" and draft.status == "approved" and item.id not in changes.new:
        changes.approved.append(item.id)


def _settle(changes: ItemChanges, known: dict[str, MemoryItem], item: MemoryItem, rivals: Sequence[MemoryItem]) -> None:
    """End the earlier of two items that exclude each other."""
    for rival in rivals:
        if rival.status != "approved":
            continue
        first, last = (rival, item) if rival.learnt_at <= item.learnt_at else (item, rival)
        if known[first.id].ended_at is None:
            ended = replace(known[first.id], ended_at=last.learnt_at, ended_by=last.id)
            known[first.id] = ended
            changes.ended.append((first.id, last.learnt_at, last.id))


def says_the_same(item: MemoryItem, draft: ItemDraft) -> bool:
    """Return whether an item says what a draft says, in other words or spelling at most."""
    if item.said_by != draft.said_by and draft.origin == "said":
        return False
    if item.predicate == "" or draft.predicate == "":
        return item.predicate == draft.predicate and item.kind == draft.kind and _alike(item.object, draft.object)
    if item.subject.casefold() != draft.subject.casefold() or item.predicate.casefold() != draft.predicate.casefold():
        return False
    return identity(item) == identity(draft) or (not slot_of(draft) and _alike(item.object, draft.object))


def _alike(one: str, other: str) -> bool:
    mine, theirs = set(terms(one)), set(terms(other))
    if not mine or not theirs:
        return one.casefold() == other.casefold()
    return len(mine & theirs) / len(mine | theirs) >= ALIKE


def _excludes(item: MemoryItem, draft: ItemDraft) -> bool:
    """Return whether only one of two statements can hold."""
    if item.ended_at is not None or item.said_by != draft.said_by or item.status != "approved":
        return False
    if _is_over(item) or _is_over(draft):  # the past excludes nothing
        return False
    if draft.predicate == "":
        is_wish = draft.kind == "instruction" == item.kind
        return is_wish and note_key("instructions", item.object) == note_key("instructions", draft.object)
    return slot_of(draft) is not None and slot_of(item) == slot_of(draft)


def replace_with(known: Sequence[MemoryItem], draft: ItemDraft, id: str) -> ItemChanges:
    """Return the changes when a person says something: it takes the place of everything that it repeats or excludes."""
    item = _item(draft, id)
    older = [one for one in known if one.ended_at is None and (says_the_same(one, draft) or _excludes(one, draft))]
    return ItemChanges(new={id: item}, ended=[(one.id, item.learnt_at, id) for one in older])


def _item(draft: ItemDraft, id: str) -> MemoryItem:
    return MemoryItem(
        id=id,
        kind=draft.kind,
        subject=draft.subject,
        predicate=draft.predicate,
        object=draft.object,
        confidence=draft.confidence,
        valid_from=draft.valid_from,
        valid_to=draft.valid_to,
        learnt_at=draft.learnt_at,
        origin=draft.origin,
        status=draft.status,
        said_by=draft.said_by,
        by=draft.by,
        sources=() if draft.source is None else (draft.source,),
    )


# ---- time ----------------------------------------------------------------------------------------------------------


def believed_at(items: Sequence[MemoryItem], at: datetime) -> list[MemoryItem]:
    """Return the items that were believed at a time, as they were then: what ended them later is not known yet."""
    believed = [item for item in items if item.learnt_at <= at and (item.ended_at is None or item.ended_at > at)]
    return [_without_end(item) if item.ended_at is not None else item for item in believed]


def _without_end(item: MemoryItem) -> MemoryItem:
    return replace(item, ended_at=None, ended_by=None, valid_to=None)


def versions_of(items: Sequence[MemoryItem], id: str) -> list[MemoryItem]:
    """Return an item with those that it replaced and that replaced it, in the order of time."""
    by_id = {item.id: item for item in items}
    wanted = {id}
    while True:
        more = {one.ended_by for one in items if one.id in wanted and one.ended_by in by_id}
        more |= {one.id for one in items if one.ended_by in wanted}
        if more <= wanted:
            return sorted((by_id[one] for one in wanted if one in by_id), key=lambda one: one.learnt_at)
        wanted |= {one for one in more if one is not None}


# ---- ranking -------------------------------------------------------------------------------------------------------


@lru_cache(KEPT_STEMS)  # the same items are ranked for every question
def _stems(text: str) -> frozenset[str]:
    return frozenset(terms(text))


def rank(words: Sequence[tuple[str, str]], query: str, k: int) -> list[tuple[str, float]]:
    """Return the ids of the items that share the rarest stems with a question, best first, with a score from 0 to 1."""
    wanted = set(terms(query))
    if not wanted:
        return []
    stems = {id: _stems(text) for id, text in words}
    count = {stem: 1 + sum(stem in held for held in stems.values()) for stem in wanted}
    most = sum(1 / count[stem] for stem in wanted)
    scored = [(id, sum(1 / count[stem] for stem in held & wanted) / most) for id, held in stems.items()]
    best = sorted((one for one in scored if one[1] > 0), key=lambda one: -one[1])
    return best[:k]


# ---- the profile ---------------------------------------------------------------------------------------------------

HEADINGS: Mapping[str, str] = {
    "instruction": "Wishes",
    "fact": "Facts",
    "preference": "Preferences",
    "goal": "Open goals",
}
ORDER = tuple(HEADINGS)


def profile_lines(items: Sequence[MemoryItem]) -> list[tuple[MemoryItem, str]]:
    """Return a line for each item, grouped by kind; the order of an item does not depend on those that come later."""
    place = {kind: index for index, kind in enumerate(ORDER)}
    ordered = sorted(items, key=lambda one: (place.get(one.kind, len(ORDER)), one.kind, one.learnt_at, one.id))
    return [(item, line_of(item)) for item in ordered]


def heading(kind: str) -> str:
    """Return the heading of a kind of items."""
    return HEADINGS.get(kind, kind.replace("_", " ").capitalize())


def line_of(item: MemoryItem) -> str:
    """Return an item on one line, with its time and where it was said."""
    return f"{item.text}{_since(item)}{_from(item)}"


def _since(item: MemoryItem) -> str:
    since = item.valid_from is not None and item.valid_from.date() < item.learnt_at.date()
    times = [f"since {_day(item.valid_from)}"] if since and item.valid_from else []
    times += [f"until {_day(item.valid_to)}"] if item.valid_to else []
    return f" ({', '.join(times)})" if times else ""


def _from(item: MemoryItem) -> str:
    if not item.sources:
        return ""
    last = item.sources[-1]
    title = f"{' '.join(last.title.split())[:60]}, " if last.title else ""
    more = f" and {len(item.sources) - 1} more" if len(item.sources) > 1 else ""
    return f" [from {title}{_day(last.said)}{more}]"


def _day(at: datetime) -> str:
    return f"{at.day} {at:%B %Y}"


def same_statement(one: Statement, other: Statement) -> bool:
    """Return whether two statements differ only in spelling."""
    return identity(one) == identity(other)
