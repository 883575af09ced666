"""From a snapshot of a conversation to the inputs of a context, without what came after a bound. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, reduce

from msgspec import structs

from palaver.context.inputs import Bound, Context
from palaver.context.options import Options
from palaver.context.pack import WITHOUT_RECALL, covering_summaries
from palaver.core.identity import stamped_seq
from palaver.memory import working_memory
from palaver.memory.retention import retention_of
from palaver.model import Note, Turn, WorkingMemory
from palaver.ports.memory import ContextSnapshot, ReadBudget

FACTS = 40


def read_budget(options: Options) -> ReadBudget:
    """Return how much to read for a context with these options."""
    return ReadBudget(
        budget=options.budget,
        summarised=_readable_summarized(options),
        in_characters=options.char_budget is not None,
        viewer=options.viewer,
        facts=FACTS if options.include_facts else 0,
    )


def _readable_summarized(options: Options) -> int | None:
    """Return how much to read of a thread that is longer than the budget. None if that is not known beforehand."""
    policy = options.policy
    limits = (options.recent_turns, policy.recent_turns, options.filter_participants, options.viewer)
    if not policy.strides or policy.recall_first or any(limit is not None for limit in limits):
        return None
    return int(options.budget * (policy.recent if options.wants_recall else WITHOUT_RECALL[1]))


def count_turns(snapshot: ContextSnapshot) -> int:
    """Return the number of turns that the context covers: those of the view, and those whose text retention removed.

    Turns of the second kind are not in the view, but summaries still cover them.
    """
    if retention_of(snapshot.info.settings) == "full":
        return snapshot.info.turn_count
    cover = covering_summaries(snapshot.summaries, snapshot.summarized_position)
    retired = sum(summary.turns for summary in cover) - snapshot.summarized_turns
    return snapshot.info.turn_count + max(0, retired)


def memory_lines(snapshot: ContextSnapshot, options: Options) -> tuple[str, ...]:
    """Return the working memory as lines of the prompt."""
    if not options.include_working_memory or snapshot.working_memory is None:
        return ()
    memory = replace(working_memory.from_json(snapshot.working_memory), instructions=())
    return tuple(line for line in working_memory.render(memory).splitlines() if line.strip())


# ---- standing instructions -----------------------------------------------------------------------------------------


def shows_standing(options: Options) -> bool:
    """Return whether standing instructions are in the prompt, apart from those that recent turns give."""
    return options.include_working_memory and options.policy.memory > 0


def unread_span(snapshot: ContextSnapshot) -> tuple[int, int]:
    """Return the positions [start, end) of the turns that are neither in working memory nor in the tail."""
    end = snapshot.tail[0].position if snapshot.tail else snapshot.info.turn_count
    return _memory(snapshot).through_seq + 1, end


def unread_turns(snapshot: ContextSnapshot, context: Context) -> list[Turn]:
    """Return the turns of the tail that working memory has not read and that the window does not show in full.

    Recalled turns do not count: what is in memory must not depend on the question.
    """
    start, _ = unread_span(snapshot)
    blocks = [block for block in context.explanation.blocks if block.kind != "recalled"]
    shown = {id for block in blocks for id in block.turn_ids}.intersection(context.turn_ids)
    return [turn for turn in snapshot.tail if turn.position >= start and turn.id not in shown]


def standing_lines(snapshot: ContextSnapshot, options: Options, found: Sequence[Note]) -> tuple[str, ...]:
    """Return the standing instructions that are in force as lines, oldest first.

    `found` are those of turns that working memory has not read.
    """
    info, wanted = snapshot.info, options.filter_participants
    several = not {info.owner, "user"}.issuperset([*info.participants, *(turn.actor for turn in snapshot.tail)])
    in_force = _instructions_in_force(snapshot.working_memory, tuple(found))
    notes = [note for note in in_force if wanted is None or note.actor is None or note.actor in wanted]
    return tuple(working_memory.instruction_line(note, info.owner, several=several) for note in notes)


# Both are the same from one context to the next, until working memory is written or a turn leaves the window.
@lru_cache(maxsize=64)
def _instructions_in_force(stored: str | None, found: tuple[Note, ...]) -> tuple[Note, ...]:
    return working_memory.add_instructions(_read_memory(stored), found).instructions


@lru_cache(maxsize=64)
def _read_memory(stored: str | None) -> WorkingMemory:
    return WorkingMemory() if stored is None else working_memory.from_json(stored)


def _memory(snapshot: ContextSnapshot) -> WorkingMemory:
    return _read_memory(snapshot.working_memory)


# ---- bound to a turn -----------------------------------------------------------------------------------------------


def later_turns(snapshot: ContextSnapshot, bound: Bound) -> list[Turn]:
    return [turn for turn in snapshot.tail if bound.excludes(turn)]


def is_whole(snapshot: ContextSnapshot) -> bool:
    """Return whether the thread was read from its first turn on."""
    return bool(snapshot.tail) and (snapshot.tail[0].position == 0 or len(snapshot.tail) >= count_turns(snapshot))


def tokens_before(snapshot: ContextSnapshot) -> int:
    """Return the tokens of the thread before the first turn that was read."""
    return max(0, snapshot.info.token_count - sum(turn.token_count for turn in snapshot.tail))


def is_far_back(snapshot: ContextSnapshot, bound: Bound) -> bool:
    """Return whether every turn that was read came after the bound, so that none before it is known."""
    return not is_whole(snapshot) and bool(snapshot.tail) and snapshot.tail[0].position > bound.turn.position


def turn_size(*, in_characters: bool) -> Callable[[Turn], int]:
    """Return a function that measures a turn, as engines do when they read up to a budget."""
    return _characters if in_characters else _tokens


def _characters(turn: Turn) -> int:
    return 1 + len(turn.text)


def _tokens(turn: Turn) -> int:
    return 1 + turn.token_count


def at_bound(
    snapshot: ContextSnapshot, bound: Bound, before: Sequence[Turn], following: Sequence[Turn]
) -> ContextSnapshot:
    """Return the snapshot as it was at a bound far back: with the turns before it, and what was made from them."""
    own = [bound.turn] if bound.turn.active else []
    own += [turn for turn in following if not bound.excludes(turn)]
    tail = tuple(turn for turn in (*before, *own) if turn.status == "complete")
    count = min(snapshot.info.turn_count, bound.turn.position + len(own))
    # Nothing has counted the tokens of the thread up to here: the turns that were read stand for the others.
    tokens = sum(turn.token_count for turn in tail) * max(count, len(tail)) // max(1, len(tail))
    return replace(
        snapshot,
        info=replace(snapshot.info, turn_count=count, token_count=tokens),
        tail=tail,
        summaries=tuple(one for one in snapshot.summaries if one.through_seq <= bound.turn.position),
        working_memory=_without_later_notes(snapshot.working_memory, bound),
        facts=tuple(fact for fact in snapshot.facts if not _is_later(fact.source_turn, bound)),
    )


def _is_later(turn: str | None, bound: Bound) -> bool:
    """Return whether a turn of this id was stored after the bound. Ids end in the sequence number."""
    seq = None if turn is None else stamped_seq(turn)
    return seq is not None and seq > bound.turn.seq


def _without_later_notes(memory: str | None, bound: Bound) -> str | None:
    if memory is None:
        return None
    notes = working_memory.from_json(memory)
    later = frozenset(id for id in working_memory.turns_of(notes) if _is_later(id, bound))
    # Its summary may hold words of any turn that was read for it.
    kept = working_memory.to_json(replace(notes, summary="")) if notes.through_seq > bound.turn.position else memory
    return _without_notes_of(kept, later)


def widen(budget: ReadBudget, later: Sequence[Turn]) -> ReadBudget:
    """Add room for turns that are left out again: more than they take, in tokens or in characters."""
    more = sum(2 * len(turn.text) + 4 * turn.token_count + 1 for turn in later)
    summarised = None if budget.summarised is None else budget.summarised + more
    return replace(budget, budget=budget.budget + more, summarised=summarised)


def cut_off(snapshot: ContextSnapshot, bound: Bound, current: Turn | None) -> ContextSnapshot:
    """Remove everything that came after the bound; `current` is the message to answer."""
    kept = tuple(turn for turn in snapshot.tail if not bound.excludes(turn))
    kept = _answers_behind_questions(kept, bound, current)
    current = next((turn for turn in kept if current is not None and turn.id == current.id), current)
    gone = frozenset(turn.id for turn in later_turns(snapshot, bound))
    return replace(
        snapshot,
        info=replace(
            snapshot.info,
            turn_count=_count_through(snapshot, len(kept)),
            token_count=snapshot.info.token_count - sum(turn.token_count for turn in later_turns(snapshot, bound)),
        ),
        tail=kept,
        current=current,
        summaries=tuple(one for one in snapshot.summaries if one.through_seq <= bound.turn.position + 1),
        working_memory=_without_notes_of(snapshot.working_memory, gone),
        facts=tuple(fact for fact in snapshot.facts if fact.source_turn not in gone),
    )


def _answers_behind_questions(kept: tuple[Turn, ...], bound: Bound, current: Turn | None) -> tuple[Turn, ...]:
    """Put the answers that a queued question waited for behind their own questions, and so before this one.

    The turns share their positions out in the new order.
    """
    if not any(turn.id in bound.earlier for turn in kept):
        return kept
    answers = _earlier_answers(kept, bound)
    others = [turn for turn in kept if turn.id not in bound.earlier]
    known = {turn.id for turn in others}
    ordered = [turn for question, found in answers.items() if question not in known for turn in found]
    if current is not None and current.id in known:
        at = [turn.id for turn in others].index(current.id)
        ordered = [*_interleave(others[:at], answers), *ordered, *others[at:]]
    else:
        ordered = [*_interleave(others, answers), *ordered]
    positions = sorted(turn.position for turn in kept)
    return tuple(structs.replace(turn, position=place) for turn, place in zip(ordered, positions, strict=True))


def _earlier_answers(kept: Sequence[Turn], bound: Bound) -> dict[str, list[Turn]]:
    """Return the answers by the question that they name; the results of tools follow their calls."""
    answers: dict[str, list[Turn]] = {}
    named = ""
    for turn in kept:
        if turn.id in bound.earlier:
            named = str(turn.metadata.get("answers", named))
            answers.setdefault(named, []).append(turn)
    return answers


def _interleave(turns: Sequence[Turn], answers: Mapping[str, Sequence[Turn]]) -> list[Turn]:
    return [one for turn in turns for one in (turn, *answers.get(turn.id, ()))]


def _count_through(snapshot: ContextSnapshot, kept: int) -> int:
    """Return the number of turns up to the bound; it is exact if all of them were read."""
    if is_whole(snapshot):
        return kept
    return max(kept, snapshot.info.turn_count - len(snapshot.tail) + kept)


def newest_message(turns: Sequence[Turn], viewer: str | None) -> Turn | None:
    """Return the newest message of a user; for one agent of several, the newest message of any other participant."""
    for turn in reversed(turns):
        is_other = turn.role in ("user", "assistant") and turn.actor != viewer and not turn.tool_calls
        if is_other if viewer is not None else turn.role == "user":
            return turn
    return None


def _without_notes_of(memory: str | None, turns: frozenset[str]) -> str | None:
    if memory is None or not turns:
        return memory
    return working_memory.to_json(reduce(working_memory.without_turn, turns, working_memory.from_json(memory)))
