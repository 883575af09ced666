"""The ledger that the packing steps hand on: what is in the prompt so far, and what is left of the budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from palaver.context.costs import Costs, Count, Entry
from palaver.context.explain import Block, ContextFile, Omission, RecallScore
from palaver.context.inputs import Material
from palaver.context.options import Options
from palaver.context.tool_rounds import Unit
from palaver.model import Turn

HEAD_KINDS = ("memory", "person", "summaries", "omission note", "instructions")  # the blocks of the system message
HEAD_SEPARATOR = 2  # tokens between the pieces of the system message


@dataclass(frozen=True, slots=True)
class PackInputs:
    """The arguments of every packing step: what was read, what was asked for, and what turns cost."""

    material: Material
    options: Options
    costs: Costs

    @property
    def count(self) -> Count:
        return self.costs.count

    @property
    def budget(self) -> int:
        return self.options.budget

    @property
    def overhead(self) -> int:
        return self.options.overhead

    def share(self, fraction: float) -> int:
        """Return this fraction of the whole budget."""
        return int(self.budget * fraction)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The blocks that are in the prompt, the turns that are not, and what is left of the budget."""

    left: int
    blocks: tuple[Block, ...] = ()
    omissions: tuple[Omission, ...] = ()
    shown: frozenset[str] = frozenset()  # ids of the turns that are in, shortened or not
    verbatim: tuple[str, ...] = ()  # ids of the turns that are in word for word
    files: tuple[ContextFile, ...] = ()  # of the current message
    file_room: int | None = None  # that they had
    notes: tuple[str, ...] = ()  # for the explanation

    def add(self, block: Block) -> Ledger:
        return replace(self, left=self.left - block.tokens, blocks=(*self.blocks, block))

    def note(self, notes: Sequence[str]) -> Ledger:
        return replace(self, notes=(*self.notes, *notes)) if notes else self

    def reserve(self, tokens: int) -> Ledger:
        """Keep tokens free for something that is not a block."""
        return replace(self, left=self.left - tokens)

    def show(self, turns: Sequence[Turn], verbatim: Sequence[Turn]) -> Ledger:
        """Record that these turns are in the prompt, and which of them are word for word."""
        return replace(
            self,
            shown=self.shown.union(turn.id for turn in turns),
            verbatim=(*self.verbatim, *(turn.id for turn in verbatim)),
        )

    def add_entries(self, entries: Sequence[Entry], kind: str, reason: str) -> Ledger:
        """Add whole units of turns as one block."""
        if not entries:
            return self
        turns = [turn for entry in entries for turn in entry.unit.turns]
        verbatim = [turn for entry in entries if entry.verbatim for turn in entry.unit.turns]
        cut = sum(not entry.verbatim for entry in entries)
        reason += f"; {cut} shortened in the middle" if cut else ""
        cost = sum(entry.cost for entry in entries)
        return self.add(turns_block(kind, reason, cost, turns)).show(turns, verbatim)

    def omit(self, omissions: Sequence[Omission]) -> Ledger:
        return replace(self, omissions=(*self.omissions, *omissions)) if omissions else self

    def spent_on(self, kind: str) -> int:
        return sum(block.tokens for block in self.blocks if block.kind == kind)

    def head_cost(self, inputs: PackInputs, text: str) -> int:
        """Return the cost of a piece of the system message; the first piece also pays for the message."""
        has_head = any(block.kind in HEAD_KINDS for block in self.blocks)
        return inputs.count(text) + HEAD_SEPARATOR + (0 if has_head else inputs.overhead)


def turns_block(
    kind: str, reason: str, tokens: int, turns: Sequence[Turn] = (), scores: tuple[RecallScore, ...] = ()
) -> Block:
    """Describe a block that shows these turns."""
    positions = [turn.position for turn in turns]
    return Block(
        kind=kind,
        reason=reason,
        tokens=tokens,
        turn_ids=tuple(turn.id for turn in turns),
        from_seq=min(positions, default=None),
        through_seq=max(positions) + 1 if positions else None,
        scores=scores,
    )


def unit_omission(reason: str, unit: Unit) -> Omission:
    """Describe one unit of the tail that is left out."""
    start, end = unit.turns[0].position, unit.turns[-1].position + 1
    return Omission(reason=reason, turns=len(unit.turns), from_seq=start, through_seq=end, unit=True)
