"""Which turns a context covers, and when summaries are needed so that it covers all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from palaver.context.explain import Coverage, Omission
from palaver.context.inputs import Material
from palaver.context.options import OVERHEAD_TOKENS, Options
from palaver.context.pack.budget import CHARACTERS
from palaver.context.pack.ledger import Ledger
from palaver.context.pack.window import TOO_LONG
from palaver.model import Turn

KEPT = 0.12  # compaction leaves this share of the window's least size without a summary


def mark_summarised(omissions: Sequence[Omission], ledger: Ledger) -> tuple[Omission, ...]:
    """Mark the omissions that a shown summary covers."""
    end = max((block.through_seq or 0 for block in ledger.blocks if block.kind == "summaries"), default=0)
    return tuple(
        replace(one, summarised=True) if one.unit and (one.through_seq or 0) <= end else one for one in omissions
    )


def measure(material: Material, ledger: Ledger, left_out: Sequence[Omission]) -> Coverage:
    """Count the turns of the conversation: word for word, shortened, in a shown summary, not covered."""
    here = {turn.id for turn in _known_turns(material) if turn.conversation == material.conversation}
    verbatim = here.intersection(ledger.verbatim)
    shortened = here.intersection(ledger.shown) - verbatim
    missing = sum(one.turns for one in left_out if not one.summarised)
    shown = len(verbatim) + len(shortened)
    return Coverage(
        verbatim=len(verbatim),
        shortened=len(shortened),
        summarised=max(0, material.turn_count - shown - missing),
        not_covered=missing,
    )


def _known_turns(material: Material) -> list[Turn]:
    current = [material.current] if material.current is not None else []
    return [*material.tail, *current, *(one.turn for one in material.recalled)]


def tokens_to_keep(material: Material, options: Options, limit: int, left_out: Sequence[Omission]) -> int | None:
    """Return how many tokens compaction may leave without a summary. None if it does not have to run.

    It runs when turns are not covered, and before the turns without a summary outgrow `limit`.
    """
    if not options.policy.summaries or not material.compacts:
        return None
    most = limit if options.char_budget is None else limit // CHARACTERS
    pending = [turn for turn in material.tail if turn.position >= material.summarized]
    costs = [turn.token_count + OVERHEAD_TOKENS for turn in pending]
    missing = [one for one in left_out if not one.summarised and (not one.unit or one.reason == TOO_LONG)]
    uncovered = max((one.through_seq or 0 for one in missing), default=None)
    if uncovered is None and sum(costs) + sum(costs[-2:]) <= most:
        return None
    behind = sum(turn.token_count for turn in pending if uncovered is None or turn.position >= uncovered)
    return min(int(most * KEPT), behind)
