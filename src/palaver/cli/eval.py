"""`palaver eval`: how well recall works on your own conversations."""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import chosen, existing, find, model_settings
from palaver.cli.export_import import progress
from palaver.cli.output import counted, emit, note, say, table
from palaver.conversations.opener import open as open_store
from palaver.core.turn_draft import words
from palaver.errors import InvalidInput

if TYPE_CHECKING:
    from palaver.evaluation.drafting import Ask
    from palaver.evaluation.measure import Result
    from palaver.evaluation.questions import Question

PANEL = "Memory"
SHOWN = 20


@command("eval", PANEL)
async def eval_(
    call: Call,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File of questions: one JSON object per line.")],
    policy: Annotated[
        list[str] | None, typer.Option(help="Context policy. Default: balanced. Repeat it to compare several.")
    ] = None,
    budget: Annotated[
        list[int] | None,
        typer.Option(metavar="TOKENS", help="Budget in tokens. Default: 4,000. Repeat it to compare several."),
    ] = None,
    floor: Annotated[
        list[float] | None,
        typer.Option(
            metavar="RELEVANCE", help="Minimum relevance of recalled turns, from 0 to 1. Repeat it to compare several."
        ),
    ] = None,
    embedder: Annotated[
        list[str] | None,
        typer.Option(help="Embedder: auto, local or none. Default: auto. Repeat it to compare several."),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, max=100, help="Number of results that recall@k counts.")] = 10,
    at_least: Annotated[
        float | None,
        typer.Option(metavar="SHARE", min=0, max=1, help="Exit with status 1 if the best EIC is below this."),
    ] = None,
    make: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", min=1, help="Draft this many questions, and write them to FILE, which must not exist."
        ),
    ] = None,
    conversation: Annotated[
        list[str] | None,
        typer.Option(help="With --make: sample turns of this conversation. May be repeated. Default: all."),
    ] = None,
    seed: Annotated[int, typer.Option(help="With --make: seed of the random sample.")] = 0,
) -> None:
    """Measure recall with your own questions, and report what was missed and why.

    A line of FILE: {"question": "What am I allergic to?", "conversation": "support/42", "turns": ["01J…"]}. `turns` are
    the ids of the turns that the context must contain. Instead, `texts` can list strings that it must contain. EIC
    (evidence in context) is the share of questions for which the context contains all of them.

    With --make, Palaver samples turns and drafts a question for each: with PALAVER_MODEL, or by rules without a model.
    Read and correct the drafts before you use them.

    Examples:

      palaver eval questions.jsonl --make 50
      palaver eval questions.jsonl --policy balanced --policy recall-heavy --budget 2000 --budget 4000
      palaver eval questions.jsonl --at-least 0.85
    """
    if make is not None:
        await _make(call, file, make, conversation or [], seed)
        return
    from palaver.evaluation.questions import read_questions

    with file.open(encoding="utf-8") as lines:
        questions = list(read_questions(lines))
    if not questions:
        raise InvalidInput("FILE", "contains no question; --make drafts some")
    results: dict[str, list[Result]] = {}
    for name in embedder or ["auto"]:
        results[name] = await _measure(call, questions, _setups(policy, budget, floor, k), name)
    _report(call, results)
    best = max(result.eic for group in results.values() for result in group)
    if at_least is not None and best < at_least:
        note(f"The best EIC is {best:.3f}, below {at_least:g}.")
        raise typer.Exit(1)


def _setups(policy: list[str] | None, budget: list[int] | None, floor: list[float] | None, k: int) -> list[Result]:
    from palaver.evaluation.measure import Result, Setup

    floors: Sequence[float | None] = floor or [None]
    choices = itertools.product(policy or ["balanced"], budget or [4_000], floors)
    return [Result(Setup(policy=cast("Any", name), budget=size, floor=least), k) for name, size, least in choices]


async def _measure(call: Call, questions: list[Question], results: list[Result], embedder: str) -> list[Result]:
    from palaver.evaluation.measure import measure

    async with existing(call, embedder=cast("Any", None if embedder == "none" else embedder)) as store:
        with progress("Asking", len(questions)) as advance:
            for question in questions:
                await measure(await find(store, question.conversation), question, results)
                advance(1)
    return results


def _report(call: Call, results: dict[str, list[Result]]) -> None:
    if call.as_json:
        for name, group in results.items():
            for result in group:
                emit(_wire(name, result))
        return
    rows = [
        (name, str(result.setup), f"{result.eic:.3f}", f"{result.recall_at_k:.3f}", str(result.questions))
        for name, group in results.items()
        for result in group
    ]
    at = next(iter(results.values()))[0].k
    table(("embedder", "setup", "EIC", f"recall@{at}", "questions"), rows)
    worst = min((result for group in results.values() for result in group), key=lambda result: result.eic)
    if worst.misses:
        say(f"\nMissed with {worst.setup}: {len(worst.misses):,}")
        table(("question", "missed", "why"), [(m.question[:60], m.gold[:40], m.reason) for m in worst.misses[:SHOWN]])
    note("EIC shows that the evidence is in the prompt, not that an answer is correct.")


def _wire(embedder: str, result: Result) -> dict[str, Any]:
    setup = result.setup
    return {
        "embedder": embedder,
        "policy": setup.policy,
        "budget": setup.budget,
        "floor": setup.floor,
        "questions": result.questions,
        "eic": round(result.eic, 4),
        "k": result.k,
        "recall_at_k": round(result.recall_at_k, 4),
        "misses": [
            {"question": m.question, "conversation": m.conversation, "missed": m.gold, "reason": m.reason}
            for m in result.misses
        ],
    }


async def _make(call: Call, file: Path, count: int, names: list[str], seed: int) -> None:
    from palaver.evaluation.drafting import draft_questions

    if file.exists():
        raise InvalidInput("FILE", f"{str(file)!r} already exists: name a new file for the drafts")
    chance = random.Random(seed)
    drafts: list[Question] = []
    async with existing(call) as store, _model() as ask:
        talks = await chosen(store, names)
        share = -(-count // max(1, len(talks)))
        with progress("Drafting", len(talks)) as advance:
            for talk in talks:
                drafts += await draft_questions(talk, share, ask, random=chance)
                advance(1)
    chance.shuffle(drafts)
    file.write_text("".join(question.to_line() + "\n" for question in drafts[:count]), encoding="utf-8")
    say(f"Wrote {counted(len(drafts[:count]), 'question')} to {file}. Read and correct them before you trust a figure.")


@asynccontextmanager
async def _model() -> AsyncIterator[Ask | None]:
    """Yield a function that asks PALAVER_MODEL, in a store that is never written to disk; None without a model."""
    settings = model_settings()
    if not settings["model"]:
        yield None
        return
    async with open_store("memory:", embedder=None, worker=False, **settings) as store:

        async def ask(prompt: str) -> str:
            talk = await store.conversation()
            return words((await talk.generate(prompt)).content)

        yield ask
