"""The sequence of packing steps, and the messages that they result in.

Order of the prompt: instructions, summaries (growing at their end), memory (which may change anywhere) · recent turns
(growing at the end) · the current message with the recalled turns at its head (new each time, therefore last) · its
answer so far. Everything before the recent turns stays the same between compactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from palaver.context.costs import Costs, Count
from palaver.context.explain import Explanation, Omission
from palaver.context.inputs import Context, Material
from palaver.context.options import Options
from palaver.context.pack.budget import recall_share, summaries_share, window_share
from palaver.context.pack.ledger import Ledger, PackInputs
from palaver.context.pack.memory import add_memory
from palaver.context.pack.question import add_answer, add_question, split_at_question
from palaver.context.pack.quoted import add_quoted_window
from palaver.context.pack.recalled import RecalledBlock, add_recalled
from palaver.context.pack.summaries import add_summaries
from palaver.context.pack.window import NO_WINDOW, Window, add_window
from palaver.context.render import Message, View, prepend
from palaver.context.tool_rounds import Unit

ORDER = ("instructions", "summaries", "omission note", "memory", "recent", "recalled", "current", "rounds")


@dataclass(frozen=True, slots=True)
class PromptParts:
    """The parts of a prompt between the instructions and the current message."""

    head: Sequence[str] = ()  # pieces of the system message
    window: Window = NO_WINDOW
    quoted_window: str = ""  # in place of the window, where the policy quotes the recent turns
    recalled: RecalledBlock | None = None


def pack_context(material: Material, options: Options, count: Count) -> Context:
    """Fill the budget with what was read. Raises `BudgetTooSmall` if not even the current message fits."""
    costs = Costs(View(material.owner, options.viewer), options, count, counted=material.counted)
    inputs = PackInputs(material, options, costs)
    past, rounds = split_at_question(material)
    current, ledger = add_question(inputs, Ledger(options.budget - options.priming))
    answer, ledger = add_answer(inputs, ledger, rounds)
    parts, ledger = _fill(inputs, ledger, past)
    ahead = _messages_ahead(inputs, parts)
    messages = [*ahead, *_question_messages(current, parts.recalled)]
    messages += [message for entry in answer for message in entry.messages]
    tokens = options.budget - ledger.left
    return Context(
        messages=messages,
        tokens=tokens,
        turn_ids=tuple(dict.fromkeys(ledger.verbatim)),
        explanation=_explain(inputs, ledger, parts, tokens),
        stable=len(ahead),
        revision=material.revision,
        outgrown=parts.window.outgrown,
        file_room=ledger.file_room,
    )


def _fill(inputs: PackInputs, ledger: Ledger, past: Sequence[Unit]) -> tuple[PromptParts, Ledger]:
    """Add everything but the question, in the way of the policy."""
    if inputs.options.policy.quoted:
        text, ledger = add_quoted_window(inputs, ledger, past)
        return PromptParts(quoted_window=text), ledger
    if inputs.options.policy.recall_first:
        return _fill_recall_first(inputs, ledger, past)
    return _fill_balanced(inputs, ledger, past)


def _fill_balanced(inputs: PackInputs, ledger: Ledger, past: Sequence[Unit]) -> tuple[PromptParts, Ledger]:
    """Give each block its share. Recall comes last, so that the window does not depend on the question."""
    memory, ledger = add_memory(inputs, ledger, inputs.share(inputs.options.policy.memory))
    window, ledger = add_window(inputs, ledger, past, window_share(inputs, ledger))
    summaries, ledger = add_summaries(inputs, ledger, summaries_share(inputs), window.start)
    recalled, ledger = add_recalled(inputs, ledger, min(recall_share(inputs), ledger.left))
    return PromptParts([*summaries, *memory], window, recalled=recalled), ledger


def _fill_recall_first(inputs: PackInputs, ledger: Ledger, past: Sequence[Unit]) -> tuple[PromptParts, Ledger]:
    """Keep a few recent turns, and give recall all that is left; memory and summaries get what it does not use."""
    policy = inputs.options.policy
    window, ledger = add_window(inputs, ledger, past, min(ledger.left, inputs.share(policy.recent)))
    recalled, ledger = add_recalled(inputs, ledger, ledger.left)
    memory, ledger = add_memory(inputs, ledger, inputs.share(policy.memory))
    summaries, ledger = add_summaries(inputs, ledger, inputs.share(policy.summaries), window.start)
    return PromptParts([*summaries, *memory], window, recalled=recalled), ledger


# ---- messages ------------------------------------------------------------------------------------------------------


def _messages_ahead(inputs: PackInputs, parts: PromptParts) -> list[Message]:
    """Return the messages before the current one. They do not depend on the question."""
    instructions = inputs.options.instructions
    pieces = [*([instructions] if instructions else []), *parts.head]
    messages: list[Message] = [{"role": "system", "content": "\n\n".join(pieces)}] if pieces else []
    messages += [message for entry in parts.window.entries for message in entry.messages]
    if parts.quoted_window:
        messages.append({"role": "user", "content": parts.quoted_window})
    return messages


def _question_messages(current: Message | None, recalled: RecalledBlock | None) -> list[Message]:
    if recalled is None:
        return [] if current is None else [current]
    return [{"role": "user", "content": recalled.text} if current is None else prepend(current, recalled.text)]


# ---- the explanation -----------------------------------------------------------------------------------------------


def _explain(inputs: PackInputs, ledger: Ledger, parts: PromptParts, tokens: int) -> Explanation:
    material, options = inputs.material, inputs.options
    order = {kind: index for index, kind in enumerate(ORDER)}
    return Explanation(
        budget=options.budget,
        tokens=tokens,
        unit=options.unit,
        counter=material.counter,
        policy=options.policy.name,
        blocks=tuple(sorted(ledger.blocks, key=lambda block: order[block.kind])),
        left_out=_left_out(ledger.omissions, parts),
        turns_total=material.turn_count,
        turns_verbatim=len(set(ledger.verbatim)),
        recall=material.recall_note,
        files=ledger.files,
    )


def _left_out(omissions: Sequence[Omission], parts: PromptParts) -> tuple[Omission, ...]:
    """Merge the omissions to one per reason. A turn that was recalled is not left out, wherever it lies."""
    positions = parts.recalled.positions if parts.recalled else ()
    # Turns before the window are counted together, so a single unit there must not be counted twice.
    counted = [one for one in omissions if not (one.unit and (one.through_seq or 0) <= parts.window.start)]
    rest = [_without_recalled(one, positions) for one in counted]
    merged: dict[str, Omission] = {}
    for one in rest:
        if one.turns:
            known = merged.get(one.reason)
            merged[one.reason] = one if known is None else _join(known, one)
    return tuple(merged.values())


def _without_recalled(one: Omission, positions: Sequence[int]) -> Omission:
    start, end = one.from_seq, one.through_seq
    if start is None or end is None:
        return one
    inside = sum(start <= position < end for position in positions)
    return replace(one, turns=max(0, one.turns - inside)) if inside else one


def _join(a: Omission, b: Omission) -> Omission:
    starts = [n for n in (a.from_seq, b.from_seq) if n is not None]
    ends = [n for n in (a.through_seq, b.through_seq) if n is not None]
    return replace(a, turns=a.turns + b.turns, from_seq=min(starts, default=None), through_seq=max(ends, default=None))
