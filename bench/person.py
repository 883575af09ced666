"""`python -m bench.person FOLDER [talks] [every]`: is the evidence in the context of a new conversation?

The sessions of each LoCoMo conversation are stored as separate conversations of one owner, and the questions are asked
in a new, empty one, with recall over the conversations of the owner and memory of the person. Beside it, the same in
one conversation that holds all sessions. Days of BEAM are stored apart, and only the questions on knowledge updates and
preferences are asked. EIC and stale as in bench/recall.py.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import palaver
from bench.datasets import Question, Said, Talk, load
from bench.evidence import Shown, interval, mean, plain
from bench.recall import Remembering, measured
from palaver.core.identity import new_id
from palaver.testing import unquote

BUDGET, POLICY = 2_000, "balanced"
KINDS = ("knowledge", "preference")  # of BEAM


def parts(talk: Talk) -> list[list[Said]]:
    """The sessions: turns of LoCoMo are named D3:7; those of BEAM are cut where a day ends."""
    if talk.data == "LoCoMo":
        return [list(group) for _, group in groupby(talk.turns, key=lambda said: said.name.partition(":")[0])]
    return [list(group) for _, group in groupby(talk.turns, key=lambda said: said.created.date())]


def turns_of(said: Sequence[Said], owner: str) -> list[dict[str, Any]]:
    return [
        {"role": one.role, "content": one.text, "created": one.created,
         "actor": owner if one.role == "user" and one.actor in ("", "user") else one.actor}
        for one in said
    ]  # fmt: skip


async def ask(talk: Any, question: Question, gold: dict[str, Said], **options: Any) -> dict[str, float]:
    context = await talk.build_context(token_budget=BUDGET, query=question.text, policy=POLICY, **options)
    return measured(question, gold, Shown(plain(unquote(context.text)), frozenset(context.turn_ids)), BUDGET)


async def run(talk: Talk, questions: Sequence[Question], embedder: Remembering) -> dict[str, list[dict[str, float]]]:
    owner = next(said.actor for said in talk.turns if said.role == "user") or "user"
    owner = owner if owner != "user" else "ada"
    figures: dict[str, list[dict[str, float]]] = {"one conversation": [], "a new conversation": []}
    async with palaver.open("memory:", tenant=new_id(), embedder=embedder, person="read-write") as store:
        whole = await store.conversation("whole", settings={"person": "off"})
        ids = [turn.id for turn in await whole.append_many(turns_of(talk.turns, owner))]
        await store.settle()
        for question in questions:
            gold = {id: said for id, said in zip(ids, talk.turns, strict=True) if said.name in question.gold}
            figures["one conversation"].append(await ask(whole, question, gold))
    scope = palaver.Scope(new_id(), None, visibility="tenant").with_rights("admin", "act_for")
    async with palaver.open("memory:", scope=scope, embedder=embedder, person="read-write") as store:
        ids = []
        for n, some in enumerate(parts(talk)):
            one = await store.conversation(f"s{n}", owner=owner)
            ids += [turn.id for turn in await one.append_many(turns_of(some, owner))]
        await store.settle()
        items = await store.person(owner).facts()
        for n, question in enumerate(questions):
            new = await store.conversation(f"new {n}", owner=owner)
            gold = {id: said for id, said in zip(ids, talk.turns, strict=True) if said.name in question.gold}
            figures["a new conversation"].append(await ask(new, question, gold, recall_scope="owner"))
        print(f"{talk.data} {talk.name}: {len(parts(talk))} conversations, {len(items)} items of {owner}", flush=True)
    return figures


async def main() -> None:
    folder, most, every = Path(sys.argv[1]), int((sys.argv[2:] or ["2"])[0]), int((sys.argv[3:] or ["3"])[0])
    data, embedder = load(folder), Remembering(None)
    for name in ("LoCoMo", "BEAM"):
        all_figures: dict[str, list[dict[str, float]]] = {}
        for talk in data.get(name, [])[:most]:
            asked = [one for one in talk.questions if one.headline][::every]
            if name == "BEAM":
                asked = [one for one in talk.questions if any(kind in one.kind for kind in KINDS)]
            for way, figures in (await run(talk, asked, embedder)).items():
                all_figures.setdefault(way, []).extend(figures)
        for way, figures in all_figures.items():
            held = [one[f"EIC@{BUDGET}"] for one in figures]
            stale = [one[f"stale@{BUDGET}"] for one in figures if f"stale@{BUDGET}" in one]
            low, high = interval(held)
            print(f"{name}, {way}: EIC@{BUDGET} {mean(held):.3f} ({low:.3f}–{high:.3f}), n={len(held)}, "
                  f"stale@{BUDGET} {mean(stale):.3f} (n={len(stale)})", flush=True)  # fmt: skip


if __name__ == "__main__":
    asyncio.run(main())
