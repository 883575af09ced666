"""OpenAI Responses. The service may keep its answers, and then continues one by its id."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from palaver.context.render import text_of, to_responses
from palaver.errors import BadModelResponse
from palaver.models.answers import call_of, with_settings
from palaver.models.openai_service import FAILURES, OpenAIService, rest_of
from palaver.models.windows import window_of
from palaver.ports import (
    CallReady,
    Cited,
    Finished,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolSpec,
    Usage,
)

ENDS = ("response.completed", "response.incomplete", "response.failed")


class OpenAIResponses:
    adapter = "openai-responses"
    provider = "openai"
    remembers = True

    def __init__(
        self,
        model: str,
        *,
        name: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 120.0,
        window: int | None = None,
    ) -> None:
        self.model, self.name = model, name or f"responses:{model}"
        self.window = window or window_of(self.name)
        self._service = OpenAIService(self.name, api_key=api_key, base_url=base_url, timeout=timeout)
        self.project = self._service.project

    def __repr__(self) -> str:
        return f"OpenAIResponses({self.model!r})"

    async def aclose(self) -> None:
        await self._service.aclose()

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """The system's text goes into `instructions`: the service does not carry those from one answer to the next."""
        lead = 0
        while lead < len(request.messages) and request.messages[lead]["role"] == "system":
            lead += 1
        body: dict[str, Any] = {
            "model": self.model,
            "input": to_responses(request.messages[lead:]),
            "store": request.keep,
        }
        if request.stream:
            body["stream"] = True
        if lead:
            body["instructions"] = "\n\n".join(text_of(message) for message in request.messages[:lead])
        if request.previous_response_id is not None:
            body["previous_response_id"] = request.previous_response_id
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
            body["tool_choice"] = "auto" if request.may_call else "none"
        return with_settings(body, request.settings)

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[ModelEvent]:
        try:
            async with aclosing(self._pieces(body) if "stream" in body else self._whole(body)) as events:
                async for event in events:
                    yield event
            return
        except FAILURES as error:
            failure = self._service.failure(error)
        raise failure

    async def _whole(self, body: dict[str, Any]) -> AsyncGenerator[ModelEvent]:
        rest = rest_of(body, "model", "input", "stream")
        answer: Any = await self._service.client().responses.create(
            model=body["model"], input=body["input"], extra_body=rest
        )
        yield Started(answer.id, answer.model)
        for item in answer.output:
            for part in item.content if item.type == "message" else ():
                if part.type == "output_text":
                    yield TextDelta(part.text)
        for event in self._end(answer):
            yield event

    async def _pieces(self, body: dict[str, Any]) -> AsyncGenerator[ModelEvent]:
        rest = rest_of(body, "model", "input", "stream")
        stream: Any = await self._service.client().responses.create(  # the SDK knows some sixty kinds of events
            model=body["model"], input=body["input"], stream=True, extra_body=rest
        )
        async with stream:
            async for event in stream:
                if event.type == "response.created":
                    yield Started(event.response.id, event.response.model)
                elif event.type in ("response.output_text.delta", "response.refusal.delta"):
                    yield TextDelta(event.delta)
                elif event.type in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
                    yield ReasoningDelta(event.delta)
                elif event.type == "error":
                    raise self._service.refusal(event.code, event.message)
                elif event.type in ENDS:
                    for last in self._end(event.response):
                        yield last
                    return
        raise BadModelResponse(self.name, "was cut off in the middle of its answer")

    def _end(self, answer: Any) -> list[ModelEvent]:
        """The calls, the sources and the usage are read from the whole answer: there they are complete."""
        if answer.status == "failed":
            error = answer.error
            raise self._service.refusal(error and error.code, error and error.message)
        events: list[ModelEvent] = []
        for item in answer.output:
            if item.type == "function_call":
                events.append(CallReady(call_of(item.call_id, item.name, item.arguments)))
            elif item.type == "message":
                events += [Cited(source) for part in item.content for source in _sources(part)]
        calls = any(isinstance(event, CallReady) for event in events)
        if answer.usage is not None:
            events.append(_usage(answer.usage))
        return [*events, Finished("tool_calls" if calls else _reason(answer))]


def _reason(answer: Any) -> str:
    if answer.status != "incomplete":
        return "stop"
    reason = answer.incomplete_details and answer.incomplete_details.reason
    return "length" if reason == "max_output_tokens" else reason or "length"


def _sources(part: Any) -> list[dict[str, Any]]:
    found = [note for note in getattr(part, "annotations", None) or () if note.type == "url_citation"]
    return [{"url": note.url, "title": note.title} for note in found]


def _tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": False,
    }


def _usage(usage: Any) -> Usage:
    read, written = usage.input_tokens_details, usage.output_tokens_details
    return Usage(
        prompt=usage.input_tokens,
        completion=usage.output_tokens,
        cached=read and read.cached_tokens,
        reasoning=written and written.reasoning_tokens,
    )
