"""How the budget is shared. Shares are settled before recall, so that the window does not depend on the question."""

from __future__ import annotations

from dataclasses import dataclass

from palaver.context.pack.ledger import Ledger, PackInputs

NOTE_COST = 26  # tokens of the note on omissions
SHORT_SUMMARY = 140  # tokens: in a small budget the summaries may take this much instead of their share,
SHORTEST_SUMMARY = 100  # or a tenth of the budget if that is less, or this much, but never more than a quarter
BRIEFEST_SUMMARY = 80  # tokens, where recall comes first
FEW_TURNS = 60  # tokens of recent turns, where recall comes first: the least,
SMALL_BUDGET = 1_000  # and the policy's share counts from this budget on
STRIDE = 0.85  # of the difference between the most and the least that the window holds; the rest is for whole turns
WHOLE_TURNS = 0.05  # of the budget above the least size of the window, so that whole turns reach it
STRIDE_STEPS = 64  # the stride is a multiple of this part of the budget: it must not change with every note in memory
WITHOUT_RECALL = (0.6, 0.9)  # the least and the most that the window holds when nothing is recalled
CHARACTERS = 4  # of a token, roughly


@dataclass(frozen=True, slots=True)
class WindowShare:
    """The limits of the window: `cap` for the turns before the question; `most` and `least` include the question.

    `asked` is what the question costs, and its answer so far.
    """

    cap: int
    most: int
    least: int
    asked: int = 0
    stride: int = 0  # by how much the start of the window moves

    @classmethod
    def of(cls, cap: int) -> WindowShare:
        """Return a share without a least size."""
        return cls(max(0, cap), max(0, cap), 0)


def recall_share(inputs: PackInputs, ledger: Ledger) -> int:
    """Return the share of recall in what the instructions leave; at least what it took in the first prompt."""
    if not inputs.options.wants_recall:
        return 0
    share = int((inputs.budget - ledger.spent_on("instructions")) * inputs.options.policy.recall)
    return max(share, inputs.material.recall_room)


def recall_room(inputs: PackInputs, ledger: Ledger) -> int:
    """Return what recall may take once the window and the summaries are in: its share, and what the window leaves.

    The reserve for summaries and whole turns stays free: they may need it in the next prompt for this message.
    """
    free = _summaries_reserve(inputs) - ledger.spent_on("summaries") - ledger.spent_on("omission note")
    room = ledger.left - max(0, free) - inputs.share(WHOLE_TURNS)
    return min(max(room, recall_share(inputs, ledger)), ledger.left)


def few_turns_share(inputs: PackInputs) -> int:
    """Return the share of the window where recall comes first: the smaller the budget, the more of it is for recall.

    In a small budget it is enough for a few short turns.
    """
    unit = 1 if inputs.options.char_budget is None else CHARACTERS
    share = int((inputs.budget - SMALL_BUDGET * unit) * inputs.options.policy.recent)
    return max(share, min(FEW_TURNS * unit, inputs.budget // 8))


def summaries_share(inputs: PackInputs) -> int:
    """Return the policy's share; in a small budget enough for a short summary."""
    fraction = inputs.options.policy.summaries
    if not fraction or not (inputs.material.compacts or inputs.material.summaries):
        return 0
    unit = 1 if inputs.options.char_budget is None else CHARACTERS
    if inputs.options.policy.recall_first:
        return max(inputs.share(fraction), min(BRIEFEST_SUMMARY * unit, inputs.budget // 8))
    short = min(SHORT_SUMMARY * unit, max(SHORTEST_SUMMARY * unit, inputs.budget // 10), inputs.budget // 4)
    return max(inputs.share(fraction), short)


def window_share(inputs: PackInputs, ledger: Ledger) -> WindowShare:
    """Return the share of the window: what recall and the summaries leave, within the limits of the policy."""
    policy = inputs.options.policy
    has_recall = inputs.options.wants_recall
    least, most = (policy.recent_least, policy.recent) if has_recall or not policy.strides else WITHOUT_RECALL
    asked = ledger.spent_on("current") + ledger.spent_on("rounds")
    room = ledger.left - _summaries_reserve(inputs)
    # Many standing instructions take room from recall before they take it from the least that the window holds.
    enough = min(room, inputs.share(least + WHOLE_TURNS) - asked) if has_recall and policy.strides else 0
    cap = max(0, enough, min(room - recall_share(inputs, ledger), inputs.share(most) - asked))
    total = min(inputs.share(most), cap + asked)
    return WindowShare(cap, total, inputs.share(least), asked, _stride(inputs, total - inputs.share(least)))


def _stride(inputs: PackInputs, room: int) -> int:
    step = max(1, inputs.budget // STRIDE_STEPS)
    return max(1, int(room * STRIDE) // step * step)


def _summaries_reserve(inputs: PackInputs) -> int:
    """Return what is kept free for summaries and the note. It is constant, so that the window keeps its size."""
    if inputs.options.policy.added_summaries:
        return 0
    share = summaries_share(inputs)
    note = NOTE_COST if inputs.options.note_omissions else 0
    return share + note + inputs.overhead if share or note else 0


def added_budget(inputs: PackInputs) -> int:
    """Return what is added to the budget for summaries, where the budget is for the recent turns alone."""
    if not inputs.options.policy.added_summaries:
        return 0
    return summaries_share(inputs) + NOTE_COST * CHARACTERS + inputs.overhead
