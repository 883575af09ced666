"""OpenAI Agents SDK: a session that is a conversation.

    session = PalaverSession(store, "support/42")
    result = await Runner.run(agent, "Hi", session=session)

`get_items` returns the items exactly as the SDK gave them, and all of them unless a limit is set. With
`CompactingPalaverSession`, summaries of Palaver stand for the oldest items; the conversation still has them. Needs
`pip install palaver[openai-agents]`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agents import SessionSettings, TResponseInputItem
from agents.memory import OpenAIResponsesCompactionArgs
from agents.memory.session_settings import coerce_session_settings

from palaver import (
    Conversation,
    ConversationNotFound,
    Reasoning,
    Summary,
    Turn,
    TurnGone,
    TurnInput,
    TurnNotFound,
    TurnSuperseded,
)
from palaver.adapters.bridge import AnyStore, Bridge
from palaver.adapters.thread import append_all, whole_thread
from palaver.interchange.originals import original_of, storable, text_of, with_original, words_of

KEEP_TOKENS = 8_000
MAX_READ = 10_000
PAGE = 20
CLAIM = {"agents": "popped"}  # marks the empty turn that stands for an item while it is deleted
SUMMARY = "Summary of the conversation so far:\n"


class PalaverSession:
    """The items of the conversation with the key `session_id`.

    `store` comes from `palaver.open`, or from `palaver.sync.open` for `Runner.run_sync`, which has its own event loop.
    """

    def __init__(
        self, store: AnyStore, session_id: str, *, session_settings: SessionSettings | dict[str, Any] | None = None
    ) -> None:
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        self._bridge = Bridge(store)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the latest items, oldest first; all of them without a limit."""
        most = self.session_settings.limit if limit is None and self.session_settings else limit
        return await self._bridge.run(self._items(most))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Store items, all of them or none."""
        if items:
            await self._bridge.run(self._add(items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Delete the newest item permanently, and return it. Two callers never get the same one."""
        return await self._bridge.run(self._pop())

    async def clear_session(self) -> None:
        """Delete every item permanently."""
        await self._bridge.run(self._clear())

    async def _items(self, limit: int | None) -> list[TResponseInputItem]:
        talk = await self._find()
        if talk is None or (limit is not None and limit <= 0):
            return []
        turns = await whole_thread(talk) if limit is None else await talk.history(min(limit, MAX_READ))
        return [_item(turn) for turn in turns if not _is_claim(turn)]

    async def _add(self, items: list[TResponseInputItem]) -> None:
        talk = await self._bridge.store.conversation(self.session_id)
        await append_all(talk, [_turn(item, talk) for item in items])

    async def _pop(self) -> TResponseInputItem | None:
        talk = await self._find()
        while talk is not None and (newest := await self._newest(talk)) is not None:
            try:
                claim = await talk.append("assistant", metadata=CLAIM, replaces=newest)
            except (TurnGone, TurnNotFound, TurnSuperseded):
                continue  # another caller got it
            await talk.forget(newest)
            await talk.forget(claim)
            return _item(newest)
        return None

    async def _newest(self, talk: Conversation) -> Turn | None:
        """Return the newest item that no other caller is about to delete."""
        page = await talk.history(PAGE)
        while page:
            items = [turn for turn in page if not _is_claim(turn)]
            if items:
                return items[-1]
            page = await talk.history(PAGE, before=page[0])
        return None

    async def _clear(self) -> None:
        talk = await self._find()
        if talk is not None:
            await talk.reset()

    async def _find(self) -> Conversation | None:
        try:
            return await self._bridge.store.find(self.session_id)
        except ConversationNotFound:
            return None


class CompactingPalaverSession(PalaverSession):
    """A session in which summaries stand for the oldest items, once there are more than `keep_tokens` of them.

    The SDK calls `run_compaction` after each run. The items themselves stay in the conversation.
    """

    def __init__(self, store: AnyStore, session_id: str, *, keep_tokens: int = KEEP_TOKENS, **options: Any) -> None:
        super().__init__(store, session_id, **options)
        self.keep_tokens = keep_tokens

    async def run_compaction(self, args: OpenAIResponsesCompactionArgs | None = None) -> None:
        """Summarise the oldest items if there are more than `keep_tokens`; with `force`, all that can be."""
        await self._bridge.run(self._compact(bool((args or {}).get("force"))))

    async def _compact(self, force: bool) -> None:
        talk = await self._find()
        if talk is not None:
            await talk.compact(keep_tokens=0 if force else self.keep_tokens)

    async def _items(self, limit: int | None) -> list[TResponseInputItem]:
        talk = await self._find()
        if talk is None or (limit is not None and limit <= 0):
            return []
        through = (await talk.refresh()).summarized_through
        found = await talk.history(MAX_READ if limit is None else min(limit, MAX_READ), include_summaries=True)
        summaries = [one.text for one in found if isinstance(one, Summary) and one.through_seq <= through]
        turns = [one for one in found if isinstance(one, Turn) and one.position >= through and not _is_claim(one)]
        items = [_item(turn) for turn in turns]
        if summaries:
            items.insert(0, {"role": "user", "content": SUMMARY + "\n\n".join(summaries)})
        return items


def _is_claim(turn: Turn) -> bool:
    return turn.metadata == CLAIM


def _turn(item: Any, talk: Conversation) -> TurnInput:
    """Return an item as a turn: its words, call or result, and the item itself."""
    kind, call = item.get("type", "message"), str(item.get("call_id") or item.get("id") or "call")
    turn: TurnInput
    if kind.endswith("_output"):
        turn = {"role": "tool", "tool_results": [{"id": call, "content": _plain(item.get("output"))}]}
    elif kind == "function_call":
        arguments = storable(str(item.get("arguments", "")))
        turn = {
            "role": "assistant",
            "tool_calls": [{"id": call, "name": item.get("name") or "tool", "arguments": arguments}],
        }
    elif kind == "message":
        role = item.get("role")
        known = {"assistant": "assistant", "system": "system", "developer": "system"}
        turn = {"role": known.get(role, "user"), "content": storable(text_of(item.get("content")))}  # type: ignore[typeddict-item]
    elif kind == "reasoning":
        text = storable(text_of(item.get("summary")) or text_of(item.get("content")))
        turn = {"role": "assistant", "content": [Reasoning(text)] if text else []}
    else:
        turn = {"role": "assistant", "content": []}
    return with_original(turn, item, talk)


def _plain(output: object) -> str:
    """Return the output of a tool as text that can be stored and found."""
    if isinstance(output, str):
        return storable(output)
    return storable(text_of(output)) or json.dumps(output, default=str)


def _item(turn: Turn) -> TResponseInputItem:
    """Return the item of a turn: the one that was stored, or one made from a turn that another program stored."""
    original = original_of(turn)
    if isinstance(original, Mapping):
        return dict(original)  # type: ignore[return-value]
    if turn.role == "tool":
        result = turn.tool_results[0]
        text = result.content if isinstance(result.content, str) else json.dumps(result.content)
        return {"type": "function_call_output", "call_id": result.id, "output": text}
    if turn.tool_calls:
        call = turn.tool_calls[0]
        arguments = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
        return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": arguments}
    words = words_of(turn)
    return {"role": turn.role, "content": words if isinstance(words, str) else turn.text}  # type: ignore[return-value,misc]
