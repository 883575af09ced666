"""What is remembered: recall, context, summaries, facts, working memory."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path
from starlette.responses import Response

from palaver.errors import NotFound
from palaver.model import SYSTEM
from palaver.server import wire
from palaver.server.dependencies import ID, ConversationDep, Reply, StoreDep, reply_items, sent_fields
from palaver.server.rest import schemas

ListName = Literal[
    "goals", "requirements", "constraints", "decisions", "assumptions", "open_questions", "glossary", "stakeholders",
    "instructions",
]  # fmt: skip
Index = Annotated[int, Path(ge=0, le=100_000)]


async def recall(talk: ConversationDep, body: schemas.RecallQuery) -> Response:
    """The turns and facts that fit a question best, with what their scores are made of."""
    options = sent_fields(body)
    return reply_items([wire.hit(one) for one in await talk.recall(options.pop("query"), **options)])


async def build_context(store: StoreDep, talk: ConversationDep, body: schemas.ContextQuery) -> Response:
    """What a model would see, within the budget, and why each piece is in it."""
    options = {name: value for name, value in sent_fields(body, "format").items() if value is not None}
    if "instructions" in options:
        store.require(SYSTEM)
    context = await talk.build_context(**options)
    shapes: dict[str, Any] = {
        "openai": context.to_openai,
        "responses": context.to_responses,
        "anthropic": context.to_anthropic,
    }
    answer = wire.context(context)
    if body.format in shapes:
        answer["messages"] = shapes[body.format]()
    return Reply(answer)


async def list_summaries(talk: ConversationDep) -> Response:
    """Every summary, with the span that it stands for."""
    return reply_items([wire.plain(one) for one in await talk.summaries()])


async def summarize(talk: ConversationDep) -> Response:
    """Summarise the older half of what no summary covers yet, and answer all summaries."""
    return reply_items([wire.plain(one) for one in await talk.summarize()])


async def compact(talk: ConversationDep, body: schemas.Compact) -> Response:
    """Summarise what is due now. Turns stay."""
    return Reply({"summaries": await talk.compact(keep_tokens=body.keep_tokens)})


async def list_facts(talk: ConversationDep, include_invalidated: bool = False) -> Response:
    """What is known, with where it was said and since when."""
    return reply_items([wire.plain(one) for one in await talk.facts(include_invalidated=include_invalidated)])


async def extract_facts(talk: ConversationDep) -> Response:
    """Extract facts from the turns that no summary covers yet, and answer the new ones."""
    return reply_items([wire.plain(one) for one in await talk.extract_facts()])


async def forget_fact(talk: ConversationDep, fact: Annotated[str, Path(**ID)]) -> Response:
    """Delete a fact for good."""
    if not await talk.forget_fact(fact):
        raise NotFound("no such fact in this conversation")
    return Response(status_code=204)


async def get_memory(talk: ConversationDep) -> Response:
    """Working memory: what matters in this conversation now."""
    return Reply(wire.plain(await talk.working_memory()))


async def add_note(talk: ConversationDep, list: ListName, body: schemas.NewNote) -> Response:
    """Add a note to a list of working memory."""
    return Reply(wire.plain(await talk.remember(list, body.text, by=body.by)), 201)


async def correct_note(talk: ConversationDep, list: ListName, index: Index, body: schemas.NewNote) -> Response:
    """Put another text in the place of a note."""
    return Reply(wire.plain(await talk.correct(list, index, body.text, by=body.by)))


async def drop_note(talk: ConversationDep, list: ListName, index: Index) -> Response:
    """Remove a note."""
    return Reply(wire.plain(await talk.drop_note(list, index)))
