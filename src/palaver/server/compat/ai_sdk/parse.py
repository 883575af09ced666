"""Parses the UI messages that the AI SDK's `useChat` sends. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaver.model import ToolCall, ToolResult
from palaver.server.compat.request import (
    MAX_TOOLS,
    ClientMessage,
    ClientRequest,
    Part,
    invalid,
    optional_text,
    parse_call,
    parse_extension,
    parse_tool,
    require_list,
    require_name,
    require_text,
    require_url,
    simplify_parts,
)

FINISHED = ("output-available", "output-error", "output-denied")


def parse_request(body: Mapping[str, object]) -> ClientRequest:
    """Parse the body that `DefaultChatTransport` posts: all messages, or only the last one as `message`.

    An edit, or a request for another answer, sends the messages before it: they are the whole thread then.
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
        context=parse_extension(body),
    )


def _collect_instructions(body: Mapping[str, object], messages: list[Mapping[str, object]]) -> str | None:
    given = [optional_text("system", body.get("system"))]
    given += [_join_texts(_parts(one)) for one in messages if one.get("role") == "system"]
    return "\n\n".join(text for text in given if text) or None


def _parse_tools(given: object) -> tuple[Any, ...]:
    """Parse the tools of the page, by name: description and inputSchema, as the SDK describes them."""
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


def parse_messages(messages: list[Mapping[str, object]]) -> tuple[ClientMessage, ...]:
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


def _parts(message: Mapping[str, object]) -> list[Mapping[str, object]]:
    if "parts" not in message and isinstance(message.get("content"), str):
        return [{"type": "text", "text": message["content"]}]
    return require_list("messages.parts", message.get("parts"))


def _is_content(part: Mapping[str, object]) -> bool:
    return part.get("type") in ("text", "file")


def _parse_part(part: Mapping[str, object]) -> Part:
    if part["type"] == "text":
        return {"type": "text", "text": require_text("messages.parts.text", part.get("text"))}
    url, media = require_url("messages.parts.url", part.get("url")), str(part.get("mediaType") or "")
    if media.startswith("image/"):
        return {"type": "image", "url": url}
    return {"type": "file", "url": url, "filename": str(part.get("filename") or "file")}


def _parse_assistant(parts: list[Mapping[str, object]]) -> list[ClientMessage]:
    """Parse the steps of an answer: text and calls of each, and their results."""
    steps: list[list[Mapping[str, object]]] = [[]]
    for part in parts:
        if part.get("type") == "step-start":
            steps.append([])
        else:
            steps[-1].append(part)
    return [said for step in steps if step for said in _step(step)]


def _step(parts: list[Mapping[str, object]]) -> list[ClientMessage]:
    tools = [part for part in parts if _is_tool(part) and part.get("state") != "input-streaming"]
    calls = tuple(_parse_call(part) for part in tools)
    results = tuple(_parse_result(part) for part in tools if part.get("state") in FINISHED)
    text = _join_texts(parts)
    found = [ClientMessage(role="assistant", content=text, calls=calls)] if text or calls else []
    return [*found, ClientMessage(role="tool", results=results)] if results else found


def _is_tool(part: Mapping[str, object]) -> bool:
    kind = part.get("type")
    return isinstance(kind, str) and (kind.startswith("tool-") or kind == "dynamic-tool")


def _parse_call(part: Mapping[str, object]) -> ToolCall:
    name = part.get("toolName") or str(part["type"]).removeprefix("tool-")
    return parse_call("messages.parts", part.get("toolCallId"), name, part.get("input") or {})


def _parse_result(part: Mapping[str, object]) -> ToolResult:
    id = require_text("messages.parts.toolCallId", part.get("toolCallId"))
    if part.get("state") == "output-available":
        return ToolResult(id, part.get("output"))
    return ToolResult(id, str(part.get("errorText") or "The call was denied."), True)


def _join_texts(parts: Sequence[Mapping[str, object]]) -> str:
    return "\n".join(str(part.get("text") or "") for part in parts if part.get("type") == "text")
