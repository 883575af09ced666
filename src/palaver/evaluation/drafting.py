"""Questions to start from: turns are sampled, and a question is drafted for each, by a model or by rules."""

from __future__ import annotations

import random
import re
from collections.abc import Awaitable, Callable, Sequence

from palaver.conversations.conversation import Conversation
from palaver.core.turn_draft import words
from palaver.evaluation.questions import Question
from palaver.model import Turn

Ask = Callable[[str], Awaitable[str]]

SHORTEST = 40  # characters of a turn that is worth a question
PAGE = 1_000
KEPT_WORDS = 6
WORD = re.compile(r"[^\W\d_]{4,}|\d{2,}")
PROMPT = (
    "Write one short question that a person could ask months later and that this message answers. Use other words than "
    "the message where you can. Reply with the question only.\n\nMessage:\n"
)


async def draft_questions(
    talk: Conversation, count: int, ask: Ask | None = None, *, random: random.Random
) -> list[Question]:
    """Return questions about turns of a conversation, chosen at random, for a person to read and correct."""
    turns = [turn for turn in await talk.history(PAGE, roles=["user"]) if len(words(turn.content)) >= SHORTEST]
    chosen = sorted(random.sample(turns, min(count, len(turns))), key=lambda turn: turn.seq)
    common = _common_words(turns)
    questions = [await _model_question(turn, ask) if ask else _rule_question(turn, common) for turn in chosen]
    name = talk.key or talk.id
    return [
        Question(question=text, conversation=name, turns=(turn.id,))
        for turn, text in zip(chosen, questions, strict=True)
        if text
    ]


async def _model_question(turn: Turn, ask: Ask) -> str:
    return " ".join((await ask(PROMPT + words(turn.content)[:4_000])).split())[:500]


def _common_words(turns: Sequence[Turn]) -> set[str]:
    """Return the words of more than a tenth of the turns, which say little about any of them."""
    counts: dict[str, int] = {}
    for turn in turns:
        for word in set(_words(turn)):
            counts[word] = counts.get(word, 0) + 1
    return {word for word, count in counts.items() if count > max(2, len(turns) / 10)}


def _words(turn: Turn) -> list[str]:
    return [word.casefold() for word in WORD.findall(words(turn.content))]


def _rule_question(turn: Turn, common: set[str]) -> str:
    """Return a question from the rarest words of a turn: the longest of those that few other turns have."""
    rare = list(dict.fromkeys(word for word in _words(turn) if word not in common))
    kept = sorted(rare, key=lambda word: -len(word))[:KEPT_WORDS]
    return f"What did {turn.actor} say about {' '.join(word for word in rare if word in kept)}?" if kept else ""
