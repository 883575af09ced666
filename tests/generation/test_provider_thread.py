"""Continuing the provider's own thread: only while it matches, and a failure to continue never costs an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import palaver
from palaver import Conversation, Scope
from palaver.conversations.contexts import Contexts
from palaver.errors import ModelRefused
from palaver.testing.providers import Fail, LoopbackProvider, Say, previous_missing, too_long
from tests.generation.conftest import Opener


def previous(provider: LoopbackProvider) -> list[str | None]:
    return [body.get("previous_response_id") for body in provider.bodies]


async def test_the_next_message_goes_on_from_the_last_answer_and_sends_only_what_is_new(
    opened: Opener, provider: LoopbackProvider
) -> None:
    async with opened(model="responses", generate={"instructions": "Be brief."}) as store:
        talk = await store.conversation("x")
        await talk.generate("One.", semantic_recall=False)
        await talk.generate("Two.", semantic_recall=False)
        first, second = provider.bodies
        assert previous(provider) == [None, "resp_1"]
        assert first["store"] is second["store"] is True
        assert second["input"] == [{"role": "user", "content": "Two."}]
        assert second["instructions"] == "Be brief."  # the service does not carry them over
        requests = await talk.requests()
        assert [request.previous_response_id for request in requests] == [None, "resp_1"]
        assert "previous_response_id" in (requests[1].body or {})  # seen in the body, not in a flag


async def test_a_message_is_sent_without_one_that_came_right_behind_it(
    opened: Opener, provider: LoopbackProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(model="responses") as store:
        talk = await store.conversation("x")
        await talk.generate("One.")
        build = Contexts.build

        async def late(contexts: Contexts, options: Any, bound: Any) -> Any:
            await talk.append("user", "Three.")
            return await build(contexts, options, bound)

        monkeypatch.setattr(Contexts, "build", late)
        await talk.generate("Two.", semantic_recall=False)
        assert [item["content"] for item in provider.bodies[1]["input"]] == ["Two."]
        await talk.generate("Four.", semantic_recall=False)
        assert previous(provider) == [None, "resp_1", None], "the service has not heard Three"
        contents = [item["content"] for item in provider.bodies[2]["input"]]
        assert [text for text in contents if text in ("One.", "Two.", "Three.", "Four.")] == [
            "One.",
            "Two.",
            "Three.",
            "Four.",
        ]


async def test_off_never_does_and_asks_the_service_to_keep_nothing(opened: Opener, provider: LoopbackProvider) -> None:
    async with opened(model="responses", generate={"continuity": "off"}) as store:
        for _ in range(2):
            await store.generate("x", "Well?")
    assert previous(provider) == [None, None]
    assert [body["store"] for body in provider.bodies] == [False, False]


async def test_with_history_sends_both(opened: Opener, provider: LoopbackProvider) -> None:
    async with opened(model="responses") as store:
        for text in ("One.", "Two."):
            await store.generate("x", text, continuity="with-history", semantic_recall=False)
    assert previous(provider) == [None, "resp_1"]
    assert [item["content"] for item in provider.bodies[1]["input"]] == ["One.", "Yes.", "Two."]


async def test_results_of_tools_go_on_from_the_calls(opened: Opener, provider: LoopbackProvider) -> None:
    provider.script(Say(calls=[("recall", {"query": "a"}), ("recall", {"query": "b"})]), Say("Done."))
    async with opened(model="responses") as store:
        await store.generate("x", "Look.", tools=["recall"])
    assert previous(provider) == [None, "resp_1"]
    items = provider.bodies[1]["input"]
    assert [item["type"] for item in items] == ["function_call_output"] * 2


async def edit(talk: Conversation) -> None:
    await talk.append("user", "edited", replaces=(await talk.history())[0])


async def somebody_else(talk: Conversation) -> None:
    await talk.append("user", "Me too.", actor="bob")


async def forget(talk: Conversation) -> None:
    await talk.forget((await talk.history())[0])


async def switch(talk: Conversation) -> None:
    first = (await talk.history())[0]
    await talk.append("user", "another branch", replaces=first, discard_after=True)
    await talk.switch(first)


async def reset(talk: Conversation) -> None:
    await talk.reset()


@pytest.mark.parametrize("change", [edit, somebody_else, forget, switch, reset])
async def test_any_change_of_the_thread_starts_afresh(
    opened: Opener, provider: LoopbackProvider, change: Callable[[Conversation], Awaitable[None]]
) -> None:
    async with opened(model="responses") as store:
        talk = await store.conversation("x")
        await talk.generate("One.")
        await change(talk)
        await talk.generate("Two.")
        assert previous(provider) == [None, None]
        await talk.generate("Three.")
        assert previous(provider)[2] == "resp_2"


async def test_what_another_process_forgot_is_noticed(opened: Opener, provider: LoopbackProvider) -> None:
    async with opened(model="responses") as store, opened() as other:
        talk = await store.conversation("x")
        await talk.generate("One.")
        await forget(await other.conversation("x"))
        await talk.generate("Two.")
    assert previous(provider) == [None, None]


@pytest.mark.parametrize("change", [{"model": "other"}, {"instructions": "Be long."}, {"actor": "bob"}])
async def test_another_model_other_instructions_or_another_person_start_afresh(
    opened: Opener, provider: LoopbackProvider, change: dict[str, Any]
) -> None:
    models = {**provider.models(), "other": {**provider.models("big")["responses"]}}
    async with opened(model="responses", models=models) as store:
        await store.generate("x", "One.")
        await store.generate("x", "Two.", **change)
    assert previous(provider) == [None, None]


async def test_it_is_not_restored_after_a_restart(opened: Opener, provider: LoopbackProvider) -> None:
    for text in ("One.", "Two."):
        async with opened(model="responses") as store:
            await store.generate("x", text)
    assert previous(provider) == [None, None]


async def test_auto_starts_again_once_the_chain_has_outgrown_the_budget(
    opened: Opener, provider: LoopbackProvider
) -> None:
    provider.script(*[Say("Yes.", prompt_tokens=tokens) for tokens in (100, 900, 1_100, 100)])
    async with opened(model="responses") as store:
        for n in range(4):
            await store.generate("x", f"Message {n}.", token_budget=1_000)
    assert previous(provider) == [None, "resp_1", "resp_2", None]


@pytest.mark.parametrize("refusal", [previous_missing(), too_long(), Fail(404, message="Previous response not found")])
async def test_an_answer_that_the_service_has_lost_is_asked_for_again_with_everything(
    opened: Opener, provider: LoopbackProvider, refusal: Fail
) -> None:
    async with opened(model="responses") as store:
        talk = await store.conversation("x")
        await talk.generate("One.")
        provider.script(refusal, Say("Of course."))
        answer = await talk.generate("Two.")
        assert answer.text == "Of course."
        assert previous(provider) == [None, "resp_1", None]
        assert "One." in str(provider.bodies[2]["input"])
        assert [turn.text for turn in await talk.history()] == ["One.", "Yes.", "Two.", "Of course."]
        _, lost, again = await talk.requests()
        assert lost.previous_response_id == "resp_1"
        assert lost.response is not None
        assert lost.response["error"]["type"] in ("PreviousResponseMissing", "ContextTooLong")
        assert again.previous_response_id is None
        assert again.turn == answer.id


async def test_it_falls_back_once_and_no_more(opened: Opener, provider: LoopbackProvider) -> None:
    async with opened(model="responses") as store:
        await store.generate("x", "One.")
        provider.script(previous_missing(), previous_missing())
        with pytest.raises(ModelRefused):
            await store.generate("x", "Two.")
    assert len(provider.bodies) == 3


async def test_two_conversations_do_not_share_an_answer(opened: Opener, provider: LoopbackProvider) -> None:
    async with opened(model="responses") as store:
        await asyncio.gather(*[store.generate(key, "One.") for key in ("a", "b")])
        answers = {b["input"][-1]["content"]: f"resp_{n}" for n, b in enumerate(provider.bodies, start=1)}
        assert answers
        await store.generate("c", "One.")
    assert previous(provider) == [None, None, None]


@pytest.mark.parametrize("verb", ["forget", "reset"])
async def test_a_deletion_that_is_refused_leaves_the_thread_at_the_service(
    opened: Opener, provider: LoopbackProvider, verb: str
) -> None:
    async with opened(model="responses") as store:
        talk = await store.conversation("x", participants=["bob"])
        await talk.generate("One.")
        bob = await store.scoped(Scope(store.scope.tenant, "bob")).get(talk.id)
        with pytest.raises(palaver.PermissionDenied):
            await getattr(bob, verb)()
        await talk.generate("Two.")
        assert previous(provider) == [None, "resp_1"]
