"""Working memory: what matters in a conversation now, kept up to date by rules and editable by people. Pure.

A note names its turn and its author: "rules", "model" (or "model:name"), or a person. Rules and models add, replace and
drop only their own notes; a person's note stays until a person changes it or its turn is forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import msgspec

from palaver.core.concurrency import Pause, iterate_with_pauses, no_pause
from palaver.core.identity import canonical_json
from palaver.core.quotes import is_through_mcp, name_of, one_line
from palaver.errors import InvalidInput, TooLarge
from palaver.memory.keywords import keywords
from palaver.memory.quoted_items import is_quoted
from palaver.memory.standing_instructions import (
    MAX_TEXT,
    is_question,
    is_reported,
    own_words,
    sentences,
    shorten,
    standing,
)
from palaver.model import MEMORY_LISTS, Note, Turn, WorkingMemory
from palaver.recall.terms import terms

MAX_NOTES = 20  # of one list
MAX_INSTRUCTIONS = 200  # standing ones are in force until they are replaced, so they have a list of their own size
MAX_QUESTIONS = 5  # unanswered ones that the rules keep
MAX_SUMMARY = 2_000  # characters
MAX_KEYWORDS = 10  # of a note without a sentence
RULES = "rules"
SUMMARY = "summary"  # the field that is one text and not a list
# The `origin` of turns from a client's own history. They may say anything, so no instructions are read from them.
HANDED_IN = "client-history"

Notes = tuple[Note, ...]

# ---- reading turns -------------------------------------------------------------------------------------------------


def update(
    memory: WorkingMemory, turns: Sequence[Turn], pause: Pause = no_pause, *, keep_words: bool = True
) -> WorkingMemory:
    """Return `memory` after reading the turns after `through_seq`, in the order of their positions.

    Reading in one go or in pieces gives the same memory; reading again changes nothing. A pending turn is not passed:
    it and what follows wait for the next time. Without `keep_words`, notes hold keywords in place of sentences.
    """
    for turn in iterate_with_pauses(sorted(turns, key=lambda turn: turn.position), pause):
        if turn.position <= memory.through_seq:
            continue
        if turn.status == "pending":
            break
        if turn.status == "complete" and turn.active:
            memory = _read(memory, turn, keep_words)
        memory = replace(memory, through_seq=turn.position)
    return memory


def find_instructions(turn: Turn) -> list[Note]:
    """Return the standing instructions of a turn; none unless a participant wrote it here."""
    if turn.status != "complete" or not turn.active or not is_own_words(turn):
        return []
    return [Note(_short(wish.text), turn.id, RULES, turn.actor) for wish in standing(turn.text)]


def add_instructions(memory: WorkingMemory, notes: Iterable[Note]) -> WorkingMemory:
    """Return `memory` with more standing instructions, in the order in which they were given. Other lists stay."""
    for note in notes:
        memory = _put(memory, "instructions", note)
    return memory


def is_own_words(turn: Turn) -> bool:
    """Return whether a participant wrote it here: a user turn that is neither from a client's own history nor written
    by an assistant through MCP."""
    return turn.role == "user" and are_own_words(turn.metadata)


def are_own_words(metadata: Mapping[str, Any]) -> bool:
    """Return whether a user turn with this metadata holds the words of its author."""
    return not was_handed_in(metadata) and not is_through_mcp(metadata)


def was_handed_in(metadata: Mapping[str, Any]) -> bool:
    """Return whether a turn comes from a client's own history, by its metadata."""
    return metadata.get("origin") == HANDED_IN


def _read(memory: WorkingMemory, turn: Turn, keep_words: bool) -> WorkingMemory:
    if turn.role not in ("user", "assistant"):
        return memory
    if turn.role == "assistant" and turn.text.strip():
        memory = replace(memory, open_questions=_drop_questions(memory.open_questions))
    for name, text in find_notes(turn):
        written = _short(text) if keep_words else without_sentence(name, text)
        if written:
            memory = _put(memory, name, Note(written, turn.id, RULES, turn.actor))
    return memory


def without_sentences(memory: WorkingMemory) -> WorkingMemory:
    """Return the memory with keywords in place of the sentences that the rules noted."""
    for name in MEMORY_LISTS:
        notes: Notes = getattr(memory, name)
        made = (replace(note, text=without_sentence(name, note.text)) if note.by == RULES else note for note in notes)
        memory = _with(memory, name, (note for note in made if note.text))
    return memory


def without_sentence(name: str, text: str) -> str:
    """Return the text of a note in normal form: its keywords and, of an instruction, the subject that it decides.

    A note that has this form already stays as it is.
    """
    if _NORMAL.match(text):
        return text
    found = keywords(text, MAX_KEYWORDS)
    if not found:
        return ""
    kind, *subject = note_key(name, text)
    if name == "instructions" and kind in ("slot", "favourite"):
        found = f"{' '.join(subject if kind == 'slot' else ['favourite', *subject])}: {found}"
    else:
        found = f"About: {found}"
    return f"{found}?" if is_question(text) else found


def find_notes(turn: Turn) -> Iterator[tuple[str, str]]:
    """Yield the list and the text of each note that the rules find in a turn."""
    wishes = [wish.text for wish in standing(turn.text)] if is_own_words(turn) else []
    yield from (("instructions", wish) for wish in wishes)
    for sentence in sentences(own_words(turn.text)):
        if is_question(sentence):
            if turn.role == "user":
                yield "open_questions", sentence
        elif shorten(sentence, MAX_TEXT) not in wishes and not is_reported(sentence):
            yield from ((name, sentence) for name in _lists(sentence, turn.role))


def _short(text: str) -> str:
    """Shorten to the limit; a question keeps its question mark."""
    if is_question(text) and len(text) > MAX_TEXT:
        return shorten(text, MAX_TEXT - 1) + "?"
    return shorten(text, MAX_TEXT)


def _drop_questions(notes: Notes) -> Notes:
    """Drop questions found by the rules, which cannot judge an answer: any assistant turn counts as one."""
    return tuple(note for note in notes if note.by != RULES or not is_question(note.text))


# ---- the rules -----------------------------------------------------------------------------------------------------

_NAME = r"(?-i:[A-Z][\w.'-]*(?: [A-Z][\w.'-]*){0,2})"
_WE = r"(?:i|we|i'd|we'd|i'm|we're|i am|we are|i would|we would)(?: really| just| also)?"
_THE = r"(?:my|our|the)(?: [\w-]+){1,4}"
_IT = rf"(?:it|this|they|we|users?|(?:each|every|all) [\w-]+|{_THE})"
# "That must have been fun" requires nothing.
_MUST = r"must(?!'ve| have (?:been|felt|had|taken|\w+ed)\b| be (?:so|really|very|tough|hard|nice|great|amazing|fun)\b)"
_TERM = r"[\"'“]?[\w-]+(?: [\w-]+){0,2}[\"'”]?"
_MAKE = "(?:build|create|make|design|write|develop|ship|launch|finish|prepare|implement|migrate)"
_PERSON = (
    r"(?:[\w-]+ )?(?:boss|manager|client|customer|colleague|co-?worker|c[teof]o|lead|designer|developer|engineer|lawyer"
    r"|accountant|investor|partner|supervisor|advis[eo]r|mentor|professor|teacher|landlord|vendor|supplier|contractor"
    r"|sponsor|stakeholder|product owner|assistant|editor|agent|doctor|therapist|director|intern)"
)
_TEAM = (
    "(?:finance|legal|marketing|sales|hr|it|engineering|support|design|operations|product|accounting|security"
    "|procurement|compliance)"
)

# For each list: the roles whose turns are read, and patterns for its sentences.
_RULES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "goals",
        ("user",),
        (
            r"(?:the|my|our) (?:main |overall |ultimate )?(?:goal|aim|objective|target|plan)(?: here)? (?:is|was)\b",
            rf"{_WE} (?:want to|wanna|would like to|trying to|aim(?:ing)? to|hop(?:e|ing) to|plan(?:ning)? to)\b"
            r"(?! (?:know|say|ask|tell|thank|see if|make sure|be honest|be clear|let you))",
            rf"{_WE} (?:need|like|have) to {_MAKE}\b(?! sure)",
        ),
    ),
    (
        "requirements",
        ("user",),
        (
            rf"{_IT} (?:also )?(?:{_MUST}|ha(?:s|ve) to|needs? to (?:be|support|work|run|handle|have|include|allow))\b",
            rf"{_IT} should (?:also )?(?:be able to|support|allow|include|have|handle|work|run)\b",
            rf"{_MUST} (?:be able to|support|have|include|work|run|comply|handle)\b",
            r"requirements? (?:is|are)\b",
            r"(?:is|are) (?:required|mandatory|a must)\b",
        ),
    ),
    (
        "constraints",
        ("user",),
        (
            r"(?:budget (?:is|of)|deadline|due (?:on|by|date)|(?:max|min)imum (?:of|is)|limited to|limit is)\b",
            r"(?:at (?:most|least)|up to|under|within) [$€£]?\d",
            r"(?:no (?:more|less|fewer|later) than|by (?:the )?end of)\b",
            r"(?:i|we|it|they) (?:can't|cannot|can not|may not|must not|aren't allowed to|(?:are|am) not allowed to) "
            r"(?!(?:wait|believe|remember|imagine|help|stop|thank|tell|say|see|think|figure|seem|get|even|really)\b)\w+",
        ),
    ),
    (
        "decisions",
        ("user", "assistant"),
        (
            r"(?:we|i|we've|i've|we have|i have)(?: finally| also| just| already)? "
            r"(?:decided|agreed|settled on|chose|opted|picked)\b",
            r"let's (?:go with|use|stick with|settle on|pick|choose)\b",
            r"(?:agreed|decision|decided)\s*[:—–]",
            r"(?:the|our|my) (?:final )?decision (?:is|was)\b",
            r"(?:we|i)(?:'ll| will|'re going to|'m going to) go with\b",
            r"we(?:'re| are) going with\b",
        ),
    ),
    (
        "assumptions",
        ("user",),
        (r"assuming\b", r"we(?:'ll| will)? assume\b", r"let(?:'s| us) (?:assume|suppose)\b", r"on the assumption\b"),
    ),
    (
        "assumptions",
        ("user", "assistant"),
        (r"(?:i|i'll|i will|i'm going to) assume\b", r"i(?:'m| am) assuming\b", r"(?:my|our|one) assumption\b"),
    ),
    (
        "open_questions",
        ("user", "assistant"),
        (
            r"still (?:need|have) to (?:figure out|decide|find out|clarify|work out|determine|choose)\b",
            r"(?:not|isn't|aren't|haven't) decided\b",
            r"(?:undecided|open question|to be decided|tbd|remains to be (?:seen|decided))\b",
            r"we(?:'re| are) not sure(?: yet)? (?:whether|which|how|if)\b",
            r"we don't know(?: yet)? (?:whether|which|how|if|who|when)\b",
        ),
    ),
    (
        "glossary",
        ("user", "assistant"),
        (
            rf"^(?!(?:it|that|this|which|what|he|she)\b){_TERM} (?:stands|is short|is an acronym) for \w",
            rf"^(?!(?:it|that|this|which|what|he|she)\b){_TERM} refers to \w",
            r"^(?:(?-i:[A-Z]{2,}\w*)|[\"'“][\w -]{1,30}[\"'”]) (?:here )?means \w",
            rf"(?:by|when (?:i|we) say) {_TERM},? (?:i|we) mean\b",
            r"[\w-]+ \((?:short for|stands for|i\.e\.,?) [^)]{2,}\)",
        ),
    ),
    (
        "stakeholders",
        ("user",),
        (
            rf"(?:my|our|the) {_PERSON},?(?: is| is called|'s name is)? {_NAME}",
            rf"{_NAME}(?:, who is|,| is) (?:my|our|the) {_PERSON}\b",
            rf"(?:talk|speak|report|check|meet|work|sync)(?:ing|ed)? (?:to|with) {_NAME} (?:from|in|at|of) \w+",
            rf"{_NAME} (?:from|in) {_TEAM}\b",
        ),
    ),
)
_PATTERNS = tuple(
    (name, roles, re.compile(r"(?:\b|(?=[\"'“]))(?:" + "|".join(patterns) + ")", re.I))
    for name, roles, patterns in _RULES
)


def _lists(sentence: str, role: str) -> Iterator[str]:
    """Return the lists where a sentence belongs. Only the beginning of a long one is read."""
    looked = sentence[: 2 * MAX_TEXT]
    for name, roles, pattern in _PATTERNS:
        if role in roles and pattern.search(looked):
            yield name


# ---- one list ------------------------------------------------------------------------------------------------------

# Instructions on one subject: the newest replaces the older one, whatever it says.
_SLOTS = tuple(
    (re.compile(pattern, re.I), slot)
    for pattern, slot in (
        (r"\bcall me\b|\baddress me as\b|\bi go by\b", "address"),
        (r"\bmy name(?:'s| is)\b", "name"),
        (r"\bpronouns\b", "pronouns"),
        (r"\bmy time ?zone is\b", "time zone"),
        (r"\b(?:answer|reply|respond|write|speak|talk)\b.*\bin (?-i:[A-Z]\w+)", "language"),
        (r"\b(?:metric|imperial|celsius|fahrenheit)\b", "units"),
        (r"\b(?:formal|informal|casual)\b", "tone"),
        (r"\b(?:british|american) (?:english|spelling)\b", "spelling"),
        (
            r"\b(?:answers?|replies|responses|explanations|it) (?:\w+ )?(?:short|brief|concise|long|detailed)\b",
            "length",
        ),
        (r"^(?:please )?be (?:\w+ )?(?:brief|concise|detailed|thorough|short)\b", "length"),
    )
)
# A note without a sentence: see `without_sentence`.
_NORMAL = re.compile(rf"(About|favourite [\w -]+|{'|'.join(slot for _, slot in _SLOTS)}): ")
_FAVOURITE = re.compile(r"\bmy (?:favou?rite|preferred) ([\w-]+(?: [\w-]+)?) (?:is|are)\b", re.I)
KEPT_KEYS = 4_096
# "Always X", "never X" and "don't X any more" are about the same X.
_POLARITY = frozenset(terms("always never don't do not stop please ever anymore from now on again only"))


@lru_cache(KEPT_KEYS)  # every new note is compared with all others
def note_key(name: str, text: str) -> tuple[str, ...]:
    """Return a key that is equal for notes of a list that repeat or contradict each other."""
    stems = set(terms(text.removeprefix("About: ")))
    if name == "instructions":
        normal = _NORMAL.match(text)
        if normal and normal[1] != "About":
            kind, _, subject = normal[1].partition(" ")
            return ("favourite", *terms(subject)) if kind == "favourite" else ("slot", normal[1])
        favourite = _FAVOURITE.search(text)
        if favourite:
            return ("favourite", *terms(favourite[1]))
        slot = next((slot for pattern, slot in _SLOTS if pattern.search(text)), None)
        if slot:
            return ("slot", slot)
        stems -= _POLARITY
    return ("about", *sorted(stems)) if stems else ("as", text.casefold())


def is_machine(note: Note) -> bool:
    return note.by == RULES or note.by == "model" or note.by.startswith("model:")


def _same(one: str, other: str) -> bool:
    return one.casefold().strip(" .!") == other.casefold().strip(" .!")


def _put(memory: WorkingMemory, name: str, note: Note) -> WorkingMemory:
    """Add a note of the rules or a model, unless it repeats one. It replaces notes that it contradicts."""
    notes: Notes = getattr(memory, name)
    key = note_key(name, note.text)
    alike = [old for old in notes if note_key(name, old.text) == key and _can_replace(name, note, old)]
    if any(_same(old.text, note.text) for old in alike):
        return memory
    if name != "instructions" and any(not is_machine(old) for old in alike):
        return memory  # a person's note on the subject wins
    kept = [old for old in notes if old not in alike or not is_machine(old)]
    return _with(memory, name, _limit_notes(name, [*kept, note]))


def _can_replace(name: str, note: Note, old: Note) -> bool:
    """Return whether a note may take the place of an older one. A participant does not replace another's wish."""
    return name != "instructions" or old.actor is None or old.actor == note.actor


def _limit_notes(name: str, notes: Sequence[Note]) -> Notes:
    """Drop the oldest notes of rules and models beyond the limit; never a person's."""
    kept = list(notes)
    if name == "open_questions":
        asked = [note for note in kept if note.by == RULES and is_question(note.text)]
        kept = [note for note in kept if note not in asked[:-MAX_QUESTIONS]]
    while len(kept) > (MAX_INSTRUCTIONS if name == "instructions" else MAX_NOTES):
        oldest = next((note for note in kept if is_machine(note)), None)
        if oldest is None:
            break
        kept.remove(oldest)
    return tuple(kept)


def _with(memory: WorkingMemory, name: str, notes: Iterable[Note]) -> WorkingMemory:
    changed: WorkingMemory = replace(memory, **{name: tuple(notes)})  # type: ignore[arg-type]
    return changed


# ---- editing by people and agents ----------------------------------------------------------------------------------


def remember(memory: WorkingMemory, list_name: str, text: str, by: str) -> WorkingMemory:
    """Add a note by a person or an agent. A full list loses the oldest note of the rules or a model.

    `summary` is one text: it is replaced, and no model writes over it.
    """
    if list_name == SUMMARY:
        return replace(memory, summary=shorten(_check_text(text), MAX_SUMMARY), summary_by=_check_author(by))
    note = Note(_check_text(text), None, _check_author(by))
    notes = (*_list(memory, list_name), note)
    if sum(not is_machine(note) for note in notes) > MAX_NOTES:
        raise TooLarge(list_name, size=len(notes), limit=MAX_NOTES, unit="notes")
    return _with(memory, list_name, _limit_notes(list_name, notes))


def correct(memory: WorkingMemory, list_name: str, index: int, text: str, by: str) -> WorkingMemory:
    """Change the text of a note. It keeps its turn, so that forgetting the turn deletes the correction too."""
    if list_name == SUMMARY:
        return remember(memory, list_name, text, by)
    notes = list(_list(memory, list_name))
    old = notes[_check_index(notes, index)]
    notes[index] = Note(_check_text(text), old.turn, _check_author(by), old.actor)
    return _with(memory, list_name, notes)


def drop(memory: WorkingMemory, list_name: str, index: int) -> WorkingMemory:
    """Drop one note. The rules do not add it again: they have read past its turn."""
    if list_name == SUMMARY:
        return replace(memory, summary="", summary_by=None)
    notes = list(_list(memory, list_name))
    del notes[_check_index(notes, index)]
    return _with(memory, list_name, notes)


def turns_of(memory: WorkingMemory) -> frozenset[str]:
    """Return the ids of the turns that notes came from."""
    notes = (note for name in MEMORY_LISTS for note in getattr(memory, name))
    return frozenset(note.turn for note in notes if note.turn is not None)


def without_turn(memory: WorkingMemory, turn_id: str) -> WorkingMemory:
    """Drop every note from a forgotten turn, and the summary, which may contain its text."""
    for name in MEMORY_LISTS:
        memory = _with(memory, name, (note for note in getattr(memory, name) if note.turn != turn_id))
    return replace(memory, summary="", summary_by=None)


def without_person(memory: WorkingMemory, name: str) -> WorkingMemory:
    """Drop every note that a person wrote or said, and the summary, which may contain it."""
    changed = memory
    for one in MEMORY_LISTS:
        changed = _with(changed, one, (note for note in getattr(memory, one) if name not in (note.by, note.actor)))
    return memory if changed == memory else replace(changed, summary="", summary_by=None)


def _list(memory: WorkingMemory, name: str) -> Notes:
    if name not in MEMORY_LISTS:
        raise InvalidInput("list", f"must be one of {', '.join(MEMORY_LISTS)}")
    notes: Notes = getattr(memory, name)
    return notes


def _check_text(text: str) -> str:
    if not isinstance(text, str) or not text.strip():
        raise InvalidInput("text", "must not be empty")
    flat = " ".join(text.split())
    if len(flat) > MAX_TEXT:
        raise TooLarge("text", size=len(flat), limit=MAX_TEXT, unit="characters")
    return flat


def _check_author(by: str) -> str:
    if not isinstance(by, str) or not by.strip() or by == RULES:
        raise InvalidInput("by", f"must be the name of the author, not {RULES!r}")
    return by


def _check_index(notes: Sequence[Note], index: int) -> int:
    if not isinstance(index, int) or not 0 <= index < len(notes):
        raise InvalidInput("index", f"must be from 0 to {len(notes) - 1}" if notes else "the list is empty")
    return index


# ---- as text -------------------------------------------------------------------------------------------------------


def to_json(memory: WorkingMemory) -> str:
    """Encode the memory; equal memories give equal text. Why it is empty is not part of it."""
    return canonical_json({one.name: getattr(memory, one.name) for one in fields(memory) if one.name != "empty"})


def is_empty(memory: WorkingMemory) -> bool:
    """Return whether there are no notes and no summary."""
    return not memory.summary and not any(getattr(memory, name) for name in MEMORY_LISTS)


def from_json(text: str) -> WorkingMemory:
    """Decode what `to_json` wrote."""
    try:
        return msgspec.json.decode(text, type=WorkingMemory)
    except (msgspec.MsgspecError, UnicodeError):
        raise InvalidInput("working_memory", "is not the JSON of a working memory") from None


_DOUBLE = re.compile('["“”„‟″〝〞＂«»]')
_HEADINGS = {
    "goals": "Goals",
    "requirements": "Requirements",
    "constraints": "Constraints",
    "decisions": "Decisions",
    "assumptions": "Assumptions",
    "open_questions": "Open questions",
    "glossary": "Glossary",
    "stakeholders": "People",
}
INSTRUCTIONS_HEADING = "Standing wishes, as they were said:"


def render(memory: WorkingMemory, owner: str = "", *, several: bool = False) -> str:
    """Return compact lines for a prompt. Every note is quoted, so that a model does not take it as an instruction.

    A standing instruction names who gave it. `owner` is the owner of the conversation, and `several` says that other
    people take part: then an older note, which does not name anybody, may be anybody's.
    """
    lines = [f"Summary: {_quote(memory.summary)}"] if memory.summary.strip() else []
    for name, heading in _HEADINGS.items():
        notes: Notes = getattr(memory, name)
        if notes:
            lines.append(f"{heading}:")
            lines.extend(_line(note) for note in notes)
    if memory.instructions:
        lines.append(INSTRUCTIONS_HEADING)
        lines.extend(instruction_line(note, owner, several=several) for note in memory.instructions)
    return "\n".join(lines)


def instruction_line(note: Note, owner: str, *, several: bool) -> str:
    """Return a standing instruction as a line of a prompt."""
    if not is_machine(note):
        return _line(note)
    return f"- {_who_said(note.actor, owner, several=several)} said: {_quote(note.text)}"


def _line(note: Note) -> str:
    return f"- {_quote(note.text)}" if is_machine(note) else f"- {name_of(note.by)} noted: {_quote(note.text)}"


def _who_said(actor: str | None, owner: str, *, several: bool) -> str:
    if actor is None:
        return "A participant" if several else "The user"
    if actor == "user":
        return "The user"
    return f"{name_of(actor)} (the user)" if actor == owner else name_of(actor)


def _quote(text: str) -> str:
    """Put the text in double quotation marks that it cannot close."""
    return '"' + _DOUBLE.sub("'", one_line(text)) + '"'


# ---- with a model --------------------------------------------------------------------------------------------------

_NOTE_SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "maxLength": MAX_TEXT},
        "turn_ids": {"type": "array", "items": {"type": "string"}, "minItems": 1},
    },
    "required": ["text", "turn_ids"],
    "additionalProperties": False,
}
WORKING_MEMORY_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "summary": {"type": "string", "maxLength": MAX_SUMMARY},
        **{name: {"type": "array", "items": _NOTE_SCHEMA, "maxItems": MAX_NOTES} for name in MEMORY_LISTS},
    },
    "required": ["summary", *MEMORY_LISTS],
    "additionalProperties": False,
}
_SUPPORT = 0.5  # share of a note's stems that the cited turns must contain


def validate_model_memory(
    raw: str | Mapping[str, Any],
    turns: Sequence[Turn],
    memory: WorkingMemory,
    *,
    by: str = "model",
    quotes: bool = False,
) -> WorkingMemory:
    """Add the notes that a model proposed after reading `turns` and that the turns support.

    A note must cite turns that were read and share at least half of its stems with them. An instruction must cite a
    participant's own user turn and use only its words. With `quotes`, it must also quote a turn that it cites. People's
    notes stay, and so does a summary that a person wrote. Raises InvalidInput when it is not an
    object at all, so that the caller can ask again.
    """
    if not is_machine(Note("", None, by)) or by == RULES:
        raise InvalidInput("by", "must be 'model' or begin with 'model:'")
    proposed = parse_object(raw, "working_memory")
    known = {turn.id: turn for turn in turns}
    for name in MEMORY_LISTS:
        for note in _proposed_notes(proposed.get(name), known, name, by, quotes):
            memory = _put(memory, name, note)
    summary, texts = proposed.get("summary"), [memory.summary, *(turn.text for turn in turns)]
    if memory.summary_by is None and isinstance(summary, str) and _is_supported(summary, texts, _SUPPORT):
        memory = replace(memory, summary=shorten(summary, MAX_SUMMARY))
    last = max((turn.position for turn in turns), default=-1)
    return replace(memory, through_seq=max(memory.through_seq, last))


def count_dropped_notes(
    raw: str | Mapping[str, Any], turns: Sequence[Turn], *, by: str = "model", quotes: bool = False
) -> int:
    """Return how many of the proposed notes the turns do not support."""
    proposed, known = parse_object(raw, "working_memory"), {turn.id: turn for turn in turns}
    lists = {name: proposed.get(name) for name in MEMORY_LISTS}
    count = sum(len(items) for items in lists.values() if isinstance(items, list))
    kept = (note for name, items in lists.items() for note in _proposed_notes(items, known, name, by, quotes))
    return count - sum(1 for _ in kept)


def parse_object(raw: str | Mapping[str, Any], what: str) -> Mapping[str, Any]:
    """Return the JSON object in a model's answer, which may have text or a code fence around it."""
    value: Any = raw
    if isinstance(raw, str):
        start, end = raw.find("{"), raw.rfind("}")
        try:
            value = msgspec.json.decode(raw[start : end + 1])
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            value = None
    if not isinstance(value, Mapping):
        raise InvalidInput(what, "the model's answer is not a JSON object")
    return value


def cited(item: Any, known: Mapping[str, Turn]) -> list[Turn]:
    """Return the turns that a proposal cites; none when one of them does not exist."""
    ids = item.get("turn_ids") if isinstance(item, Mapping) else None
    if not isinstance(ids, list) or not all(isinstance(id, str) and id in known for id in ids):
        return []
    return [known[id] for id in ids]


def _proposed_notes(items: Any, known: Mapping[str, Turn], name: str, by: str, quotes: bool) -> Iterator[Note]:
    for item in items[:MAX_NOTES] if isinstance(items, list) else ():
        sources = cited(item, known)
        text = item.get("text") if isinstance(item, Mapping) else None
        if not sources or not isinstance(text, str) or not text.strip():
            continue
        if quotes and not is_quoted(item, [turn.text for turn in sources]):
            continue
        share = _SUPPORT
        if name == "instructions":
            sources, share = [turn for turn in sources if is_own_words(turn)], 1.0
        if sources and _is_supported(text, [turn.text for turn in sources], share):
            yield Note(shorten(text, MAX_TEXT), sources[0].id, by, sources[0].actor)


def _is_supported(text: str, sources: Iterable[str], share: float) -> bool:
    stems = set(terms(text))
    held = {stem for source in sources for stem in terms(source)}
    return bool(stems) and len(stems & held) >= share * len(stems)
