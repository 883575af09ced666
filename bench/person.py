"""`python -m bench.person FOLDER [talks] [every]`: is the evidence in the context of a new conversation?

The sessions of each LoCoMo conversation are stored as separate conversations of one owner, and the questions are asked
in a new, empty one, with recall over the conversations of the owner and memory of the person. Next to it, the same in
one conversation that holds all sessions, and the same turns in mem0 (`infer=False`, our embedder), if it is installed.
Days of BEAM are stored apart, and only the questions on knowledge updates and preferences are asked. EIC and stale as
in bench/recall.py. `stale person` is the share of questions on updates for which the block about the person shows an
item from a turn that was replaced, with a number that is no longer right.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import palaver
from bench import mem0_memory
from bench.datasets import Question, Said, Talk, load
from bench.evidence import Shown, interval, mean, plain
from bench.recall import Remembering, measured
from palaver.core.identity import new_id
from palaver.models.tokens import BpeCounter
from palaver.testing import unquote

BUDGET, POLICY = 2_000, "balanced"
KINDS = ("knowledge", "preference")  # of BEAM
NUMBER = re.compile(r"\d[\d,.]*\d|\d")
Figures = list[dict[str, float]]
ONE, NEW, MEM0 = "one conversation", "a new conversation", "mem0"


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


def evidence(question: Question, ids: Sequence[str], talk: Talk) -> dict[str, Said]:
    return {id: said for id, said in zip(ids, talk.turns, strict=True) if said.name in question.gold}


async def ask(talk: Any, question: Question, gold: dict[str, Said], **options: Any) -> tuple[dict[str, float], str]:
    """Return the figures of a context, and the text of it."""
    context = await talk.build_context(token_budget=BUDGET, query=question.text, policy=POLICY, **options)
    text = plain(unquote(context.text))
    return measured(question, gold, Shown(text, frozenset(context.turn_ids)), BUDGET), text


def stale_items(question: Question, gold: dict[str, Said], items: Sequence[Any], text: str) -> list[str]:
    """The items in a context that say a number of a turn that was replaced, and that no later turn says."""
    old = {id for id, said in gold.items() if said.name in question.replaced}
    current = {number for id, said in gold.items() if id not in old for number in NUMBER.findall(said.text)}
    shown = [one for one in items if plain(one.text) in text and {source.turn for source in one.sources} <= old]
    return [one.text for one in shown if set(NUMBER.findall(one.text)) - current]


async def ask_in_one(talk: Talk, questions: Sequence[Question], owner: str, embedder: Remembering) -> Figures:
    async with palaver.open("memory:", tenant=new_id(), embedder=embedder, person="read-write") as store:
        whole = await store.conversation("whole", settings={"person": "off"})
        ids = [turn.id for turn in await whole.append_many(turns_of(talk.turns, owner))]
        await store.settle()
        return [(await ask(whole, one, evidence(one, ids, talk)))[0] for one in questions]


async def ask_in_new(talk: Talk, questions: Sequence[Question], owner: str, embedder: Remembering) -> Figures:
    scope = palaver.Scope(new_id(), None, visibility="tenant").with_rights("admin", "act_for")
    async with palaver.open("memory:", scope=scope, embedder=embedder, person="read-write") as store:
        ids: list[str] = []
        for n, some in enumerate(parts(talk)):
            one = await store.conversation(f"s{n}", owner=owner)
            ids += [turn.id for turn in await one.append_many(turns_of(some, owner))]
        await store.settle()
        items = await store.person(owner).facts()
        print(f"{talk.data} {talk.name}: {len(parts(talk))} conversations, {len(items)} items of {owner}", flush=True)
        figures: Figures = []
        for n, question in enumerate(questions):
            new, gold = await store.conversation(f"new {n}", owner=owner), evidence(question, ids, talk)
            found, text = await ask(new, question, gold, recall_scope="owner")
            stale = stale_items(question, gold, items, text)
            print(*(f"stale: {one}" for one in stale), sep="\n", end="\n" if stale else "", flush=True)
            figures.append(found | ({"stale person": float(bool(stale))} if question.replaced else {}))
        return figures


def ask_mem0(talk: Talk, questions: Sequence[Question], owner: str, embedder: Remembering) -> Figures:
    memory, count = mem0_memory.Mem0(owner, embedder.encode, embedder.dimensions), BpeCounter()
    ids = [said.name for said in talk.turns]
    for session in parts(talk):
        memory.add(session, [said.name for said in session])
    figures: Figures = []
    for question in questions:
        text, turns = memory.context(question.text, BUDGET, count)
        figures.append(measured(question, evidence(question, ids, talk), Shown(plain(text), turns), BUDGET))
    return figures


async def run(talk: Talk, questions: Sequence[Question], embedder: Remembering) -> dict[str, Figures]:
    owner = next(said.actor for said in talk.turns if said.role == "user") or "user"
    owner = owner if owner != "user" else "ada"
    found = {
        ONE: await ask_in_one(talk, questions, owner, embedder),
        NEW: await ask_in_new(talk, questions, owner, embedder),
    }
    return found | ({MEM0: ask_mem0(talk, questions, owner, embedder)} if mem0_memory.installed() else {})


def show(name: str, way: str, figures: Figures) -> None:
    held = [one[f"EIC@{BUDGET}"] for one in figures]
    low, high = interval(held)
    stale = [one[f"stale@{BUDGET}"] for one in figures if f"stale@{BUDGET}" in one]
    person = [one["stale person"] for one in figures if "stale person" in one]
    more = f", stale person {mean(person):.3f} (n={len(person)})" if person and way == NEW else ""
    print(f"{name}, {way}: EIC@{BUDGET} {mean(held):.3f} ({low:.3f}–{high:.3f}), n={len(held)}, "
          f"stale@{BUDGET} {mean(stale):.3f} (n={len(stale)}){more}", flush=True)  # fmt: skip


async def main() -> None:
    folder, most, every = Path(sys.argv[1]), int((sys.argv[2:] or ["2"])[0]), int((sys.argv[3:] or ["3"])[0])
    data, embedder = load(folder), Remembering(None)
    print(f"mem0 {mem0_memory.installed() or 'is not installed: pip install -r bench/requirements.txt'}")
    for name in ("LoCoMo", "BEAM"):
        all_figures: dict[str, Figures] = {}
        for talk in data.get(name, [])[:most]:
            asked = [one for one in talk.questions if one.headline][::every]
            if name == "BEAM":
                asked = [one for one in talk.questions if any(kind in one.kind for kind in KINDS)]
            for way, figures in (await run(talk, asked, embedder)).items():
                all_figures.setdefault(way, []).extend(figures)
        for way, figures in all_figures.items():
            show(name, way, figures)


if __name__ == "__main__":
    asyncio.run(main())
