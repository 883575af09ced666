"""`python -m bench spending`: what contexts do with their budget, by length of the thread, budget and policy.

A chat with 33 tokens per turn. The last ten exchanges have a context each; the table shows the last one, and how much
of each prompt was as it was in the one before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import palaver
from bench.context import cached_share
from bench.texts import Texts
from palaver.models.tokens import BpeCounter

LENGTHS = (20, 60, 200, 400, 2_000, 20_000)
BUDGETS = (1_000, 2_000, 4_000, 16_000, 64_000)
TOKENS, EXCHANGES, BATCH = 33, 10, 1_000
POLICIES: dict[str, dict[str, Any]] = {
    "balanced": {},
    "balanced, no recall": {"semantic_recall": False},
    "recall-heavy": {"policy": "recall-heavy"},
    "recent-chars": {"policy": "recent-chars"},
}
CHARACTERS = 4  # of a token, for the policy whose budget is in characters


@dataclass(frozen=True, slots=True)
class Row:
    """One context of a settled thread. Shares are of the budget, `prefix` is of the prompt."""

    policy: str
    turns: int
    budget: int
    used: float
    recent: float
    recent_turns: int
    recalled: float
    summarised: int
    not_covered: int
    prefix: float


class Speaker:
    """Makes new texts with an exact number of tokens."""

    def __init__(self) -> None:
        self.texts, self.count = Texts(), BpeCounter()

    def __call__(self) -> str:
        words = self.texts.message(TOKENS * 6).split()
        while self.count(" ".join(words)) > TOKENS:
            words.pop()
        while self.count(" ".join(words)) < TOKENS:
            words.append("so")
        return " ".join(words)


async def measure(turns: int, budgets: Sequence[int], say: Speaker) -> list[Row]:
    async with palaver.open("memory:", embedder=None, worker=False) as store:
        talk = await store.conversation("chat")
        before = max(0, turns - 2 * EXCHANGES)
        for start in range(0, before, BATCH):
            size = min(BATCH, before - start)
            await talk.append_many({"role": ("user", "assistant")[n % 2], "content": say()} for n in range(size))
        await store.settle()
        kinds = [(policy, budget) for policy in POLICIES for budget in budgets]
        built: dict[tuple[str, int], list[palaver.Context]] = {kind: [] for kind in kinds}
        for _ in range(EXCHANGES):
            await talk.append("user", say())
            for _ in range(2):  # the first one asks for the summaries that it misses
                contexts = [await _build(talk, policy, budget) for policy, budget in kinds]
                await store.settle()
            for kind, context in zip(kinds, contexts, strict=True):
                built[kind].append(context)
            await talk.append("assistant", say())
        return [_row(policy, turns, budget, built[policy, budget]) for policy, budget in kinds]


async def _build(talk: palaver.Conversation, policy: str, budget: int) -> palaver.Context:
    size = {"char_budget": budget * CHARACTERS} if policy == "recent-chars" else {"token_budget": budget}
    return await talk.build_context(**size, **POLICIES[policy])


def _row(policy: str, turns: int, budget: int, contexts: Sequence[palaver.Context]) -> Row:
    explanation = contexts[-1].explain()
    recent = [block for block in explanation.blocks if block.kind in ("recent", "current", "rounds")]
    count = BpeCounter()
    return Row(
        policy=policy,
        turns=turns,
        budget=budget,
        used=explanation.tokens / explanation.budget,
        recent=sum(block.tokens for block in recent) / explanation.budget,
        recent_turns=sum(len(block.turn_ids) for block in recent),
        recalled=sum(one.tokens for one in explanation.blocks if one.kind == "recalled") / explanation.budget,
        summarised=sum(one.turns for one in explanation.left_out if one.summarised),
        not_covered=sum(one.turns for one in explanation.left_out if not one.summarised),
        prefix=statistics.mean(cached_share(a.messages, b.messages, count) for a, b in pairwise(contexts)),
    )


# ---- showing -------------------------------------------------------------------------------------------------------


def show(rows: Iterable[Row], before: dict[tuple[str, int, int], Row], console: Console) -> None:
    table = Table(title="What contexts do with their budget" + (" (before → now)" if before else ""))
    for name in ("policy", "turns", "budget", "used", "recent turns", "recent", "recalled", "not covered", "as before"):
        table.add_column(name, no_wrap=True, justify="left" if name == "policy" else "right")
    for row in rows:
        old = before.get((row.policy, row.turns, row.budget))
        table.add_row(row.policy, f"{row.turns:,}", f"{row.budget:,}", *_cells(row, old))
    console.print(table)


def _cells(row: Row, old: Row | None) -> list[str]:
    def cell(name: str, form: str) -> str:
        new = format(getattr(row, name), form)
        return new if old is None else f"{format(getattr(old, name), form)} → {new}"

    return [
        cell("used", ".0%"), cell("recent_turns", ",d"), cell("recent", ".0%"), cell("recalled", ".0%"),
        cell("not_covered", ",d"), cell("prefix", ".2f"),
    ]  # fmt: skip


WIDTH, LEFT, BAR, GAP = 760, 190, 16, 8
COLOURS = {"recent": "#2f8f83", "recalled": "#c9963b", "rest": "#7d93b2"}


def picture(rows: Sequence[Row], budget: int, policy: str) -> str:
    """Draw the budget of one policy over the length of the thread."""
    chosen = [row for row in rows if row.budget == budget and row.policy == policy]
    height = 64 + len(chosen) * (BAR + GAP) + 34
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="system-ui, sans-serif"'
        ' font-size="13">',
        f'  <rect width="{WIDTH}" height="{height}" fill="#fbfcfd"/>',
        f'  <text x="20" y="28" font-weight="600" fill="#1c2733">{budget:,} tokens, policy {policy}</text>',
    ]
    for n, row in enumerate(chosen):
        lines += _bar(row, 46 + n * (BAR + GAP))
    legend = "green: recent turns, word for word · orange: recalled · blue: summaries and notes · white: free"
    lines += [f'  <text x="20" y="{height - 14}" fill="#556270" font-size="12">{legend}</text>', "</svg>", ""]
    return "\n".join(lines)


def _bar(row: Row, y: int) -> list[str]:
    width, x = WIDTH - LEFT - 20, float(LEFT)
    lines = [
        f'  <text x="20" y="{y + 13}" fill="#556270">{row.turns:,} turns</text>',
        f'  <rect x="{LEFT}" y="{y}" width="{width}" height="{BAR}" fill="none" stroke="#c6ced8"/>',
    ]
    for kind, share in (
        ("rest", row.used - row.recent - row.recalled),
        ("recent", row.recent),
        ("recalled", row.recalled),
    ):
        size = max(0.0, share) * width
        lines.append(f'  <rect x="{x:.0f}" y="{y}" width="{size:.0f}" height="{BAR}" fill="{COLOURS[kind]}"/>')
        x += size
    return lines


# ---- running -------------------------------------------------------------------------------------------------------


async def run(lengths: Sequence[int], budgets: Sequence[int], console: Console) -> list[Row]:
    say, rows = Speaker(), []
    for turns in lengths:
        console.print(f"[dim]{turns:,} turns …[/]")
        rows += await measure(turns, budgets, say)
    return sorted(rows, key=lambda row: (list(POLICIES).index(row.policy), row.turns, row.budget))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench spending", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="up to 400 turns and 16,000 tokens")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to a file")
    parser.add_argument("--before", type=Path, metavar="FILE", help="rows of an earlier run, to compare with")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the policy balanced with 4,000 tokens")
    args = parser.parse_args(argv)
    lengths, budgets = (LENGTHS[:4], BUDGETS[:4]) if args.quick else (LENGTHS, BUDGETS)
    rows = asyncio.run(run(lengths, budgets, Console(stderr=True)))
    earlier = [Row(**one) for one in json.loads(args.before.read_text())] if args.before else []
    show(rows, {(one.policy, one.turns, one.budget): one for one in earlier}, Console(width=140))
    if args.json:
        args.json.write_text(json.dumps([asdict(row) for row in rows]))
    if args.svg:
        args.svg.write_text(picture(rows, 4_000, "balanced"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
