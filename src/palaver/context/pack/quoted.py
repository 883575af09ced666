"""The last turns as one quoted text, for policies that do not send them as messages."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.context.explain import Omission
from palaver.context.inputs import Material
from palaver.context.pack.ledger import Ledger, PackInputs, turns_block
from palaver.context.render import fence, quote, quote_label, turn_labels
from palaver.context.tool_rounds import Unit
from palaver.model import Turn

NOTE = "Quotations; indented lines are the speaker's above."


def add_quoted_window(inputs: PackInputs, ledger: Ledger, past: Sequence[Unit]) -> tuple[str, Ledger]:
    """Add the last turns that fit as "Conversation so far"; the text is empty if there are none."""
    options, material = inputs.options, inputs.material
    most = options.recent_turns or options.policy.recent_turns or len(past)
    turns = _after_huge(inputs, [turn for unit in past for turn in unit.turns][-most:])
    while turns and inputs.count(_conversation_so_far(inputs, turns)) + inputs.overhead > ledger.left:
        turns = turns[1:]
    text = _conversation_so_far(inputs, turns) if turns else ""
    if turns:
        cost = inputs.count(text) + inputs.overhead
        ledger = ledger.add(turns_block("recent", f"the {len(turns)} turns before the current one", cost, turns))
        ledger = ledger.show(turns, turns)
    older = _count_before(material, len(turns))
    if older > 0:
        ledger = ledger.omit([Omission(reason="older than the last turns that this policy shows", turns=older)])
    return text, ledger


def _after_huge(inputs: PackInputs, turns: Sequence[Turn]) -> list[Turn]:
    """Return the turns behind the last one that cannot fit: it is not quoted to find that out."""
    huge = [number for number, turn in enumerate(turns) if inputs.costs.is_over(turn)]
    return list(turns[huge[-1] + 1 :] if huge else turns)


def _conversation_so_far(inputs: PackInputs, turns: Sequence[Turn]) -> str:
    lines = ["Conversation so far"]
    if _count_before(inputs.material, len(turns)) > 0:
        lines.append(f"(older messages omitted; showing last {len(turns)} messages)")
    body = "\n".join(_quote_turn(inputs, turn) for turn in turns)
    return "\n".join([*lines, fence("conversation", NOTE, body)])


def _quote_turn(inputs: PackInputs, turn: Turn) -> str:
    """Return a turn behind its role, and behind its speaker where the role does not tell who it is."""
    prefix = inputs.costs.view.prefix(turn)
    head = f"{turn.role}: {prefix}{quote(turn.text, is_named=bool(prefix))}"
    return "\n".join([head.rstrip(), *map(quote_label, turn_labels(turn))])


def _count_before(material: Material, shown: int) -> int:
    """Return how many turns of the view come before those that are shown."""
    current = material.current
    if current is None:
        return material.turn_count - shown
    behind = sum(1 for turn in material.tail if turn.position > current.position)
    return material.turn_count - shown - behind - 1
