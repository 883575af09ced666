"""OpenAI's Chat Completions: what its clients send, and how an answer is told to them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from palaver.generation.events import Answered, ToolsPlanned
from palaver.model import ToolCall, ToolResult
from palaver.ports.models import ReasoningDelta, TextDelta
from palaver.server.compat.replay import AnswerEvent, AnswerTotals, Interrupted
from palaver.server.compat.request import (
    MAX_TOOLS,
    ClientMessage,
    ClientRequest,
    Part,
    arguments_text,
    common_settings,
    invalid,
    own_settings,
    parse_call,
    parse_format,
    parse_tool,
    reject_unsupported,
    require_flag,
    require_list,
    require_name,
    require_object,
    require_text,
    require_url,
    simplify_parts,
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


def parse_request(body: Mapping[str, Any]) -> ClientRequest:
    """From the body of a request. Raises InvalidInput, which names the field."""
    if body.get("n") not in (None, 1):
        raise invalid("n", "must be 1: one answer is stored for one message")
    reject_unsupported(body, ("logprobs", "top_logprobs", "audio", "functions", "function_call"))
    messages = require_list("messages", body.get("messages"))
    if not messages:
        raise invalid("messages", "must not be empty")
    metadata = require_object("metadata", body.get("metadata"))
    may_call, must_call = _parse_tool_choice(body.get("tool_choice"))
    return ClientRequest(
        shape="openai-chat",
        model=require_text("model", body.get("model")),
        said=parse_messages(messages),
        instructions=_collect_instructions(messages),
        tools=tuple(_parse_tool(one) for one in require_list("tools", body.get("tools") or [], MAX_TOOLS)),
        may_call=may_call,
        must_call=must_call,
        common=common_settings(body, COMMON),
        own=own_settings(body, DECIDED),
        format=_parse_response_format(body.get("response_format")),
        stream=require_flag("stream", body.get("stream")),
        conversation=_conversation_id(metadata),
        store=require_flag("store", body.get("store")),
        kept={"metadata": {name: one for name, one in metadata.items() if name != "conversation_id"}},
    )


def wants_usage(body: Mapping[str, Any]) -> bool:
    options = require_object("stream_options", body.get("stream_options"))
    return require_flag("stream_options.include_usage", options.get("include_usage"))


def _conversation_id(metadata: Mapping[str, Any]) -> str | None:
    named = metadata.get("conversation_id")
    return None if named is None else require_name("metadata.conversation_id", named)


def _parse_tool_choice(given: Any) -> tuple[bool, bool | str]:
    """Whether the model may call tools, and whether it must."""
    if given in (None, "auto"):
        return True, False
    if given in ("none", "required"):
        return given == "required", given == "required"
    if isinstance(given, Mapping) and isinstance(given.get("function"), Mapping):
        return True, require_text("tool_choice.function.name", given["function"].get("name"))
    raise invalid("tool_choice", "must be none, auto, required or a function")


def _parse_response_format(given: Any) -> Mapping[str, Any] | None:
    format = parse_format("response_format", given)
    schema = require_object("response_format.json_schema", format.get("json_schema")) if format else {}
    return {"type": format["type"], **schema} if format else None


def _parse_tool(one: Mapping[str, Any]) -> Any:
    function = one.get("function")
    if one.get("type") != "function" or not isinstance(function, Mapping):
        raise invalid("tools", "must be functions")
    told = [function.get(name) for name in ("name", "description", "parameters", "strict")]
    return parse_tool("tools.function", *told)


def _collect_instructions(messages: list[Mapping[str, Any]]) -> str | None:
    given = [_join_text(one.get("content")) for one in messages if one.get("role") in ("system", "developer")]
    return "\n\n".join(text for text in given if text) or None


def parse_messages(messages: list[Mapping[str, Any]]) -> tuple[ClientMessage, ...]:
    """The history, without instructions. Results that stand together are one message."""
    said: list[ClientMessage] = []
    for one in messages:
        role = one.get("role")
        if role in ("system", "developer"):
            continue
        if role in ("tool", "function"):
            _add_result(
                said,
                ToolResult(
                    require_text("messages.tool_call_id", one.get("tool_call_id")), _join_text(one.get("content"))
                ),
            )
        elif role == "assistant":
            calls = tuple(
                _parse_call(call) for call in require_list("messages.tool_calls", one.get("tool_calls") or [])
            )
            said.append(ClientMessage(role="assistant", content=_join_text(one.get("content")), calls=calls))
        elif role == "user":
            said.append(ClientMessage(role="user", content=_parse_content(one.get("content"))))
        else:
            raise invalid("messages.role", "must be system, developer, user, assistant or tool")
    return tuple(said)


def _add_result(said: list[ClientMessage], result: ToolResult) -> None:
    if said and said[-1].role == "tool":
        said[-1] = ClientMessage(role="tool", results=(*said[-1].results, result))
    else:
        said.append(ClientMessage(role="tool", results=(result,)))


def _parse_call(call: Mapping[str, Any]) -> ToolCall:
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise invalid("messages.tool_calls", "must be functions")
    return parse_call("messages.tool_calls", call.get("id"), function.get("name"), function.get("arguments", "{}"))


def _join_text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = require_list("messages.content", content)
    return "\n".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def _parse_content(content: Any) -> str | tuple[Part, ...]:
    if isinstance(content, str):
        return content
    return simplify_parts([_parse_part(part) for part in require_list("messages.content", content)])


def _parse_part(part: Mapping[str, Any]) -> Part:
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": require_text("messages.content.text", part.get("text"))}
    if kind == "image_url" and isinstance(part.get("image_url"), Mapping):
        return {"type": "image", "url": require_url("messages.content.image_url.url", part["image_url"].get("url"))}
    file = part.get("file")
    if kind == "file" and isinstance(file, Mapping) and file.get("file_data"):
        name = str(file.get("filename") or "file")
        return {
            "type": "file",
            "url": require_url("messages.content.file.file_data", file["file_data"]),
            "filename": name,
        }
    raise invalid("messages.content", "must be text, image_url, or file with its data")


# ---- what goes out -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class ChatChunks:
    """An answer as chunks of a stream."""

    id: str
    created: int
    model: str
    include_usage: bool = False
    totals: AnswerTotals = field(default_factory=AnswerTotals)
    _gap: bool = False

    def start(self) -> list[Any]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def encode(self, event: AnswerEvent) -> list[Any]:
        self.totals.add(event)
        if isinstance(event, TextDelta):
            gap, self._gap = (GAP if self._gap else ""), False
            return [self._chunk({"content": gap + event.text})]
        if isinstance(event, ReasoningDelta):
            return [self._chunk({"reasoning_content": event.text})]
        if isinstance(event, ToolsPlanned):
            self._gap = bool(self.totals.text)
        if isinstance(event, Interrupted):
            return [{"error": CUT_OFF}]
        return self._finish() if isinstance(event, Answered) else []

    def _finish(self) -> list[Any]:
        calls = [{"index": n, **encode_call(call)} for n, call in enumerate(self.totals.calls)]
        frames: list[Any] = [self._chunk({"tool_calls": calls})] if calls else []
        frames.append(self._chunk({}, self.totals.reason))
        if self.include_usage:
            frames.append({**self._chunk({}), "choices": [], "usage": encode_usage(self.totals)})
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


def build_completion(id: str, created: int, model: str, events: list[AnswerEvent]) -> dict[str, Any]:
    """The same answer as one object."""
    chunks = ChatChunks(id, created, model)
    text = []
    for event in events:
        for frame in chunks.encode(event):
            if frame != DONE and frame["choices"][0]["delta"].get("content"):
                text.append(frame["choices"][0]["delta"]["content"])
    totals = chunks.totals
    message: dict[str, Any] = {"role": "assistant", "content": "".join(text) or None, "refusal": None}
    if totals.calls:
        message["tool_calls"] = [encode_call(call) for call in totals.calls]
    elif message["content"] is None:
        message["content"] = ""
    if totals.reasoning:
        message["reasoning_content"] = "".join(totals.reasoning)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": totals.reason}
    head = {"id": id, "object": "chat.completion", "created": created, "model": model}
    return {**head, "choices": [choice], "usage": encode_usage(totals)}


def encode_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": arguments_text(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def encode_usage(totals: AnswerTotals) -> dict[str, int]:
    return {
        "prompt_tokens": totals.prompt,
        "completion_tokens": totals.completion,
        "total_tokens": totals.prompt + totals.completion,
    }
