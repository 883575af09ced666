"""Parses requests of OpenAI's Chat Completions. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaver.model import ToolCall, ToolResult
from palaver.ports.models import ToolChoice
from palaver.server.compat.request import (
    MAX_TOOLS,
    AllowedFields,
    ClientMessage,
    ClientRequest,
    Part,
    common_settings,
    invalid,
    other_fields,
    parse_call,
    parse_extension,
    parse_format,
    parse_tool,
    provider_settings,
    reject_provider_tools,
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
    "model messages stream stream_options tools tool_choice functions function_call store metadata n logprobs "
    "top_logprobs audio modalities web_search_options".split()
)
ALLOWED: AllowedFields = {
    "temperature": (), "top_p": (), "max_tokens": (), "max_completion_tokens": (), "stop": (), "seed": (),
    "frequency_penalty": (), "presence_penalty": (), "logit_bias": (), "parallel_tool_calls": (), "verbosity": (),
    "reasoning_effort": (), "response_format": ("type", "json_schema"),
}  # fmt: skip
COMMON = {
    "temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens", "max_completion_tokens": "max_tokens",
    "stop": "stop", "parallel_tool_calls": "parallel_tool_calls",
}  # fmt: skip


def parse_request(body: Mapping[str, object]) -> ClientRequest:
    """Parse the body of a request. Raises InvalidInput, which names the field."""
    if body.get("n") not in (None, 1):
        raise invalid("n", "must be 1: one answer is stored for one message")
    reject_unsupported(body, ("logprobs", "top_logprobs", "audio", "functions", "function_call"))
    reject_provider_tools(body, ("web_search_options",))
    if body.get("modalities") not in (None, ["text"]):
        raise invalid("modalities", 'must be ["text"]')
    messages = require_list("messages", body.get("messages"))
    if not messages:
        raise invalid("messages", "must not be empty")
    metadata = require_object("metadata", body.get("metadata"))
    return ClientRequest(
        shape="openai-chat",
        model=require_text("model", body.get("model")),
        said=parse_messages(messages),
        instructions=_collect_instructions(messages),
        tools=tuple(_parse_tool(one) for one in require_list("tools", body.get("tools") or [], MAX_TOOLS)),
        tool_choice=_parse_tool_choice(body.get("tool_choice")),
        common=common_settings(body, COMMON),
        own=provider_settings(body, ALLOWED),
        ignored=other_fields(body, DECIDED, ALLOWED),
        format=_parse_response_format(body.get("response_format")),
        stream=require_flag("stream", body.get("stream")),
        conversation=_conversation_id(metadata),
        store=require_flag("store", body.get("store")),
        kept={
            "metadata": {name: one for name, one in metadata.items() if name != "conversation_id"},
            "model": body.get("model"),
        },
        context=parse_extension(body),
    )


def wants_usage(body: Mapping[str, object]) -> bool:
    options = require_object("stream_options", body.get("stream_options"))
    return require_flag("stream_options.include_usage", options.get("include_usage"))


def _conversation_id(metadata: Mapping[str, object]) -> str | None:
    named = metadata.get("conversation_id")
    return None if named is None else require_name("metadata.conversation_id", named)


def _parse_tool_choice(given: object) -> ToolChoice:
    if given in (None, "auto"):
        return "auto"
    if given in ("none", "required"):
        return "required" if given == "required" else "none"
    if isinstance(given, Mapping) and isinstance(given.get("function"), Mapping):
        return {"name": require_text("tool_choice.function.name", given["function"].get("name"))}
    raise invalid("tool_choice", "must be none, auto, required or a function")


def _parse_response_format(given: object) -> Mapping[str, object] | None:
    format = parse_format("response_format", given)
    schema = require_object("response_format.json_schema", format.get("json_schema")) if format else {}
    return {"type": format["type"], **schema} if format else None


def _parse_tool(one: Mapping[str, object]) -> Any:
    function = one.get("function")
    if one.get("type") != "function" or not isinstance(function, Mapping):
        raise invalid("tools", "must be functions")
    fields = [function.get(name) for name in ("name", "description", "parameters", "strict")]
    return parse_tool("tools.function", *fields)


def _collect_instructions(messages: list[Mapping[str, object]]) -> str | None:
    given = [_join_text(one.get("content")) for one in messages if one.get("role") in ("system", "developer")]
    return "\n\n".join(text for text in given if text) or None


def parse_messages(messages: list[Mapping[str, object]]) -> tuple[ClientMessage, ...]:
    """Parse the history without instructions. Adjacent results are one message."""
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


def _parse_call(call: Mapping[str, object]) -> ToolCall:
    function = call.get("function")
    if not isinstance(function, Mapping):
        raise invalid("messages.tool_calls", "must be functions")
    return parse_call("messages.tool_calls", call.get("id"), function.get("name"), function.get("arguments", "{}"))


def _join_text(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = require_list("messages.content", content)
    return "\n".join(str(part.get("text") or part.get("refusal") or "") for part in parts)


def _parse_content(content: object) -> str | tuple[Part, ...]:
    if isinstance(content, str):
        return content
    return simplify_parts([_parse_part(part) for part in require_list("messages.content", content)])


def _parse_part(part: Mapping[str, object]) -> Part:
    kind = part.get("type")
    if kind == "text":
        return {"type": "text", "text": require_text("messages.content.text", part.get("text"))}
    image, file = part.get("image_url"), part.get("file")
    if kind == "image_url" and isinstance(image, Mapping):
        return {"type": "image", "url": require_url("messages.content.image_url.url", image.get("url"))}
    if kind == "file" and isinstance(file, Mapping) and file.get("file_data"):
        name = str(file.get("filename") or "file")
        return {
            "type": "file",
            "url": require_url("messages.content.file.file_data", file["file_data"]),
            "filename": name,
        }
    raise invalid("messages.content", "must be text, image_url, or file with its data")
