"""Pydantic AI: the message history of a conversation, and a history processor that is `build_context`.

    history = PalaverHistory(store, "support/42")
    agent = Agent(model, capabilities=[ProcessHistory(history.processor(token_budget=4_000))])
    result = await agent.run("What can I eat?")
    await history.append(result.new_messages())

Messages round-trip with every field. The processor shows the model a context within the budget, with summaries and
recalled turns, in front of the messages of the run. Needs `pip install palaver[pydantic-ai]`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Unpack

from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from palaver import ContextOptions, Conversation, ConversationNotFound, Turn, TurnInput
from palaver.adapters.bridge import AnyStore, Bridge
from palaver.adapters.thread import append_all, whole_thread
from palaver.interchange.originals import original_of, storable, with_original

PART = {"pydantic_ai": "part"}  # marks a further turn of a message whose first turn holds it
Processor = Callable[[list[ModelMessage]], Awaitable[list[ModelMessage]]]


class PalaverHistory:
    """The messages of the conversation with the key `key`."""

    def __init__(self, store: AnyStore, key: str) -> None:
        self.key = key
        self._bridge = Bridge(store)

    async def messages(self) -> list[ModelMessage]:
        """Return every message, for `message_history`. For a budget use `processor`."""
        return await self._bridge.run(self._read())

    async def append(self, messages: Sequence[ModelMessage]) -> None:
        """Store messages, such as `result.new_messages()`: all of them or none."""
        if messages:
            await self._bridge.run(self._append(messages))

    async def clear(self) -> None:
        """Delete every message permanently."""
        await self._bridge.run(self._clear())

    def processor(self, token_budget: int | None = None, **options: Unpack[ContextOptions]) -> Processor:
        """Return a history processor: the conversation as `build_context` shows it, then the messages of this run."""

        async def process(messages: list[ModelMessage]) -> list[ModelMessage]:
            return await self._bridge.run(self._process(messages, token_budget, options))

        return process

    async def _read(self) -> list[ModelMessage]:
        talk = await self._find()
        turns = await whole_thread(talk) if talk else []
        return [message for turn in turns if turn.metadata != PART for message in _messages(turn)]

    async def _append(self, messages: Sequence[ModelMessage]) -> None:
        talk = await self._bridge.store.conversation(self.key)
        await append_all(talk, [turn for message in messages for turn in _turns(message, talk)])

    async def _clear(self) -> None:
        talk = await self._find()
        if talk is not None:
            await talk.reset()

    async def _process(
        self, messages: list[ModelMessage], token_budget: int | None, options: ContextOptions
    ) -> list[ModelMessage]:
        talk = await self._find()
        asked = [number for number, message in enumerate(messages) if _prompt(message) is not None]
        if talk is None or not asked:
            return messages
        current = messages[asked[-1] :]
        asked_for: Any = {"query": _prompt(current[0]), **options}
        context = await talk.build_context(token_budget, **asked_for)
        return [*from_openai_messages(context.to_openai()), *current]

    async def _find(self) -> Conversation | None:
        try:
            return await self._bridge.store.find(self.key)
        except ConversationNotFound:
            return None


def from_openai_messages(messages: Sequence[Mapping[str, Any]]) -> list[ModelMessage]:
    """Return messages of Chat Completions, such as `Context.to_openai()`, as messages of Pydantic AI."""
    names: dict[str, str] = {}
    found: list[ModelMessage] = []
    for message in messages:
        content = message.get("content") or ""
        text = content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
        if message["role"] == "assistant":
            calls = [one["function"] | {"id": one["id"]} for one in message.get("tool_calls") or ()]
            names |= {one["id"]: one["name"] for one in calls}
            parts = [ToolCallPart(one["name"], one["arguments"], tool_call_id=one["id"]) for one in calls]
            found.append(ModelResponse(parts=[*([TextPart(text)] if text else []), *parts]))
        elif message["role"] == "tool":
            id = message["tool_call_id"]
            found.append(ModelRequest(parts=[ToolReturnPart(names.get(id, "tool"), text, tool_call_id=id)]))
        elif message["role"] == "system":
            found.append(ModelRequest(parts=[SystemPromptPart(text)]))
        else:
            found.append(ModelRequest(parts=[UserPromptPart(text)]))
    return found


def _prompt(message: ModelMessage) -> str | None:
    """Return the words of the user's prompt in a request; None if it has none."""
    prompts = [part for part in message.parts if isinstance(part, UserPromptPart)]
    return "\n".join(map(_words, prompts)) if prompts else None


def _words(part: UserPromptPart) -> str:
    if isinstance(part.content, str):
        return part.content
    return "\n".join(one if isinstance(one, str) else getattr(one, "content", "") or "" for one in part.content)


def _turns(message: ModelMessage, talk: Conversation) -> list[TurnInput]:
    """Return a message as turns. The first one holds the message itself."""
    turns: list[TurnInput] = _response(message) if isinstance(message, ModelResponse) else _request(message)
    original = json.loads(ModelMessagesTypeAdapter.dump_json([message]))
    first, *rest = turns or [{"role": "assistant"}]
    for turn in rest:
        turn["metadata"] = PART
    return [with_original(first, original, talk), *rest]


def _request(message: ModelRequest) -> list[TurnInput]:
    results = [part for part in message.parts if isinstance(part, ToolReturnPart | RetryPromptPart) and part.tool_name]
    turns: list[TurnInput] = []
    if results:
        turns.append({"role": "tool", "tool_results": [_result(part) for part in results]})
    system = "\n".join(part.content for part in message.parts if isinstance(part, SystemPromptPart))
    prompt = _prompt(message)
    if prompt is not None:
        turns.append({"role": "user", "content": storable(prompt)})
    elif system:
        turns.append({"role": "system", "content": storable(system)})
    return turns


def _result(part: ToolReturnPart | RetryPromptPart) -> dict[str, Any]:
    is_error = isinstance(part, RetryPromptPart)
    text = part.model_response() if isinstance(part, RetryPromptPart) else part.model_response_str()
    return {"id": part.tool_call_id, "content": storable(text), "is_error": is_error}


def _response(message: ModelResponse) -> list[TurnInput]:
    text = "\n".join(part.content for part in message.parts if isinstance(part, TextPart))
    calls = {part.tool_call_id: part for part in message.parts if isinstance(part, ToolCallPart)}
    turn: TurnInput = {"role": "assistant", "content": storable(text)}
    if calls:
        turn["tool_calls"] = [
            {"id": id, "name": part.tool_name, "arguments": part.args_as_dict()} for id, part in calls.items()
        ]
    if message.model_name:
        turn["model"] = message.model_name
    return [turn]


def _messages(turn: Turn) -> list[ModelMessage]:
    original = original_of(turn)
    if original is not None:
        return list(ModelMessagesTypeAdapter.validate_python(original))
    if turn.role == "tool":
        parts = [ToolReturnPart("tool", one.content, tool_call_id=one.id) for one in turn.tool_results]
        return [ModelRequest(parts=parts)]
    if turn.role == "assistant":
        calls = [ToolCallPart(one.name, one.arguments, tool_call_id=one.id) for one in turn.tool_calls]
        return [ModelResponse(parts=[*([TextPart(turn.text)] if turn.text else []), *calls])]
    part = SystemPromptPart(turn.text) if turn.role == "system" else UserPromptPart(turn.text)
    return [ModelRequest(parts=[part])]
