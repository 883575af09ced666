"""Routes of memory: recall, context, summaries, facts, working memory."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from starlette.responses import Response

from palaver.core.rights import require_right
from palaver.errors import NotFound
from palaver.model import SYSTEM
from palaver.server import wire
from palaver.server.dependencies import ID, ConversationDep, Reply, StoreDep, reply_items, reply_results, sent_fields
from palaver.server.rest import schemas

ListName = Annotated[
    Literal[
        "goals", "requirements", "constraints", "decisions", "assumptions", "open_questions", "glossary",
        "stakeholders", "instructions", "summary",
    ],
    Path(description="The list of notes."),
]  # fmt: skip
FactId = Annotated[str, Path(**ID, description="The id of the fact.")]
Index = Annotated[int, Path(ge=0, le=100_000, description="The index of the note in its list.")]


async def recall(talk: ConversationDep, body: schemas.RecallQuery) -> Response:
    """Find the turns and facts that match a question best, each with the parts of its score."""
    options = sent_fields(body)
    return reply_results(await talk.recall(options.pop("query"), **options), wire.hit)


async def build_context(store: StoreDep, talk: ConversationDep, body: schemas.ContextQuery) -> Response:
    """Build the context for a model, within a budget, with an explanation of each block."""
    options = {name: value for name, value in sent_fields(body, "format").items() if value is not None}
    if "instructions" in options:
        require_right(store.scope, SYSTEM)
    context = await talk.build_context(**options)
    formats: dict[str, Any] = {
        "openai": context.to_openai,
        "responses": context.to_responses,
        "anthropic": context.to_anthropic,
    }
    answer = wire.context(context)
    if body.format in formats:
        answer["messages"] = formats[body.format]()
    return Reply(answer)


async def list_summaries(talk: ConversationDep) -> Response:
    """List the summaries, each with the span of turns that it covers."""
    return reply_results(await talk.summaries(), wire.plain)


async def summarize(talk: ConversationDep, body: schemas.Through | None = None) -> Response:
    """Summarise the older half of the turns without a summary, or all through `through`. Return all summaries."""
    through = None if body is None else body.through
    return reply_items([wire.plain(one) for one in await talk.summarize(through=through)])


async def compact(talk: ConversationDep, body: schemas.Compact) -> Response:
    """Write the summaries that are due. The turns are kept."""
    return Reply({"summaries": await talk.compact(**sent_fields(body))})


async def list_facts(
    talk: ConversationDep,
    include_invalidated: Annotated[bool, Query(description="Include facts that a later fact has replaced.")] = False,
    as_of: Annotated[schemas.Moment | None, Query(description="The facts that were believed at this time.")] = None,
) -> Response:
    """List the facts, each with its source turn and the time from which it holds."""
    return reply_results(await talk.facts(include_invalidated=include_invalidated, as_of=as_of), wire.plain)


async def extract_facts(talk: ConversationDep, body: schemas.Through | None = None) -> Response:
    """Extract facts from the turns that have no summary, or only from those through `through`. Return the new facts."""
    through = None if body is None else body.through
    return reply_items([wire.plain(one) for one in await talk.extract_facts(through=through)])


async def correct_fact(talk: ConversationDep, fact: FactId, body: schemas.CorrectedFact) -> Response:
    """Replace a fact with a corrected one. Extractors do not change it later."""
    options: dict[str, Any] = sent_fields(body)
    return Reply(wire.plain(await talk.correct_fact(fact, options.pop("text"), **options)))


async def forget_fact(talk: ConversationDep, fact: FactId) -> Response:
    """Delete a fact permanently."""
    if not await talk.forget_fact(fact):
        raise NotFound("no such fact in this conversation")
    return Response(status_code=204)


async def get_memory(talk: ConversationDep) -> Response:
    """Get the working memory of a conversation."""
    return Reply(wire.plain(await talk.working_memory()))


async def add_note(talk: ConversationDep, list: ListName, body: schemas.NewNote) -> Response:
    """Add a note to a list of working memory."""
    return Reply(wire.plain(await talk.remember(list, body.text, by=body.by)), 201)


async def correct_note(talk: ConversationDep, list: ListName, index: Index, body: schemas.NewNote) -> Response:
    """Replace the text of a note."""
    return Reply(wire.plain(await talk.correct(list, index, body.text, by=body.by)))


async def drop_note(talk: ConversationDep, list: ListName, index: Index) -> Response:
    """Remove a note."""
    return Reply(wire.plain(await talk.drop_note(list, index)))
