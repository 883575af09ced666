"""The memory block: working memory, facts and standing instructions, in the system message."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.context.explain import Block
from palaver.context.pack.ledger import Ledger, PackInputs
from palaver.context.render import facts_lines, memory_block


def add_memory(inputs: PackInputs, ledger: Ledger, cap: int) -> tuple[list[str], Ledger]:
    """Add as many whole lines as fit into `cap`. Returns the pieces of the system message."""
    lines = [*inputs.material.memory_lines]
    if inputs.material.facts and inputs.options.include_facts:
        lines += ["Known facts:", *facts_lines(inputs.material.facts)]
    kept = _lines_that_fit(inputs, ledger, lines, min(cap, ledger.left))
    if not kept:
        return [], ledger
    text = memory_block(kept)
    reason = "working memory, facts and standing instructions"
    return [text], ledger.add(Block(kind="memory", reason=reason, tokens=ledger.head_cost(inputs, text)))


def _lines_that_fit(inputs: PackInputs, ledger: Ledger, lines: Sequence[str], cap: int) -> list[str]:
    kept: list[str] = []
    room = cap - ledger.head_cost(inputs, memory_block([""]))
    for line in lines:
        cost = inputs.count(line) + 1
        if cost <= room:
            kept.append(line)
            room -= cost
    # Lines are counted one by one above; joined, they may cost a little more.
    while kept and ledger.head_cost(inputs, memory_block(kept)) > cap:
        kept.pop()
    return [] if all(line.endswith(":") for line in kept) else kept  # headings alone are worth nothing
