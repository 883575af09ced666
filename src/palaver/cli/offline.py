"""Answers without a model: quotes from the conversation's own earlier turns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from palaver.cli.output import counted, excerpt, local

if TYPE_CHECKING:
    from palaver.conversation import Conversation
    from palaver.model import Match, Turn

ACTOR = "offline"
CANDIDATES = 100  # the same question, asked often, must not crowd out its answer
QUOTES = 3
NOTICE = "Offline, no model is used."
_SENTENCE = re.compile(r"[^.!?\n]+[.!?\n]*")


async def remembered(talk: Conversation, text: str) -> list[Match]:
    """The turns that say most about `text`: neither earlier answers of this kind, nor mere questions."""
    matches = [match for match in await talk.search(text, CANDIDATES) if not is_echo(match.turn)]
    most = max((len(match.terms) for match in matches), default=0)
    return [match for match in matches if 2 * len(match.terms) >= most][:QUOTES]


def is_echo(turn: Turn) -> bool:
    """Whether a turn only repeats: an offline answer, or nothing but questions."""
    if turn.role == "assistant" and turn.actor == ACTOR:
        return True
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(turn.text)]
    return all(sentence.endswith("?") for sentence in sentences if sentence)


def answer(matches: Sequence[Match]) -> Iterator[str]:
    """The answer, piece by piece."""
    if not matches:
        yield f"{NOTICE} Nothing earlier in this conversation matches. What you wrote is stored."
        return
    turns = counted(len(matches), "earlier turn matches", "earlier turns match")
    yield f"{NOTICE} {turns}:"
    for match in matches:
        turn = match.turn
        quote = excerpt(turn.text, frozenset(match.terms))
        yield f"\n- {local(turn.created, '%Y-%m-%d %H:%M')}, {turn.actor} ({turn.role}): “{quote}”"


async def quoting(talk: Conversation, turn: str) -> list[Turn]:
    """The offline answers that quote a turn. Whoever forgets the turn must forget these with it."""
    answers = await talk.history(100_000, include_superseded=True, participants=[ACTOR])
    return [one for one in answers if any(source.get("turn") == turn for source in one.sources)]
