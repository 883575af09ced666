"""Names of other systems are refused with our name for the same thing, and with the page that has all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

import palaver
from palaver.core.validation import clean_role
from palaver.errors import InvalidInput

PAGE = "see docs/come-from for the names in other systems"


@pytest.fixture
async def store() -> AsyncIterator[palaver.Store]:
    async with palaver.open("memory:", embedder=None, worker=False) as opened:
        yield opened


CALLS: dict[str, tuple[Callable[[palaver.Store, palaver.Conversation], Awaitable[object]], str]] = {
    "user_id of a turn": (lambda store, talk: talk.append("user", "hi", user_id="ada"), "actor"),
    "created_at": (lambda store, talk: talk.append("user", "hi", created_at="2026-01-01"), "created"),
    "session_id": (lambda store, talk: store.conversation(session_id="42"), "key"),
    "user_id of a conversation": (lambda store, talk: store.conversation("42", user_id="ada"), "owner"),
    "max_tokens": (lambda store, talk: talk.build_context(max_tokens=100), "token_budget"),
    "tokenBudget": (lambda store, talk: talk.build_context(tokenBudget=100), "token_budget"),
}


@pytest.mark.parametrize("name", CALLS)
async def test_the_error_names_our_word_and_the_page(store: palaver.Store, name: str) -> None:
    call, ours = CALLS[name]
    talk = await store.conversation("here")
    with pytest.raises(InvalidInput) as refusal:
        await call(store, talk)
    assert f"did you mean {ours!r}?; {PAGE}" in str(refusal.value)


@pytest.mark.parametrize(
    ("theirs", "ours"), [("human", "user"), ("Human", "user"), ("AI", "assistant"), ("bot", "assistant")]
)
async def test_so_does_the_error_of_a_role(store: palaver.Store, theirs: str, ours: str) -> None:
    talk = await store.conversation("here")
    with pytest.raises(InvalidInput, match=f"did you mean '{ours}'"):
        await talk.append(theirs, "hi")


@pytest.mark.parametrize(
    ("theirs", "ours"), [("user_id", "user"), ("api_key", "key"), ("embeder", "embedder"), ("budget", "budgets")]
)
def test_so_does_the_error_of_an_option_of_open(theirs: str, ours: str) -> None:
    with pytest.raises(InvalidInput, match=f"did you mean '{ours}'"):
        palaver.open("memory:", **{theirs: "x"})


@pytest.mark.parametrize("name", ["session_id", "thread_id", "conversation_id", "max_tokens", "countr"])
def test_no_secret_and_no_old_name_is_suggested(name: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        palaver.open("memory:", **{name: "x"})
    for ours in ("key", "token", "counter"):
        assert f"did you mean '{ours}'" not in str(refusal.value)


def test_a_role_that_is_the_name_of_something_else_has_no_hint() -> None:
    with pytest.raises(InvalidInput) as refusal:
        clean_role("user_id")
    assert "did you mean" not in str(refusal.value)


async def test_an_owner_cannot_be_changed_and_is_not_suggested(store: palaver.Store) -> None:
    talk = await store.conversation("here")
    with pytest.raises(InvalidInput) as refusal:
        await talk.update(user_id="ada")
    assert "did you mean" not in str(refusal.value)
