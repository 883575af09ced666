"""`palaver explain`: build a context and show why it looks as it does."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palaver.cli.app import Call, Name, command
from palaver.cli.database import existing, find
from palaver.cli.output import clean, counted, emit, excerpt, local, note, say, table
from palaver.context.explain import bar_lengths, letter_of
from palaver.conversations.internals import engine_of
from palaver.errors import TurnGone, TurnNotFound

if TYPE_CHECKING:
    from rich.text import Text

    from palaver.context.explain import Block, ContextFile, Explanation, Omission
    from palaver.context.inputs import Context
    from palaver.conversations.conversation import Conversation
    from palaver.conversations.store import Store
    from palaver.model import Turn

PANEL = "Memory"
WIDTH = 60  # cells of the bar
SHOWN = 12  # recalled turns with their scores
BRIEF = 100  # characters of each
UNSEEN = 0.005  # a part of a score that is not worth its place
COLOURS: Mapping[str, str] = {
    "instructions": "magenta",
    "memory": "yellow",
    "person": "bright_yellow",
    "summaries": "blue",
    "omission note": "bright_black",
    "recent": "green",
    "recalled": "cyan",
    "current": "red",
    "rounds": "bright_magenta",
}
# A query without words: recall has nothing to look for, and everything else in the prompt stays as it is.
NO_QUERY = " "


class Reach(StrEnum):
    conversation = "conversation"
    owner = "owner"
    tenant = "tenant"


@command("explain", PANEL)
async def explain(
    call: Call,
    conversation: Name,
    budget: Annotated[
        int | None,
        typer.Option(min=1, help="Budget in tokens. Default: the conversation's setting, else the policy's."),
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="Question to recall turns for. Default: the latest user message.")
    ] = None,
    policy: Annotated[
        str | None, typer.Option(metavar="NAME", help="Context policy. Default: the conversation's policy.")
    ] = None,
    chars: Annotated[int | None, typer.Option(min=1, help="Budget in characters, instead of tokens.")] = None,
    viewer: Annotated[
        str | None,
        typer.Option(metavar="ACTOR", help="Agent for whom the context is built: its turns are the assistant's."),
    ] = None,
    no_recall: Annotated[bool, typer.Option("--no-recall", help="Do not recall turns.")] = False,
    text: Annotated[
        bool, typer.Option("--text", help="Print the text of the context, instead of the explanation.")
    ] = False,
) -> None:
    """Show the context that a model would get now: each block with its reason and cost, and what was left out.

    The bar shows the budget. The identical prefix is the share of the prompt, from its start, that stays the same when
    other turns are recalled. A provider can read it from its prompt cache.

    Examples:

      palaver explain support/42 --budget 4000
      palaver explain support/42 --budget 4000 --query "What am I allergic to?"
      palaver explain support/42 --policy last-20 --text
    """
    wanted: dict[str, Any] = {"char_budget": chars, "policy": policy, "viewer": viewer}
    if no_recall:
        wanted["semantic_recall"] = False
    async with existing(call) as store:
        talk = await find(store, conversation)
        await talk.build_context(budget, query=NO_QUERY, **wanted)  # the one before, to compare with
        context = await talk.build_context(budget, query=query, **wanted)
        recalled = await recalled_turns(talk, context.explain())
        waiting = await unfinished(store)
    _print(call, context, recalled, text)
    if waiting:
        note(waiting)


def _print(call: Call, context: Context, recalled: Mapping[str, Turn], text: bool) -> None:
    if call.as_json:
        emit({**context.explain().to_dict(), **({"text": context.text} if text else {})})
    elif text:
        say(context.text)
    else:
        show_explanation(context.explain(), recalled, "stays the same when other turns are recalled")


async def recalled_turns(talk: Conversation, explanation: Explanation) -> dict[str, Turn]:
    """The turns of this conversation that were recalled, by their ids; those that are still here."""
    scores = [score for block in explanation.blocks for score in block.scores[:SHOWN]]
    found: dict[str, Turn] = {}
    for score in scores:
        with suppress(TurnGone, TurnNotFound):
            found[score["turn"]] = await talk.turn(score["turn"])
    return found


async def unfinished(store: Store) -> str | None:
    """One sentence about memory work that is still to be done; None when there is none."""
    await engine_of(store).index_all()
    outbox = (await store.stats()).storage["outbox"]
    kinds = sorted({job["kind"] for job in outbox if not job["dead"]})
    if not kinds:
        return None
    return f"Memory is not up to date (waiting: {', '.join(kinds)}). To update it, run palaver worker --once."


def show_explanation(
    explanation: Explanation, recalled: Mapping[str, Turn], prefix: str = "is the same as in the previous prompt"
) -> None:
    unit = explanation.unit
    used = f"{explanation.tokens:,} of {explanation.budget:,} {unit}"
    say(f"{used} ({explanation.policy}, counted by {explanation.counter})", bar(explanation), _legend(explanation), "")
    table(("block", unit, "turns", "span", "why"), [_block_row(block) for block in explanation.blocks], wide="why")
    if any(block.scores for block in explanation.blocks):
        say("", *_score_lines(explanation, recalled))
    if explanation.left_out:
        say("")
        table(("left out", "span", "why"), [_omission_row(one) for one in explanation.left_out], wide="why")
    if explanation.files:
        say("")
        table(("file", "state", unit, "why"), [_file_row(one) for one in explanation.files], wide="why")
    say("", f"{_verbatim(explanation)}.", f"Recall: {explanation.recall}.")
    if explanation.identical_prefix is not None:
        say(f"Identical prefix: {explanation.identical_prefix:.0%} of the prompt {prefix}.")
    say(*explanation.notes)


def bar(explanation: Explanation, width: int = WIDTH) -> Text:
    """The budget as a bar: a letter and a colour per block, dots for what is free."""
    from rich.text import Text

    line, done = Text("["), 0
    for kind, length in bar_lengths(explanation, width):
        line.append(letter_of(kind) * length, _style(kind))
        done += length
    return line.append("·" * (width - done), "dim").append("]")


def _style(kind: str) -> str:
    return f"black on {COLOURS.get(kind, 'white')}"


def _legend(explanation: Explanation) -> Text:
    from rich.text import Text

    line = Text()
    for block in explanation.blocks:
        line.append(f" {letter_of(block.kind)} ", _style(block.kind))
        line.append(f" {block.kind} {block.tokens:,}  ")
    return line.append(f"· free {explanation.budget - explanation.tokens:,}", "dim")


def _block_row(block: Block) -> list[str]:
    turns = str(len(block.turn_ids) or "")
    return [block.kind, f"{block.tokens:,}", turns, _span(block.from_seq, block.through_seq), block.reason]


def _file_row(one: ContextFile) -> list[str]:
    return [one.name, one.state, f"{one.tokens:,}", one.reason]


def _omission_row(one: Omission) -> list[str]:
    return [counted(one.turns, "turn"), _span(one.from_seq, one.through_seq), one.reason]


def _span(start: int | None, end: int | None) -> str:
    """Positions from `start` up to, not including, `end`."""
    if start is None or end is None:
        return ""
    return f"{start}–{end - 1}" if end > start + 1 else str(start)


def _score_lines(explanation: Explanation, recalled: Mapping[str, Turn]) -> list[str | Text]:
    """Two lines per turn, because a table with that many columns would not fit a terminal."""
    from rich.text import Text

    lines: list[str | Text] = [Text("recalled", "bold")]
    for score in (score for block in explanation.blocks for score in block.scores[:SHOWN]):
        turn = recalled.get(score["turn"])
        who = f"#{turn.seq}  {local(turn.created, '%Y-%m-%d %H:%M')}  {turn.actor}" if turn else score["turn"]
        lines.append(f"{who}  {score['score']:.2f} = {made_of(score['parts'])}")
        text = excerpt(turn.text, frozenset())[:BRIEF] if turn else "(forgotten since, or in another conversation)"
        lines.append(Text(clean(f"    {text}"), "dim"))
    return lines


def made_of(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:+.2f}" for name, value in parts.items() if abs(value) >= UNSEEN)


def _verbatim(explanation: Explanation) -> str:
    return f"{explanation.turns_verbatim:,} of {counted(explanation.turns_total, 'turn')} word for word"
