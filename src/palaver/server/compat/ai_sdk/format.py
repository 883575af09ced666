"""The AI SDK's UI messages and their stream: what `useChat` sends, and how an answer is told to it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaver.generation.events import Answered, ToolDone, ToolsPlanned
from palaver.model import ToolCall, ToolResult
from palaver.ports.models import ReasoningDelta, TextDelta
from palaver.server.compat.replay import AnswerEvent, AnswerTotals, Interrupted
from palaver.server.compat.request import (
    MAX_TOOLS,
    ClientMessage,
    ClientRequest,
    Part,
    invalid,
    optional_text,
    parse_call,
    parse_tool,
    require_list,
    require_name,
    require_text,
    require_url,
    simplify_parts,
)

HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
DONE = "[DONE]"
FINISHED = ("output-available", "output-error", "output-denied")
REASONS = {"stop": "stop", "length": "length", "tool_calls": "tool-calls", "content_filter": "content-filter"}
MEMORY = "data-memory"


# ---- what comes in -------------------------------------------------------------------------------------------------


def parse_request(body: Mapping[str, Any]) -> ClientRequest:
    """From the body that `DefaultChatTransport` posts: all messages, or only the last as `message`.

    Editing a message, and asking for another answer, both send what comes before: that is then the whole thread.
    """
    given = body["messages"] if "messages" in body else [body.get("message")]
    messages = require_list("messages", given)
    if not messages:
        raise invalid("messages", "must not be empty")
    trigger = body.get("trigger") or "submit-message"
    if trigger not in ("submit-message", "regenerate-message"):
        raise invalid("trigger", "must be submit-message or regenerate-message")
    return ClientRequest(
        shape="ai-sdk",
        model=optional_text("model", body.get("model")) or "",
        said=parse_messages(messages),
        instructions=_collect_instructions(body, messages),
        tools=_parse_tools(body.get("tools")),
        conversation=require_name("id", body.get("id")),
        stream=True,
        whole="messages" in body and (trigger == "regenerate-message" or body.get("messageId") is not None),
    )


def _collect_instructions(body: Mapping[str, Any], messages: list[Mapping[str, Any]]) -> str | None:
    given = [optional_text("system", body.get("system"))]
    given += [_join_texts(_parts(one)) for one in messages if one.get("role") == "system"]
    return "\n\n".join(text for text in given if text) or None


def _parse_tools(given: Any) -> tuple[Any, ...]:
    """Tools that the page runs, by name: description and inputSchema, as the SDK describes them."""
    if given is None:
        return ()
    if not isinstance(given, Mapping) or len(given) > MAX_TOOLS:
        raise invalid("tools", "must be an object of tools by name")
    found = []
    for name, one in given.items():
        if not isinstance(one, Mapping):
            raise invalid(f"tools.{name}", "must be an object")
        schema = one.get("inputSchema") or one.get("parameters")
        schema = schema.get("jsonSchema", schema) if isinstance(schema, Mapping) else schema
        found.append(parse_tool(f"tools.{name}", name, one.get("description"), schema, one.get("strict")))
    return tuple(found)


def parse_messages(messages: list[Mapping[str, Any]]) -> tuple[ClientMessage, ...]:
    said: list[ClientMessage] = []
    for one in messages:
        role, parts = one.get("role"), _parts(one)
        if role == "user":
            said.append(
                ClientMessage(
                    role="user", content=simplify_parts([_parse_part(part) for part in parts if _is_content(part)])
                )
            )
        elif role == "assistant":
            said += _parse_assistant(parts)
        elif role != "system":
            raise invalid("messages.role", "must be system, user or assistant")
    return tuple(said)


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "parts" not in message and isinstance(message.get("content"), str):
        return [{"type": "text", "text": message["content"]}]
    return require_list("messages.parts", message.get("parts"))


def _is_content(part: Mapping[str, Any]) -> bool:
    return part.get("type") in ("text", "file")


def _parse_part(part: Mapping[str, Any]) -> Part:
    if part["type"] == "text":
        return {"type": "text", "text": require_text("messages.parts.text", part.get("text"))}
    url, media = require_url("messages.parts.url", part.get("url")), str(part.get("mediaType") or "")
    if media.startswith("image/"):
        return {"type": "image", "url": url}
    return {"type": "file", "url": url, "filename": str(part.get("filename") or "file")}


def _parse_assistant(parts: list[Mapping[str, Any]]) -> list[ClientMessage]:
    """The steps of an answer: what was said and called in each, and what came back."""
    steps: list[list[Mapping[str, Any]]] = [[]]
    for part in parts:
        if part.get("type") == "step-start":
            steps.append([])
        else:
            steps[-1].append(part)
    return [said for step in steps if step for said in _step(step)]


def _step(parts: list[Mapping[str, Any]]) -> list[ClientMessage]:
    tools = [part for part in parts if _is_tool(part) and part.get("state") != "input-streaming"]
    calls = tuple(_parse_call(part) for part in tools)
    results = tuple(_parse_result(part) for part in tools if part.get("state") in FINISHED)
    text = _join_texts(parts)
    found = [ClientMessage(role="assistant", content=text, calls=calls)] if text or calls else []
    return [*found, ClientMessage(role="tool", results=results)] if results else found


def _is_tool(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and (kind.startswith("tool-") or kind == "dynamic-tool")


def _parse_call(part: Mapping[str, Any]) -> ToolCall:
    name = part.get("toolName") or str(part["type"]).removeprefix("tool-")
    return parse_call("messages.parts", part.get("toolCallId"), name, part.get("input") or {})


def _parse_result(part: Mapping[str, Any]) -> ToolResult:
    id = require_text("messages.parts.toolCallId", part.get("toolCallId"))
    if part.get("state") == "output-available":
        return ToolResult(id, part.get("output"))
    return ToolResult(id, str(part.get("errorText") or "The call was refused."), True)


def _join_texts(parts: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(str(part.get("text") or "") for part in parts if part.get("type") == "text")


# ---- what goes out -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class UIMessageFrames:
    """An answer as parts of a UI message. `memory` is told at its head: what was recalled for it."""

    id: str
    conversation: str
    memory: Mapping[str, Any] | None = None
    totals: AnswerTotals = field(default_factory=AnswerTotals)
    _open: str | None = None  # the kind of the part that is being told
    _count: int = 0
    _step: bool = False
    _ran: bool = False  # tools, in this step

    def start(self) -> list[Any]:
        about = {"conversation": self.conversation}
        frames: list[Any] = [{"type": "start", "messageId": self.id, "messageMetadata": about}]
        if self.memory is not None:
            frames.append({"type": MEMORY, "id": f"memory-{self.id}", "data": dict(self.memory)})
        return frames

    def encode(self, event: AnswerEvent) -> list[Any]:
        self.totals.add(event)
        if isinstance(event, TextDelta):
            return self._text_delta("text", event.text)
        if isinstance(event, ReasoningDelta):
            return self._text_delta("reasoning", event.text)
        if isinstance(event, ToolsPlanned):
            frames = [*self._start_step(), *self._close_open(), *map(_input, event.calls)]
            self._ran = True
            return frames
        if isinstance(event, ToolDone):
            return [_output(event)]
        if isinstance(event, Answered):
            return self._finish(event)
        return self.encode_error({"detail": "The answer was cut off"}) if isinstance(event, Interrupted) else []

    def encode_error(self, problem: Mapping[str, Any]) -> list[Any]:
        return [*self._close_open(), {"type": "error", "errorText": str(problem["detail"])}, DONE]

    def _start_step(self) -> list[Any]:
        """A step per call of the model: what comes after tools have run is a new one."""
        if self._step and not self._ran:
            return []
        ended = [{"type": "finish-step"}] if self._ran else []
        self._step, self._ran = True, False
        return [*ended, {"type": "start-step"}]

    def _text_delta(self, kind: str, text: str) -> list[Any]:
        frames = self._start_step()
        if self._open != kind:
            frames += self._close_open()
            self._open, self._count = kind, self._count + 1
            frames.append({"type": f"{kind}-start", "id": str(self._count)})
        return [*frames, {"type": f"{kind}-delta", "id": str(self._count), "delta": text}]

    def _close_open(self) -> list[Any]:
        kind, self._open = self._open, None
        return [] if kind is None else [{"type": f"{kind}-end", "id": str(self._count)}]

    def _finish(self, event: Answered) -> list[Any]:
        # Calls for the page are of the same step as those that ran here.
        frames = [] if self.totals.calls and self._ran else self._start_step()
        frames += [*self._close_open(), *map(_input, self.totals.calls)]
        frames += [shown for n, one in enumerate(event.turn.sources) if (shown := _source(f"{event.turn.id}-{n}", one))]
        finish = {"type": "finish", "finishReason": REASONS[self.totals.reason]}
        return [*frames, {"type": "finish-step"}, finish, DONE]


def _input(call: ToolCall) -> dict[str, Any]:
    head = {"type": "tool-input-available", "toolCallId": call.id, "toolName": call.name}
    return {**head, "input": call.arguments}


def _output(event: ToolDone) -> dict[str, Any]:
    if event.is_error:
        return {"type": "tool-output-error", "toolCallId": event.call.id, "errorText": str(event.content)}
    return {"type": "tool-output-available", "toolCallId": event.call.id, "output": event.content}


def _source(id: str, source: Mapping[str, Any]) -> dict[str, Any] | None:
    if isinstance(source.get("url"), str):
        title = source.get("title")
        return {"type": "source-url", "sourceId": id, "url": source["url"], **({"title": title} if title else {})}
    title = source.get("title") or source.get("filename") or source.get("turn")
    if title is None:
        return None
    return {"type": "source-document", "sourceId": id, "mediaType": "text/plain", "title": str(title)}
