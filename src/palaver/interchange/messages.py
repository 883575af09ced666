"""Messages of OpenAI, Anthropic and LangChain as turns for `append_many`.

    await talk.append_many(palaver.from_openai(messages))

Messages from `Context.to_openai()` and `to_anthropic()` can be appended again. Fields that Palaver does not know are
kept in the turn's `metadata`, under the name of the protocol.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from palaver.errors import InvalidInput
from palaver.interchange.originals import original_of, storable, text_of, with_original, words_of
from palaver.model import File, Image, Part, Reasoning, Role, Text, Turn

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

    from palaver.conversations.conversation import Conversation
    from palaver.core.turn_options import TurnInput

ROLES: Mapping[str, Role] = {
    "user": "user", "human": "user", "assistant": "assistant", "ai": "assistant", "system": "system",
    "developer": "system", "tool": "tool", "function": "tool",
}  # fmt: skip


# ---- OpenAI --------------------------------------------------------------------------------------------------------


def from_openai(messages: Iterable[Mapping[str, Any]]) -> list[TurnInput]:
    """Return messages of OpenAI's Chat Completions as turns for `append_many`.

    Image and file parts, tool calls and tool results are converted. Successive tool results become one turn.
    """
    turns: list[TurnInput] = []
    for message in messages:
        turn = _openai_turn(message)
        before = turns[-1] if turns else None
        if turn["role"] == "tool" and before is not None and before["role"] == "tool" and "metadata" not in before:
            before["tool_results"] = [*(before.get("tool_results") or ()), *(turn.get("tool_results") or ())]
        else:
            turns.append(turn)
    return turns


def _openai_turn(message: Mapping[str, Any]) -> TurnInput:
    role = _role(message.get("role"))
    turn: TurnInput = {"role": role}
    known = {"role", "content"}
    if role == "tool":
        turn["tool_results"] = [{"id": message.get("tool_call_id"), "content": _joined(message.get("content"))}]
        known |= {"tool_call_id"}
    else:
        content = message.get("content")
        turn["content"] = content if isinstance(content, str) else [_openai_part(part) for part in content or ()]
    if calls := message.get("tool_calls"):
        turn["tool_calls"] = [_openai_call(call) for call in calls]
        known |= {"tool_calls"}
    if message.get("role") == "developer":
        known -= {"role"}
    return _keep_rest(turn, "openai", message, known)


def _openai_call(call: Mapping[str, Any]) -> dict[str, Any]:
    inner = call.get("function") or call.get("custom") or call
    arguments = inner.get("arguments", inner.get("input", {}))
    return {"id": call.get("id"), "name": inner.get("name"), "arguments": _parsed(arguments)}


def _openai_part(part: object) -> Part | Mapping[str, Any]:
    if isinstance(part, str):
        return Text(part)
    if not isinstance(part, Mapping):
        raise InvalidInput("content", "must be text or a list of parts")
    kind = part.get("type")
    rest = {name: value for name, value in part.items() if name not in ("type", str(kind), "text")}
    if kind in ("text", "input_text", "output_text"):
        return Text(part.get("text", ""), rest)
    if kind in ("image_url", "input_image"):
        image = part.get("image_url")
        url, detail = (image.get("url"), _without(image, "url")) if isinstance(image, Mapping) else (image, {})
        return Image(url=url, extra={**rest, **detail})
    if kind in ("file", "input_file"):
        file = part.get("file") or part
        kept = {**rest, **_without(file, "file_data", "filename", "type", "file")}
        url = file.get("file_data") or file.get("file_url") or f"file:{file.get('file_id')}"
        return File(url=url, filename=file.get("filename"), extra=kept)
    if kind == "refusal":
        return Text(part.get("refusal", ""), {"refusal": True})
    if kind == "input_audio":
        audio = part.get("input_audio") or {}
        return File(url=f"data:audio/{audio.get('format', 'wav')};base64,{audio.get('data', '')}", extra=rest)
    return part


# ---- Anthropic -----------------------------------------------------------------------------------------------------


def from_anthropic(prompt: Mapping[str, Any] | Iterable[Mapping[str, Any]]) -> list[TurnInput]:
    """Return messages of Anthropic's Messages API as turns for `append_many`.

    From a mapping with `system` and `messages`, the system prompt becomes the first turn.
    A user message that holds tool results becomes a tool turn, followed by a user turn if it also has other blocks.
    """
    turns: list[TurnInput] = []
    messages = prompt
    if isinstance(prompt, Mapping):
        messages = prompt.get("messages") or ()
        if prompt.get("system"):
            turns.append({"role": "system", "content": _joined(prompt["system"])})
    for message in messages:
        turns += _anthropic_turns(message)  # type: ignore[arg-type]
    return turns


def _anthropic_turns(message: Mapping[str, Any]) -> list[TurnInput]:
    role, content = _role(message.get("role")), message.get("content")
    if isinstance(content, str):
        return [_keep_rest({"role": role, "content": content}, "anthropic", message, {"role", "content"})]
    blocks = [block if isinstance(block, Mapping) else {"type": "text", "text": block} for block in content or ()]
    results = [block for block in blocks if block.get("type") == "tool_result"]
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    others = [block for block in blocks if block.get("type") not in ("tool_result", "tool_use")]
    turns: list[TurnInput] = []
    if results:
        turns.append({"role": "tool", "tool_results": [_anthropic_result(block) for block in results]})
    if others or calls or not results:
        turn: TurnInput = {"role": role, "content": [_anthropic_part(block) for block in others]}
        if calls:
            turn["tool_calls"] = [
                {"id": block.get("id"), "name": block.get("name"), "arguments": block.get("input", {})}
                for block in calls
            ]
        turns.append(_keep_rest(turn, "anthropic", message, {"role", "content"}))
    return turns


def _anthropic_result(block: Mapping[str, Any]) -> dict[str, Any]:
    content = block.get("content", "")
    plain = isinstance(content, str) or all(part.get("type") == "text" for part in content)
    shown = _joined(content) if plain else content
    return {"id": block.get("tool_use_id"), "content": shown, "is_error": bool(block.get("is_error"))}


def _anthropic_part(block: Mapping[str, Any]) -> Part | Mapping[str, Any]:
    kind = block.get("type")
    rest = _without(block, "type", "text", "source", "thinking", "signature", "data", "title")
    if kind == "text":
        return Text(block.get("text", ""), rest)
    if kind == "thinking":
        return Reasoning(block.get("thinking", ""), block.get("signature"), rest)
    if kind == "redacted_thinking":
        return Reasoning("", None, {**rest, "redacted": block.get("data")})
    source = block.get("source") or {}
    url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data', '')}"
    if kind == "image":
        return Image(url=url, media_type=source.get("media_type"), extra=rest)
    if kind == "document":
        return File(url=url, filename=block.get("title"), media_type=source.get("media_type"), extra=rest)
    return block


# ---- LangChain -----------------------------------------------------------------------------------------------------


def from_langchain(messages: Iterable[BaseMessage], talk: Conversation | None = None) -> list[TurnInput]:
    """Return LangChain messages as turns for `append_many`. `to_langchain` restores each message with all its fields.

    - `talk`: the conversation for the turns. If it is redacted, only the fields that Palaver shows to models are kept.
    """
    return [_langchain_turn(message, talk) for message in messages]


def _langchain_turn(message: BaseMessage, talk: Conversation | None) -> TurnInput:
    from langchain_core.messages import message_to_dict

    data: dict[str, Any] = message.model_dump()
    role = ROLES.get(message.type) or ROLES.get(str(data.get("role")), "user")
    turn: TurnInput = {"role": role, "content": storable(text_of(message.content))}
    calls = data.get("tool_calls") or ()
    if role == "tool":
        turn = {"role": "tool", "tool_results": [_langchain_result(data)]}
    elif role == "assistant" and calls and all(call.get("id") for call in calls):
        turn["tool_calls"] = [{"id": one["id"], "name": one["name"], "arguments": one["args"]} for one in calls]
    return with_original(turn, message_to_dict(message), talk)


def _langchain_result(data: Mapping[str, Any]) -> dict[str, Any]:
    id = data.get("tool_call_id") or data.get("name") or "tool"
    return {"id": id, "content": storable(text_of(data["content"])), "is_error": data.get("status") == "error"}


def to_langchain(turn: Turn) -> BaseMessage:
    """Return a turn as a LangChain message: the original message, if it was stored by `from_langchain`."""
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage, messages_from_dict

    original = original_of(turn)
    if isinstance(original, Mapping):
        return messages_from_dict([dict(original)])[0]
    words = words_of(turn)
    content: Any = words if isinstance(words, str) else [_langchain_part(part) for part in words]
    if turn.role == "tool":
        result = turn.tool_results[0]
        text = result.content if isinstance(result.content, str) else json.dumps(result.content)
        status = "error" if result.is_error else "success"
        return ToolMessage(content=text, tool_call_id=result.id, status=status, id=turn.id)
    if turn.role == "assistant":
        calls = [{"id": one.id, "name": one.name, "args": _arguments(one.arguments)} for one in turn.tool_calls]
        return AIMessage(content=content, tool_calls=calls, id=turn.id)
    return (SystemMessage if turn.role == "system" else HumanMessage)(content=content, id=turn.id)


def _langchain_part(part: Part) -> dict[str, Any]:
    if isinstance(part, Image):
        return {"type": "image_url", "image_url": {"url": part.url or part.attachment}}
    if isinstance(part, File):
        return {"type": "text", "text": f"[file {part.filename or part.attachment or ''}]"}
    return {"type": "text", "text": part.text}


# ---- shared --------------------------------------------------------------------------------------------------------


def _role(role: object) -> Role:
    found = ROLES.get(str(role))
    if found is None:
        raise InvalidInput("role", f"must be one of {', '.join(ROLES)}")
    return found


def _keep_rest(turn: TurnInput, protocol: str, message: Mapping[str, Any], known: set[str]) -> TurnInput:
    rest = {name: value for name, value in message.items() if name not in known and value is not None}
    return {**turn, "metadata": {protocol: rest}} if rest else turn


def _without(value: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: one for name, one in value.items() if name not in names}


def _joined(content: object) -> Any:
    """Return text parts as one text; other content as it is."""
    if isinstance(content, Sequence) and not isinstance(content, str):
        return text_of(content)
    return "" if content is None else content


def _parsed(arguments: object) -> Any:
    """Return a call's arguments as an object; text that is not one stays text."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments


def _arguments(arguments: object) -> dict[str, Any]:
    value = _parsed(arguments)
    return value if isinstance(value, dict) else {"input": value}
