"""The decision when to summarise, and which turns. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from palaver.core.validation import did_you_mean
from palaver.errors import InvalidInput
from palaver.memory.model_calls import CALLS_PER_DAY, check_limit
from palaver.model import Turn

Strategy = Literal["rolling", "hierarchical", "never"]
STRATEGIES: tuple[Strategy, ...] = ("rolling", "hierarchical", "never")
FAN_OUT = 4  # summaries of one level that become one of the next
SPAN_TURNS = 25  # that one summary may cover, or half of `trigger_turns` where that is more
SUMMARY_TOKENS = 160  # budget of one summary


@dataclass(frozen=True, slots=True)
class Compaction:
    """The settings of one conversation."""

    trigger_turns: int = 50
    trigger_tokens: int = 8_000
    strategy: Strategy = "hierarchical"
    summarizer_model: str | None = None
    extractor_model: str | None = None
    model_calls_per_day: int | None = CALLS_PER_DAY

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Compaction:
        given = settings.get("compaction") or {}
        known = {name: given[name] for name in cls.__dataclass_fields__ if name in given}
        return cls(**known)

    def is_due(self, turns: int, tokens: int) -> bool:
        return self.strategy != "never" and (turns >= self.trigger_turns or tokens >= self.trigger_tokens)


def check_settings(settings: Mapping[str, Any]) -> None:
    """Reject settings that would be ignored or misread later."""
    check_policy("settings.compaction", settings.get("compaction"))


def check_policy(field: str, given: object) -> None:
    """Check when and how to summarise. Raises `InvalidInput`, which names the option, such as `field.strategy`."""
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise InvalidInput(field, "must be an object")
    unknown = given.keys() - Compaction.__dataclass_fields__.keys()
    if unknown:
        name, known = sorted(unknown)[0], ", ".join(Compaction.__dataclass_fields__)
        hint = did_you_mean(name, Compaction.__dataclass_fields__)
        raise InvalidInput(f"{field}.{name}", f"is unknown{hint}; the options are {known}")
    for name in ("trigger_turns", "trigger_tokens"):
        value = given.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**53:
            raise InvalidInput(f"{field}.{name}", "must be a whole number, one or more")
    check_limit(f"{field}.model_calls_per_day", given.get("model_calls_per_day"))
    for name in ("summarizer_model", "extractor_model"):
        if not isinstance(given.get(name), str | None):
            raise InvalidInput(f"{field}.{name}", "must be the name of a model")
    if given.get("strategy", "rolling") not in STRATEGIES:
        raise InvalidInput(f"{field}.strategy", f"must be one of {', '.join(STRATEGIES)}")


def turns_through(turns: Sequence[Turn], position: int) -> list[Turn]:
    """Return the turns up to the one at `position`, without a tool round that ends after it."""
    cut = sum(turn.position <= position for turn in turns)
    while 0 < cut < len(turns) and (turns[cut].role == "tool" or turns[cut - 1].tool_calls):
        cut -= 1
    return list(turns[:cut])


def oldest_half(turns: Sequence[Turn], keep_tokens: int | None) -> list[Turn]:
    """Return the turns to summarise next: the oldest half, or all but `keep_tokens`. Tool rounds are not split."""
    if keep_tokens is None:
        cut = len(turns) // 2
    else:
        left, cut = sum(turn.token_count for turn in turns), 0
        while cut < len(turns) and left > keep_tokens:
            left -= turns[cut].token_count
            cut += 1
    return list(turns[: cut if cut == len(turns) else _whole_rounds(turns, cut)])


def _whole_rounds(turns: Sequence[Turn], cut: int) -> int:
    """Move the cut so that it does not separate tool calls from their results.

    It moves back before the round, or, when the round begins with the first turn, forward to its end.
    """
    back = cut
    while 0 < back < len(turns) and (turns[back].role == "tool" or turns[back - 1].tool_calls):
        back -= 1
    while not back and 0 < cut < len(turns) and (turns[cut].role == "tool" or turns[cut - 1].tool_calls):
        cut += 1
    return back or (cut if cut < len(turns) else 0)
