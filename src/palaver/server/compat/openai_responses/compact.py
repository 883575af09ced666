"""Route of OpenAI's compaction: a thread as its user messages and one item that stands for all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fastapi import Request
from starlette.responses import Response

from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import clock_of
from palaver.conversations.store import Store
from palaver.core.rights import require_right
from palaver.memory.working_memory import HANDED_IN
from palaver.model import GENERATE, READ, WRITE, Turn
from palaver.models.tokens import counter_for
from palaver.server.auth import Caller
from palaver.server.compat import openai_items, responses
from palaver.server.compat.client_history import MAX_TURNS, previous_error
from palaver.server.compat.compaction import Compaction, compact, compaction_item, find_compacted, summary_message
from palaver.server.compat.context_edits import split_items
from palaver.server.compat.exchange import answer_turns
from palaver.server.compat.exchanges import UNNAMED_TTL, Exchanges
from palaver.server.compat.model_choice import resolve_model
from palaver.server.compat.openai_responses.parse import PREFIX
from palaver.server.compat.references import find_conversation_named
from palaver.server.compat.request import (
    ClientMessage,
    ClientRequest,
    invalid,
    optional_text,
    require_text,
)
from palaver.server.compat.turns import append_drafts, draft_message
from palaver.server.components import Services
from palaver.server.dependencies import CallerDep, Reply, ServicesDep, StoreDep
from palaver.server.errors import Refusal


async def compact_response(request: Request, services: ServicesDep, store: StoreDep, caller: CallerDep) -> Response:
    """Compact a thread: `previous_response_id` and everything before it, or the items of `input`.

    Send the returned items in place of the thread. The last one refers to a summary that Palaver keeps. Items of
    `input` are stored for 30 days in a conversation of their own.
    """
    body, _ = await responses.read_body(request)
    for right in (GENERATE, READ, WRITE):
        require_right(store.scope, right)
    model = require_text("model", body.get("model"))
    resolve_model(services, ClientRequest(shape="openai-responses", model=model, said=()))
    optional_text("instructions", body.get("instructions"))
    talk, last = await _find_thread(request, services, store, caller, body)
    made = await compact(talk, last)
    if made is None:
        raise Refusal(400, "There is nothing to compact", field="input")
    return Reply(await _compacted(talk, last, made, model, int(clock_of(store).now().timestamp())))


async def _find_thread(
    request: Request, services: Services, store: Store, caller: Caller, body: Mapping[str, object]
) -> tuple[Conversation, Turn]:
    """Find the thread to compact and its last turn, or store the one that the request holds."""
    previous, given = optional_text("previous_response_id", body.get("previous_response_id")), body.get("input")
    if previous is not None:
        if given:
            raise invalid("input", "cannot be combined with previous_response_id: compact first, then send the items")
        return await _previous_thread(Exchanges(services, store, caller), previous)
    if given:
        entries: object = [{"role": "user", "content": given}] if isinstance(given, str) else given
        return await _store_items(store, entries)
    name = request.headers.get(responses.CONVERSATION)
    talk = await find_conversation_named(store, name) if name else None
    turns: list[Turn] = await talk.history(1) if talk is not None else []
    if talk is None or not turns:
        raise invalid("input", "is required, or previous_response_id")
    return talk, turns[-1]


async def _previous_thread(exchanges: Exchanges, previous: str) -> tuple[Conversation, Turn]:
    exchange = await exchanges.find(previous.removeprefix(PREFIX))
    talk, input = exchange.stored()
    turns = [turn for turn in await answer_turns(talk, input) if turn.status == "complete"]
    if not turns:
        raise previous_error(400, "It has no answer to compact")
    return talk, turns[-1]


async def _store_items(store: Store, entries: object) -> tuple[Conversation, Turn]:
    """Store items in a conversation of their own, so that their summary can be found again."""
    rest, earlier = split_items(entries)
    said: Sequence[ClientMessage] = openai_items.parse_items(rest)
    if earlier is not None:
        said = (await summary_message("input", earlier, await find_compacted(store, earlier)), *said)
    if not said:
        raise invalid("input", "must contain an item")
    talk = await store.conversation(ttl=UNNAMED_TTL)
    known = [replace(one, metadata={**one.metadata, "origin": HANDED_IN}) for one in said]
    return talk, await append_drafts(talk, [await draft_message(talk, one) for one in known], None, None)


async def _compacted(talk: Conversation, last: Turn, made: Compaction, model: str, now: int) -> dict[str, Any]:
    before: list[Turn] = await talk.history(MAX_TURNS, before=last)
    thread = [*before, last]
    read = sum(turn.token_count for turn in thread)
    written = counter_for(model)(made.text)
    items = [item for turn in thread if turn.role == "user" for item in openai_items.items_of_turn(turn)]
    return {
        "id": f"{PREFIX}{made.reference}",
        "object": "response.compaction",
        "created_at": now,
        "output": [*items, compaction_item(talk.id, last.id)],
        "usage": {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + written,
        },
    }
