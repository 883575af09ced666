"""The memory block: standing instructions, working memory and facts, in the system message.

Standing instructions come first and may take more than the share of memory: forgetting one is a broken promise. Those
that do not fit are named, at the end of the block and in the explanation.
"""

from __future__ import annotations

from collections.abc import Sequence

from palaver.context.explain import Block
from palaver.context.pack.ledger import Ledger, PackInputs
from palaver.context.render import facts_lines, memory_block
from palaver.memory.working_memory import INSTRUCTIONS_HEADING

STANDING_SHARE = 0.3  # of the budget that standing instructions may take at most
NAMES_SHARE = 0.25  # of the room for standing instructions that may name those which do not fit
NAME = 28  # characters of an instruction by which it is named
SLACK = 3  # tokens that lines may cost more when they are joined


def add_memory(inputs: PackInputs, ledger: Ledger, cap: int) -> tuple[list[str], Ledger]:
    """Add as many whole lines as fit into `cap`. Returns the pieces of the system message.

    Without a share for memory nothing is added.
    """
    if cap <= 0:
        return [], ledger
    standing, ledger = _standing_lines(inputs, ledger, max(cap, inputs.share(STANDING_SHARE)))
    lines = [*inputs.material.memory_lines]
    if inputs.material.facts and inputs.options.include_facts:
        lines += ["Known facts:", *facts_lines(inputs.material.facts)]
    kept = [*standing, *_lines_that_fit(inputs, ledger, standing, lines, min(cap, ledger.left))]
    if not kept:
        return [], ledger
    text = memory_block(kept)
    reason = "working memory, facts and standing instructions"
    return [text], ledger.add(Block(kind="memory", reason=reason, tokens=ledger.head_cost(inputs, text)))


def _lines_that_fit(
    inputs: PackInputs, ledger: Ledger, standing: Sequence[str], lines: Sequence[str], cap: int
) -> list[str]:
    """Return the lines that fit into `cap` behind the standing instructions."""
    kept: list[str] = []
    room = cap - ledger.head_cost(inputs, memory_block(standing or [""]))
    for line in lines:
        cost = inputs.count(line) + 1
        if cost <= room:
            kept.append(line)
            room -= cost
    # Lines are counted one by one above; joined, they may cost a little more.
    while kept and ledger.head_cost(inputs, memory_block([*standing, *kept])) > cap:
        kept.pop()
    return [] if all(line.endswith(":") for line in kept) else kept  # headings alone are worth nothing


# ---- standing instructions -----------------------------------------------------------------------------------------


def _standing_lines(inputs: PackInputs, ledger: Ledger, most: int) -> tuple[list[str], Ledger]:
    """Return the lines of the standing instructions that fit into `most`, the newest if not all do."""
    needed = inputs.material.standing
    if not needed:
        return [], ledger
    room = min(most, ledger.left) - ledger.head_cost(inputs, memory_block([INSTRUCTIONS_HEADING])) - SLACK
    kept = _newest_that_fit(inputs, needed, room)
    if len(kept) < len(needed):
        kept = _newest_that_fit(inputs, needed, int(room * (1 - NAMES_SHARE)))
    left_out = [line for index, line in enumerate(needed) if index not in kept]
    if not left_out:
        return [INSTRUCTIONS_HEADING, *needed], ledger
    ledger = ledger.note([f"a standing instruction did not fit: {line.removeprefix('- ')}" for line in left_out])
    shown = [needed[index] for index in sorted(kept)]
    names = _name_left_out(inputs, left_out, int(room * NAMES_SHARE))
    return [INSTRUCTIONS_HEADING, *shown, *([names] if names else [])] if shown or names else [], ledger


def _newest_that_fit(inputs: PackInputs, lines: Sequence[str], room: int) -> set[int]:
    """Return the indices of the lines that fit, from the last on."""
    kept: set[int] = set()
    for index in reversed(range(len(lines))):
        cost = inputs.count(lines[index]) + 1
        if cost <= room:
            kept.add(index)
            room -= cost
    return kept


def _name_left_out(inputs: PackInputs, lines: Sequence[str], room: int) -> str:
    """Name the standing instructions that did not fit by their beginnings, as many as there is room for."""
    names = [_short_name(line) for line in lines]
    for shown in range(len(names), -1, -1):
        more = [f"{len(names) - shown} more"] if shown < len(names) else []
        text = f"({len(names)} standing wishes did not fit: {', '.join([*names[:shown], *more])})"
        if inputs.count(text) + 1 <= room:
            return text
    return ""


def _short_name(line: str) -> str:
    said = line.split(': "', 1)[-1].rstrip('"')
    return f'"{said[:NAME].rstrip()}…"' if len(said) > NAME else f'"{said}"'
