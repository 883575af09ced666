"""Recalled turns: quoted, at the head of the current message."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from palaver.context.costs import LEAST_TEXT
from palaver.context.explain import RecallScore
from palaver.context.inputs import RecalledTurn
from palaver.context.pack.ledger import Ledger, PackInputs, turns_block
from palaver.context.render import Quotation, quote_recalled, recalled_block

HEADER_COST = 8  # tokens of a line with the date
SMALLEST = 8  # tokens: nothing shorter is worth quoting
STANDING_SHARE = 10  # standing instructions are taken first, in a tenth of the budget
SEPARATOR = 2  # tokens between the block and the message


@dataclass(frozen=True, slots=True)
class RecalledBlock:
    """The text of the block, and the positions of those of its turns that are from this conversation."""

    text: str
    positions: tuple[int, ...]


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
    chosen = _that_fit(inputs, ledger, wanted, cap)
    if not chosen:
        return None, ledger
    turns = [one.turn for one in chosen]
    text = _block(ledger, chosen)
    cost = inputs.count(text) + SEPARATOR + own_message
    reason = f"the best of {len(wanted)} found for this message"
    ledger = ledger.add(turns_block("recalled", reason, cost, turns, tuple(_score(one) for one in chosen)))
    here = tuple(turn.position for turn in turns if turn.conversation == material.conversation)
    return RecalledBlock(text, here), ledger.show(turns, turns)


def _quotation(ledger: Ledger, one: RecalledTurn) -> Quotation:
    """Return what to quote of a turn; of one that is in the prompt already, only what its file says."""
    return Quotation(one.turn, one.quote, has_words=one.turn.id not in ledger.shown)


def _block(ledger: Ledger, chosen: Sequence[RecalledTurn]) -> str:
    return recalled_block([_quotation(ledger, one) for one in chosen])


def _score(one: RecalledTurn) -> RecallScore:
    turn = one.turn
    return {
        "turn": turn.id,
        "conversation": turn.conversation,
        "score": one.score,
        "relevance": one.relevance,
        "parts": one.parts,
    }


def _that_fit(inputs: PackInputs, ledger: Ledger, wanted: Sequence[RecalledTurn], cap: int) -> list[RecalledTurn]:
    picked = pick(
        [Candidate(one.turn.created.date(), one.standing) for one in wanted],
        lambda index: _cost(inputs, _quotation(ledger, wanted[index])),
        cap - inputs.count(recalled_block([])) - SEPARATOR,
        standing_room=inputs.budget // STANDING_SHARE,
        most=inputs.options.recall_k,
    )
    chosen = [wanted[index] for index in picked]
    # Lines are counted one by one above; joined, they may cost a little more.
    while chosen and inputs.count(_block(ledger, chosen)) + SEPARATOR > cap:
        chosen.pop()
    return chosen


def _cost(inputs: PackInputs, one: Quotation) -> int:
    """Return the cost of a quotation; of a turn that cannot fit, any number above the budget."""
    if one.has_words and inputs.costs.is_over(one.turn):
        return inputs.budget + 1
    return inputs.count(quote_recalled(one)) + 1


# ---- picking -------------------------------------------------------------------------------------------------------


def pick(
    candidates: Sequence[Candidate],
    cost: Callable[[int], int],
    room: int,
    *,
    standing_room: int,
    header_cost: int = HEADER_COST,
    most: int | None = None,
) -> list[int]:
    """Choose which candidates, best first, to quote in `room` tokens; `cost` is asked by index, and only if needed.

    Standing instructions are taken first, up to `standing_room`; then every candidate that still fits. Returns the
    indices: standing ones first, each part in the order of the ranking.
    """
    standing = [index for index, one in enumerate(candidates) if one.standing]
    first = _Selection(candidates, cost, header_cost, most).fill(standing, min(room, standing_room))
    rest = (index for index in range(len(candidates)) if index not in first.chosen)
    chosen = first.fill(rest, room - first.spent).chosen
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

    def fill(self, ranking: Iterable[int], room: int) -> _Selection:
        """Walk down the ranking and take every candidate that still fits into `room`."""
        chosen, spent = list(self.chosen), 0
        groups = {self.candidates[index].group for index in chosen}
        for index in ranking:
            if self.most is not None and len(chosen) >= self.most:
                break
            group = self.candidates[index].group
            cost = self.cost(index) + (0 if group in groups else self.header_cost)
            if cost <= room - spent:
                chosen.append(index)
                groups.add(group)
                spent += cost
            if room - spent < SMALLEST:
                break
        return replace(self, chosen=tuple(chosen), spent=self.spent + spent)
