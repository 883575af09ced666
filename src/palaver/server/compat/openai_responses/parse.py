"""Parses requests of OpenAI's Responses. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaver.core.identity import canonical_json
from palaver.ports.models import ToolChoice
from palaver.server.compat import openai_items
from palaver.server.compat.context_edits import parse_management, split_items
from palaver.server.compat.request import (
    MAX_TOOLS,
    AllowedFields,
    ClientRequest,
    common_settings,
    invalid,
    optional_text,
    other_fields,
    parse_extension,
    parse_format,
    parse_tool,
    provider_settings,
    reject_unsupported,
    require_flag,
    require_list,
    require_name,
    require_object,
    require_text,
)

DECIDED = frozenset(
    "model input instructions previous_response_id conversation store stream stream_options tools tool_choice metadata "
    "background include truncation context_management prompt top_logprobs".split()
)
ALLOWED: AllowedFields = {
    "temperature": (), "top_p": (), "max_output_tokens": (), "parallel_tool_calls": (),
    "text": ("format", "verbosity"), "reasoning": ("effort", "summary", "generate_summary"),
}  # fmt: skip
COMMON = {
    "temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_tokens",
    "parallel_tool_calls": "parallel_tool_calls",
}  # fmt: skip
# Fields of a request that its response repeats, with their defaults.
ECHOED: Mapping[str, object] = {
    "instructions": None, "metadata": {}, "temperature": 1.0, "top_p": 1.0, "max_output_tokens": None,
    "max_tool_calls": None, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}}, "reasoning": None, "truncation": "disabled", "top_logprobs": 0,
    "presence_penalty": 0.0, "frequency_penalty": 0.0, "store": True, "background": False, "service_tier": "default",
    "safety_identifier": None, "prompt_cache_key": None, "user": None, "previous_response_id": None,
}  # fmt: skip
MAX_ECHO = 32_000  # characters
PREFIX = "resp_"


def parse_request(body: Mapping[str, object]) -> ClientRequest:
    """Parse the body of a request. Raises InvalidInput, which names the field."""
    if body.get("previous_response_id") is not None and body.get("conversation") is not None:
        raise invalid("previous_response_id", "cannot be used together with conversation")
    reject_unsupported(body, ("prompt", "top_logprobs"))
    given = body.get("input")
    entries: object = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
    rest, compaction = split_items(entries)
    said = openai_items.parse_items(rest)
    if not said:
        raise invalid("input", "must contain a new item")
    return ClientRequest(
        shape="openai-responses",
        model=require_text("model", body.get("model")),
        said=said,
        instructions=_collect_instructions(body, entries),
        tools=tuple(_parse_tool(one) for one in require_list("tools", body.get("tools") or [], MAX_TOOLS)),
        tool_choice=_parse_tool_choice(body.get("tool_choice")),
        common=common_settings(body, COMMON),
        own=provider_settings(body, ALLOWED),
        ignored=other_fields(body, DECIDED, ALLOWED),
        format=parse_format("text.format", require_object("text", body.get("text")).get("format")),
        stream=require_flag("stream", body.get("stream")),
        conversation=_conversation_id(body),
        previous=_previous(body.get("previous_response_id")),
        store=_parse_store(body),
        kept={"response": echo_of(body)},
        context=parse_extension(body),
        edits=parse_management(body.get("context_management")),
        compaction=compaction,
    )


def _collect_instructions(body: Mapping[str, object], entries: object) -> str | None:
    given = [optional_text("instructions", body.get("instructions")), *openai_items.collect_instructions(entries)]
    return "\n\n".join(text for text in given if text) or None


def _conversation_id(body: Mapping[str, object]) -> str | None:
    given, metadata = body.get("conversation"), require_object("metadata", body.get("metadata"))
    if given is not None:
        return require_name("conversation", given.get("id") if isinstance(given, Mapping) else given)
    named = metadata.get("conversation_id")
    return None if named is None else require_name("metadata.conversation_id", named)


def _parse_store(body: Mapping[str, object]) -> bool:
    stored = require_flag("store", body.get("store"), default=True)
    if not stored and body.get("previous_response_id") is not None:
        raise invalid(
            "store", "must not be false with previous_response_id: a continuation is stored with the response"
        )
    if require_flag("background", body.get("background")) and not stored:
        raise invalid("background", "needs store: otherwise the answer could not be fetched")
    return stored


def _previous(given: object) -> str | None:
    return None if given is None else require_text("previous_response_id", given).removeprefix(PREFIX)


def _parse_tool_choice(given: object) -> ToolChoice:
    if given in (None, "auto"):
        return "auto"
    if given in ("none", "required"):
        return "required" if given == "required" else "none"
    if isinstance(given, Mapping) and given.get("type") == "function":
        return {"name": require_text("tool_choice.name", given.get("name"))}
    raise invalid("tool_choice", "must be none, auto, required or a function")


def _parse_tool(one: Mapping[str, object]) -> Any:
    if one.get("type") != "function":
        raise invalid("tools", "must be functions")
    return parse_tool("tools", one.get("name"), one.get("description"), one.get("parameters"), one.get("strict"))


def echo_of(body: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a request that its response repeats. They are stored, so their size is limited."""
    echo = {name: body[name] for name in (*ECHOED, "model") if body.get(name) is not None}
    for name in ("tools", "instructions", "text"):
        if len(canonical_json(echo)) > MAX_ECHO:
            echo.pop(name, None)
    return echo
