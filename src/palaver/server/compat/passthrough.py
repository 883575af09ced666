"""Passes a request to a model without memory and without storing anything."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from datetime import datetime

from msgspec.structs import replace

from palaver.context.render import error_mark
from palaver.core.identity import new_id
from palaver.generation.events import Answered, GenerateEvent
from palaver.generation.tool_calls import CLIENT_CALLS
from palaver.generation.tool_clearing import NOTHING, Cleared, clear_tool_uses
from palaver.model import TokenUsage, Turn
from palaver.models.budgets import PlannedCall
from palaver.models.model_summarizer import ReserveCall
from palaver.models.prices import Price
from palaver.models.response_accumulator import ModelResponse
from palaver.models.retry import RetryPolicy, stream_with_retries
from palaver.models.tokens import counter_for
from palaver.ports.models import ChatModel, ModelRequest, ReasoningDelta, TextDelta, Thought
from palaver.server.compat.history_diff import decode_data_url
from palaver.server.compat.request import (
    ClientRequest,
    Part,
    arguments_text,
    invalid,
    reasoning_by_call,
    result_text,
    settings_for,
    sum_tokens,
)


def plan_call(asked: ClientRequest, model: ChatModel, price: Price | None) -> tuple[PlannedCall, Cleared]:
    """Build the call of a model, with its tokens counted, and say which old tool results were left out of it."""
    request, cleared = _build_request(asked, model)
    return PlannedCall(model, price, sum_tokens(asked, counter_for(model.name)), model.body(request)), cleared


def _build_request(asked: ClientRequest, model: ChatModel) -> tuple[ModelRequest, Cleared]:
    """Build the request to a model, and say which old tool results were left out of it."""
    messages, cleared = _clear_tools(asked, _messages(asked, model.adapter), counter_for(model.name))
    request = ModelRequest(
        messages=tuple(messages),
        tools=asked.tools,
        tool_choice=asked.tool_choice,
        settings=settings_for(asked, model.adapter),
        reasoning=reasoning_by_call(asked.said),
    )
    return request, cleared


def _clear_tools(
    asked: ClientRequest, messages: list[dict[str, object]], count: Callable[[str], int]
) -> tuple[list[dict[str, object]], Cleared]:
    if asked.edits.clear_tools is None:
        return messages, NOTHING
    return clear_tool_uses(messages, asked.edits.clear_tools, sum_tokens(asked, count), count)


def _messages(asked: ClientRequest, adapter: str) -> list[dict[str, object]]:
    """Convert a client's history to messages of a model."""
    messages: list[dict[str, object]] = []
    if asked.instructions:
        messages.append({"role": "system", "content": asked.instructions})
    for one in asked.said:
        if one.role == "tool":
            messages += [
                {
                    "role": "tool",
                    "tool_call_id": result.id,
                    "content": result_text(result.content),
                    **error_mark(result),
                }
                for result in one.results
            ]
            continue
        content = one.content if isinstance(one.content, str) else [_part(part, adapter) for part in one.content]
        message: dict[str, object] = {"role": one.role, "content": content}
        if one.calls:
            message["tool_calls"] = [
                {"id": call.id, "name": call.name, "arguments": arguments_text(call.arguments)} for call in one.calls
            ]
        messages.append(message)
    return messages


def _part(part: Part, adapter: str) -> Part:
    """Convert a part. A file is sent along, because it is not stored and no tool could read it later."""
    if part["type"] != "file":
        return part
    url, name = str(part["url"]), part.get("filename") or "file"
    if not url.lower().startswith("data:"):
        if adapter == "openai-chat":
            raise invalid("file", "must be sent with its bytes: the answering model does not accept URLs")
        return {"type": "document", "url": url, "filename": name}
    if (sent := decode_data_url(url)) is None:
        raise invalid("data", "is not a readable data URL")
    return {"type": "document", "url": f"data:{sent[0]};base64,{b64encode(sent[1]).decode()}", "filename": name}


async def relay_events(
    call: PlannedCall, reserve: ReserveCall, names: Mapping[str, str], retries: RetryPolicy, now: datetime
) -> AsyncGenerator[GenerateEvent]:
    """Stream a model's answer as events, without memory. `names` are the client's names of tools by the provider's."""
    heard, model = ModelResponse(names=names), call.model
    async with (
        reserve(call.body, heard),
        aclosing(stream_with_retries(model, call.body, retries, heard.retries)) as events,
    ):
        async for event in events:
            heard.consume(event)
            if isinstance(event, TextDelta | ReasoningDelta | Thought):
                yield event
    turn = empty_turn("", now, "tool_calls" if heard.calls else heard.reason)
    yield Answered(
        replace(
            turn,
            tool_calls=tuple(heard.calls),
            tokens=TokenUsage(heard.usage.prompt, heard.usage.completion),
            model=model.name,
            metadata={CLIENT_CALLS: [call.id for call in heard.calls], **heard.end_metadata},
        )
    )


def empty_turn(conversation: str, now: datetime, finish_reason: str | None) -> Turn:
    """Make the turn of an answer that is not stored."""
    return Turn(
        id=new_id(),
        conversation=conversation,
        seq=0,
        position=0,
        role="assistant",
        actor="assistant",
        content="",
        created=now,
        finish_reason=finish_reason,
    )
