"""The sequence of packing steps, and the messages that they result in.

Order of the prompt: instructions, summaries (growing at their end), memory (which may change anywhere) · recent turns
(growing at the end) · the current message with the recalled turns at its head (new each time, therefore last) · its
answer so far. Everything before the recent turns stays the same between compactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from palaver.context.costs import LEAST_TEXT, Costs, Count
from palaver.context.explain import ALL_SHOWN, Explanation, Omission
from palaver.context.inputs import Context, Material
from palaver.context.options import Options
from palaver.context.pack.budget import (
    WindowShare,
    added_budget,
    few_turns_share,
    recall_room,
    recall_share,
    summaries_share,
    window_share,
)
from palaver.context.pack.coverage import mark_summarised, measure, tokens_to_keep
from palaver.context.pack.ledger import Ledger, PackInputs
from palaver.context.pack.memory import add_memory
from palaver.context.pack.person import add_person
from palaver.context.pack.question import add_answer, add_question, split_at_question
from palaver.context.pack.quoted import add_quoted_window
from palaver.context.pack.recalled import RecalledBlock, add_recalled
from palaver.context.pack.summaries import add_summaries
from palaver.context.pack.window import NO_WINDOW, Window, add_whole_thread, add_window
from palaver.context.render import Message, View, prepend
from palaver.context.tool_rounds import Unit

UNSUMMARISED = 0.25  # of the budget: turns without a summary, where recall comes first
WORTH_A_NOTE = 0.02  # of the budget: a smaller unused part is not mentioned
ORDER = ("instructions", "summaries", "omission note", "memory", "person", "recent", "recalled", "current", "rounds")


@dataclass(frozen=True, slots=True)
class PromptParts:
    """The parts of a prompt between the instructions and the current message."""

    head: Sequence[str] = ()  # pieces of the system message
    window: Window = NO_WINDOW
    quoted_window: str = ""  # in place of the window, where the policy quotes the recent turns
    recalled: RecalledBlock | None = None
    person: str = ""  # what is known about the person and fits the question
    outgrows_at: int = 0  # turns without a summary may cost this much before compaction is requested


def pack_context(material: Material, options: Options, count: Count) -> Context:
    """Fill the budget with what was read. Raises `BudgetTooSmall` if not even the current message fits."""
    costs = Costs(
        View(material.owner, options.viewer, several=material.several), options, count, counted=material.counted
    )
    inputs = PackInputs(material, options, costs)
    past, rounds = split_at_question(material)
    current, ledger = add_question(inputs, Ledger(options.budget - options.priming))
    answer, ledger = add_answer(inputs, ledger, rounds)
    parts, ledger = _fill(inputs, ledger, past)
    ahead = _messages_ahead(inputs, parts)
    messages = [*ahead, *_question_messages(current, parts)]
    messages += [message for entry in answer for message in entry.messages]
    explanation = _explain(inputs, ledger, parts)
    return Context(
        messages=messages,
        tokens=explanation.tokens,
        turn_ids=tuple(dict.fromkeys(ledger.verbatim)),
        explanation=explanation,
        stable=len(ahead),
        revision=material.revision,
        outgrown=tokens_to_keep(material, options, parts.outgrows_at, explanation.left_out),
        file_room=ledger.file_room,
        quoted=parts.recalled.quoted if parts.recalled else {},
    )


def _fill(inputs: PackInputs, ledger: Ledger, past: Sequence[Unit]) -> tuple[PromptParts, Ledger]:
    """Add everything but the question, in the way of the policy."""
    if inputs.options.policy.quoted:
        text, ledger = add_quoted_window(inputs, ledger, past)
        return PromptParts(quoted_window=text), ledger
    memory, ledger = add_memory(inputs, ledger, inputs.share(inputs.options.policy.memory))
    person, chosen, ledger = add_person(inputs, ledger, inputs.share(inputs.options.policy.person))
    fill = _fill_recall_first if inputs.options.policy.recall_first else _fill_shares
    parts, ledger = _fill_whole(inputs, ledger, past) or fill(inputs, ledger, past)
    return replace(parts, head=[*parts.head, *memory, *person], person=chosen), ledger


def _fill_whole(inputs: PackInputs, ledger: Ledger, past: Sequence[Unit]) -> tuple[PromptParts, Ledger] | None:
    """Show all turns in order, if they fit. Only other conversations, and files, are recalled then."""
    elsewhere = recall_share(inputs, ledger) if inputs.options.recall_scope != "conversation" else 0
    found = add_whole_thread(inputs, ledger, past, ledger.left - elsewhere)
    if found is None:
        return None
    room = ledger.left - elsewhere + ledger.spent_on("current") + ledger.spent_on("rounds")
    window, ledger = found
    recalled, ledger = add_recalled(inputs, ledger, min(recall_share(inputs, ledger), ledger.left))
    return PromptParts(window=window, recalled=recalled, outgrows_at=room), ledger


def _fill_shares(inputs: PackInputs, ledger: Ledger, past: Sequence[Unit]) -> tuple[PromptParts, Ledger]:
    """Give each block its share. Recall comes last, so that the window does not depend on the question."""
    share = window_share(inputs, ledger)
    window, ledger = add_window(inputs, ledger, past, share, inputs.options.policy.recent_turns)
    ledger = ledger.reserve(-added_budget(inputs))
    summaries, ledger = add_summaries(inputs, ledger, summaries_share(inputs), window.start)
    recalled, ledger = add_recalled(inputs, ledger, recall_room(inputs, ledger))
    outgrows_at = share.least if inputs.options.policy.strides else share.most
    return PromptParts(summaries, window, recalled=recalled, outgrows_at=outgrows_at), ledger


def _fill_recall_first(inputs: PackInputs, ledger: Ledger, past: Sequence[Unit]) -> tuple[PromptParts, Ledger]:
    """Keep a few recent turns, and give recall all that is left; the window gets what recall cannot use."""
    few = WindowShare.of(min(ledger.left - summaries_share(inputs), few_turns_share(inputs)))
    parts, packed = _fill_around_recall(inputs, ledger, past, few, inputs.options.policy.recent_turns)
    if packed.left > LEAST_TEXT and _quotes_everything(inputs, packed):
        more = WindowShare.of(ledger.left - summaries_share(inputs) - packed.spent_on("recalled"))
        parts, packed = _fill_around_recall(inputs, ledger, past, more, None)
    return replace(parts, outgrows_at=inputs.share(UNSUMMARISED)), packed


def _fill_around_recall(
    inputs: PackInputs, ledger: Ledger, past: Sequence[Unit], share: WindowShare, most_turns: int | None
) -> tuple[PromptParts, Ledger]:
    window, ledger = add_window(inputs, ledger, past, share, most_turns)
    summaries, ledger = add_summaries(inputs, ledger, summaries_share(inputs), window.start)
    recalled, ledger = add_recalled(inputs, ledger, ledger.left)
    return PromptParts(summaries, window, recalled=recalled), ledger


def _quotes_everything(inputs: PackInputs, ledger: Ledger) -> bool:
    """Return whether recall has nothing more to quote, or may not quote more."""
    found = [one for one in inputs.material.recalled if one.turn.id not in ledger.shown]
    quoted = sum(len(block.turn_ids) for block in ledger.blocks if block.kind == "recalled")
    return not found or quoted == inputs.options.recall_k


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


def _question_messages(current: Message | None, parts: PromptParts) -> list[Message]:
    heads = [parts.person, parts.recalled.text if parts.recalled else ""]
    head = "\n\n".join(one for one in heads if one)
    if not head:
        return [] if current is None else [current]
    return [{"role": "user", "content": head} if current is None else prepend(current, head)]


# ---- the explanation -----------------------------------------------------------------------------------------------


def _explain(inputs: PackInputs, ledger: Ledger, parts: PromptParts) -> Explanation:
    material, options = inputs.material, inputs.options
    order = {kind: index for index, kind in enumerate(ORDER)}
    budget = options.budget + (0 if parts.window.is_whole else added_budget(inputs))
    left_out = mark_summarised(_left_out(ledger.omissions, parts), ledger)
    coverage = measure(material, ledger, left_out)
    return Explanation(
        budget=budget,
        tokens=budget - ledger.left,
        unit=options.unit,
        counter=material.counter,
        policy=options.policy.name,
        blocks=tuple(sorted(ledger.blocks, key=lambda block: order[block.kind])),
        left_out=left_out,
        turns_total=material.turn_count,
        turns_verbatim=coverage.verbatim,
        recall=material.recall_note,
        coverage=coverage,
        notes=(*ledger.notes, *_unused_note(inputs, ledger, parts)),
        files=ledger.files,
    )


def _unused_note(inputs: PackInputs, ledger: Ledger, parts: PromptParts) -> tuple[str, ...]:
    """Say why nothing is recalled, or how much of recall's share was not used."""
    if parts.window.is_whole and inputs.options.wants_recall and parts.recalled is None:
        return (ALL_SHOWN,)
    unused = min(recall_share(inputs, ledger) - ledger.spent_on("recalled"), ledger.left)
    if parts.window.is_whole or unused < inputs.budget * WORTH_A_NOTE:
        return ()
    why = "nothing else that was found is relevant enough" if ledger.spent_on("recalled") else "nothing was recalled"
    return (f"not used: {unused:,} of the {inputs.options.unit} for recalled turns, because {why}",)


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
