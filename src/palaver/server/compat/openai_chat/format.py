"""OpenAI's Chat Completions: what its clients send, and how an answer is told to them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from palaver.generation.events import Answered, ToolsPlanned
from palaver.model import ToolCall, ToolResult
from palaver.ports.models import ReasoningDelta, TextDelta
from palaver.server.compat.replay import Beat, Cut, Sum
from palaver.server.compat.request import (
    MAX_TOOLS,
    Ask,
    Part,
    Said,
    arguments_text,
    bad,
    call_in,
    common_settings,
    flag_in,
    format_in,
    listed,
    name_in,
    object_in,
    own_settings,
    plain,
    refuse,
    spec_in,
    text_in,
    url_in,
)

DECIDED = frozenset(
    "model messages stream stream_options tools tool_choice functions function_call store metadata n".split()
)
COMMON = {
    "temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens", "max_completion_tokens": "max_tokens",
    "stop": "stop", "parallel_tool_calls": "parallel_tool_calls",
}  # fmt: skip
GAP = "\n\n"  # between what is said before tools ran and after
DONE = "[DONE]"
CUT_OFF = {"message": "The answer was cut off", "type": "server_error", "param": None, "code": "cut_off"}


# ---- what comes in -------------------------------------------------------------------------------------------------


def ask_of(body: Mapping[str, Any]) -> Ask:
    """From the body of a request. Raises InvalidInput, which names the field."""
    if body.get("n") not in (None, 1):
        raise bad("n", "must be 1: one answer is stored for one message")
    refuse(body, ("logprobs", "top_logprobs", "audio", "functions", "function_call"))
    messages = listed("messages", body.get("messages"))
    if not messages:
        raise bad("messages", "must not be empty")
    metadata = object_in("metadata", body.get("metadata"))
    may_call, must_call = _choice(body.get("tool_choice"))
    return Ask(
        shape="openai-chat",
        model=text_in("model", body.get("model")),
        said=said_of(messages),
        instructions=_instructions(messages),
        tools=tuple(_tool(one) for one in listed("tools", body.get("tools") or [], MAX_TOOLS)),
        may_call=may_call,
        must_call=must_call,
        common=common_settings(body, COMMON),
        own=own_settings(body, DECIDED),
        format=_format(body.get("response_format")),
        stream=flag_in("stream", body.get("stream")),
        conversation=_named(metadata),
        store=flag_in("store", body.get("store")),
        kept={"metadata": {name: one for name, one in metadata.items() if name != "conversation_id"}},
    )


def wants_usage(body: Mapping[str, Any]) -> bool:
    options = object_in("stream_options", body.get("stream_options"))
    return flag_in("stream_options.include_usage", options.get("include_usage"))


def _named(metadata: Mapping[str, Any]) -> str | None:
    named = metadata.get("conversation_id")
    return None if named is None else name_in("metadata.conversation_id", named)


def _choice(given: Any) -> tuple[bool, bool | str]:
    """Whether the model may call tools, and whether it must."""
    if given in (None, "auto"):
        return True, False
    if given in ("none", "required"):
        return given == "required", given == "required"
    if isinstance(given, Mapping) and isinstance(given.get("function"), Mapping):
        return True, text_in("tool_choice.function.name", given["function"].get("name"))
    raise bad("tool_choice", "must be none, auto, required or a function")


def _format(given: Any) -> Mapping[str, Any] | None:
    format = format_in("response_format", given)
    schema = object_in("response_format.json_schema", format.get("json_schema")) if format else {}
    return {"type": format["type"], **schema} if format else None


def _tool(one: Mapping[str, Any]) -> Any:
    function = one.get("function")
    if one.get("type") != "function" or not isinstance(function, Mapping):
        raise bad("tools", "must be functions")
    told = [function.get(name) for name in ("name", "description", "parameters", "strict")]
    return spec_in("tools.function", *told)


def _instructions(messages: list[Mapping[str, Any]]) -> str | None:
    given = [_text(one.get("content")) for one in messages if one.get("role") in ("system", "developer")]
    return "\n\n".join(text for text in given if text) or None


def said_of(messages: list[Mapping[str, Any]]) -> tuple[Said, ...]:
    """The history, without instructions. Results that stand together are one message."""
    said: list[Said] = []
    for one in messages:
        role = one.get("role")
        if role in ("system", "developer"):
            continue
        if role in ("tool", "function"):
            _add_result(
                said, ToolResult(text_in("messages.tool_call_id", one.get("tool_call_id")), _text(one.get("content")))
            )
        elif role == "assistant":
            calls = tuple(_call(call) for call in listed("messages.tool_calls", one.get("tool_calls") or []))
            said.append(Said(role="assistant", content=_text(one.get("content")), calls=calls))
        elif role == "user":
            said.append(Said(role="user", content=_content(one.get("content"))))
        else:
            raise bad("messages.role", "must be system, developer, user, assistant or tool")
    return tuple(said)


def _add_result(said: list[Said], result: ToolResult) -> None:
    if said and said[-1].role == "tool":
        said[-1] = Said(role="tool", results=(*said[-1].results, result))
    else:
        said.append(Said(role="tool", results=(result,)))


def _call(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise bad("messages.tool_calls", "must be functions")
    return call_in("messages.tool_calls", call.get("id"), function.get("name"), function.get("arguments", "{}"))


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = listed("messages.content", content)
    return "\n".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def _content(content: Any) -> str | tuple[Part, ...]:
    if isinstance(content, str):
        return content
    return plain([_part(part) for part in listed("messages.content", content)])


def _part(part: Mapping[str, Any]) -> Part:
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": text_in("messages.content.text", part.get("text"))}
    if kind == "image_url" and isinstance(part.get("image_url"), Mapping):
        return {"type": "image", "url": url_in("messages.content.image_url.url", part["image_url"].get("url"))}
    file = part.get("file")
    if kind == "file" and isinstance(file, Mapping) and file.get("file_data"):
        name = str(file.get("filename") or "file")
        return {"type": "file", "url": url_in("messages.content.file.file_data", file["file_data"]), "filename": name}
    raise bad("messages.content", "must be text, image_url, or file with its data")


# ---- what goes out -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Chunks:
    """An answer as chunks of a stream."""

    id: str
    created: int
    model: str
    include_usage: bool = False
    sum: Sum = field(default_factory=Sum)
    _gap: bool = False

    def begin(self) -> list[Any]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def take(self, beat: Beat) -> list[Any]:
        self.sum.take(beat)
        if isinstance(beat, TextDelta):
            gap, self._gap = (GAP if self._gap else ""), False
            return [self._chunk({"content": gap + beat.text})]
        if isinstance(beat, ReasoningDelta):
            return [self._chunk({"reasoning_content": beat.text})]
        if isinstance(beat, ToolsPlanned):
            self._gap = bool(self.sum.text)
        if isinstance(beat, Cut):
            return [{"error": CUT_OFF}]
        return self._end() if isinstance(beat, Answered) else []

    def _end(self) -> list[Any]:
        calls = [{"index": n, **call_shown(call)} for n, call in enumerate(self.sum.calls)]
        frames: list[Any] = [self._chunk({"tool_calls": calls})] if calls else []
        frames.append(self._chunk({}, self.sum.reason))
        if self.include_usage:
            frames.append({**self._chunk({}), "choices": [], "usage": usage_of(self.sum)})
        return [*frames, DONE]

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        chunk: dict[str, Any] = {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}],
        }
        return {**chunk, "usage": None} if self.include_usage else chunk


def completion(id: str, created: int, model: str, beats: list[Beat]) -> dict[str, Any]:
    """The same answer as one object."""
    chunks = Chunks(id, created, model)
    text = []
    for beat in beats:
        for frame in chunks.take(beat):
            if frame != DONE and frame["choices"][0]["delta"].get("content"):
                text.append(frame["choices"][0]["delta"]["content"])
    sum = chunks.sum
    message: dict[str, Any] = {"role": "assistant", "content": "".join(text) or None, "refusal": None}
    if sum.calls:
        message["tool_calls"] = [call_shown(call) for call in sum.calls]
    elif message["content"] is None:
        message["content"] = ""
    if sum.reasoning:
        message["reasoning_content"] = "".join(sum.reasoning)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": sum.reason}
    head = {"id": id, "object": "chat.completion", "created": created, "model": model}
    return {**head, "choices": [choice], "usage": usage_of(sum)}


def call_shown(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": arguments_text(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def usage_of(sum: Sum) -> dict[str, int]:
    return {
        "prompt_tokens": sum.prompt,
        "completion_tokens": sum.completion,
        "total_tokens": sum.prompt + sum.completion,
    }
