"""The block about the person: in the system message what holds anyway, at the current message what fits the question.

The first part does not depend on the question, and leaves out what this conversation itself says: it stays the same for
the prompt cache until another conversation adds something.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaver.context.explain import Block
from palaver.context.inputs import PersonItem
from palaver.context.pack.ledger import Ledger, PackInputs
from palaver.context.render import person_block

STABLE_SHARE = 0.6  # of the share, if not everything fits
SEPARATOR = 2  # tokens between the block and the message


def add_person(inputs: PackInputs, ledger: Ledger, cap: int) -> tuple[list[str], str, Ledger]:
    """Add what is known about the person. Returns pieces of the system message, and a text for the current message."""
    known = inputs.material.person
    if not known or cap <= 0:
        return [], "", ledger
    room = min(cap, ledger.left)
    stable = _that_fit(inputs, ledger, known, room)
    if len(stable) < len(known):
        stable = _that_fit(inputs, ledger, known, int(room * STABLE_SHARE))
    pieces: list[str] = []
    if stable:
        text = _render(inputs, stable)
        cost = ledger.head_cost(inputs, text)
        pieces, room = [text], room - cost
        ledger = ledger.add(_block(f"known of {inputs.material.person_name} from elsewhere", stable, known, cost))
    chosen, ledger = _add_chosen(inputs, ledger, [one for one in known if one not in stable], room)
    return pieces, chosen, ledger


def _add_chosen(inputs: PackInputs, ledger: Ledger, rest: Sequence[PersonItem], room: int) -> tuple[str, Ledger]:
    """Add the items that fit the question best, of those that are not shown anyway."""
    ranked = sorted((one for one in rest if one.rank is not None), key=lambda one: one.rank or 0)
    chosen: list[PersonItem] = []
    for one in ranked:
        if inputs.count(_render(inputs, [*chosen, one])) + SEPARATOR <= room:
            chosen.append(one)
    if not chosen:
        return "", ledger
    text = _render(inputs, chosen)
    reason = f"known of {inputs.material.person_name}, for this question"
    return text, ledger.add(_block(reason, chosen, rest, inputs.count(text) + SEPARATOR))


def _that_fit(inputs: PackInputs, ledger: Ledger, known: Sequence[PersonItem], room: int) -> list[PersonItem]:
    """Return the items that fit, wishes first and then the newest, in the order in which they are shown."""
    chosen: list[PersonItem] = []
    left = room - ledger.head_cost(inputs, _render(inputs, []))
    for one in sorted(known, key=lambda one: one.priority):
        cost = inputs.count(one.line) + 4  # its bullet, and a heading at times
        if cost <= left:
            chosen.append(one)
            left -= cost
    while chosen and ledger.head_cost(inputs, _render(inputs, chosen)) > room:
        chosen.pop()
    return [one for one in known if one in chosen]


def _render(inputs: PackInputs, items: Sequence[PersonItem]) -> str:
    lines: list[str] = []
    shown = ""
    for one in items:
        lines += [f"{one.heading}:"] if one.heading != shown else []
        lines.append(f"- {one.line}")
        shown = one.heading
    return person_block(inputs.material.person_name, lines)


def _block(reason: str, shown: Sequence[PersonItem], known: Sequence[PersonItem], tokens: int) -> Block:
    turns = tuple(dict.fromkeys(turn for one in shown for turn in one.turns))
    return Block(kind="person", reason=f"{reason}: {len(shown)} of {len(known)} items", tokens=tokens, turn_ids=turns)
