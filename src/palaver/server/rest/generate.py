"""Routes of answers: generate, regenerate, stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import Request
from starlette.responses import Response

from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import models_of
from palaver.conversations.store import Store
from palaver.core.rights import actor_of_edit, require_right
from palaver.errors import InvalidInput, PalaverError, PermissionDenied
from palaver.generation.events import Answered, GenerateEvent, MessageStored, ToolDone, ToolsPlanned
from palaver.model import SYSTEM, Turn
from palaver.model import Request as Record
from palaver.ports.models import ReasoningDelta, TextDelta
from palaver.server import wire
from palaver.server.attachment_copies import copy_content
from palaver.server.components import Services
from palaver.server.dependencies import (
    ConversationDep,
    IdempotencyKey,
    Reply,
    ServicesDep,
    StoreDep,
    TurnId,
    sent_fields,
)
from palaver.server.live import sse
from palaver.server.live.answers import Answer, ServerStopping
from palaver.server.rest import schemas
from palaver.server.rest.turns import find_attachments, find_question

RECENT = 200  # turns among which the question of an answer is searched


async def generate(
    request: Request,
    services: ServicesDep,
    store: StoreDep,
    talk: ConversationDep,
    body: schemas.Question,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Store the message, build the context, call the model, run its tools, and store the answer while it streams.

    With `stream`, or `Accept: text/event-stream`, the response is a stream of the frames `message`, `delta`,
    `reasoning`, `tool_calls` and `tool_result`, with `done` or `error` at the end. Disconnecting does not stop the
    answer: follow it at `/events`, or stop it at `/stop`.
    """
    await services.model_settings.refresh()
    options = _options(services, store, talk, body)
    message = options.pop("message", None)
    if idempotency_key is not None:
        options["idempotency_key"] = idempotency_key
    if "attachments" in options:
        options["attachments"] = await find_attachments(talk, options["attachments"], body.replaces)
    return await _answer_reply(request, services, talk, body, await services.answers.start(talk, message, options))


async def regenerate(
    request: Request,
    services: ServicesDep,
    store: StoreDep,
    talk: ConversationDep,
    turn: TurnId,
    body: schemas.Regenerate,
) -> Response:
    """Answer a question again. The question and the new answer become a new branch. The old branch is kept."""
    old = await talk.turn(turn)
    question = old if old.role == "user" else find_question(await talk.history(RECENT, before=old), old)
    options = _options(services, store, talk, body)
    options |= {
        "replaces": question,
        "actor": actor_of_edit(store.scope, question),
        "metadata": question.metadata or None,
    }
    message, options["attachments"] = await copy_content(talk, question.content, question.attachments)
    answer = await services.answers.start(talk, message, options)
    return await _answer_reply(request, services, talk, body, answer)


async def stop(talk: ConversationDep) -> Response:
    """Stop the running answers of a conversation, in every process. The text so far is kept."""
    return Reply({"event": await talk.ask_to_stop()}, 202)


# ---- one answer ----------------------------------------------------------------------------------------------------


def _options(services: Services, store: Store, talk: Conversation, body: schemas.AnswerOptions) -> dict[str, Any]:
    options = {name: value for name, value in sent_fields(body, "stream").items() if value is not None}
    if "instructions" in options:  # a system prompt
        require_right(store.scope, SYSTEM)
    if "settings" in options:
        options["settings"] = {name: one for name, one in options["settings"].items() if one is not None}
    book = models_of(store)
    chosen = book.choose(talk.info, call=options.get("model"), agent=options.get("agent"))
    if chosen not in services.models and not services.settings.any_model:
        raise InvalidInput("model", f"must be one of {', '.join(sorted(services.models))}")
    return options


async def _answer_reply(
    request: Request, services: Services, talk: Conversation, body: schemas.AnswerOptions, answer: Answer
) -> Response:
    if body.stream or "text/event-stream" in request.headers.get("accept", ""):
        return sse.EventStream(sse.keep_alive(_answer_frames(talk, answer), services.settings.heartbeat))
    return Reply(await _final_body(talk, await answer.turn()))


async def _answer_frames(talk: Conversation, answer: Answer) -> AsyncIterator[bytes]:
    """Yield the answer as server-sent events. The first frame says where to follow it if the connection breaks."""
    events = f"/api/conversations/{talk.id}/events?after={talk.info.last_event}"
    yield sse.frame("start", {"conversation": talk.id, "events": events})
    try:
        async for event in answer.listen():
            if isinstance(event, Answered):
                yield sse.frame("done", await _final_body(talk, event.turn))
            else:
                yield encode_event(event)
    except ServerStopping as problem:
        yield sse.frame("closing", {"detail": str(problem), "events": events})
    except PalaverError as problem:
        yield sse.frame("error", problem.to_problem())


def encode_event(event: GenerateEvent) -> bytes:
    """Encode one event of an answer as a frame."""
    if isinstance(event, MessageStored):
        return sse.frame("message", {"turn": wire.turn(event.turn)})
    if isinstance(event, TextDelta):
        return sse.frame("delta", {"text": event.text})
    if isinstance(event, ReasoningDelta):
        return sse.frame("reasoning", {"text": event.text})
    if isinstance(event, ToolsPlanned):
        return sse.frame("tool_calls", {"turn": event.turn.id, "calls": [wire.plain(one) for one in event.calls]})
    assert isinstance(event, ToolDone)
    result = {"id": event.call.id, "name": event.call.name, "content": event.content, "is_error": event.is_error}
    return sse.frame("tool_result", result)


async def _final_body(talk: Conversation, turn: Turn) -> dict[str, Any]:
    """Build the last frame of an answer: the turn, its usage, and a summary of its prompt."""
    record = await _last_request(talk, turn)
    response = (record.response if record is not None else None) or {}
    return {
        "turn": wire.turn(turn),
        "usage": response.get("usage") or (None if turn.tokens is None else wire.plain(turn.tokens)),
        "explanation": wire.explanation_summary(record.explanation) if record is not None else None,
        "request": None if record is None else record.id,
    }


async def _last_request(talk: Conversation, turn: Turn) -> Record | None:
    """Return the record of the last model call of an answer. None for non-owners: prompts may quote other turns."""
    try:
        records = await talk.requests(1, turn=turn)
    except PermissionDenied:
        return None
    return records[-1] if records else None
