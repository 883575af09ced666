"""Extractive summaries without a model: the most informative sentences, word for word. Pure.

Centrality picks pleasantries in dialogue, so sentences are scored by cues instead: numbers, dates, names, statements
about oneself, decisions, plans, preferences, changes. Sentences are cut, never reworded.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from palaver.core.concurrency import Pause, iterate_with_pauses, no_pause
from palaver.core.identity import canonical_json
from palaver.core.quotes import speaker_of
from palaver.model import Summary, Turn
from palaver.recall.terms import terms

NAME = "offline-extractive-1"

MAX_READ = 40_000  # characters of a turn that are read: from its beginning and its end
MAX_SENTENCE = 600  # characters of one sentence in a summary
MAX_RESULT = 100  # characters of a tool's result
ELLIPSIS = "…"

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence with its place: `group` is its turn, `order` its position in the whole."""

    order: int
    group: int
    prefix: str
    text: str
    stems: frozenset[str]
    worth: float


def summarize(turns: Sequence[Turn], *, budget: int, count: Count, pause: Pause = no_pause) -> str:
    """Return the most informative sentences of `turns` as dated, attributed lines, oldest first, within `budget`.

    Every line is `[date] actor: sentences`; a tool's result is `(tool name → its beginning)`. Greetings and thanks are
    left out even if there is room. Empty if there is nothing to say or no room for a word.
    """
    return _write(_weigh(_sentences_of_turns(turns), pause), budget, count)


def merge(
    texts: Sequence[tuple[str, datetime | None] | Summary], *, budget: int, count: Count, pause: Pause = no_pause
) -> str:
    """Merge summaries in the order given: all of their lines if they fit, otherwise the most informative ones.

    Lines keep their own date and speaker. A line without a date gets that of its text, if there is one.
    """
    lines = list(dict.fromkeys(line for text in texts for line in _lines(text)))
    whole = "\n".join(prefix + body for prefix, body in lines)
    if count(whole) <= budget:
        return whole
    return _write(_weigh(_sentences_of_lines(lines), pause), budget, count)


# ---- sentences -----------------------------------------------------------------------------------------------------

_FENCE = re.compile(r"```.*?(?:```|\Z)", re.S)
_MARKS = re.compile(r"^\s*(?:#{1,6}\s+|>\s*|[-*•·]\s+|\d{1,3}[.)]\s+)+|\*\*")
_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]]*+(?=\s)|[。！？।؟]+|\n+")  # linear in the number of marks
_ABBREVIATION = re.compile(r"(?:\b(?:mr|mrs|ms|dr|prof|st|vs|etc|e\.g|i\.e|approx|inc|jr|sr)|\b[a-z])\.$", re.I)
_SPACE = re.compile(r"\s+")
_DATED = re.compile(r"(\[\d{4}-\d{2}-\d{2}\] (?:[^:\n]{1,80}: )?)(.*)", re.S)
# Words that open a sentence and say nothing.
_OPENING = re.compile(
    r"^(?:(?:hey|hi|hello|oh|well|so|yeah|yes|yep|yup|wow|ah|aw+|haha|lol|ok|okay|sure|thanks|thank you|anyway|btw"
    r"|by the way|honestly|actually|absolutely|definitely|exactly|totally|gotcha|hmm+|um+|and|but)"
    r"(?:,? (?:there|so much|a lot|again|[A-Z]\w+))?\s*[,!.—–-]+\s*)+",
    re.I,
)


def _sentences_of_turns(turns: Sequence[Turn]) -> Iterator[tuple[int, str, str, float]]:
    """Yield the group, prefix, text and speaker weight of every sentence."""
    names = {call.id: call.name for turn in turns for call in turn.tool_calls}
    answered = {result.id for turn in turns for result in turn.tool_results}
    asked = False
    for group, turn in enumerate(turns):
        prefix = f"[{turn.created:%Y-%m-%d}] {speaker_of(turn)}: "
        for result in turn.tool_results:
            yield group, prefix, _describe_tool_result(names.get(result.id, "call"), result.content), 1.0
        for call in turn.tool_calls:
            if call.id not in answered:
                yield group, prefix, _describe_tool_result(call.name, ELLIPSIS), 1.0
        found = list(_sentences(turn.text)) if turn.role != "tool" or not turn.tool_results else []
        for n, sentence in enumerate(found):
            answers = 1.25 if asked and n == 0 else 1.0
            yield group, prefix, sentence, _SPEAKER.get(turn.role, 1.0) * answers
        asked = bool(found) and found[-1].endswith(("?", "？", "؟"))


def _describe_tool_result(name: str, content: object) -> str:
    text = _flat(content if isinstance(content, str) else canonical_json(content))
    return f"(tool {name} → {text if len(text) <= MAX_RESULT else text[: MAX_RESULT - 1] + ELLIPSIS})"


def _lines(text: tuple[str, datetime | None] | Summary) -> Iterator[tuple[str, str]]:
    """Yield the lines of a summary, each as its prefix and its body."""
    body, date = (text.text, None) if isinstance(text, Summary) else text
    default = f"[{date:%Y-%m-%d}] " if date else ""
    for line in body.splitlines():
        dated = _DATED.fullmatch(line.strip())
        prefix, said = dated.groups() if dated else (default, line.strip())
        if said:
            yield prefix, said


def _sentences_of_lines(lines: Sequence[tuple[str, str]]) -> Iterator[tuple[int, str, str, float]]:
    for group, (prefix, body) in enumerate(lines):
        for sentence in [body] if body.startswith("(tool ") else _sentences(body):
            yield group, prefix, sentence, 1.0


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences of `text` on one line each, without markup, openings and code (unless it is all code)."""
    if len(text) > MAX_READ:
        text = text[: MAX_READ // 2] + "\n" + text[-MAX_READ // 2 :]
    text = _FENCE.sub("\n", text) if _FENCE.sub("", text).strip() else text
    start = 0
    for end in _END.finditer(text):
        if end.group() == "." and _ABBREVIATION.search(text[max(start, end.start() - 8) : end.start() + 1]):
            continue
        yield from _tidy(text[start : end.end()])
        start = end.end()
    yield from _tidy(text[start:])


def _tidy(piece: str) -> Iterator[str]:
    piece = _flat(_MARKS.sub("", piece))
    piece = _OPENING.sub("", piece) or piece
    if piece:
        yield _middle_out(piece, MAX_SENTENCE)


def _flat(text: str) -> str:
    return _SPACE.sub(" ", text).strip()


def _middle_out(text: str, keep: int) -> str:
    """Return at most `keep` characters of `text`: its beginning and its end, with an ellipsis between."""
    if len(text) <= keep:
        return text
    head = math.ceil((keep - 1) * 2 / 3)
    tail = keep - 1 - head
    return text[:head].rstrip() + ELLIPSIS + (text[-tail:].lstrip() if tail else "")


# ---- worth ---------------------------------------------------------------------------------------------------------

_NOTHING = -10.0  # the score of a sentence that is only an opening, or has no word
_SPEAKER = {"user": 1.0, "assistant": 0.7, "system": 0.5, "tool": 0.8}


def _words(text: str) -> str:
    """Return a pattern for one of these words, in any case; an underscore stands for a space."""
    return r"(?i:\b(?:" + "|".join(word.replace("_", " ") for word in text.split()) + r")\b)"


# The weight of a cue that occurs once; the second and third occurrence count less.
_CUES = tuple(
    (re.compile(pattern), weight)
    for pattern, weight in (
        # figures and dates
        (r"\d+", 1.0),
        (
            _words(
                """jan(?:uary)? feb(?:ruary)? march april may_\\d+ june july aug(?:ust)? sept?(?:ember)? oct(?:ober)?
                nov(?:ember)? dec(?:ember)? (?:mon|tues|wednes|thurs|fri|satur|sun)days? \\d{4}"""
            ),
            0.8,
        ),
        (
            _words(
                """yesterday today tonight tomorrow ago since until deadline due birthday anniversary
                (?:last|next|this)_(?:night|week|weekend|month|year|summer|winter|spring|fall|autumn|\\w+day)"""
            ),
            1.0,
        ),
        (_words("two three four five six seven eight nine ten dozen twice first second third"), 0.4),
        # names: a capital inside the sentence, and text in quotation marks
        (r"(?<=[a-z,;:] )(?!I\b|I')[A-Z][\w'’-]+", 0.9),
        (r"[\"“][^\"”]{2,60}[\"”]", 0.6),
        # statements about oneself
        (_words("i i'm i've i'll i'd my we we're we've we'll our"), 0.5),
        (
            r"(?i:\bmy (?:\w+ )?)"
            + _words(
                """name wife husband partner son daughter kids? child(?:ren)? mom mum dad mother father sister brother
                friends? boss dog cat pet job team company family grand\\w+ girlfriend boyfriend fianc\\w+"""
            ),
            0.7,
        ),
        # decisions, plans, actions, changes
        (
            _words(
                "decided? decision agreed? chose choose settled?_on go(?:ing)?_with conclu\\w+ approved? confirmed?"
            ),
            1.2,
        ),
        (
            _words(
                """(?:i|we)(?:'ll|_will|'m_going_to|_am_going_to|'re_going_to|_are_going_to|_plan|_need_to|_have_to)
                (?:i|we)_(?:must|want_to|should|intend) planning hoping scheduled promise\\w* signed_up booked applied
                applying"""
            ),
            0.8,
        ),
        (
            _words(
                """started finished moved bought sold joined quit left lost won got went visited met made built read
                wrote painted adopted married divorced engaged born died passed graduated hired fired promoted launched
                opened broke fixed attended learned learnt ran took saw tried created received became changed switched
                grew_up researching working_on studying training"""
            ),
            0.8,
        ),
        # likes, needs, prohibitions, corrections
        (
            _words(
                """prefer\\w* favou?rite allergic vegetarian vegan always never hates? loves? enjoy\\w* into fan_of
                interested dream\\w* afraid can't cannot don't doesn't didn't won't not"""
            ),
            0.5,
        ),
        (_words("actually instead correction no_longer anymore changed_my_mind rather_than turns_out in_fact"), 0.7),
        (_words("because so_that due_to in_order_to means called named"), 0.4),
    )
)
_PLEASANTRY = re.compile(
    _words(
        """that(?:'s|_is|_sounds?|_must) sounds? so wow thanks? thank_you glad good_(?:luck|morning|night|job|to) great
        nice awesome amazing cool congrat\\w* hope happy keep take_care you(?:'re|_are|_got) no_(?:problem|worries)
        welcome hey hi hello bye see_you talk_(?:to_you_)?(?:soon|later) let_me_know feel_free sure of_course certainly
        it(?:'s|_is)_(?:so|really|great|good|nice|amazing|awesome|important) absolutely exactly well_done what_an?
        i(?:'m|_am)_(?:so_|really_|very_)?(?:glad|happy|proud|excited|sorry|here) how_(?:wonderful|great|nice)
        i_(?:totally_|completely_)?(?:agree|understand|appreciate|see)"""
    )
)
_QUESTION = re.compile(r"[?？؟][\"'”’)\]]*$")


def _weigh(said: Iterable[tuple[int, str, str, float]], pause: Pause) -> list[_Sentence]:
    """Score every sentence: by its cues, and by how rare its words are here."""
    found = [(*one, terms(one[2])) for one in iterate_with_pauses(said, pause)]
    frequency = Counter(stem for *_, stems in found for stem in set(stems))
    return [
        _Sentence(order, group, prefix, text, frozenset(stems), weight * _worth(text, stems, frequency, len(found)))
        for order, (group, prefix, text, weight, stems) in enumerate(iterate_with_pauses(found, pause))
    ]


def _worth(text: str, stems: Sequence[str], frequency: Counter[str], total: int) -> float:
    if not stems or _OPENING.fullmatch(text):
        return _NOTHING
    rare = sum(math.log(1 + total / frequency[stem]) for stem in set(stems)) / math.log(1 + total)
    worth = 0.35 * min(rare, 12) + sum(weight * math.sqrt(min(len(cue.findall(text)), 3)) for cue, weight in _CUES)
    if text.startswith("(tool "):
        return max(worth, 0.5)
    if _QUESTION.search(text):
        worth *= 0.35
    if _PLEASANTRY.match(text):
        worth = worth * 0.5 - 1.0
    return worth if len(stems) > 2 else worth - 0.8


# ---- choosing and writing ------------------------------------------------------------------------------------------


def _write(found: Sequence[_Sentence], budget: int, count: Count) -> str:
    if budget <= 0 or not found:
        return ""
    chosen = _choose(found, budget, count)
    while chosen:  # a tokenizer may count more for the whole than for its parts
        text = _render(chosen)
        if count(text) <= budget:
            return text
        chosen.remove(min(chosen, key=lambda sentence: (sentence.worth, -sentence.order)))
    best = max(found, key=lambda sentence: (sentence.worth, -sentence.order))
    return _cut(best, budget, count)


def _choose(found: Sequence[_Sentence], budget: int, count: Count) -> list[_Sentence]:
    """Choose greedily by score per token, where words that are already covered count for little.

    The covered words only grow, so a gain only falls: the top of the heap is right if its gain is up to date.
    """
    costs = {sentence.order: max(1, count(" " + sentence.text)) for sentence in found if sentence.worth > 0}
    prefixes = {sentence.prefix: count("\n" + sentence.prefix.rstrip()) for sentence in found}
    covered: set[str] = set()
    opened: set[int] = set()
    chosen: list[_Sentence] = []

    def gain(sentence: _Sentence) -> float:
        new = len(sentence.stems - covered) / len(sentence.stems) if sentence.stems else 0.0
        return sentence.worth * (0.2 + 0.8 * new) / math.sqrt(costs[sentence.order] + prefixes[sentence.prefix])

    heap = [(-gain(sentence), sentence.order) for sentence in found if sentence.order in costs]
    heapq.heapify(heap)
    left = budget
    while heap and left > 0:
        _, order = heapq.heappop(heap)
        sentence = found[order]
        now = -gain(sentence)
        if heap and (now, order) > heap[0]:
            heapq.heappush(heap, (now, order))
            continue
        cost = costs[order] + (0 if sentence.group in opened else prefixes[sentence.prefix])
        if cost > left or _is_repeated(sentence, chosen, covered):
            continue
        chosen.append(sentence)
        covered |= sentence.stems
        opened.add(sentence.group)
        left -= cost
    return sorted(chosen, key=lambda sentence: sentence.order)


def _is_repeated(sentence: _Sentence, chosen: Sequence[_Sentence], covered: set[str]) -> bool:
    """Return whether one chosen sentence contains nearly all of its words."""
    if not sentence.stems <= covered:
        return False
    return any(len(sentence.stems & other.stems) >= 0.9 * len(sentence.stems) for other in chosen)


def _render(chosen: Sequence[_Sentence]) -> str:
    lines: list[str] = []
    group = -1
    for sentence in chosen:
        if sentence.group == group:
            lines[-1] += " " + sentence.text
        else:
            lines.append(sentence.prefix + sentence.text)
        group = sentence.group
    return "\n".join(lines)


def _cut(sentence: _Sentence, budget: int, count: Count) -> str:
    """Return as much of one sentence as fits, cut in its middle; without its prefix if there is no room for both."""
    for prefix in (sentence.prefix, ""):
        low, high = 0, len(sentence.text)
        while low < high:
            middle = (low + high + 1) // 2
            if count(prefix + _middle_out(sentence.text, middle)) <= budget:
                low = middle
            else:
                high = middle - 1
        text = prefix + _middle_out(sentence.text, low)
        if low > min(1, len(sentence.text) - 1) and count(text) <= budget:
            return text
    return ""
