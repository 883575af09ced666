"""`palaver recall`: the turns and facts that fit a question."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palaver.cli.app import Call, Name, command
from palaver.cli.database import existing, find
from palaver.cli.filters import Actors, Conditions, Roles, Since, Until, build_where
from palaver.cli.output import clean, emit, heading, local, marked, note, say, wire
from palaver.conversations.internals import components_of

if TYPE_CHECKING:
    from rich.text import Text

    from palaver.model import RecallHit
from palaver.cli.explain import Reach, made_of, unfinished

PANEL = "Memory"


@command("recall", PANEL)
async def recall(
    call: Call,
    conversation: Name,
    query: Annotated[list[str], typer.Argument(metavar="QUERY", help="Question to recall for.", show_default=False)],
    k: Annotated[int, typer.Option("-k", min=1, max=1_000, help="Maximum number of results.")] = 10,
    scope: Annotated[
        Reach, typer.Option(help="Search this conversation, all conversations of its owner, or all of the tenant.")
    ] = Reach.conversation,
    threshold: Annotated[
        float | None,
        typer.Option(metavar="RELEVANCE", help="Minimum relevance of a result, from 0 to 1. Default: none."),
    ] = None,
    since: Since = None,
    until: Until = None,
    where: Conditions = None,
    actor: Actors = None,
    role: Roles = None,
) -> None:
    """Find the turns and facts that match a question best, by words and by meaning, with the parts of each score.

    Examples:

      palaver recall support/42 What am I allergic to?
      palaver recall support/42 "the dentist" -k 3 --since 2026-01-01
      palaver recall support/42 budget --scope owner --json
      palaver recall support/42 refund --where topic=billing --where "priority>=3" --role user
    """
    text = " ".join(query)
    async with existing(call) as store:
        talk = await find(store, conversation)
        wanted = build_where(where, actor, role, since, until)
        hits = await talk.recall(text, k, scope=scope.value, threshold=threshold, where=wanted)
        how, waiting = components_of(store).contexts.recall.note, await unfinished(store)
    if call.as_json:
        for hit in hits:
            emit(_hit_wire(hit))
        return
    _show_hits(hits, text)
    note(f"Recall: {how}.")
    if waiting:
        note(waiting)


def _hit_wire(hit: RecallHit) -> dict[str, Any]:
    return {
        "score": hit.score,
        "relevance": hit.relevance,
        "parts": dict(hit.parts),
        "turn": None if hit.turn is None else wire(hit.turn),
        "fact": None if hit.fact is None else wire(hit.fact),
        "quote": None if hit.quote is None else wire(hit.quote),
    }


def _show_hits(hits: Iterable[RecallHit], query: str) -> None:
    from palaver.recall.terms import terms

    stems, found = frozenset(terms(query)), False
    for hit in hits:
        say(*_hit_lines(hit, stems), "")
        found = True
    if not found:
        say("Nothing found.")


def _hit_lines(hit: RecallHit, stems: frozenset[str]) -> list[str | Text]:
    from rich.text import Text

    made = made_of(hit.parts) or "no part matches"
    score = Text(f"relevance {hit.relevance:.2f}, score {hit.score:.2f} = {made}", "dim")
    if hit.turn is not None:
        texts = [marked(hit.turn.text, stems)] if hit.turn.text else []
        if hit.quote is not None:
            texts.append(Text(clean(f"{hit.quote.filename}: "), "blue") + marked(hit.quote.text, stems))
        return [heading(hit.turn), *texts, score]
    assert hit.fact is not None
    fact = hit.fact
    return [
        Text.assemble(("fact", "bold blue"), f"  since {local(fact.valid_from)}  ", (fact.id, "dim")),
        f"{fact.subject} · {fact.predicate} · {fact.object}",
        score,
    ]
