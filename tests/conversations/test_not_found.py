"""Missing and deleted things: one `except` for both, and a way out in the message."""

from __future__ import annotations

import pytest

import palaver
from palaver import errors


async def test_not_found_also_catches_what_was_deleted(database_url: str) -> None:
    async with palaver.open(database_url, tenant="acme", user="ada", worker=False) as store:
        talk = await store.conversation("k")
        turn = await talk.append("user", "x")
        await talk.forget(turn)
        with pytest.raises(errors.NotFound) as gone:
            await talk.turn(turn)
        assert isinstance(gone.value, errors.TurnGone)
        await talk.forget()
        with pytest.raises(errors.NotFound) as gone:
            await store.get(talk.id)
        assert isinstance(gone.value, errors.ConversationGone)


async def test_get_with_a_key_points_to_find(database_url: str) -> None:
    async with palaver.open(database_url, tenant="acme", user="ada", worker=False) as store:
        talk = await store.conversation("support/42")
        with pytest.raises(errors.ConversationNotFound, match=r"get takes an id, use find\(key\)"):
            await store.get("support/42")
        assert (await store.find("support/42")).id == talk.id


async def test_get_with_an_unknown_id_does_not(database_url: str) -> None:
    async with palaver.open(database_url, tenant="acme", user="ada", worker=False) as store:
        with pytest.raises(errors.ConversationNotFound) as missing:
            await store.get("0" * 26)
        assert "find" not in str(missing.value)
