"""LlamaIndex: chat stores, and a memory block.

    memory = Memory.from_defaults(session_id="support/42", chat_store=PalaverChatStore(store),
                                  memory_blocks=[PalaverMemoryBlock(store, "support/42")])

`PalaverChatStore` is for `Memory`, `PalaverSimpleChatStore` for the older `ChatMemoryBuffer`. Archived messages stay in
the conversation, where the block recalls them. Needs `pip install palaver[llama-index]`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.memory import BaseMemoryBlock
from llama_index.core.storage.chat_store import BaseChatStore
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from palaver import Conversation, ConversationNotFound, Turn, TurnInput, UpdateConflict
from palaver.adapters.bridge import AnyStore, Bridge
from palaver.adapters.thread import append_all, whole_thread
from palaver.interchange.originals import original_of, storable, with_original

AGENT = "llama-index"
ARCHIVED_BELOW = "llama_index_archived_below"  # in the conversation's metadata: turns with a lower seq are archived
ARCHIVED = {"llama_index": "archived"}  # metadata of a turn that was archived from the beginning
ROLES = {"user": "user", "assistant": "assistant", "model": "assistant", "chatbot": "assistant", "system": "system",
         "developer": "system", "tool": "tool", "function": "tool"}  # fmt: skip


class PalaverMessages:
    """The messages of conversations, by their keys. Both chat stores are made of it."""

    def __init__(self, store: AnyStore) -> None:
        self.bridge = Bridge(store)

    async def find(self, key: str) -> Conversation | None:
        try:
            return await self.bridge.store.find(key)
        except ConversationNotFound:
            return None

    async def turns(self, key: str, status: MessageStatus | None) -> list[Turn]:
        talk = await self.find(key)
        if talk is None:
            return []
        return [turn for turn in await whole_thread(talk) if status in (None, _status(turn, talk))]

    async def add(self, key: str, messages: Sequence[ChatMessage], status: MessageStatus) -> None:
        if messages:
            talk = await self.bridge.store.conversation(key, agent=AGENT)
            await append_all(talk, [_turn(message, talk, status) for message in messages])

    async def delete(self, key: str, turns: Sequence[Turn]) -> list[ChatMessage]:
        """Delete messages permanently, and return them."""
        talk = await self.find(key)
        for turn in turns if talk else ():
            await talk.forget(turn)  # type: ignore[union-attr]
        return [_message(turn) for turn in turns]

    async def delete_at(self, key: str, index: int) -> ChatMessage | None:
        turns = await self.turns(key, None)
        if not -len(turns) <= index < len(turns):
            return None
        return (await self.delete(key, [turns[index]]))[0]

    async def set(self, key: str, messages: Sequence[ChatMessage], status: MessageStatus | None) -> None:
        await self.delete(key, await self.turns(key, status))
        await self.add(key, messages, status or MessageStatus.ACTIVE)

    async def archive_oldest(self, key: str, count: int) -> list[ChatMessage]:
        """Archive the oldest active messages. Nothing is changed or copied: a number in the metadata moves on."""
        while True:
            talk = await self.find(key)
            oldest = (await self.turns(key, MessageStatus.ACTIVE))[: max(count, 0)]
            if talk is None or not oldest:
                return []
            metadata = {**talk.info.metadata, ARCHIVED_BELOW: oldest[-1].seq + 1}
            try:
                await talk.update(metadata=metadata, expected_updated=talk.info.updated)
            except UpdateConflict:
                continue
            return [_message(turn) for turn in oldest]

    async def keys(self) -> list[str]:
        found: list[str] = []
        cursor = None
        while True:
            page = await self.bridge.store.conversations(agent=AGENT, limit=1_000, cursor=cursor)
            found += [info.key for info in page.items if info.key is not None and info.turn_count]
            cursor = page.cursor
            if cursor is None:
                return found


class PalaverChatStore(AsyncDBChatStore):
    """The chat store of LlamaIndex's `Memory`: one conversation per session."""

    _messages: PalaverMessages = PrivateAttr()

    def __init__(self, store: AnyStore, **fields: Any) -> None:
        super().__init__(**fields)
        self._messages = PalaverMessages(store)

    @classmethod
    def class_name(cls) -> str:
        return "PalaverChatStore"

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        turns = (await self._messages.bridge.run(self._messages.turns(key, status)))[offset or 0 :]
        return [_message(turn) for turn in turns[:limit]]

    async def count_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> int:
        return len(await self._messages.bridge.run(self._messages.turns(key, status)))

    async def add_message(self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE) -> None:
        await self._messages.bridge.run(self._messages.add(key, [message], status))

    async def add_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        await self._messages.bridge.run(self._messages.add(key, messages, status))

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        await self._messages.bridge.run(self._messages.set(key, messages, status))

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        return await self._messages.bridge.run(self._messages.delete_at(key, idx))

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        await self._messages.bridge.run(self._messages.set(key, [], status))

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        async def work() -> list[ChatMessage]:
            oldest = (await self._messages.turns(key, MessageStatus.ACTIVE))[:n]
            return await self._messages.delete(key, oldest)

        return await self._messages.bridge.run(work())

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        return await self._messages.bridge.run(self._messages.archive_oldest(key, n))

    async def get_keys(self) -> list[str]:
        return await self._messages.bridge.run(self._messages.keys())


class PalaverSimpleChatStore(BaseChatStore):
    """The older interface: lists of messages by key, synchronous (with a store of `palaver.sync`) and asynchronous."""

    _messages: PalaverMessages = PrivateAttr()

    def __init__(self, store: AnyStore, **fields: Any) -> None:
        super().__init__(**fields)
        self._messages = PalaverMessages(store)

    @classmethod
    def class_name(cls) -> str:
        return "PalaverSimpleChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        self._messages.bridge.call(self._messages.set(key, messages, None))

    def get_messages(self, key: str) -> list[ChatMessage]:
        return [_message(turn) for turn in self._messages.bridge.call(self._messages.turns(key, None))]

    def add_message(self, key: str, message: ChatMessage) -> None:
        self._messages.bridge.call(self._messages.add(key, [message], MessageStatus.ACTIVE))

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        return self._messages.bridge.call(self._delete_all(key))

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        return self._messages.bridge.call(self._messages.delete_at(key, idx))

    def delete_last_message(self, key: str) -> ChatMessage | None:
        return self._messages.bridge.call(self._messages.delete_at(key, -1))

    def get_keys(self) -> list[str]:
        return self._messages.bridge.call(self._messages.keys())

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        await self._messages.bridge.run(self._messages.set(key, messages, None))

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        return [_message(turn) for turn in await self._messages.bridge.run(self._messages.turns(key, None))]

    async def async_add_message(self, key: str, message: ChatMessage) -> None:
        await self._messages.bridge.run(self._messages.add(key, [message], MessageStatus.ACTIVE))

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        return await self._messages.bridge.run(self._delete_all(key))

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        return await self._messages.bridge.run(self._messages.delete_at(key, idx))

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        return await self._messages.bridge.run(self._messages.delete_at(key, -1))

    async def aget_keys(self) -> list[str]:
        return await self._messages.bridge.run(self._messages.keys())

    async def _delete_all(self, key: str) -> list[ChatMessage] | None:
        turns = await self._messages.turns(key, None)
        return await self._messages.delete(key, turns) if turns else None


class PalaverMemoryBlock(BaseMemoryBlock[str]):
    """Recalls what was said earlier and fits the latest message, from the conversation or all of its owner."""

    name: str = "palaver"
    description: str | None = "Earlier turns that fit the latest message."
    priority: int = 1
    conversation: str
    k: int = 5
    scope: str = "conversation"
    _messages: PalaverMessages = PrivateAttr()

    def __init__(self, store: AnyStore, conversation: str, **fields: Any) -> None:
        super().__init__(conversation=conversation, **fields)
        self._messages = PalaverMessages(store)

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        asked = [one.content for one in messages or () if one.role.value == "user" and one.content]
        return await self._messages.bridge.run(self._recall(asked[-1])) if asked else ""

    async def _recall(self, query: str) -> str:
        talk = await self._messages.find(self.conversation)
        if talk is None:
            return ""
        hits = await talk.recall(query, self.k, scope=self.scope)  # type: ignore[arg-type]
        lines = [f"{hit.turn.role}: {hit.turn.text}" for hit in hits if hit.turn and hit.turn.text]
        facts = [f"{hit.fact.subject} {hit.fact.predicate} {hit.fact.object}" for hit in hits if hit.fact]
        return "\n".join([*facts, *lines])

    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Do nothing: with `PalaverChatStore`, the messages are in the conversation already."""


def _status(turn: Turn, talk: Conversation) -> MessageStatus:
    below = talk.info.metadata.get(ARCHIVED_BELOW, 0)
    is_archived = turn.metadata == ARCHIVED or turn.seq < int(below)
    return MessageStatus.ARCHIVED if is_archived else MessageStatus.ACTIVE


def _turn(message: ChatMessage, talk: Conversation, status: MessageStatus) -> TurnInput:
    role, extra = ROLES.get(message.role.value, "user"), message.additional_kwargs
    text = storable(message.content or "")
    turn: TurnInput = {"role": role, "content": text}  # type: ignore[typeddict-item]
    if role == "tool":
        turn = {"role": "tool", "tool_results": [{"id": str(extra.get("tool_call_id") or "tool"), "content": text}]}
    if status is MessageStatus.ARCHIVED:
        turn["metadata"] = ARCHIVED
    return with_original(turn, json.loads(message.model_dump_json()), talk)


def _message(turn: Turn) -> ChatMessage:
    original = original_of(turn)
    if isinstance(original, Mapping):
        return ChatMessage.model_validate(original)
    text = turn.text or "\n".join(str(one.content) for one in turn.tool_results)
    return ChatMessage(role=turn.role, content=text)
