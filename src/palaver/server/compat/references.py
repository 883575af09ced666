"""Names that clients use: ids of exchanges, and ids or keys of conversations."""

from __future__ import annotations

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.core.identity import ID_LENGTH, is_id
from palaver.errors import ConversationNotFound

CONVERSATION_PREFIX = "conv_"


def exchange_id(conversation: str, turn: str) -> str:
    """Name an exchange after its conversation and the last turn of its request."""
    return conversation + turn


def parse_exchange_id(text: str) -> tuple[str, str]:
    """Return the conversation and the turn of an exchange id. A malformed id raises ConversationNotFound."""
    if len(text) != 2 * ID_LENGTH:
        raise ConversationNotFound(text[:100])
    return text[:ID_LENGTH], text[ID_LENGTH:]


async def get_or_create_conversation(store: Store, name: str) -> Conversation:
    """Find a conversation by its id, with or without `conv_`, or by its key. An unknown key creates one."""
    name = name.removeprefix(CONVERSATION_PREFIX) if is_id(name.removeprefix(CONVERSATION_PREFIX)) else name
    try:
        return await store.get(name)
    except ConversationNotFound:
        if is_id(name) or name.startswith(CONVERSATION_PREFIX):
            raise
        return await store.conversation(name)


async def find_conversation_named(store: Store, name: str) -> Conversation | None:
    """Find a conversation by its id or key, without creating one."""
    id = name.removeprefix(CONVERSATION_PREFIX)
    try:
        return await (store.get(id) if is_id(id) else store.find(name))
    except ConversationNotFound:
        return None
