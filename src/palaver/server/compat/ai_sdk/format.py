"""The AI SDK's UI messages and their stream: what `useChat` sends, and how an answer is told to it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaver.generation.events import Answered, ToolDone, ToolsPlanned
from palaver.model import ToolCall, ToolResult
from palaver.ports.models import ReasoningDelta, TextDelta
from palaver.server.compat.replay import Beat, Cut, Sum
from palaver.server.compat.request import (
    MAX_TOOLS,
    Ask,
    Part,
    Said,
    bad,
    call_in,
    listed,
    name_in,
    optional_text,
    plain,
    spec_in,
    text_in,
    url_in,
)

HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
DONE = "[DONE]"
FINISHED = ("output-available", "output-error", "output-denied")
REASONS = {"stop": "stop", "length": "length", "tool_calls": "tool-calls", "content_filter": "content-filter"}
MEMORY = "data-memory"


# ---- what comes in -------------------------------------------------------------------------------------------------


def ask_of(body: Mapping[str, Any]) -> Ask:
    """From the body that `DefaultChatTransport` posts: all messages, or only the last as `message`.

    Editing a message, and asking for another answer, both send what comes before: that is then the whole thread.
    """
    given = body["messages"] if "messages" in body else [body.get("message")]
    messages = listed("messages", given)
    if not messages:
        raise bad("messages", "must not be empty")
    trigger = body.get("trigger") or "submit-message"
    if trigger not in ("submit-message", "regenerate-message"):
        raise bad("trigger", "must be submit-message or regenerate-message")
    return Ask(
        shape="ai-sdk",
        model=optional_text("model", body.get("model")) or "",
        said=said_of(messages),
        instructions=_instructions(body, messages),
        tools=_tools(body.get("tools")),
        conversation=name_in("id", body.get("id")),
        stream=True,
        whole="messages" in body and (trigger == "regenerate-message" or body.get("messageId") is not None),
    )


def _instructions(body: Mapping[str, Any], messages: list[Mapping[str, Any]]) -> str | None:
    given = [optional_text("system", body.get("system"))]
    given += [_texts(_parts(one)) for one in messages if one.get("role") == "system"]
    return "\n\n".join(text for text in given if text) or None


def _tools(given: Any) -> tuple[Any, ...]:
    """Tools that the page runs, by name: description and inputSchema, as the SDK describes them."""
    if given is None:
        return ()
    if not isinstance(given, Mapping) or len(given) > MAX_TOOLS:
        raise bad("tools", "must be an object of tools by name")
    found = []
    for name, one in given.items():
        if not isinstance(one, Mapping):
            raise bad(f"tools.{name}", "must be an object")
        schema = one.get("inputSchema") or one.get("parameters")
        schema = schema.get("jsonSchema", schema) if isinstance(schema, Mapping) else schema
        found.append(spec_in(f"tools.{name}", name, one.get("description"), schema, one.get("strict")))
    return tuple(found)


def said_of(messages: list[Mapping[str, Any]]) -> tuple[Said, ...]:
    said: list[Said] = []
    for one in messages:
        role, parts = one.get("role"), _parts(one)
        if role == "user":
            said.append(Said(role="user", content=plain([_part(part) for part in parts if _is_said(part)])))
        elif role == "assistant":
            said += _assistant(parts)
        elif role != "system":
            raise bad("messages.role", "must be system, user or assistant")
    return tuple(said)


def _parts(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    if "parts" not in message and isinstance(message.get("content"), str):
        return [{"type": "text", "text": message["content"]}]
    return listed("messages.parts", message.get("parts"))


def _is_said(part: Mapping[str, Any]) -> bool:
    return part.get("type") in ("text", "file")


def _part(part: Mapping[str, Any]) -> Part:
    if part["type"] == "text":
        return {"type": "text", "text": text_in("messages.parts.text", part.get("text"))}
    url, media = url_in("messages.parts.url", part.get("url")), str(part.get("mediaType") or "")
    if media.startswith("image/"):
        return {"type": "image", "url": url}
    return {"type": "file", "url": url, "filename": str(part.get("filename") or "file")}


def _assistant(parts: list[Mapping[str, Any]]) -> list[Said]:
    """The steps of an answer: what was said and called in each, and what came back."""
    steps: list[list[Mapping[str, Any]]] = [[]]
    for part in parts:
        if part.get("type") == "step-start":
            steps.append([])
        else:
            steps[-1].append(part)
    return [said for step in steps if step for said in _step(step)]


def _step(parts: list[Mapping[str, Any]]) -> list[Said]:
    tools = [part for part in parts if _is_tool(part) and part.get("state") != "input-streaming"]
    calls = tuple(_call(part) for part in tools)
    results = tuple(_result(part) for part in tools if part.get("state") in FINISHED)
    text = _texts(parts)
    found = [Said(role="assistant", content=text, calls=calls)] if text or calls else []
    return [*found, Said(role="tool", results=results)] if results else found


def _is_tool(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and (kind.startswith("tool-") or kind == "dynamic-tool")


def _call(part: Mapping[str, Any]) -> ToolCall:
    name = part.get("toolName") or str(part["type"]).removeprefix("tool-")
    return call_in("messages.parts", part.get("toolCallId"), name, part.get("input") or {})


def _result(part: Mapping[str, Any]) -> ToolResult:
    id = text_in("messages.parts.toolCallId", part.get("toolCallId"))
    if part.get("state") == "output-available":
        return ToolResult(id, part.get("output"))
    return ToolResult(id, str(part.get("errorText") or "The call was refused."), True)


def _texts(parts: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(str(part.get("text") or "") for part in parts if part.get("type") == "text")


# ---- what goes out -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Frames:
    """An answer as parts of a UI message. `memory` is told at its head: what was recalled for it."""

    id: str
    conversation: str
    memory: Mapping[str, Any] | None = None
    sum: Sum = field(default_factory=Sum)
    _open: str | None = None  # the kind of the part that is being told
    _count: int = 0
    _step: bool = False
    _ran: bool = False  # tools, in this step

    def begin(self) -> list[Any]:
        about = {"conversation": self.conversation}
        frames: list[Any] = [{"type": "start", "messageId": self.id, "messageMetadata": about}]
        if self.memory is not None:
            frames.append({"type": MEMORY, "id": f"memory-{self.id}", "data": dict(self.memory)})
        return frames

    def take(self, beat: Beat) -> list[Any]:
        self.sum.take(beat)
        if isinstance(beat, TextDelta):
            return self._piece("text", beat.text)
        if isinstance(beat, ReasoningDelta):
            return self._piece("reasoning", beat.text)
        if isinstance(beat, ToolsPlanned):
            frames = [*self._begun(), *self._closed(), *map(_input, beat.calls)]
            self._ran = True
            return frames
        if isinstance(beat, ToolDone):
            return [_output(beat)]
        if isinstance(beat, Answered):
            return self._end(beat)
        return self.fail({"detail": "The answer was cut off"}) if isinstance(beat, Cut) else []

    def fail(self, problem: Mapping[str, Any]) -> list[Any]:
        return [*self._closed(), {"type": "error", "errorText": str(problem["detail"])}, DONE]

    def _begun(self) -> list[Any]:
        """A step per call of the model: what comes after tools have run is a new one."""
        if self._step and not self._ran:
            return []
        ended = [{"type": "finish-step"}] if self._ran else []
        self._step, self._ran = True, False
        return [*ended, {"type": "start-step"}]

    def _piece(self, kind: str, text: str) -> list[Any]:
        frames = self._begun()
        if self._open != kind:
            frames += self._closed()
            self._open, self._count = kind, self._count + 1
            frames.append({"type": f"{kind}-start", "id": str(self._count)})
        return [*frames, {"type": f"{kind}-delta", "id": str(self._count), "delta": text}]

    def _closed(self) -> list[Any]:
        kind, self._open = self._open, None
        return [] if kind is None else [{"type": f"{kind}-end", "id": str(self._count)}]

    def _end(self, beat: Answered) -> list[Any]:
        # Calls for the page are of the same step as those that ran here.
        frames = [] if self.sum.calls and self._ran else self._begun()
        frames += [*self._closed(), *map(_input, self.sum.calls)]
        frames += [shown for n, one in enumerate(beat.turn.sources) if (shown := _source(f"{beat.turn.id}-{n}", one))]
        finish = {"type": "finish", "finishReason": REASONS[self.sum.reason]}
        return [*frames, {"type": "finish-step"}, finish, DONE]


def _input(call: ToolCall) -> dict[str, Any]:
    head = {"type": "tool-input-available", "toolCallId": call.id, "toolName": call.name}
    return {**head, "input": call.arguments}


def _output(beat: ToolDone) -> dict[str, Any]:
    if beat.is_error:
        return {"type": "tool-output-error", "toolCallId": beat.call.id, "errorText": str(beat.content)}
    return {"type": "tool-output-available", "toolCallId": beat.call.id, "output": beat.content}


def _source(id: str, source: Mapping[str, Any]) -> dict[str, Any] | None:
    if isinstance(source.get("url"), str):
        title = source.get("title")
        return {"type": "source-url", "sourceId": id, "url": source["url"], **({"title": title} if title else {})}
    title = source.get("title") or source.get("filename") or source.get("turn")
    if title is None:
        return None
    return {"type": "source-document", "sourceId": id, "mediaType": "text/plain", "title": str(title)}
