"""OpenAI's Chat Completions and list of models."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Path, Request
from starlette.responses import Response

from palaver.server.compat import responses
from palaver.server.compat.openai_chat import format as openai_chat
from palaver.server.errors import Refused
from palaver.server.rest.dependencies import ID, CallerOf, Reply, ServicesOf, StoreOf

STARTED = 1_763_200_000  # when these models came to be: nobody knows, and clients want a number


async def create_chat_completion(request: Request, services: ServicesOf, store: StoreOf, caller: CallerOf) -> Response:
    """An answer in the form of OpenAI's Chat Completions, streamed or whole.

    With `X-Conversation-Id`, or `metadata.conversation_id`, it has memory: only the new message is needed, and a whole
    history is recognised by content. Without, it is passed on, and stored only with `store`.
    """
    body, data = await responses.body_of(request)
    ask, usage = openai_chat.ask_of(body), openai_chat.wants_usage(body)
    exchange = await responses.opened(request, services, store, caller, ask, data)
    id = f"chatcmpl-{exchange.id}"
    if not ask.stream:
        beats = await responses.heard(exchange)
        return responses.whole(exchange, openai_chat.completion(id, exchange.created, ask.model, beats))
    chunks = openai_chat.Chunks(id, exchange.created, ask.model, usage)
    return responses.streamed(request, services, exchange, chunks, responses.data_frame, lambda error: [error])


async def list_models(request: Request, services: ServicesOf) -> Response:
    """The models that callers may name; to Anthropic's clients in their own form."""
    if "anthropic-version" in request.headers:
        names = sorted(services.models)
        page = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None, "has_more": False}
        return Reply({"data": [_of_anthropic(name) for name in names], **page})
    return Reply({"object": "list", "data": [_model(name) for name in sorted(services.models)]})


async def get_model(request: Request, services: ServicesOf, model: Annotated[str, Path(**ID)]) -> Response:
    """One of them."""
    if model not in services.models:
        raise Refused(404, f"The model {model[:100]!r} is not configured here", code="model_not_found")
    return Reply(_of_anthropic(model) if "anthropic-version" in request.headers else _model(model))


def _of_anthropic(name: str) -> dict[str, object]:
    created = datetime.fromtimestamp(STARTED, UTC).isoformat()
    return {"id": name, "type": "model", "display_name": name, "created_at": created}


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": STARTED, "owned_by": "palaver"}
