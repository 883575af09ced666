"""LangChain: the messages of a conversation, and a retriever.

    history = PalaverChatMessageHistory(store, "support/42")
    chain = RunnableWithMessageHistory(model, lambda session_id: PalaverChatMessageHistory(store, session_id))
    retriever = PalaverRetriever(store=store, conversation="support/42", k=5)

`messages` is the whole thread and never a budgeted view: LangChain counts on its length. For a
budget there is `build_context`. Needs `pip install palaver[langchain]`. LangChain has deprecated
`BaseChatMessageHistory`: for new programs there is the LangGraph checkpointer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, PrivateAttr

from palaver import Conversation, ConversationNotFound, RecallHit, RecallRange, Turn
from palaver.adapters.bridge import AnyStore, Bridge
from palaver.adapters.thread import append_all, whole_thread
from palaver.interchange.messages import from_langchain, to_langchain


class PalaverChatMessageHistory(BaseChatMessageHistory):
    """The messages of the conversation with the key `session_id`, exactly as LangChain gave them."""

    def __init__(self, store: AnyStore, session_id: str) -> None:
        self.session_id = session_id
        self._bridge = Bridge(store)

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """All messages, oldest first."""
        return self._bridge.call(self._read())

    @messages.setter
    def messages(self, messages: list[BaseMessage]) -> None:
        self._bridge.call(self._replace(messages))

    async def aget_messages(self) -> list[BaseMessage]:
        return await self._bridge.run(self._read())

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        self._bridge.call(self._add(messages))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        await self._bridge.run(self._add(messages))

    def clear(self) -> None:
        self._bridge.call(self._clear())

    async def aclear(self) -> None:
        await self._bridge.run(self._clear())

    async def _read(self) -> list[BaseMessage]:
        talk = await self._find()
        return [to_langchain(turn) for turn in await whole_thread(talk)] if talk else []

    async def _add(self, messages: Sequence[BaseMessage]) -> None:
        talk = await self._bridge.store.conversation(self.session_id)
        await append_all(talk, from_langchain(messages, talk))

    async def _replace(self, messages: Sequence[BaseMessage]) -> None:
        await self._clear()
        await self._add(messages)

    async def _clear(self) -> None:
        talk = await self._find()
        if talk is not None:
            await talk.reset()

    async def _find(self) -> Conversation | None:
        try:
            return await self._bridge.store.find(self.session_id)
        except ConversationNotFound:
            return None


class PalaverRetriever(BaseRetriever):
    """Documents from the turns and facts that fit a question best.

    - `conversation`: the key or id of the conversation to search from.
    - `scope`: what is searched, as of `Conversation.recall`: `conversation`, or all of its `owner` and so on.
    - `k`: how many at most.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)
    store: Any
    conversation: str
    scope: RecallRange = "conversation"
    k: int = 10
    _bridge: Bridge = PrivateAttr()

    def model_post_init(self, context: Any) -> None:
        self._bridge = Bridge(self.store)

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return self._bridge.call(self._recall(query))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        return await self._bridge.run(self._recall(query))

    async def _recall(self, query: str) -> list[Document]:
        talk = await self._talk()
        return [_document(hit) for hit in await talk.recall(query, self.k, scope=self.scope)]

    async def _talk(self) -> Conversation:
        try:
            return await self._bridge.store.find(self.conversation)
        except ConversationNotFound:
            return await self._bridge.store.get(self.conversation)


def _document(hit: RecallHit) -> Document:
    metadata: dict[str, Any] = {"score": hit.score, "relevance": hit.relevance}
    if hit.turn is not None:
        text = hit.quote.text if hit.quote else hit.turn.text
        return Document(page_content=text, id=hit.turn.id, metadata={**metadata, **_of_turn(hit.turn)})
    assert hit.fact is not None
    fact = hit.fact
    text = f"{fact.subject} {fact.predicate} {fact.object}"
    return Document(page_content=text, id=fact.id, metadata={**metadata, "kind": "fact", "turn": fact.source_turn})


def _of_turn(turn: Turn) -> Mapping[str, Any]:
    return {
        "kind": "turn",
        "conversation": turn.conversation,
        "role": turn.role,
        "actor": turn.actor,
        "created": turn.created.isoformat(),
    }
