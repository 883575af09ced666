"""Why each piece is in the prompt, and which turns were left out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypedDict

from palaver.model import Empty

# The letter of each kind of block in the bar. Recalled turns are quoted; rounds are tool calls and their results.
LETTERS: Mapping[str, str] = {
    "instructions": "I",
    "summaries": "S",
    "omission note": "O",
    "memory": "M",
    "person": "P",
    "recent": "R",
    "recalled": "Q",
    "current": "C",
    "rounds": "T",
}
ALL_SHOWN = "nothing is recalled: the whole conversation is shown"  # a note


class RecallScore(TypedDict):
    """Why a turn was recalled: its score, what each signal contributed to it, and its relevance between 0 and 1."""

    turn: str
    conversation: str
    score: float
    relevance: float
    parts: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One part of the prompt.

    - `kind`, `reason`: the kind of the part, and the reason why it is in the prompt.
    - `tokens`: its size, in the unit of the budget.
    - `turn_ids`: the turns that it shows. Their positions are from `from_seq` up to, not including, `through_seq`.
    - `scores`: the scores of recalled turns.
    """

    kind: str
    reason: str
    tokens: int
    turn_ids: tuple[str, ...] = ()
    from_seq: int | None = None
    through_seq: int | None = None
    scores: tuple[RecallScore, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """Turns that are not in the prompt word for word.

    - `reason`, `turns`: why they are left out, and how many they are.
    - `from_seq`, `through_seq`: their positions are from the first up to, not including, the second.
    - `summarised`: whether a summary in the prompt covers them.
    - `unit`: whether this is a single turn (with its tool results), and not a span of older turns.
    """

    reason: str
    turns: int
    from_seq: int | None = None
    through_seq: int | None = None
    summarised: bool = False
    unit: bool = False  # a single unit of turns that were read, as opposed to a span of older turns


FileState = Literal["in full", "in part", "not sent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextFile:
    """A file of the message to answer.

    - `name`, `attachment`: the name of the file, and its id.
    - `state`, `reason`: whether the model gets it "in full", "in part" or not ("not sent"), and why.
    - `tokens`: the size of the part that is sent, in the unit of the budget. It counts as part of the current message.
    """

    name: str
    attachment: str
    state: FileState
    reason: str
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How many turns of the conversation are in the prompt, and in which form. A turn is counted once.

    - `verbatim`: word for word, in the window, as the current message or recalled.
    - `shortened`: in the window with its middle left out, or recalled in part.
    - `summarised`: only in a summary that is shown.
    - `not_covered`: in none of these.
    """

    verbatim: int = 0
    shortened: int = 0
    summarised: int = 0
    not_covered: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The result of `Context.explain()`. `str()` returns it as a table, `to_dict()` as JSON values.

    - `budget`, `tokens`: the budget, and how much of it is used, in `unit` ("tokens" or "characters").
    - `counter`: the name of the token counter.
    - `policy`: the name of the policy.
    - `blocks`: the parts of the prompt, in order.
    - `left_out`: all turns of the conversation that are not in the prompt, with the reasons. `coverage` counts them.
    - `turns_total`, `turns_verbatim`: the turns of the conversation, and how many of them are shown word for word.
    - `recall`: how recall searched. If it found nothing, `empty` has the reason.
    - `identical_prefix`: the share of the prompt, from its start, that is the same as in the previous prompt of this
      conversation; None for the first prompt.
    - `notes`: further remarks.
    - `files`: the files of the message to answer.
    """

    budget: int
    tokens: int
    unit: str
    counter: str
    policy: str
    blocks: tuple[Block, ...]
    left_out: tuple[Omission, ...]
    turns_total: int
    turns_verbatim: int
    recall: str
    coverage: Coverage = field(default_factory=Coverage)
    identical_prefix: float | None = None
    notes: tuple[str, ...] = field(default=())
    files: tuple[ContextFile, ...] = ()
    empty: Empty | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON types."""
        return {
            "budget": self.budget,
            "tokens": self.tokens,
            "unit": self.unit,
            "counter": self.counter,
            "policy": self.policy,
            "turns": {"total": self.turns_total, "verbatim": self.turns_verbatim},
            "coverage": asdict(self.coverage),
            "blocks": [_to_dict(block) for block in self.blocks],
            "left_out": [_to_dict(one) for one in self.left_out],
            "files": [_to_dict(one) for one in self.files],
            "recall": self.recall,
            "empty": None if self.empty is None else asdict(self.empty),
            "identical_prefix": self.identical_prefix,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Explanation:
        """Restore the explanation from the result of `to_dict`; other keys are ignored."""
        own = {name: data[name] for name in ("budget", "tokens", "unit", "counter", "policy", "recall")}
        return cls(
            **own,
            blocks=tuple(Block(**_lists_to_tuples(one)) for one in data["blocks"]),
            left_out=tuple(Omission(**_lists_to_tuples(one)) for one in data["left_out"]),
            turns_total=data["turns"]["total"],
            turns_verbatim=data["turns"]["verbatim"],
            coverage=Coverage(**data.get("coverage", {})),
            identical_prefix=data.get("identical_prefix"),
            notes=tuple(data.get("notes", ())),
            files=tuple(ContextFile(**one) for one in data.get("files", ())),
            empty=Empty(**data["empty"]) if data.get("empty") else None,
        )

    def __str__(self) -> str:
        lines = [
            f"{self.tokens:,} of {self.budget:,} {self.unit} ({self.policy}, counted by {self.counter})",
            bar(self),
            "",
            f"  {'block':<16}{self.unit:>8}  {'turns':>6}  {'span':<13}why",
        ]
        for block in self.blocks:
            span = _span(block.from_seq, block.through_seq)
            name = f"{letter_of(block.kind)} {block.kind:<16}"
            lines.append(f"{name}{block.tokens:>8,}  {len(block.turn_ids) or '':>6}  {span:<13}{block.reason}")
            lines += [f"{'':<28}{_score_line(score)}" for score in block.scores[:12]]
        if self.left_out:
            lines += ["", f"  {'left out':<16}{'':>8}  {'turns':>6}  {'span':<13}why"]
            for one in self.left_out:
                lines.append(
                    f"  {'':<16}{'':>8}  {one.turns:>6,}  {_span(one.from_seq, one.through_seq):<13}{one.reason}"
                )
        if self.files:
            lines += ["", f"  {'file':<16}{self.unit:>8}"]
            lines += [
                f"  {one.state:<16}{one.tokens:>8,}  {one.name} ({one.attachment}): {one.reason}" for one in self.files
            ]
        lines += ["", _coverage_line(self), f"recall: {self.recall}"]
        if self.empty is not None and ALL_SHOWN not in self.notes:  # the note says why: nothing was missing
            lines.append(f"nothing recalled: {self.empty.reason} ({self.empty.detail})")
        if self.identical_prefix is not None:
            lines.append(f"identical to the start of the previous prompt: {self.identical_prefix:.0%}")
        return "\n".join([*lines, *self.notes])


def bar(explanation: Explanation, width: int = 60) -> str:
    """Draw the budget as a bar: letters for the blocks, dots for the part that is free."""
    cells = "".join(letter_of(kind) * length for kind, length in bar_lengths(explanation, width))
    return "[" + cells.ljust(width, "·") + "]"


def letter_of(kind: str) -> str:
    """Return the letter of a block in the bar: X for a kind of block from another version's record."""
    return LETTERS.get(kind, "X")


def bar_lengths(explanation: Explanation, width: int) -> list[tuple[str, int]]:
    """Return the length of each block in a bar of this width, by its kind. No block is too small to be seen."""
    lengths: list[tuple[str, int]] = []
    spent = done = 0
    for block in explanation.blocks:
        spent += block.tokens
        end = min(width, max(done + 1, round(width * spent / max(1, explanation.budget))))
        lengths.append((block.kind, end - done))
        done = end
    return lengths


def _coverage_line(explanation: Explanation) -> str:
    one = explanation.coverage
    shortened = f", {one.shortened:,} shortened" if one.shortened else ""
    return (
        f"of {explanation.turns_total:,} turns: {one.verbatim:,} word for word{shortened}, "
        f"{one.summarised:,} in a summary, {one.not_covered:,} not covered"
    )


def _to_dict(value: Block | Omission | ContextFile) -> dict[str, object]:
    plain = {name: getattr(value, name) for name in value.__dataclass_fields__}
    return {name: list(one) if isinstance(one, tuple) else one for name, one in plain.items()}


def _lists_to_tuples(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}


def _span(start: int | None, end: int | None) -> str:
    """Return the first and the last of the positions from `start` up to, not including, `end`."""
    if start is None or end is None:
        return ""
    return f"{start}–{end - 1}" if end > start + 1 else str(start)


def _score_line(score: RecallScore) -> str:
    parts = ", ".join(f"{name} {value:+.2f}" for name, value in score["parts"].items() if abs(value) >= 0.005)
    relevance = f"relevance {score['relevance']:.2f}, " if "relevance" in score else ""  # older records have none
    return f"{score['turn']}  {relevance}{score['score']:.2f} = {parts}"
