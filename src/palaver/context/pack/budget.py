"""How the budget is shared, where the window does not depend on the question.

The shares of memory, summaries and recall are settled first; the window gets the rest.
"""

from __future__ import annotations

from palaver.context.pack.ledger import Ledger, PackInputs
from palaver.context.pack.summaries import covering_summaries
from palaver.context.render import summary_block

# The current message is reserved in steps of a sixteenth of the budget, so that its length does not move the window.
RESERVE_STEPS = 16
ONE_SUMMARY = 220  # tokens of one summary, with its marks
NOTE_COST = 32  # tokens of the note on omissions


def recall_share(inputs: PackInputs) -> int:
    return inputs.share(inputs.options.policy.recall) if inputs.options.wants_recall else 0


def summaries_share(inputs: PackInputs) -> int:
    """Return the policy's share; in a small budget at least room for one summary."""
    fraction = inputs.options.policy.summaries
    return max(inputs.share(fraction), min(ONE_SUMMARY, inputs.budget // 3)) if fraction else 0


def window_share(inputs: PackInputs, ledger: Ledger) -> int:
    """Return what the window may fill: the rest of the budget without recall, summaries and a reserve.

    The reserve rounds up the current message to a whole step.
    """
    step = max(1, inputs.budget // RESERVE_STEPS)
    reserve = -ledger.spent_on("current") % step
    return max(0, ledger.left - reserve - recall_share(inputs) - _summaries_reserve(inputs, ledger))


def _summaries_reserve(inputs: PackInputs, ledger: Ledger) -> int:
    """Return what is kept free for summaries: their share, less where a small budget has short summaries.

    It changes only when a summary is written, so that the window does not move with every message.
    """
    cover = covering_summaries(inputs.material.summaries)
    if not cover:
        return 0
    share = summaries_share(inputs)
    if share > inputs.budget * inputs.options.policy.summaries:
        share = min(share, ledger.head_cost(inputs, summary_block(cover)))
    return share + inputs.overhead + NOTE_COST
