"""How often a context holds everything that answers a question, and why not where it does not.

*EIC* (evidence in context) is the share of questions whose answering turns are all in the context, word for word. It is
not the accuracy of answers: a model may still get them wrong. *Recall@k* is the share whose turns are all among the
first `k` that recall finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from palaver.context.builder import FLOOR
from palaver.context.inputs import Context
from palaver.context.options import PolicyName, RecallOptions
from palaver.conversations.conversation import Conversation
from palaver.core.turn_draft import words
from palaver.errors import BudgetTooSmall
from palaver.evaluation.questions import Question
from palaver.model import RecallHit

DEPTH = 100  # hits that are searched for a missing turn
NOT_FOUND = f"not among the first {DEPTH} that recall finds"
TOO_SMALL = "the budget is too small for the question itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """One way to build contexts."""

    policy: PolicyName
    budget: int
    floor: float | None = None

    def __str__(self) -> str:
        floor = "" if self.floor is None else f", floor {self.floor:g}"
        return f"{self.policy}, {self.budget:,} tokens{floor}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """A turn or text that answers a question and is not in the context."""

    question: str
    conversation: str
    gold: str
    reason: str


@dataclass(slots=True)
class Result:
    """The figures of one setup."""

    setup: Setup
    k: int
    questions: int = 0
    in_context: int = 0
    recalled: int = 0
    misses: list[Miss] = field(default_factory=list)

    @property
    def eic(self) -> float:
        """Share of the questions with all their evidence in the context."""
        return self.in_context / self.questions if self.questions else 0.0

    @property
    def recall_at_k(self) -> float:
        """Share of the questions with all their evidence among the first `k` hits."""
        return self.recalled / self.questions if self.questions else 0.0


async def measure(talk: Conversation, question: Question, results: Sequence[Result]) -> None:
    """Ask one question in every setup. Nothing is stored."""
    hits = [hit for hit in await talk.recall(question.question, DEPTH, include_facts=False) if hit.turn is not None]
    for result in results:
        result.questions += 1
        result.recalled += all(rank < result.k for rank, _ in _ranks(question, hits))
        context = await _context(talk, question, result.setup)
        missing = _missing(question, context)
        result.in_context += not missing
        for gold in missing:
            reason = TOO_SMALL if context is None else _reason(question, gold, hits, result.setup)
            result.misses.append(
                Miss(question=question.question, conversation=question.conversation, gold=gold, reason=reason)
            )


async def _context(talk: Conversation, question: Question, setup: Setup) -> Context | None:
    recall: RecallOptions | None = None if setup.floor is None else {"threshold": setup.floor}
    try:
        return await talk.build_context(
            setup.budget, message=question.question, policy=setup.policy, semantic_recall=recall
        )
    except BudgetTooSmall:
        return None


def _missing(question: Question, context: Context | None) -> list[str]:
    if context is None:
        return [*question.turns, *question.texts]
    shown, text = set(context.turn_ids), _plain(context.text)
    turns = [id for id in question.turns if id not in shown]
    return turns + [one for one in question.texts if _plain(one) not in text]


def _plain(text: str) -> str:
    """Return text in a form in which quotes compare: the marks of quoted lines and spaces do not count."""
    lines = (line.removeprefix("> ").removeprefix("| ") for line in text.splitlines())
    return " ".join(" ".join(lines).casefold().split())


def _ranks(question: Question, hits: Sequence[RecallHit]) -> list[tuple[int, float]]:
    """Return the place and the relevance of each turn or text that answers the question."""
    return [_rank(gold, gold in question.turns, hits) for gold in (*question.turns, *question.texts)]


def _rank(gold: str, is_turn: bool, hits: Sequence[RecallHit]) -> tuple[int, float]:
    for place, hit in enumerate(hits):
        assert hit.turn is not None
        if hit.turn.id == gold if is_turn else _plain(gold) in _plain(words(hit.turn.content)):
            return place, hit.relevance
    return DEPTH, 0.0


def _reason(question: Question, gold: str, hits: Sequence[RecallHit], setup: Setup) -> str:
    place, relevance = _rank(gold, gold in question.turns, hits)
    if place == DEPTH:
        return NOT_FOUND
    floor = FLOOR if setup.floor is None else setup.floor
    if relevance < floor:
        return (
            f"number {place + 1} of what recall finds; its relevance of {relevance:.2f} is below the floor of {floor:g}"
        )
    return f"number {place + 1} of what recall finds; it did not fit"
