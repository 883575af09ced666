"""A late retry after the whole conversation was deleted: the ways to refuse it that docs/how-to/retention.md names."""

from __future__ import annotations

import pytest

import palaver
from palaver import Store

pytestmark = pytest.mark.both_engines

KEY = "message-17"


async def test_a_retry_by_id_is_refused(store: Store) -> None:
    talk = await store.conversation("support/1")
    await talk.append("user", "Hello", idempotency_key=KEY)
    await talk.forget()
    await store.conversation("support/1")  # the key is free again
    with pytest.raises(palaver.ConversationGone):
        await talk.append("user", "Hello", idempotency_key=KEY)
    with pytest.raises(palaver.ConversationGone):
        await (await store.get(talk.id)).append("user", "Hello", idempotency_key=KEY)


async def test_a_retry_by_key_is_refused_where_it_may_not_create_the_conversation(store: Store) -> None:
    talk = await store.conversation("support/1")
    await talk.append("user", "Hello", idempotency_key=KEY)
    await talk.forget()
    with pytest.raises(palaver.ConversationNotFound):
        await store.find("support/1")


async def test_a_retry_that_says_what_it_follows_is_refused_by_a_new_conversation(store: Store) -> None:
    talk = await store.conversation("support/1")
    first = await talk.append("user", "Hello")
    await talk.append("user", "Are you there?", idempotency_key=KEY, expected_seq=first.seq + 1)
    await talk.forget()
    again = await store.conversation("support/1")
    with pytest.raises(palaver.AppendConflict):
        await again.append("user", "Are you there?", idempotency_key=KEY, expected_seq=first.seq + 1)
    assert await again.history() == []


async def test_a_reset_conversation_keeps_its_key_and_refuses_every_retry(store: Store) -> None:
    talk = await store.conversation("support/1")
    await talk.append("user", "Hello", idempotency_key=KEY)
    await talk.reset()
    again = await store.conversation("support/1")
    with pytest.raises(palaver.TurnGone):
        await again.append("user", "Hello", idempotency_key=KEY)
