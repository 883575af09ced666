"""`python -m bench recall FOLDER`: is the evidence in the context?

EIC@B is the share of questions for which every turn that holds evidence is quoted in a context of at most B tokens.
AIC@B (answer in context) counts a turn that is quoted in part as well, if every word of the reference answer that the
turn holds is in that part. dated@B is EIC with the date of each turn before it. stale@B is the share of quoted turns
that a later turn had replaced, without a mark that says so. None of them says whether a model answers correctly.
Noise is the share of the budget that is recalled for questions of other conversations.
Everything goes through the public contract: append, settle, build_context, recall. The marks of quotations are removed
before a context is compared with what was said.
"""

from __future__ import annotations

import argparse
import asyncio
import pickle
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import palaver
from bench import laboratory
from bench.datasets import Question, Said, Talk, load
from bench.evidence import Answered, Shown, by_kind, found, interval, mean, plain, sign_test
from palaver.core.identity import new_id
from palaver.models.offline.embedder import NAMES, LocalEmbedder
from palaver.models.tokens import BpeCounter
from palaver.testing import unquote

FLOORS = {("LoCoMo", "EIC@2000"): 0.85, ("BEAM", "EIC@2000"): 0.57, ("LoCoMo-Plus", "EIC@4000"): 0.40}
BESIDE = "balanced"
BATCH = 1_000
WIDTH = 160
Answers = dict[str, list[Answered]]  # by system
_count = BpeCounter()


class Remembering:
    """A local embedder with a cache of the texts that it has seen: the same conversations come again and again."""

    def __init__(self, file: Path | None, embedder: str = "local") -> None:
        self.model = LocalEmbedder(NAMES[embedder])
        self.name, self.dimensions = self.model.name, self.model.dimensions
        self.typical_cosine = self.model.typical_cosine
        self.file = file
        self.seen: dict[str, NDArray[np.float32]] = pickle.loads(file.read_bytes()) if file and file.exists() else {}

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.encode(text).tolist() for text in texts]

    def encode(self, text: str) -> NDArray[np.float32]:
        if text not in self.seen:
            self.seen[text] = np.asarray(self.model.encode([text]))[0]
        return self.seen[text]

    def save(self) -> None:
        if self.file:
            self.file.write_bytes(pickle.dumps(self.seen))


@dataclass
class Run:
    """What is measured, and the results by system."""

    policies: tuple[str, ...]
    budgets: tuple[int, ...]
    embedder: Remembering
    url: str = "memory:"
    answers: Answers = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    noise: dict[tuple[str, str, int], list[float]] = field(default_factory=dict)  # by data set, policy and budget
    over: int = 0

    async def talk(self, talk: Talk, unrelated: Sequence[str] = ()) -> None:
        """Store one conversation, and ask its questions; then those that have nothing to do with it."""
        async with palaver.open(self.url, tenant=new_id(), embedder=self.embedder) as store:  # nobody else is there
            kept = await store.conversation(talk.name)
            ids = [turn.id for part in _batches(talk) for turn in await kept.append_many(part)]
            await store.settle()
            for question in talk.questions:
                await self.question(kept, talk, question, ids)
            for text in unrelated:
                await self.unrelated(kept, talk.data, text)
        self._baselines(talk)

    async def unrelated(self, kept: Any, data: str, text: str) -> None:
        for policy in self.policies:
            for budget in self.budgets:
                context = await kept.build_context(token_budget=budget, query=text, policy=policy)
                tokens = sum(block.tokens for block in context.explanation.blocks if block.kind == "recalled")
                self.noise.setdefault((data, policy, budget), []).append(tokens / budget)

    async def question(self, kept: Any, talk: Talk, question: Question, ids: Sequence[str]) -> None:
        names = dict(zip(ids, (said.name for said in talk.turns), strict=True))
        hits = await kept.recall(question.text, k=10, include_facts=False)
        ranked = found([names[hit.turn.id] for hit in hits if hit.turn], question.gold)
        gold = {id: said for id, said in zip(ids, talk.turns, strict=True) if said.name in question.gold}
        for policy in self.policies:
            answered = Answered(talk.data, question.kind, question.headline, dict(ranked))
            for budget in self.budgets:
                shown = await self.ask(kept, question.text, policy, budget)
                answered.figures |= measured(question, gold, shown, budget)
            self.answers.setdefault(policy, []).append(answered)

    async def ask(self, kept: Any, text: str, policy: str, budget: int) -> Shown:
        """Return what a context shows. One over its budget counts as empty."""
        start = time.perf_counter()
        context = await kept.build_context(token_budget=budget, query=text, policy=policy)
        self.seconds.setdefault(policy, []).append(time.perf_counter() - start)
        if context.tokens > budget or _count(context.text) > budget:
            self.over += 1
            return Shown("", frozenset())
        return Shown(plain(unquote(context.text)), frozenset(context.turn_ids))

    def _baselines(self, talk: Talk) -> None:
        desk = laboratory.Desk(talk, self.embedder.encode)
        systems = {"BM25": laboratory.BM25, "RRF": laboratory.RRF, "last turns": laboratory.LAST}
        for name, system in systems.items():
            self.answers.setdefault(name, []).extend(laboratory.answers([desk], system, self.budgets))


def measured(question: Question, gold: dict[str, Said], shown: Shown, budget: int) -> dict[str, float]:
    """The figures of one context. A question without a turn that was replaced, or that is not shown, has no stale@B."""
    proofs = {id: unquote(said.proof) for id, said in gold.items()}
    dates = {id: f"{said.created:%Y-%m-%d}" for id, said in gold.items()}
    old = [proofs[id] for id, said in gold.items() if said.name in question.replaced and shown.has(id, proofs[id])]
    figures = {
        f"EIC@{budget}": float(all(shown.has(id, proof) for id, proof in proofs.items())),
        f"AIC@{budget}": float(all(shown.has_answer(id, proof, question.answer) for id, proof in proofs.items())),
        f"dated@{budget}": float(all(shown.has_dated(id, proof, dates[id]) for id, proof in proofs.items())),
    }
    return figures | ({f"stale@{budget}": mean(map(shown.is_stale, old))} if old else {})


def _batches(talk: Talk) -> Iterator[list[dict[str, Any]]]:
    turns = [
        {"role": said.role, "content": said.text, "actor": said.actor, "created": said.created} for said in talk.turns
    ]
    for start in range(0, len(turns), BATCH):
        yield turns[start : start + BATCH]


# ---- showing -------------------------------------------------------------------------------------------------------


TABLES = (("R@10", "NDCG@10"), ("EIC", "AIC"), ("dated", "stale"))  # figures that stand in one table


def show(run: Run, console: Console, before: Answers | None = None) -> bool:
    """Print the tables; False when a floor was missed."""
    met = True
    for data in dict.fromkeys(one.data for held in run.answers.values() for one in held):
        for names in TABLES:
            console.print(_table(run, data, [full for name in names for full in _with_budgets(name, run.budgets)]))
        if before:
            _compare(run, data, before, console)
        met &= _floors(run, data, console)
    _show_noise(run, console)
    for policy, taken in run.seconds.items():
        low, high = np.quantile(taken, (0.5, 0.95))
        console.print(
            f"{policy}: build_context p50 {low * 1e3:.1f} ms, p95 {high * 1e3:.1f} ms (query embedded before)"
        )
    console.print(f"contexts over budget: {run.over}")
    return met and not run.over


def _with_budgets(name: str, budgets: Sequence[int]) -> list[str]:
    return [name] if "@" in name else [f"{name}@{budget}" for budget in budgets]


def _table(run: Run, data: str, figures: Sequence[str]) -> Table:
    table = Table(title=data, title_justify="left")
    for name in ("system", "questions", "n", *figures):
        table.add_column(name, no_wrap=True)
    for system, held in run.answers.items():
        groups = by_kind([one for one in held if one.data == data])
        for kind in groups if system in run.policies else ("all",):
            table.add_row(system, kind, str(len(groups[kind])), *(_cell(groups[kind], name) for name in figures))
    return table


def _compare(run: Run, data: str, before: Answers, console: Console) -> None:
    """Print how many questions each policy wins and loses against an earlier run of the same questions."""
    for policy in run.policies:
        ours, theirs = ([one for one in held.get(policy, ()) if one.data == data and one.headline]
                        for held in (run.answers, before))  # fmt: skip
        for name in (f"{kind}@{budget}" for kind in ("EIC", "AIC", "dated") for budget in run.budgets):
            pairs = [(a.figures[name], b.figures[name]) for a, b in zip(ours, theirs, strict=True) if name in b.figures]
            if pairs:
                now, then = zip(*pairs, strict=True)
                wins, losses = sign_test(now, then)
                console.print(f"{data} {policy} {name}: {mean(then):.3f} → {mean(now):.3f} ({wins} / {losses})")


def _show_noise(run: Run, console: Console) -> None:
    table = Table(title="Recalled for questions of other conversations, share of the budget", title_justify="left")
    for name in ("data", "policy", "budget", "questions", "median", "p90"):
        table.add_column(name, no_wrap=True)
    for (data, policy, budget), shares in run.noise.items():
        median, high = np.quantile(shares, (0.5, 0.9))
        table.add_row(data, policy, str(budget), str(len(shares)), f"{median:.1%}", f"{high:.1%}")
    if run.noise:
        console.print(table)


def _cell(held: Sequence[Answered], name: str) -> str:
    values = [one.figures[name] for one in held if name in one.figures]
    if not values:
        return ""
    low, high = interval(values)
    return f"{mean(values):.3f} [dim]{low:.2f}–{high:.2f}[/]".replace("0.", ".")


def _floors(run: Run, data: str, console: Console) -> bool:
    held = [one for one in run.answers[run.policies[0]] if one.data == data and one.headline]
    met = True
    for (name, figure), floor in FLOORS.items():
        if name == data and figure in held[0].figures:
            reached = mean(one.figures[figure] for one in held)
            met &= reached >= floor
            console.print(f"{data} {figure} {reached:.3f}, floor {floor}: {'met' if reached >= floor else 'NOT MET'}")
    return met


# ---- running -------------------------------------------------------------------------------------------------------


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench recall", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds locomo/, beam-100k/, locomo-plus/, or some of them")
    parser.add_argument("--policy", default="recall-heavy")
    parser.add_argument("--budgets", default="1000,2000,4000,8000")
    parser.add_argument("--url", default="memory:", help="a migrated Postgres, to measure that engine")
    parser.add_argument("--only", help="one data set: LoCoMo, BEAM or LoCoMo-Plus")
    parser.add_argument("--quick", action="store_true", help="a part of the questions")
    parser.add_argument("--lab", action="store_true", help="the scoring alone, part by part, as a Markdown table")
    parser.add_argument("--embedder", default="local", choices=list(NAMES), help="the encoder to measure")
    parser.add_argument("--unrelated", type=int, default=10, help="questions of others that each conversation is asked")
    parser.add_argument("--save", type=Path, help="a file to write every question's figures to")
    parser.add_argument("--before", type=Path, help="such a file of an earlier run: show wins and losses against it")
    parser.add_argument("--cache", type=Path, help="a file that keeps one encoder's embeddings from run to run")
    return parser.parse_args(argv)


def chosen(args: argparse.Namespace) -> dict[str, list[Talk]]:
    data = load(args.folder)
    if args.only:
        data = {name: talks for name, talks in data.items() if name == args.only}
    if args.quick:
        data = {name: _some(talks) for name, talks in data.items()}
    return data


def _some(talks: list[Talk]) -> list[Talk]:
    """Select some of many conversations, or every fourth question of a few, of different kinds."""
    if len(talks) > 50:
        return talks[::11]
    return [replace(talk, questions=talk.questions[n % 4 :: 4]) for n, talk in enumerate(talks)]


def others(data: dict[str, list[Talk]], talk: Talk, count: int) -> list[str]:
    """Questions of other conversations of the same data set, spread evenly; always the same ones."""
    texts = [
        one.text for other in data[talk.data] if other.name != talk.name for one in other.questions if one.headline
    ]
    step = max(1, len(texts) // max(1, count))
    return texts[::step][:count]


async def measure(run: Run, data: dict[str, list[Talk]], console: Console, unrelated: int = 0) -> None:
    for name, talks in data.items():
        for n, talk in enumerate(talks, 1):
            console.print(f"[dim]{name} {n}/{len(talks)}: {len(talk.turns)} turns, {len(talk.questions)} questions[/]")
            few = unrelated if len(talks) <= 50 else min(unrelated, 2)
            await run.talk(talk, others(data, talk, few))


def main(argv: Sequence[str] | None = None) -> int:
    args = arguments(argv)
    data = chosen(args)
    if not data:
        print(f"nothing to measure in {args.folder}", file=sys.stderr)
        return 2
    embedder = Remembering(args.cache, args.embedder)
    try:
        if args.lab:
            desks = {name: [laboratory.Desk(talk, embedder.encode) for talk in talks] for name, talks in data.items()}
            print(laboratory.ablation(desks))
            return 0
        budgets = tuple(int(budget) for budget in args.budgets.split(","))
        run = Run(tuple(dict.fromkeys((args.policy, BESIDE))), budgets, embedder, args.url)
        asyncio.run(measure(run, data, Console(stderr=True), args.unrelated))
        if args.save:
            args.save.write_bytes(pickle.dumps(run.answers))
        return 0 if show(run, Console(width=WIDTH), args.before and pickle.loads(args.before.read_bytes())) else 1
    finally:
        embedder.save()


if __name__ == "__main__":
    sys.exit(main())
