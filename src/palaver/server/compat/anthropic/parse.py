"""Parses requests of Anthropic's Messages. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from palaver.model import ToolCall, ToolResult
from palaver.models.tokens import counter_for
from palaver.ports.models import INSTRUCTIONS_CACHE, ToolChoice
from palaver.server.compat.context_edits import COMPACTION, clear_thinking, ignored_options, parse_edits
from palaver.server.compat.request import (
    MAX_TOOLS,
    AllowedFields,
    ClientMessage,
    ClientRequest,
    CompactionItem,
    Part,
    common_settings,
    invalid,
    optional_text,
    other_fields,
    parse_extension,
    parse_format,
    parse_tool,
    provider_settings,
    reject_provider_tools,
    require_flag,
    require_list,
    require_name,
    require_object,
    require_text,
    require_url,
    simplify_parts,
)

DECIDED = frozenset(
    "model messages system stream tools tool_choice metadata store mcp_servers container context_management "
    "compaction".split()
)
ALLOWED: AllowedFields = {
    "max_tokens": (), "temperature": (), "top_p": (), "top_k": (), "stop_sequences": (),
    "thinking": ("type", "budget_tokens", "display"), "output_config": ("format", "effort"),
}  # fmt: skip
REASONING = ("type", "thinking", "signature", "data")  # fields of a block of reasoning
COMMON = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens", "stop_sequences": "stop"}


def parse_request(body: Mapping[str, object]) -> ClientRequest:
    """Parse the body of a request. Raises InvalidInput, which names the field."""
    reject_provider_tools(body, ("mcp_servers", "container"))
    messages, compaction = _split_messages(require_list("messages", body.get("messages")))
    given = parse_messages(messages)
    if not given:
        raise invalid("messages", "must not be empty")
    model = require_text("model", body.get("model"))
    edits = parse_edits(body, given, counter_for(model))
    named = require_object("metadata", body.get("metadata")).get("conversation_id")
    one_by_one = _parallel_setting(body.get("tool_choice"))
    return ClientRequest(
        shape="anthropic-messages",
        model=model,
        said=clear_thinking(body, given),
        instructions=_join_text(body.get("system"), "system") or None,
        tools=tuple(_parse_tool(one) for one in require_list("tools", body.get("tools") or [], MAX_TOOLS)),
        tool_choice=_parse_tool_choice(body.get("tool_choice")),
        common={**common_settings(body, COMMON), **one_by_one},
        own={**provider_settings(body, ALLOWED), **one_by_one, **_cache_setting(body)},
        ignored={**other_fields(body, DECIDED, ALLOWED), **ignored_options(body)},
        format=parse_format(
            "output_config.format", require_object("output_config", body.get("output_config")).get("format")
        ),
        stream=require_flag("stream", body.get("stream")),
        conversation=None if named is None else require_name("metadata.conversation_id", named),
        store=require_flag("store", body.get("store")),
        context=parse_extension(body),
        edits=edits,
        compaction=compaction,
    )


def _split_messages(
    messages: list[Mapping[str, object]],
) -> tuple[list[Mapping[str, object]], CompactionItem | None]:
    """Return the messages after the last compaction block, and that block. It stands for everything before it."""
    kept: list[Mapping[str, object]] = []
    found: CompactionItem | None = None
    for one in messages:
        blocks = one.get("content")
        places = [n for n, block in enumerate(blocks) if _is_compaction(block)] if isinstance(blocks, list) else []
        if not places or not isinstance(blocks, list):
            kept.append(one)
            continue
        made = [item for n in places if (item := _parse_compaction(blocks[n])) is not None]
        rest = blocks[places[-1] + 1 :] if made else [block for block in blocks if not _is_compaction(block)]
        if made:
            kept, found = [], made[-1]
        kept += [{**one, "content": rest}] if rest else []
    return kept, found


def _is_compaction(block: object) -> bool:
    return isinstance(block, Mapping) and block.get("type") == COMPACTION


def _parse_compaction(block: Mapping[str, object]) -> CompactionItem | None:
    """Parse a compaction block. One without content failed, and stands for nothing."""
    if block.get("content") is None:
        return None
    text = require_name("messages.content.content", block["content"])
    reference = optional_text("messages.content.encrypted_content", block.get("encrypted_content"))
    return CompactionItem(reference=reference, text=text)


def _parse_tool_choice(given: object) -> ToolChoice:
    if given is None:
        return "auto"
    kind = given.get("type") if isinstance(given, Mapping) else None
    if kind == "auto":
        return "auto"
    if kind in ("none", "any"):
        return "required" if kind == "any" else "none"
    if kind == "tool" and isinstance(given, Mapping):
        return {"name": require_text("tool_choice.name", given.get("name"))}
    raise invalid("tool_choice", "must be of type auto, any, tool or none")


def _parallel_setting(choice: object) -> dict[str, bool]:
    """Return the setting for parallel calls, which this protocol puts into `tool_choice`."""
    once = isinstance(choice, Mapping) and require_flag(
        "tool_choice.disable_parallel_tool_use", choice.get("disable_parallel_tool_use")
    )
    return {"parallel_tool_calls": False} if once else {}


def _cache_setting(body: Mapping[str, object]) -> dict[str, object]:
    """Return the `cache_control` of the last system block or tool that has one. Tools come before the system prompt."""
    for name in ("system", "tools"):
        blocks = body.get(name)
        given = [one for one in blocks if isinstance(one, Mapping)] if isinstance(blocks, list) else []
        if marks := [one["cache_control"] for one in given if isinstance(one.get("cache_control"), Mapping)]:
            return {INSTRUCTIONS_CACHE: dict(marks[-1])}
    return {}


def _parse_tool(one: Mapping[str, object]) -> Any:
    if one.get("type") not in (None, "custom"):
        raise invalid("tools", "must be client tools: server tools are not supported")
    return parse_tool("tools", one.get("name"), one.get("description"), one.get("input_schema"), one.get("strict"))


def parse_messages(messages: list[Mapping[str, object]]) -> tuple[ClientMessage, ...]:
    said: list[ClientMessage] = []
    for one in messages:
        content = one.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks = require_list("messages.content", parts)
        if one.get("role") == "assistant":
            said.append(_parse_assistant(blocks))
        elif one.get("role") == "user":
            said += _parse_user(blocks)
        else:
            raise invalid("messages.role", "must be user or assistant")
    return tuple(said)


def _parse_user(blocks: list[Mapping[str, object]]) -> list[ClientMessage]:
    """Parse a user message: tool results first, then its content."""
    results = tuple(_parse_result(block) for block in blocks if block.get("type") == "tool_result")
    parts = [_parse_part(block) for block in blocks if block.get("type") != "tool_result"]
    found = [ClientMessage(role="tool", results=results)] if results else []
    return [*found, ClientMessage(role="user", content=simplify_parts(parts))] if parts else found


def _parse_assistant(blocks: list[Mapping[str, object]]) -> ClientMessage:
    """Parse an assistant message. Its reasoning goes back to the provider and is not stored."""
    text = "\n\n".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
    calls = tuple(_parse_call(block) for block in blocks if block.get("type") == "tool_use")
    thoughts = [block for block in blocks if block.get("type") in ("thinking", "redacted_thinking")]
    reasoning = tuple({name: block[name] for name in REASONING if name in block} for block in thoughts)
    return ClientMessage(role="assistant", content=text, calls=calls, reasoning=reasoning)


def _parse_call(block: Mapping[str, object]) -> ToolCall:
    input = block.get("input")
    if not isinstance(input, Mapping):
        raise invalid("messages.content.input", "must be an object")
    id, name = block.get("id"), block.get("name")
    return ToolCall(require_text("messages.content.id", id), require_text("messages.content.name", name), dict(input))


def _parse_result(block: Mapping[str, object]) -> ToolResult:
    id = require_text("messages.content.tool_use_id", block.get("tool_use_id"))
    return ToolResult(id, _join_text(block.get("content"), "messages.content"), block.get("is_error") is True)


def _join_text(content: object, field: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    blocks = require_list(field, content)
    return "\n".join(str(block.get("text") or f"[{block.get('type')}]") for block in blocks)


def _parse_part(block: Mapping[str, object]) -> Part:
    kind, source = block.get("type"), block.get("source")
    if kind == "text":
        return {"type": "text", "text": require_text("messages.content.text", block.get("text"))}
    if kind in ("image", "document") and isinstance(source, Mapping):
        part = {"type": "image" if kind == "image" else "file", "url": _parse_source(source)}
        return part if kind == "image" else {**part, "filename": str(block.get("title") or "document")}
    raise invalid("messages.content", "must be text, image, document or tool_result")


def _parse_source(source: Mapping[str, object]) -> str:
    if source.get("type") == "base64":
        media = require_text("messages.content.source.media_type", source.get("media_type"))
        return f"data:{media};base64,{require_text('messages.content.source.data', source.get('data'))}"
    if source.get("type") == "text":
        return f"data:text/plain,{quote(require_text('messages.content.source.data', source.get('data')))}"
    if source.get("type") == "url":
        return require_url("messages.content.source.url", source.get("url"))
    raise invalid("messages.content.source", "must be of type base64, text or url")
