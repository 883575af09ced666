"""The parts that are always in: instructions, the message to answer, and its answer so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from palaver.context.costs import Entry
from palaver.context.inputs import Material
from palaver.context.options import Options
from palaver.context.pack.budget import few_turns_share
from palaver.context.pack.files import pack_files
from palaver.context.pack.filters import split_usable
from palaver.context.pack.ledger import Ledger, PackInputs, turns_block, unit_omission
from palaver.context.render import Message, prepend, turn_messages
from palaver.context.tool_rounds import Unit, units
from palaver.errors import BudgetTooSmall

ROUNDS_SHARE = 0.75  # of the budget behind the current message: its tool rounds, while a tool loop is running
ANSWER_SHARE = 0.25  # the same for an answer that is complete


def split_at_question(material: Material) -> tuple[list[Unit], list[Unit]]:
    """Return the units before the current message, and those of its answer behind it."""
    tail, current = material.tail, material.current
    if material.message is not None or current is None:
        return units(tail), []
    before = [turn for turn in tail if turn.position < current.position]
    behind = [turn for turn in tail if turn.position > current.position]
    return units(before), units(behind)


def add_question(inputs: PackInputs, ledger: Ledger) -> tuple[Message | None, Ledger]:
    """Add the instructions and the message to answer, with its files. Raises `BudgetTooSmall` if they do not fit."""
    fixed, ledger = _add_instructions(inputs, ledger)
    turn = inputs.material.message or inputs.material.current
    if turn is None:
        _require(inputs.options, "instructions", fixed)
        return None, ledger
    cost = inputs.costs.question(turn)
    _require(inputs.options, "the current message", fixed + cost)
    stored = [turn] if turn.id else []
    files = pack_files(inputs, turn, ledger.left - cost)
    reason = "the message to answer; always included" + ("; with its files" if files.text else "")
    ledger = ledger.add(turns_block("current", reason, cost + files.cost, stored)).show(stored, stored)
    message = turn_messages(turn, inputs.costs.view)[0]
    ledger = replace(ledger, files=files.files, file_room=files.room)
    return prepend(message, files.text) if files.text else message, ledger


def _add_instructions(inputs: PackInputs, ledger: Ledger) -> tuple[int, Ledger]:
    text = inputs.options.instructions
    if not text:
        return 0, ledger
    cost = inputs.count(text) + inputs.overhead
    return cost, ledger.add(turns_block("instructions", "given by the application", cost))


def _require(options: Options, what: str, cost: int) -> None:
    needed = cost + options.priming
    if needed > options.budget:
        raise BudgetTooSmall(what, needed=needed, budget=options.budget, unit=options.unit)


def add_answer(inputs: PackInputs, ledger: Ledger, rounds: Sequence[Unit]) -> tuple[list[Entry], Ledger]:
    """Add the turns behind the current message.

    While a tool loop is running, these are its newest rounds, as many as fit, the last one shortened if necessary. A
    complete answer takes no more than recent turns do.
    """
    is_running = bool(rounds) and rounds[-1].is_tool_round
    cap = int(ledger.left * ROUNDS_SHARE) if is_running else _complete_answer_share(inputs, ledger)
    usable, unusable = split_usable(inputs.options, rounds)
    entries, omitted = _newest_that_fit(inputs, ledger.left, usable, cap, is_running=is_running)
    did_not_fit = [unit_omission("an earlier step of the answer that did not fit", unit) for unit in omitted]
    ledger = ledger.omit([*unusable, *did_not_fit])
    reason = "the answer so far: tool calls with their results" if is_running else "what was answered to it"
    return entries, ledger.add_entries(entries, "rounds", reason)


def _complete_answer_share(inputs: PackInputs, ledger: Ledger) -> int:
    if inputs.options.policy.recall_first:
        return min(ledger.left, few_turns_share(inputs))
    return int(ledger.left * min(ANSWER_SHARE, inputs.options.policy.recent))


def _newest_that_fit(
    inputs: PackInputs, left: int, rounds: Sequence[Unit], cap: int, *, is_running: bool
) -> tuple[list[Entry], list[Unit]]:
    """Return the entries that are in, oldest first, and the units that are not, newest first."""
    entries: list[Entry] = []
    omitted: list[Unit] = []
    used = 0
    for unit in reversed(rounds):
        cost = inputs.costs.unit(unit)
        room = (left if is_running and not entries else cap) - used
        entry: Entry | None = None
        if cost <= room:
            entry = inputs.costs.entry(unit, cost)
        elif not entries:
            entry = inputs.costs.shorten(unit, room)
        if entry is None:
            omitted.append(unit)
            cap = 0  # nothing that is older than a gap
        else:
            entries.append(entry)
            used += entry.cost
    return entries[::-1], omitted
