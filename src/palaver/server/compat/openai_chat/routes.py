"""Routes of OpenAI's Chat Completions and of the list of models."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Path, Request
from starlette.responses import Response

from palaver.server.compat import responses
from palaver.server.compat.openai_chat.frames import PREFIX, ChatChunks, build_completion
from palaver.server.compat.openai_chat.parse import parse_request, wants_usage
from palaver.server.dependencies import ID, CallerDep, Reply, ServicesDep, StoreDep
from palaver.server.errors import Refusal

STARTED = 1_763_200_000  # a placeholder: clients require a creation time, and none is known


async def create_chat_completion(
    request: Request, services: ServicesDep, store: StoreDep, caller: CallerDep
) -> Response:
    """Answer in the format of OpenAI's Chat Completions, streamed or as one object.

    With `X-Conversation-Id`, or `metadata.conversation_id`, the conversation is stored: send only the new message,
    or the whole history, in which the server recognises the stored turns. Without a conversation, the request is
    passed to the model, and stored only with `store`.
    """
    body, data = await responses.read_body(request)
    ask, usage = parse_request(body), wants_usage(body)
    exchange = await responses.open_exchange(request, services, store, caller, ask, data)
    id = f"{PREFIX}{exchange.id}"
    if not ask.stream:
        events = await responses.collect_events(exchange)
        return responses.json_reply(exchange, build_completion(id, exchange.created, ask.model, events))
    chunks = ChatChunks(id, exchange.created, ask.model, usage)
    return responses.stream_reply(request, services, exchange, chunks, responses.encode_data, lambda error: [error])


async def list_models(request: Request, services: ServicesDep) -> Response:
    """List the models that callers may name. With the header `anthropic-version`, in the format of Anthropic."""
    if "anthropic-version" in request.headers:
        names = sorted(services.models)
        page = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None, "has_more": False}
        return Reply({"data": [_describe_for_anthropic(name) for name in names], **page})
    return Reply({"object": "list", "data": [_describe(name) for name in sorted(services.models)]})


async def get_model(
    request: Request, services: ServicesDep, model: Annotated[str, Path(**ID, description="The name of the model.")]
) -> Response:
    """Get one model."""
    if model not in services.models:
        raise Refusal(404, f"The model {model[:100]!r} is not configured here", code="model_not_found")
    return Reply(_describe_for_anthropic(model) if "anthropic-version" in request.headers else _describe(model))


def _describe_for_anthropic(name: str) -> dict[str, object]:
    created = datetime.fromtimestamp(STARTED, UTC).isoformat()
    return {"id": name, "type": "model", "display_name": name, "created_at": created}


def _describe(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": STARTED, "owned_by": "palaver"}
