"""A thread that grows turn by turn, with the summaries that compaction would have made of it. For pure packing tests.

A token is a word here, so that sizes are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from palaver.context.inputs import Context, Material, RecalledTurn
from palaver.context.options import Options
from palaver.context.pack import pack_context
from palaver.memory.compaction import FAN_OUT, SPAN_TURNS, SUMMARY_TOKENS, oldest_half
from palaver.model import Summary, Turn

START = datetime(2026, 1, 1, tzinfo=UTC)
SPAN_TOKENS = 8_000


class Words:
    """Counts words, or characters."""

    def __init__(self, options: Options) -> None:
        self.in_characters = options.char_budget is not None
        self.name = "characters" if self.in_characters else "words"

    def __call__(self, text: str) -> int:
        return len(text) if self.in_characters else len(text.split())


@dataclass(frozen=True)
class FirstWords:
    """Condenses by taking the first words."""

    count: Words

    def merge(self, texts: tuple[str, ...], most: int) -> str:
        words, text = " ".join(texts).split(), ""
        for word in words:
            if self.count(text + " " + word) > most:
                break
            text += " " + word
        return text.strip()

    def summarise(self, turns: tuple[Turn, ...], most: int) -> str:
        return self.merge(tuple(turn.text[:2_000] for turn in turns), most)


@dataclass
class GrowingThread:
    """Turns of given sizes, user and assistant in turns; the strategy decides which summaries there are."""

    strategy: str = "hierarchical"
    sizes: list[int] = field(default_factory=list)
    summaries: list[Summary] = field(default_factory=list)
    summarized: int = 0
    _turns: dict[int, Turn] = field(default_factory=dict)

    def say(self, *sizes: int) -> None:
        self.sizes += sizes

    def turn(self, position: int) -> Turn:
        if position not in self._turns:
            self._turns[position] = self._make(position)
        return self._turns[position]

    def _make(self, position: int) -> Turn:
        role = "user" if position % 2 == 0 else "assistant"
        size = self.sizes[position]
        return Turn(
            id=f"T{position}",
            conversation="C",
            seq=position,
            position=position,
            role=role,
            actor="ada" if role == "user" else "bot",
            content=" ".join([f"w{position}", *["word"] * (size - 1)]),
            token_count=size,
            created=START + timedelta(minutes=position),
        )

    def material(self, options: Options, recalled: tuple[RecalledTurn, ...] = ()) -> Material:
        """Return what an engine would read for these options."""
        tail: list[Turn] = []
        left = options.budget
        for position in reversed(range(len(self.sizes))):
            turn = self.turn(position)
            tail.append(turn)
            left -= 1 + (len(turn.text) if options.char_budget is not None else turn.token_count)
            if left < 0:
                break
        tail.reverse()
        count = Words(options)
        return Material(
            turn_count=len(self.sizes),
            owner="ada",
            conversation="C",
            tail=tuple(tail),
            current=next((turn for turn in reversed(tail) if turn.role == "user"), None),
            summaries=tuple(self.summaries),
            recalled=recalled,
            counter=count.name,
            tokens_before=sum(self.sizes[: tail[0].position]),
            summarized=self.summarized,
            reads_from_start=len(tail) == len(self.sizes),
            counted=not count.in_characters,
            condenser=FirstWords(count),
        )

    def pack(self, options: Options, recalled: tuple[RecalledTurn, ...] = ()) -> Context:
        return pack_context(self.material(options, recalled), options, Words(options))

    def settle(self, keep: int | None = None) -> None:
        """Summarise what is due after 50 turns or 8,000 tokens, or what does not have to be kept."""
        while due := self._due(keep):
            self._add(0, self.summarized, due[-1].position + 1)
            self.summarized = due[-1].position + 1
            self._merge()

    def settled(self, options: Options, recalled: tuple[RecalledTurn, ...] = ()) -> Context:
        """Build contexts, and do the compaction that they ask for, until nothing is due."""
        self.settle()
        for _ in range(4):
            context = self.pack(options, recalled)
            if context.outgrown is None:
                break
            self.settle(context.outgrown)
        return self.pack(options, recalled)

    def _due(self, keep: int | None) -> list[Turn]:
        pending = range(self.summarized, min(len(self.sizes), self.summarized + 2 * SPAN_TURNS + 50))
        tokens = sum(self.sizes[self.summarized : self.summarized + 200])
        turns = [self.turn(position) for position in pending]
        if len(self.sizes) - self.summarized >= 50 or tokens >= SPAN_TOKENS:
            return self._span(turns[: max(1, len(turns) // 2)])
        if keep is not None and tokens > keep * 2:
            return self._span(oldest_half(turns, keep))
        return []

    def _span(self, turns: list[Turn]) -> list[Turn]:
        chosen: list[Turn] = []
        for turn in turns[:SPAN_TURNS]:
            if chosen and sum(one.token_count for one in [*chosen, turn]) > SPAN_TOKENS:
                break
            chosen.append(turn)
        return chosen

    def _merge(self) -> None:
        if self.strategy == "rolling":
            self.summaries = [one for one in self.summaries if one.level == 0]
            self._add(1, 0, self.summarized)
            return
        level = 0
        while True:
            end = max((one.through_seq for one in self.summaries if one.level == level + 1), default=0)
            parts = [one for one in self.summaries if one.level == level and one.from_seq >= end]
            if len(parts) < FAN_OUT:
                return
            self._add(level + 1, parts[0].from_seq, parts[-1].through_seq)
            level += 1

    def _add(self, level: int, start: int, end: int) -> None:
        text = " ".join([f"S{level}.{start}", *["gist"] * (SUMMARY_TOKENS - 1)])
        self.summaries.append(
            Summary(
                id=f"S{level}.{start}",
                level=level,
                from_seq=start,
                through_seq=end,
                text=text,
                model="test",
                token_count=SUMMARY_TOKENS,
                turns=end - start,
                created=START,
            )
        )
