"""Why each piece is in the prompt, and what was left out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict


class RecallScore(TypedDict):
    """Why a turn was recalled: its score, and what each signal contributed to it."""

    turn: str
    conversation: str
    score: float
    parts: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One part of the prompt."""

    kind: str
    reason: str
    tokens: int
    turn_ids: tuple[str, ...] = ()
    from_seq: int | None = None
    through_seq: int | None = None
    scores: tuple[RecallScore, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """Turns that are not in the prompt verbatim: how many, where, and why."""

    reason: str
    turns: int
    from_seq: int | None = None
    through_seq: int | None = None
    summarised: bool = False
    unit: bool = False  # turns of the tail, left out one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Everything `ctx.explain()` knows. `str()` of it is a table for people."""

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
    identical_prefix: float | None = None
    notes: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        return {
            "budget": self.budget,
            "tokens": self.tokens,
            "unit": self.unit,
            "counter": self.counter,
            "policy": self.policy,
            "turns": {"total": self.turns_total, "verbatim": self.turns_verbatim},
            "blocks": [_plain(block) for block in self.blocks],
            "left_out": [_plain(one) for one in self.left_out],
            "recall": self.recall,
            "identical_prefix": self.identical_prefix,
            "notes": list(self.notes),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Explanation:
        """What `to_dict` made, as it was; what else is in there is left aside."""
        own = {name: data[name] for name in ("budget", "tokens", "unit", "counter", "policy", "recall")}
        return cls(
            **own,
            blocks=tuple(Block(**_tupled(one)) for one in data["blocks"]),
            left_out=tuple(Omission(**_tupled(one)) for one in data["left_out"]),
            turns_total=data["turns"]["total"],
            turns_verbatim=data["turns"]["verbatim"],
            identical_prefix=data.get("identical_prefix"),
            notes=tuple(data.get("notes", ())),
        )

    def __str__(self) -> str:
        lines = [
            f"{self.tokens:,} of {self.budget:,} {self.unit} ({self.policy}, counted by {self.counter})",
            bar(self),
            "",
            f"{'block':<16}{self.unit:>8}  {'turns':>6}  {'span':<13}why",
        ]
        for block in self.blocks:
            span = _span(block.from_seq, block.through_seq)
            lines.append(
                f"{block.kind:<16}{block.tokens:>8,}  {len(block.turn_ids) or '':>6}  {span:<13}{block.reason}"
            )
            lines += [f"{'':<26}{_score_line(score)}" for score in block.scores[:12]]
        if self.left_out:
            lines += ["", f"{'left out':<16}{'':>8}  {'turns':>6}  {'span':<13}why"]
            for one in self.left_out:
                lines.append(
                    f"{'':<16}{'':>8}  {one.turns:>6,}  {_span(one.from_seq, one.through_seq):<13}{one.reason}"
                )
        lines += ["", f"recall: {self.recall}"]
        if self.identical_prefix is not None:
            lines.append(f"identical to the start of the previous prompt: {self.identical_prefix:.0%}")
        return "\n".join([*lines, *self.notes])


def bar(explanation: Explanation, width: int = 60) -> str:
    """The budget as a bar: one letter per block, a dot for what is free."""
    cells = ""
    for block in explanation.blocks:
        cells += block.kind[0].upper() * round(width * block.tokens / max(1, explanation.budget))
    return "[" + cells[:width].ljust(width, "·") + "]"


def _plain(value: Block | Omission) -> dict[str, Any]:
    return {name: _listed(getattr(value, name)) for name in value.__dataclass_fields__}


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _tupled(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in data.items()}


def _span(start: int | None, end: int | None) -> str:
    return "" if start is None or end is None else f"{start}–{end}"


def _score_line(score: RecallScore) -> str:
    parts = ", ".join(f"{name} {value:+.2f}" for name, value in score["parts"].items() if abs(value) >= 0.005)
    return f"{score['turn']}  {score['score']:.2f} = {parts}"
