"""Microsoft Agent Framework: a history provider.

    agent = Agent(client, context_providers=[PalaverHistoryProvider(store)])

Messages are stored in the conversation with the key `session_id`, and come back exactly as they were. Needs
`pip install palaver[agent-framework]`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent_framework import HistoryProvider, Message

from palaver import Conversation, ConversationNotFound, Turn, TurnInput
from palaver.adapters.bridge import AnyStore, Bridge
from palaver.adapters.thread import append_all, whole_thread
from palaver.interchange.originals import original_of, storable, with_original

SOURCE = "palaver"
ROLES = {"user": "user", "assistant": "assistant", "system": "system", "developer": "system", "tool": "tool"}


class PalaverHistoryProvider(HistoryProvider):
    """Loads the messages of a session before a run, and stores the new ones after it.

    `options` are those of `HistoryProvider`: `load_messages`, `store_inputs`, `store_outputs` and so on. Without a
    session id, messages go to the conversation with the key `source_id`.
    """

    def __init__(self, store: AnyStore, source_id: str = SOURCE, **options: Any) -> None:
        super().__init__(source_id, **options)
        self._bridge = Bridge(store)

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """Return every message of a session, oldest first."""
        return await self._bridge.run(self._read(session_id or self.source_id))

    async def save_messages(
        self, session_id: str | None, messages: Sequence[Message], *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Store messages, all of them or none."""
        if messages:
            await self._bridge.run(self._save(session_id or self.source_id, messages))

    async def _read(self, key: str) -> list[Message]:
        try:
            talk = await self._bridge.store.find(key)
        except ConversationNotFound:
            return []
        return [_message(turn) for turn in await whole_thread(talk)]

    async def _save(self, key: str, messages: Sequence[Message]) -> None:
        talk = await self._bridge.store.conversation(key)
        await append_all(talk, [_turn(message, talk) for message in messages])


def _turn(message: Message, talk: Conversation) -> TurnInput:
    data = message.to_dict()
    contents: Sequence[Mapping[str, Any]] = data.get("contents") or ()
    calls = [one for one in contents if one.get("type") == "function_call"]
    results = [one for one in contents if one.get("type") == "function_result"]
    role = ROLES.get(str(data.get("role")), "user")
    turn: TurnInput = {"role": role, "content": storable(message.text)}  # type: ignore[typeddict-item]
    if results:
        turn = {"role": "tool", "tool_results": [_result(one) for one in _distinct(results)]}
    elif role == "tool":
        turn["role"] = "assistant"
    elif calls and role == "assistant":
        turn["tool_calls"] = [
            {"id": one["call_id"], "name": one.get("name") or "tool", "arguments": one.get("arguments") or {}}
            for one in _distinct(calls)
        ]
    return with_original(turn, data, talk)


def _distinct(contents: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return list({one.get("call_id"): one for one in contents if one.get("call_id")}.values())


def _result(content: Mapping[str, Any]) -> dict[str, Any]:
    value = content.get("result")
    failed = content.get("exception") is not None
    return {
        "id": content["call_id"],
        "content": storable(value) if isinstance(value, str) else value,
        "is_error": failed,
    }


def _message(turn: Turn) -> Message:
    original = original_of(turn)
    if isinstance(original, Mapping):
        return Message.from_dict(dict(original))
    return Message(turn.role, [turn.text])
