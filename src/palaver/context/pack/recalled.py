"""Recalled turns: quoted, at the head of the current message."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from palaver.context.costs import LEAST_TEXT
from palaver.context.explain import RecallScore
from palaver.context.inputs import RecalledTurn
from palaver.context.options import Options
from palaver.context.pack.budget import CHARACTERS
from palaver.context.pack.ledger import Ledger, PackInputs, turns_block
from palaver.context.render import Quotation, quote_recalled, recalled_block
from palaver.recall.excerpts import find_excerpt
from palaver.recall.repeats import find_repeats
from palaver.recall.second_look import count_events, count_shared_words
from palaver.recall.superseded import Said, find_superseded

HEADER_COST = 8  # tokens of a line with the date
SMALLEST = 8  # tokens: nothing shorter is worth quoting
STANDING_SHARE = 10  # standing instructions are taken first, in a tenth of the budget
SEPARATOR = 2  # tokens between the block and the message
COMPARED = 60  # of the best turns are compared with each other, for repeated and replaced statements
REPLACED_AMONG, MOST_REPLACED = 15, 3  # statements of the best turns that may be marked as replaced, and how many
TRIES = 4  # to make parts of a turn fit
FILLS = 5  # tries to fill the room

# Shares of the room for recall. A turn that costs more than the first is quoted in part, for the second.
WHOLE, WHOLE_FADES, PART = 0.3, 9, 0.08
LEAST_PART = 60  # tokens
BEST_TURNS = 5  # may be long even if they replace another, and are quoted in part where no room for all of them is left
ANSWER, BEST_ANSWERS = 0.06, 2  # the assistant's messages: as a whole or in part, if they are among the best
ASKED, ASKED_FADES = 0.8, 2  # the same, if the question is about what the assistant said; half of it for a part


@dataclass(frozen=True, slots=True)
class RecalledBlock:
    """The text of the block, the positions of its turns in this conversation, and the parts of each that it quotes."""

    text: str
    positions: tuple[int, ...]
    quoted: Mapping[str, tuple[tuple[int, int], ...]]


class Candidate(NamedTuple):
    """A turn that could be quoted. The first one of a group also costs a header."""

    group: Hashable
    standing: bool = False


def add_recalled(inputs: PackInputs, ledger: Ledger, cap: int) -> tuple[RecalledBlock | None, Ledger]:
    """Add the best of the recalled turns that fit into `cap`."""
    material = inputs.material
    # A turn that is in the prompt is not quoted again, but what one of its files says is.
    wanted = [one for one in material.recalled if one.quote or one.turn.id not in ledger.shown]
    # Without a current message to stand at the head of, the block is a message of its own.
    own_message = inputs.overhead if material.current is None and material.message is None else 0
    cap -= own_message
    if not inputs.options.wants_recall or not wanted or cap < LEAST_TEXT:
        return None, ledger
    forms = _that_fit(inputs, ledger, wanted, cap)
    if not forms:
        return None, ledger
    text = recalled_block([form.quotation for form in forms])
    turns = [form.recalled.turn for form in forms]
    cost = inputs.count(text) + SEPARATOR + own_message
    cut = sum(not form.is_whole for form in forms)
    reason = f"the best of {len(wanted)} found for this message" + (f"; {cut} of them in part" if cut else "")
    ledger = ledger.add(turns_block("recalled", reason, cost, turns, tuple(_score(form.recalled) for form in forms)))
    here = tuple(turn.position for turn in turns if turn.conversation == material.conversation)
    quoted = {form.recalled.turn.id: form.quotation.parts for form in forms}
    whole = [form.recalled.turn for form in forms if form.is_whole]
    return RecalledBlock(text, here, quoted), ledger.show(turns, whole)


def _score(one: RecalledTurn) -> RecallScore:
    turn = one.turn
    return {
        "turn": turn.id,
        "conversation": turn.conversation,
        "score": one.score,
        "relevance": one.relevance,
        "parts": one.parts,
    }


def _that_fit(inputs: PackInputs, ledger: Ledger, wanted: Sequence[RecalledTurn], cap: int) -> list[_Form]:
    """Choose what to quote: as many as fit, long turns in part; then as a whole those that there is still room for."""
    if wanted[0].spans is None:
        wanted = _without_repeats(_look_again(inputs, wanted))
    replaced = _replacements(inputs, wanted)
    wanted = _next_to_replaced(wanted, replaced) if wanted[0].spans is None else wanted
    forms = _Forms(
        inputs,
        ledger,
        wanted,
        {old.turn.id: new.turn.created for old, new in replaced},
        frozenset(new.turn.id for _, new in replaced),
    )
    if wanted[0].spans is not None:
        return _drop_last([forms.form(index) for index in range(len(wanted))], inputs, cap)
    picked = _pick_exactly(inputs, forms, cap)
    return _drop_last(forms.complete(picked, cap - forms.cost_together(picked)), inputs, cap)


def _pick_exactly(inputs: PackInputs, forms: _Forms, cap: int) -> list[int]:
    """Choose the turns whose block costs at most `cap`, as a whole.

    Turns are counted one by one. Joined they cost less: a speaker is named once, and some line ends are not tokens of
    their own. So they are chosen again with more room, and at last small ones are added.
    """
    candidates = [Candidate(one.turn.created.date(), one.standing) for one in forms.wanted]
    most, standing_room = inputs.options.recall_k, inputs.budget // STANDING_SHARE
    room, too_much = cap - inputs.count(recalled_block([])) - SEPARATOR, 0
    best: _Picked | None = None
    for _ in range(FILLS):
        forms.shortened.clear()
        turns = pick(candidates, forms.cost, room, standing_room=standing_room, most=most, shorten=forms.shorten)
        found = _Picked(turns, dict(forms.shortened), room, cap - forms.cost_together(turns))
        if found.left >= 0 or best is None:
            best = found
        if found.left < 0:
            too_much = room
        if best.left <= SMALLEST or len(best.turns) in (len(candidates), most):
            break
        room = (best.room + too_much) // 2 if too_much else best.room * cap // (cap - best.left)
    forms.shortened.clear()
    forms.shortened.update(best.shortened if best else {})
    picked, left = (best.turns, best.left) if best else ([], 0)
    return picked + _pick_small(forms, candidates, picked, left, most)


class _Picked(NamedTuple):
    """The turns that were chosen for this room, those in part among them, and what their block leaves of the cap."""

    turns: list[int]
    shortened: dict[int, _Form]
    room: int
    left: int


def _pick_small(
    forms: _Forms, candidates: Sequence[Candidate], picked: Sequence[int], spare: int, most: int | None
) -> list[int]:
    """Choose turns that still fit into what the others leave."""
    rest = [index for index in range(len(candidates)) if index not in set(picked)]
    few = None if most is None else most - len(picked)
    if spare <= SMALLEST or not rest or few == 0:
        return []
    more = pick([candidates[index] for index in rest], lambda n: forms.cost(rest[n]), spare, standing_room=0, most=few)
    return [rest[n] for n in more]


def _look_again(inputs: PackInputs, wanted: Sequence[RecalledTurn]) -> list[RecalledTurn]:
    """Sort the turns again, with what their texts say about how well they fit."""
    hints, texts = inputs.material.hints, [one.turn.text for one in wanted]
    scores = [one.score for one in wanted]
    if hints.past:
        scores = [score + gain for score, gain in zip(scores, count_events(texts), strict=True)]
    if hints.collects:
        scores = [score + gain for score, gain in zip(scores, count_shared_words(texts, hints.rarity), strict=True)]
    order = sorted(range(len(wanted)), key=lambda index: -scores[index])
    return [replace(wanted[index], place=place) for place, index in enumerate(order)]


def _without_repeats(wanted: Sequence[RecalledTurn]) -> list[RecalledTurn]:
    """Leave out turns that say the same as a better one."""
    repeats = find_repeats([one.turn.text for one in wanted[:COMPARED]])
    return [one for index, one in enumerate(wanted) if index not in repeats or one.standing or one.quote]


def _replacements(inputs: PackInputs, wanted: Sequence[RecalledTurn]) -> list[tuple[RecalledTurn, RecalledTurn]]:
    """Return the turns that a later one replaced, as far as the question is concerned, each with that turn."""
    people = [one for one in wanted[:COMPARED] if one.turn.role == "user"]
    said = [Said(one.turn.actor, one.turn.created, one.turn.text) for one in people]
    found = find_superseded(said, inputs.material.hints.rarity)
    pairs = [(people[old], people[new]) for old, new in found.items() if people[old].place < REPLACED_AMONG]
    return sorted(pairs, key=lambda pair: pair[0].place)[:MOST_REPLACED]


def _next_to_replaced(
    wanted: Sequence[RecalledTurn], replaced: Sequence[tuple[RecalledTurn, RecalledTurn]]
) -> list[RecalledTurn]:
    """Put each turn that replaces another right before the best that it replaces, so that it is quoted with it."""
    later: dict[str, RecalledTurn] = {old.turn.id: new for old, new in replaced}
    order: dict[str, RecalledTurn] = {}
    for one in wanted:
        new = later.get(one.turn.id)
        if new is not None:
            order.setdefault(new.turn.id, new)
        order.setdefault(one.turn.id, one)
    return list(order.values())


def _drop_last(chosen: list[_Form], inputs: PackInputs, cap: int) -> list[_Form]:
    """Leave out the last ones until the block fits."""
    while chosen and inputs.count(recalled_block([form.quotation for form in chosen])) + SEPARATOR > cap:
        chosen.pop()
    return chosen


# ---- whole turns and parts -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Form:
    """How a turn is quoted, and what that costs."""

    recalled: RecalledTurn
    quotation: Quotation
    cost: int

    @property
    def is_whole(self) -> bool:
        return not self.quotation.parts


@dataclass(frozen=True, slots=True)
class _Forms:
    """The form in which each of the recalled turns would be quoted. A turn longer than its share is quoted in part."""

    inputs: PackInputs
    ledger: Ledger
    wanted: Sequence[RecalledTurn]
    replaced: Mapping[str, datetime] = field(default_factory=dict)  # when a later turn replaced one, by its id
    replacing: frozenset[str] = frozenset()  # ids of those later turns
    made: dict[int, _Form] = field(default_factory=dict)
    shortened: dict[int, _Form] = field(default_factory=dict)  # those that `shorten` made

    def cost(self, index: int) -> int:
        return self.form(index).cost

    def cost_together(self, picked: Sequence[int]) -> int:
        """Return what the block of these turns costs."""
        return self.inputs.count(recalled_block([self.form(index).quotation for index in picked])) + SEPARATOR

    def form(self, index: int) -> _Form:
        if index in self.shortened:
            return self.shortened[index]
        if index not in self.made:
            self.made[index] = self._make(index)
        return self.made[index]

    def _make(self, index: int) -> _Form:
        whole, spans = self._whole(index), self.wanted[index].spans
        if spans is not None:
            return replace(whole, quotation=replace(whole.quotation, parts=spans, name=self._name(index)))
        whole_limit, part_limit = self._limits(self.wanted[index])
        return whole if whole.cost <= whole_limit else self._in_part(index, whole, part_limit)

    def shorten(self, index: int, room: int) -> int | None:
        """Quote one of the best turns in part, as all of it does not fit. Returns the cost; None if it cannot."""
        one = self.wanted[index]
        limit = min(room, longest_turn(self.inputs.options))
        if one.place >= BEST_TURNS or one.turn.role == "assistant" or not self.form(index).is_whole:
            return None
        part = self._in_part(index, self._whole(index), limit)
        if part.cost > limit:
            return None
        self.shortened[index] = part
        return part.cost

    def _name(self, index: int) -> str | None:
        turn = self.wanted[index].turn
        return turn.id if turn.conversation == self.inputs.material.conversation else None

    def complete(self, picked: Sequence[int], left: int) -> list[_Form]:
        """Return the forms of the picked turns; those in part become whole as long as there is room, the best first."""
        chosen = []
        for form in map(self.form, picked):
            whole = form if form.is_whole else self._whole(self.wanted.index(form.recalled))
            if whole.cost - form.cost <= left:
                left -= whole.cost - form.cost
                form = whole
            chosen.append(form)
        return chosen

    def _whole(self, index: int) -> _Form:
        """Return a turn as a whole; of one that is in the prompt already, only what its file says."""
        one = self.wanted[index]
        superseded = self.replaced.get(one.turn.id)
        has_words = one.turn.id not in self.ledger.shown
        quotation = Quotation(one.turn, one.quote, has_words=has_words, superseded=superseded)
        if quotation.has_words and self.inputs.costs.is_over(one.turn):
            return _Form(one, quotation, self.inputs.budget + 1)
        return _Form(one, quotation, self._count(quotation))

    def _limits(self, one: RecalledTurn) -> tuple[int, int]:
        """Return what a turn may cost as a whole, and what a part of it may cost otherwise: more for better turns.

        A long message of the assistant is quoted if the question is about what it said, or it is among the best.
        """
        room = longest_turn(self.inputs.options) / PART
        if one.turn.id in self.replacing and one.place >= BEST_TURNS:  # it came up for one statement
            return int(room * PART), int(room * PART)
        if one.turn.role != "assistant":
            return int(room * max(WHOLE, 1 / (1 + one.place / WHOLE_FADES))), int(room * PART)
        if self.inputs.material.hints.asks_assistant:
            share = 1 / (1 + one.place / ASKED_FADES)
            return int(room * max(ANSWER, ASKED * share)), int(room * max(ANSWER, ASKED * share / 2))
        return int(room * ANSWER), int(room * ANSWER) if one.place < BEST_ANSWERS else 0

    def _in_part(self, index: int, whole: _Form, limit: int) -> _Form:
        """Return the parts of a turn that fit the question, for at most `limit`. If there are none, it cannot fit."""
        turn, quotation = whole.recalled.turn, whole.quotation
        room = int(limit * max(1.0, len(turn.text) / max(1, turn.token_count or whole.cost)))
        for _ in range(TRIES if quotation.has_words and self.inputs.options.shorten else 0):
            parts = find_excerpt(turn.text, self.inputs.material.hints.rarity, room)
            if not parts:
                break
            part = replace(quotation, parts=parts, name=self._name(index))
            cost = self._count(part)
            if cost <= limit:
                return _Form(whole.recalled, part, cost)
            room = int(room * limit / cost * 0.9)
        return whole if whole.cost <= limit else replace(whole, cost=self.inputs.budget + 1)

    def _count(self, quotation: Quotation) -> int:
        return self.inputs.count(quote_recalled(quotation)) + 1


def longest_turn(options: Options) -> int:
    """Return what a part of a turn that is too long to be quoted as a whole may cost."""
    unit = 1 if options.char_budget is None else CHARACTERS
    return max(LEAST_PART * unit, int(options.budget * options.policy.recall * PART))


# ---- picking -------------------------------------------------------------------------------------------------------


def pick(
    candidates: Sequence[Candidate],
    cost: Callable[[int], int],
    room: int,
    *,
    standing_room: int,
    header_cost: int = HEADER_COST,
    most: int | None = None,
    shorten: Callable[[int, int], int | None] = lambda index, room: None,
) -> list[int]:
    """Choose which candidates, best first, to quote in `room` tokens; `cost` is asked by index, and only if needed.

    Standing instructions are taken first, up to `standing_room`; then every candidate that still fits. One that does
    not is given to `shorten` with the room that is left, and taken if that returns what a part of it costs. Returns the
    indices: standing ones first, each part in the order of the ranking.
    """
    standing = [index for index, one in enumerate(candidates) if one.standing]
    first = _Selection(candidates, cost, header_cost, most).fill(standing, min(room, standing_room))
    rest = (index for index in range(len(candidates)) if index not in first.chosen)
    chosen = replace(first, shorten=shorten).fill(rest, room - first.spent).chosen
    return sorted(chosen, key=lambda index: (not candidates[index].standing, index))


@dataclass(frozen=True, slots=True)
class _Selection:
    """The candidates that were chosen so far."""

    candidates: Sequence[Candidate]
    cost: Callable[[int], int]
    header_cost: int
    most: int | None
    chosen: tuple[int, ...] = ()
    spent: int = 0
    shorten: Callable[[int, int], int | None] = lambda index, room: None

    def fill(self, ranking: Iterable[int], room: int) -> _Selection:
        """Walk down the ranking and take every candidate that still fits into `room`."""
        chosen, spent = list(self.chosen), 0
        groups = {self.candidates[index].group for index in chosen}
        for index in ranking:
            if self.most is not None and len(chosen) >= self.most:
                break
            group = self.candidates[index].group
            header = 0 if group in groups else self.header_cost
            cost = self.cost(index) + header
            if cost > room - spent and (part := self.shorten(index, room - spent - header)) is not None:
                cost = part + header
            if cost <= room - spent:
                chosen.append(index)
                groups.add(group)
                spent += cost
            if room - spent < SMALLEST:
                break
        return replace(self, chosen=tuple(chosen), spent=self.spent + spent)
