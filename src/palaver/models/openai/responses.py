"""The chat model for OpenAI Responses. The service can keep its responses and continue one by its id."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from palaver.context.render import message_text, provider_name, to_responses
from palaver.errors import BadModelResponse
from palaver.models.openai.client import OpenAIClient
from palaver.models.response_parsing import call_of, with_settings
from palaver.ports.models import (
    CallReady,
    Cited,
    Finished,
    JsonObject,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolSpec,
    Usage,
)

PATH = "/responses"
TEXTS = ("response.output_text.delta", "response.refusal.delta")
REASONING = ("response.reasoning_summary_text.delta", "response.reasoning_text.delta")
ENDS = ("response.completed", "response.incomplete", "response.failed")


class OpenAIResponses(OpenAIClient):
    adapter = "openai-responses"
    prefix = "responses"
    remembers = True

    def body(self, request: ModelRequest) -> JsonObject:
        """Return the request. System messages go into `instructions`, which the service does not carry over."""
        lead = 0
        while lead < len(request.messages) and request.messages[lead]["role"] == "system":
            lead += 1
        body: JsonObject = {
            "model": self.model,
            "input": to_responses(request.messages[lead:]),
            "store": request.keep,
        }
        if request.stream:
            body["stream"] = True
        if lead:
            body["instructions"] = "\n\n".join(message_text(message) for message in request.messages[:lead])
        if request.previous_response_id is not None:
            body["previous_response_id"] = request.previous_response_id
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
            body["tool_choice"] = _choice(request)
        return with_settings(body, request.settings)

    async def _read_whole(self, body: JsonObject) -> AsyncGenerator[ModelEvent]:
        answer = await self._post(PATH, body)
        yield Started(answer["id"], answer.get("model"))
        for part in _parts(answer):
            if part["type"] == "output_text":
                yield TextDelta(part["text"])
        for event in self._end(answer):
            yield event

    async def _read_stream(self, body: JsonObject) -> AsyncGenerator[ModelEvent]:
        async with self._post_stream(PATH, body) as events:
            async for event in events:
                kind = event["type"]
                if kind in TEXTS:
                    yield TextDelta(event["delta"])
                elif kind in REASONING:
                    yield ReasoningDelta(event["delta"])
                elif kind == "response.created":
                    yield Started(event["response"]["id"], event["response"].get("model"))
                elif kind == "error":
                    raise self._refusal(event.get("code"), event.get("message"))
                elif kind in ENDS:
                    for last in self._end(event["response"]):
                        yield last
                    return
        raise BadModelResponse(self.name, "ended in the middle of its response")

    def _end(self, answer: JsonObject) -> list[ModelEvent]:
        """Return the last events. Calls, sources and usage are complete only in the whole response."""
        if answer.get("status") == "failed":
            error = answer.get("error") or {}
            raise self._refusal(error.get("code"), error.get("message"))
        found = [item for item in answer["output"] if item["type"] == "function_call"]
        calls = [CallReady(call_of(item.get("call_id"), item.get("name"), item["arguments"])) for item in found]
        events: list[ModelEvent] = [*calls, *(Cited(source) for part in _parts(answer) for source in _sources(part))]
        if answer.get("usage"):
            events.append(_usage(answer["usage"]))
        return [*events, Finished("tool_calls" if calls else _reason(answer))]


def _parts(answer: JsonObject) -> list[JsonObject]:
    return [part for item in answer["output"] if item["type"] == "message" for part in item["content"]]


def _reason(answer: JsonObject) -> str:
    if answer.get("status") != "incomplete":
        return "stop"
    reason = (answer.get("incomplete_details") or {}).get("reason")
    return "length" if reason == "max_output_tokens" else reason or "length"


def _sources(part: JsonObject) -> list[JsonObject]:
    found = [note for note in part.get("annotations") or () if note["type"] == "url_citation"]
    return [{"url": note["url"], "title": note.get("title")} for note in found]


def _choice(request: ModelRequest) -> str | JsonObject:
    if isinstance(request.tool_choice, dict):
        return {"type": "function", "name": provider_name(request.tool_choice["name"])}
    return request.tool_choice


def _tool(tool: ToolSpec) -> JsonObject:
    return {
        "type": "function",
        "name": provider_name(tool.name),
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": bool(tool.strict),
    }


def _usage(usage: JsonObject) -> Usage:
    return Usage(
        prompt=usage.get("input_tokens"),
        completion=usage.get("output_tokens"),
        cached=(usage.get("input_tokens_details") or {}).get("cached_tokens"),
        reasoning=(usage.get("output_tokens_details") or {}).get("reasoning_tokens"),
    )
