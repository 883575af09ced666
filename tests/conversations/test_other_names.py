"""Names of other systems are refused with our name for the same thing, and with the page that has all of them."""

from __future__ import annotations

import io
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import palaver
from palaver.conversations.method_hints import OF_CONVERSATION, OF_STORE
from palaver.core.filters import clean_where
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
    "name of a turn": (lambda store, talk: talk.append("user", "hi", name="ada"), "actor"),
    "name of a conversation": (lambda store, talk: store.conversation("42", name="Dinner"), "title"),
    "files of a turn": (lambda store, talk: talk.append("user", "hi", files=[]), "attachments"),
    "files of a question": (lambda store, talk: talk.generate("hi", files=[]), "attachments"),
    "system of a question": (lambda store, talk: talk.generate("hi", system="Be brief."), "instructions"),
    "max_messages": (lambda store, talk: talk.build_context(max_messages=10), "recent_turns"),
    "max_chars": (lambda store, talk: talk.build_context(max_chars=100), "char_budget"),
    "project_id": (lambda store, talk: store.conversation(project_id="p1", agent="standup"), "key"),
    "images": (lambda store, talk: talk.append("user", "hi", images=[]), "attachments"),
    "messages": (lambda store, talk: talk.generate(messages=[{"role": "user", "content": "hi"}]), "history"),
    "conversationHistory": (lambda store, talk: talk.generate("hi", conversationHistory=[]), "history"),
    "previous_response_id": (lambda store, talk: talk.generate("hi", previous_response_id="r"), "continuity"),
    "summarizerModel": (lambda store, talk: store.conversation("1", settings={"summarizerModel": "m"}), "compaction"),
    "working_memory": (lambda store, talk: talk.build_context(working_memory=True), "include_working_memory"),
    "tokenBudget": (lambda store, talk: talk.build_context(tokenBudget=100), "token_budget"),
}


@pytest.mark.parametrize("name", CALLS)
async def test_the_error_names_our_word_and_the_page(store: palaver.Store, name: str) -> None:
    call, ours = CALLS[name]
    talk = await store.conversation("here")
    with pytest.raises(InvalidInput) as refusal:
        await call(store, talk)
    assert f"did you mean {ours!r}?; {PAGE}" in str(refusal.value)


async def test_a_name_that_has_another_place_here_is_refused_with_the_page(store: palaver.Store) -> None:
    with pytest.raises(InvalidInput) as refusal:
        await store.conversation("42", org_id="acme")
    assert f"({PAGE})" in str(refusal.value)
    talk = await store.conversation("here")
    with pytest.raises(InvalidInput) as refusal:
        await talk.build_context(through_sequence=12)
    assert f"({PAGE})" in str(refusal.value)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ({"policy": "recent-chars"}, "settings.context.policy"),
        ({"max_chars": 12_000}, "settings.context.char_budget"),
        ({"compaction": {"strategy": "never"}}, "settings.compaction"),
        ({"settings": {"policy": "recent-chars"}}, "settings.context.policy"),
        ({"settings": {"max_chars": 12_000}}, "settings.context.char_budget"),
    ],
)
async def test_a_setting_outside_its_place_is_named_with_its_place(
    store: palaver.Store, given: dict[str, Any], place: str
) -> None:
    with pytest.raises(InvalidInput, match=rf"did you mean {place}\?"):
        await store.conversation("42", **given)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("human", "user"),
        ("Human", "user"),
        ("AI", "assistant"),
        ("bot", "assistant"),
        ("developer", "system"),
        ("User", "user"),
    ],
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


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("instructions",) * 2, ("system", "instructions"), ("token_budget",) * 2, ("titles",) * 2, ("policy",) * 2],
)
def test_an_option_of_generate_is_named_with_its_place(theirs: str, ours: str) -> None:
    with pytest.raises(InvalidInput, match=rf"give it as generate={{'{ours}'"):
        palaver.open("memory:", **{theirs: "x"})


@pytest.mark.parametrize("name", ["max_tokens", "temperature", "top_p"])
async def test_a_parameter_of_the_model_is_sent_to_settings_without_a_guess(store: palaver.Store, name: str) -> None:
    with pytest.raises(InvalidInput, match=f"model parameters go in settings={{'{name}'") as refusal:
        await store.generate("here", "hi", **{name: 1})
    assert "did you mean" not in str(refusal.value)


@pytest.mark.parametrize("url", ["host=db password=secret", "host=db password=se:cret", "/data/secret.db"])
async def test_an_address_without_a_scheme_is_refused_and_never_repeated(url: str) -> None:
    with pytest.raises(InvalidInput, match="url: has no scheme: use sqlite") as refusal:
        await palaver.open(url)
    assert "cret" not in str(refusal.value)


@pytest.mark.parametrize("url", ["postgresql+asyncpg://localhost/chats", "sqlite+aiosqlite:///chat.db"])
async def test_a_url_of_sqlalchemy_is_told_to_leave_out_the_driver(url: str) -> None:
    with pytest.raises(InvalidInput, match="leave out the driver"):
        await palaver.open(url)


def test_a_store_that_is_used_before_it_is_awaited_says_so() -> None:
    with pytest.raises(AttributeError, match="async with palaver"):
        palaver.open("memory:").conversation("here")
    assert not hasattr(palaver.open("memory:"), "__wrapped__")


def test_a_store_in_a_block_without_async_says_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"async with palaver.open.*`with palaver.sync.open"), palaver.open("memory:"):
        pass


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


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            ("hello there",),
            r'role: must be one of .*; the role comes before the content, as in append\("user", "Hello."\)',
        ),
        (("hello there", "user"), "the role comes before the content"),
        (({"role": "user", "content": "hi"},), "role: must be one of .*, not dict; the role comes before the content"),
        (
            ("user", [{"role": "user", "content": "hi"}]),
            "content: has messages instead of parts.*append_many.*history=",
        ),
    ],
)
async def test_append_names_the_order_of_its_arguments(
    store: palaver.Store, given: tuple[Any, ...], problem: str
) -> None:
    talk = await store.conversation("here")
    with pytest.raises(InvalidInput, match=problem):
        await talk.append(*given)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("delete", r"use forget\(turn\)"),
        ("edit", "use append.*replaces=turn"),
        ("get_messages", r"use history\(\)"),
        ("add_user_message", 'use append."user"'),
    ],
)
async def test_a_method_of_another_system_is_refused_with_ours(store: palaver.Store, name: str, ours: str) -> None:
    talk = await store.conversation("here")
    with pytest.raises(AttributeError, match=ours):
        getattr(talk, name)
    with pytest.raises(AttributeError, match=r"use conversations\(\)"):
        store.list_conversations  # noqa: B018
    assert not hasattr(talk, "__wrapped__")


def test_the_methods_that_the_hints_name_exist_and_the_others_do_not() -> None:
    for kind, hints in ((palaver.Conversation, OF_CONVERSATION), (palaver.Store, OF_STORE)):
        for name, hint in hints.items():
            assert not hasattr(kind, name), name
            used = re.findall(r"(\w+)\(", hint)
            assert all(
                hasattr(palaver.Store, one) or hasattr(palaver.Conversation, one) or one == "facts" for one in used
            )


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("image_url", "image"), ("input_image", "image"), ("input_text", "text"), ("input_file", "file")],
)
async def test_a_part_of_another_system_is_refused_with_what_to_write(
    store: palaver.Store, theirs: str, ours: str
) -> None:
    talk = await store.conversation("here")
    with pytest.raises(InvalidInput, match=rf"did you mean '{ours}'\? write .*\"type\": \"{ours}\""):
        await talk.append("user", [{"type": theirs, theirs: "https://example.org/cat.png"}])


@pytest.mark.parametrize(("theirs", "ours"), [("after", "since"), ("before", "until")])
async def test_a_condition_on_time_of_another_system_is_refused_with_ours(
    store: palaver.Store, theirs: str, ours: str
) -> None:
    talk = await store.conversation("here")
    where: dict[str, Any] = {theirs: "2026-01-01"}
    with pytest.raises(InvalidInput, match=rf"no condition '{theirs}' \(did you mean '{ours}'\?\)"):
        await talk.recall("hi", where=where)  # type: ignore[arg-type]


def test_a_condition_on_metadata_is_not_taken_for_a_time() -> None:
    with pytest.raises(InvalidInput) as refusal:
        clean_where({"metadata": {"n": {"after": 1}}})
    assert "since" not in str(refusal.value)


async def test_a_parameter_of_the_model_in_the_options_of_the_store_is_sent_to_the_call() -> None:
    with pytest.raises(InvalidInput, match=r"generate.temperature: .*settings={'temperature': …}"):
        await palaver.open("memory:", generate={"temperature": 0.2})


async def test_a_file_object_is_refused_with_the_way_to_read_it(store: palaver.Store) -> None:
    talk = await store.conversation("here")
    with pytest.raises(InvalidInput, match=r"not BytesIO: pass what its read\(\) returns"):
        await talk.attach(io.BytesIO(b"x"), filename="a.txt")


async def test_an_unknown_right_is_refused(store: palaver.Store) -> None:
    """It used to be kept and to have no effect: the error came later, and named a right that seemed to be there."""
    with pytest.raises(InvalidInput, match=r"rights: 'systm' is unknown \(did you mean 'system'\?\)"):
        store.scoped(palaver.Scope(user="ada").with_rights("systm"))
