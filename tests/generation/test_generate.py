"""generate: the message is stored, the model is asked, the reply is stored while it comes; whatever happens."""

from __future__ import annotations

import asyncio
import gc
import threading
from base64 import b64encode
from typing import Any

import pytest

import palaver
from palaver import Answered, MessageStored, TextDelta, ToolCall, ToolDone
from palaver.conversations.internals import engine_of
from palaver.errors import (
    BadModelResponse,
    BudgetTooSmall,
    ContextTooLong,
    InvalidInput,
    ModelError,
    ModelUnavailable,
    RateLimited,
    TurnGone,
)
from palaver.ports.models import ToolSpec
from palaver.testing import ScriptedModel
from palaver.testing.providers import Fail, LoopbackProvider, Say, too_long
from tests.generation.conftest import Opener

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"x" * 4_000


async def test_an_answer_is_stored_with_what_it_cost(opened: Opener, provider: LoopbackProvider, name: str) -> None:
    provider.script(Say("You can eat rice.", prompt_tokens=33))
    async with opened(model=name) as store:
        answer = await store.generate(conversation="support/42", message="What can I eat?")
        talk = await store.conversation("support/42")
        said, stored = await talk.history()
        assert (said.role, said.actor, said.text) == ("user", "ada", "What can I eat?")
        assert stored == answer
        assert (answer.text, answer.finish_reason, answer.status) == ("You can eat rice.", "stop", "complete")
        assert answer.tokens == palaver.TokenUsage(33, 4)
        assert answer.model is not None
        assert answer.model.endswith(":test")
        assert answer.adapter in ("openai-chat", "openai-responses", "anthropic-messages")
        assert answer.metadata["latency"]["total"] >= answer.metadata["latency"]["first_token"] >= 0
        await talk.verify()


async def test_a_stream_tells_each_piece_and_ends_with_the_turn(
    opened: Opener, provider: LoopbackProvider, name: str
) -> None:
    provider.script(Say(["You can", " eat rice."]))
    async with opened(model=name) as store:
        events = [event async for event in store.generate_stream("x", "What can I eat?")]
        assert isinstance(events[0], MessageStored)
        assert events[0].turn.text == "What can I eat?"
        assert events[1:-1] == [TextDelta("You can"), TextDelta(" eat rice.")]
        assert isinstance(events[-1], Answered)
        assert events[-1].turn.text == "You can eat rice."


async def test_a_server_that_cannot_stream_is_asked_for_all_at_once(
    opened: Opener, provider: LoopbackProvider, name: str
) -> None:
    async with opened(model=name) as store:
        assert (await store.generate("x", "Well?", stream=False)).text == "Yes."
    assert "stream" not in provider.bodies[0]


async def test_the_thread_goes_along(opened: Opener, provider: LoopbackProvider) -> None:
    async with opened(model="chat") as store:
        await store.generate("x", "I'm allergic to peanuts.")
        await store.generate("x", "What can I eat?")
    said = [message["content"] for message in provider.bodies[1]["messages"]]
    assert said == ["I'm allergic to peanuts.", "Yes.", "What can I eat?"]


async def test_the_question_is_on_disk_before_the_model_is_asked(opened: Opener, provider: LoopbackProvider) -> None:
    gate = threading.Event()
    provider.script(Say("late", hold=gate))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        asking = asyncio.create_task(talk.generate("Are you there?"))
        await asyncio.to_thread(provider.asked.wait, 20)
        assert (await talk.history())[0].text == "Are you there?"
        gate.set()
        assert (await asking).text == "late"


async def test_the_reply_is_on_disk_while_it_comes(opened: Opener, provider: LoopbackProvider) -> None:
    gate = threading.Event()
    provider.script(Say(["Once", " upon"], hold_after=(1, gate)))
    async with opened(model="chat", stream_flush=0.01) as store:
        talk = await store.conversation("x")
        asking = asyncio.create_task(talk.generate("Tell me."))
        while True:
            latest = (await talk.history())[-1:]
            if latest and latest[0].text == "Once":
                break
            await asyncio.sleep(0.005)
        assert latest[0].status == "pending"
        gate.set()
        assert (await asking).text == "Once upon"


async def test_what_no_database_keeps_is_replaced_in_an_answer(opened: Opener) -> None:
    model = ScriptedModel([["A", "\0", "b \ud83d", "."]])
    async with opened(model="scripted", models={"scripted": model}) as store:
        assert (await store.generate("x", "Well?")).text == "A\ufffdb \ufffd."


async def test_calls_that_cannot_be_stored_are_the_models_mistake(opened: Opener) -> None:
    model = ScriptedModel([["I look.", ToolCall("c", "x" * 1_000, {})]])
    async with opened(model="scripted", models={"scripted": model}) as store:
        with pytest.raises(BadModelResponse, match="cannot be stored"):
            await store.generate("x", "Well?")
        talk = await store.conversation("x")
        kept = await talk.history(include_superseded=True)
        assert [(turn.text, turn.status) for turn in kept] == [("Well?", "complete"), ("I look.", "aborted")]


# ---- idempotency ---------------------------------------------------------------------------------------------------


async def test_a_retry_does_not_ask_the_model_again(opened: Opener, provider: LoopbackProvider, name: str) -> None:
    async with opened(model=name) as store:
        first = await store.generate("x", "Well?", idempotency_key="k1")
        again = await store.generate("x", "Well?", idempotency_key="k1")
        assert again == first
        assert len(provider.received) == 1
        assert len(await (await store.conversation("x")).history()) == 2
    async with opened(model=name) as store:  # also after a restart
        assert await store.generate("x", "Well?", idempotency_key="k1") == first
    assert len(provider.received) == 1


async def test_two_retries_at_once_ask_once(opened: Opener, provider: LoopbackProvider) -> None:
    async with opened(model="chat") as store:
        await store.conversation("x")
        both = await asyncio.gather(*[store.generate("x", "Well?", idempotency_key="k1") for _ in range(2)])
    assert both[0] == both[1]
    assert len(provider.received) == 1


async def test_a_retry_after_a_failure_asks_again_and_stores_the_question_once(
    opened: Opener, provider: LoopbackProvider
) -> None:
    provider.script(Fail(400, kind="invalid_request_error"), Say("Yes."))
    async with opened(model="chat") as store:
        with pytest.raises(ModelError):
            await store.generate("x", "Well?", idempotency_key="k1")
        assert (await store.generate("x", "Well?", idempotency_key="k1")).text == "Yes."
        talk = await store.conversation("x")
        assert [turn.text for turn in await talk.history()] == ["Well?", "Yes."]


async def test_a_retry_finds_the_answer_behind_its_tool_rounds(opened: Opener, provider: LoopbackProvider) -> None:
    provider.script(Say(calls=[("recall", {"query": "x"})]), Say("Done."))
    async with opened(model="chat") as store:
        for _ in range(2):
            answer = await store.generate("x", "Look.", idempotency_key="k1", tools=["recall"])
            assert answer.text == "Done."
    assert len(provider.received) == 2


async def test_a_retry_finds_an_answer_that_calls_the_client(opened: Opener, provider: LoopbackProvider) -> None:
    pick = ToolSpec(name="pick", description="Pick a file.", parameters={"type": "object"})
    provider.script(Say("Pick one.", calls=[("pick", {})]))
    async with opened(model="chat") as store:
        first = await store.generate("x", "Well?", idempotency_key="k1", client_tools=[pick])
        assert await store.generate("x", "Well?", idempotency_key="k1", client_tools=[pick]) == first
        assert [call.name for call in first.tool_calls] == ["pick"]
    assert len(provider.received) == 1


async def test_what_was_forgotten_is_not_answered_again(opened: Opener, provider: LoopbackProvider) -> None:
    async with opened(model="chat") as store:
        await store.generate("x", "Well?", idempotency_key="k1")
        talk = await store.conversation("x")
        await talk.forget((await talk.history())[0])
        with pytest.raises(TurnGone):
            await store.generate("x", "Well?", idempotency_key="k1")
    assert len(provider.received) == 1


# ---- stopping ------------------------------------------------------------------------------------------------------


async def test_leaving_the_loop_keeps_what_came(opened: Opener, provider: LoopbackProvider, name: str) -> None:
    gate = threading.Event()
    provider.script(Say(["Once", " upon", " a time"], hold_after=(2, gate)))
    async with opened(model=name) as store:
        talk = await store.conversation("x")
        events = talk.generate_stream("Tell me.")
        async for event in events:
            if event == TextDelta(" upon"):
                break
        await events.aclose()
        gate.set()
        _, answer = await talk.history()
        assert (answer.text, answer.status, answer.finish_reason) == ("Once upon", "complete", "stopped")
        (request,) = await talk.requests()
        assert request.response is not None
        assert request.response["finish_reason"] == "stopped"
        await talk.verify()


async def test_stop_from_elsewhere_ends_the_answer(opened: Opener, provider: LoopbackProvider, name: str) -> None:
    gate = threading.Event()
    provider.script(Say(["Once", " upon"], hold_after=(1, gate)))
    async with opened(model=name) as store:
        talk = await store.conversation("x")
        heard = asyncio.Event()

        async def listen() -> Any:
            last = None
            async for last in talk.generate_stream("Tell me."):
                if isinstance(last, TextDelta):
                    heard.set()
            return last

        listening = asyncio.create_task(listen())
        await heard.wait()
        assert await talk.stop() == 1
        last = await listening
        gate.set()
        assert last.turn.text == "Once"
        assert last.turn.finish_reason == "stopped"
        assert await talk.stop() == 0


async def test_stop_during_the_tools_ends_without_asking_again(opened: Opener, provider: LoopbackProvider) -> None:
    provider.script(Say(calls=[("wait", {}), ("quick", {})]))
    running = asyncio.Event()

    async def wait() -> str:
        """Waits."""
        running.set()
        await asyncio.sleep(60)
        return "never"

    def quick() -> str:
        """Is quick."""
        return "done"

    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        asking = asyncio.create_task(talk.generate("Look.", tools=[wait, quick]))
        await running.wait()
        await talk.stop()
        answer = await asking
        assert (answer.text, answer.finish_reason) == ("", "stopped")
        results = {r.id: r for turn in await talk.history() for r in turn.tool_results}
        assert len(results) == 2
        assert any("stopped by the user" in str(result.content) for result in results.values())
        assert len(provider.received) == 1


async def test_cancelling_leaves_an_aborted_turn(opened: Opener, provider: LoopbackProvider, name: str) -> None:
    gate = threading.Event()
    provider.script(Say(["Once", " upon"], hold_after=(1, gate)))
    async with opened(model=name) as store:
        talk = await store.conversation("x")
        heard = asyncio.Event()

        async def listen() -> None:
            async for event in talk.generate_stream("Tell me."):
                if isinstance(event, TextDelta):
                    heard.set()

        listening = asyncio.create_task(listen())
        await heard.wait()
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening
        gate.set()
        said, cut = await talk.history(include_superseded=True)
        assert [turn.id for turn in await talk.history()] == [said.id]
        assert (cut.text, cut.status) == ("Once", "aborted")
        (request,) = await talk.requests()
        assert request.turn == cut.id
        assert request.response is not None
        assert request.response["error"] == {"type": "CancelledError", "status": None}


async def test_cancelling_keeps_what_tools_gave_and_says_which_did_not_end(
    opened: Opener, provider: LoopbackProvider
) -> None:
    both, paid = asyncio.Barrier(2), asyncio.Event()

    async def pay() -> str:
        """Pays."""
        await both.wait()
        return "paid"

    async def wait() -> None:
        """Waits."""
        await both.wait()
        await asyncio.Event().wait()

    async def listen() -> None:
        async for event in talk.generate_stream("Pay.", tools=[pay, wait]):
            if isinstance(event, ToolDone):
                paid.set()

    provider.script(Say(calls=[("pay", {}), ("wait", {})]))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        listening = asyncio.create_task(listen())
        await paid.wait()
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening
        results = (await talk.history())[-1].tool_results
        assert [result.is_error for result in results] == [False, True]
        assert results[0].content == "paid"
        assert "cancelled" in str(results[1].content)


async def test_calls_that_are_stored_while_the_answer_is_cancelled_get_their_end(
    opened: Opener, provider: LoopbackProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    sealing, go_on = asyncio.Event(), asyncio.Event()
    provider.script(Say(calls=[("recall", {"query": "x"})]))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        real = engine_of(store).stream_commit

        async def slowly(*arguments: Any) -> palaver.Turn:
            sealing.set()
            await go_on.wait()
            return await real(*arguments)

        monkeypatch.setattr(engine_of(store), "stream_commit", slowly)
        asking = asyncio.create_task(talk.generate("Look.", tools=["recall"]))
        await sealing.wait()
        asking.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await asking
        _, calls, results = await talk.history()
        assert [result.id for result in results.tool_results] == [call.id for call in calls.tool_calls]


# ---- failures ------------------------------------------------------------------------------------------------------


async def test_a_stream_that_is_cut_leaves_its_text_for_the_record(
    opened: Opener, provider: LoopbackProvider, name: str
) -> None:
    provider.script(Say("You can eat rice.", end_after=3))
    async with opened(model=name) as store:
        talk = await store.conversation("x")
        with pytest.raises(BadModelResponse):
            await talk.generate("What can I eat?")
        assert [turn.role for turn in await talk.history()] == ["user"]
        cut = (await talk.history(include_superseded=True))[1]
        assert (cut.text, cut.status) == ("You can eat", "aborted")
        assert (await talk.generate(None)).text == "Yes."  # the thread as it stands can be answered again
        await talk.verify()


async def test_a_busy_service_is_asked_again_and_the_record_says_so(
    opened: Opener, provider: LoopbackProvider, name: str
) -> None:
    provider.script(Fail(429, retry_after=0.001), Fail(500), Say("Rice."))
    async with opened(model=name) as store:
        talk = await store.conversation("x")
        assert (await talk.generate("Food?")).text == "Rice."
        (request,) = await talk.requests()
        assert request.response is not None
        assert [one["status"] for one in request.response["retries"]] == [429, 500]


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (Fail(429, retry_after=3600), RateLimited),
        (Fail(503), ModelUnavailable),
        (too_long(), ContextTooLong),
    ],
)
async def test_a_failure_is_on_record_and_the_question_stays(
    opened: Opener, provider: LoopbackProvider, name: str, step: Fail, kind: type[ModelError]
) -> None:
    provider.script(*[step] * 3)
    async with opened(model=name) as store:
        talk = await store.conversation("x")
        with pytest.raises(kind):
            await talk.generate("Food?")
        assert [turn.text for turn in await talk.history()] == ["Food?"]
        (request,) = await talk.requests()
        assert request.response is not None
        assert request.response["error"]["type"] == kind.__name__
        assert request.body is not None


async def test_a_slow_service_is_given_up_in_the_end(provider: LoopbackProvider, opened: Opener) -> None:
    gate = threading.Event()
    provider.script(*[Say("late", hold=gate)] * 2)
    async with opened(model="chat", models=provider.models(timeout=0.15), generate={"retries": 1}) as store:
        with pytest.raises(ModelUnavailable, match="too long"):
            await store.generate("x", "Food?")
        gate.set()
    assert len(provider.received) == 2


async def test_a_budget_that_cannot_hold_the_message_is_an_error_with_both_numbers(opened: Opener) -> None:
    async with opened(model="chat") as store:
        with pytest.raises(BudgetTooSmall) as caught:
            await store.generate("x", "word " * 500, token_budget=100)
        assert caught.value.budget <= 100 < caught.value.needed


# ---- options -------------------------------------------------------------------------------------------------------


async def test_the_budget_follows_the_model(opened: Opener) -> None:
    small, large = ScriptedModel(["a"], name="tiny", window=2_000), ScriptedModel(["a"], name="huge", window=10**6)
    async with opened(models={"tiny": small, "huge": large}) as store:
        talk = await store.conversation("x")
        for name, budget in (("tiny", 1_500), ("huge", 32_000)):
            await talk.generate("Well?", model=name)
            request = (await talk.requests())[-1]
            assert request.explanation is not None
            assert request.explanation["budget"] == budget


async def test_a_budget_in_characters_is_kept(opened: Opener) -> None:
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        await talk.append_many([{"role": "user", "content": "word " * 100} for _ in range(40)])
        for options, budget in (({"policy": "recent-chars"}, 12_000), ({"char_budget": 2_000}, 2_000)):
            await talk.generate("Well?", **options)
            explanation = (await talk.requests())[-1].explanation or {}
            for_summaries = 4_000 if "policy" in options else 0
            assert budget <= explanation["budget"] <= budget + for_summaries
            assert explanation["unit"] == "characters"
            assert explanation["tokens"] <= explanation["budget"]
        with pytest.raises(InvalidInput):
            await talk.generate("Well?", char_budget=2_000, token_budget=2_000)


async def test_a_conversation_forgotten_during_the_work_stays_gone(opened: Opener, provider: LoopbackProvider) -> None:
    gate = threading.Event()
    provider.script(Say(["Once", " upon"], hold_after=(1, gate)))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        asking = asyncio.create_task(talk.generate("Tell me."))
        await asyncio.to_thread(provider.asked.wait, 20)
        await talk.forget()
        gate.set()
        with pytest.raises(palaver.ConversationGone):
            await asking
        assert (await store.stats()).conversations == 0


async def test_what_is_meant_for_build_context_gets_there(opened: Opener, provider: LoopbackProvider) -> None:
    async with opened(model="chat", generate={"instructions": "Be brief."}) as store:
        talk = await store.conversation("x")
        await talk.generate("Well?", semantic_recall=False)
        await talk.generate(
            "And?", instructions="Be long.", recent_turns=0, semantic_recall=False, settings={"temperature": 0}
        )
        first, second = provider.bodies
        assert first["messages"][0] == {"role": "system", "content": "Be brief."}
        assert "Be long." in second["messages"][0]["content"]
        assert [message["content"] for message in second["messages"][1:]] == ["And?"]
        assert second["temperature"] == 0
        for wrong in ({"viewer": "bot"}, {"nonsense": 1}, {"continuity": "maybe"}, {"agent": "nobody"}):
            with pytest.raises(InvalidInput):
                await talk.generate("Well?", **wrong)
        assert len(await talk.history()) == 4  # what is refused stores nothing


@pytest.mark.parametrize("attached", [True, False])
async def test_an_image_that_is_stored_here_is_sent_along_and_its_bytes_are_not_kept_twice(
    opened: Opener, provider: LoopbackProvider, name: str, attached: bool
) -> None:
    async with opened(model=name) as store:
        talk = await store.conversation("x")
        picture = await talk.attach(PNG, filename="cat.png")
        parts = [{"type": "text", "text": "What is this?"}, {"type": "image", "attachment": picture.id}]
        await talk.generate(parts, attachments=[picture] if attached else [])
        assert [one.id for one in (await talk.history())[0].attachments] == [picture.id]
        sent = str(provider.bodies[0])
        assert "base64" in sent
        assert len(sent) > 5_000
        (request,) = await talk.requests()
        assert len(str(request.body)) < 1_500
        assert "characters" in str(request.body)


async def test_an_image_that_is_only_attached_is_sent_as_an_image_and_other_files_are_named(
    opened: Opener, provider: LoopbackProvider, name: str
) -> None:
    async with opened(model=name) as store:
        talk = await store.conversation("x")
        picture = await talk.attach(PNG, filename="cat.png")
        note = await talk.attach(b"The gate opens at nine.", filename="note.txt")
        await talk.generate("What is this?", attachments=[picture, note])
        sent = str(provider.bodies[0])
        assert b64encode(PNG).decode() in sent
        assert f"note.txt (text/plain, attachment {note.id})" in sent


async def test_editing_a_message_answers_it_again(opened: Opener, provider: LoopbackProvider) -> None:
    provider.script(Say("Rice."), Say("Bread."))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        await talk.generate("Food in Asia?")
        first = (await talk.history())[0]
        await talk.generate("Food in Europe?", replaces=first)
        assert [turn.text for turn in await talk.history()] == ["Food in Europe?", "Bread."]
        assert [m["content"] for m in provider.bodies[1]["messages"]] == ["Food in Europe?"]


def test_the_blocking_face_has_it_too(provider: LoopbackProvider, tmp_path: Any) -> None:
    provider.script(Say(["a", "b", "c"]))
    with palaver.sync.open(
        f"sqlite:///{tmp_path}/s.db", user="ada", model="chat", models=provider.models(), worker=False
    ) as store:
        talk = store.conversation("x")
        for event in talk.generate_stream("Count."):
            if event == TextDelta("b"):
                break
        assert talk.history()[-1].finish_reason in ("stopped", "stop")
        assert talk.generate("Well?").text == "Yes."


@pytest.mark.parametrize("wrong", ["temperature", "context"])
async def test_an_unknown_option_says_where_model_parameters_go(opened: Opener, wrong: str) -> None:
    async with opened() as store:
        match = rf"unknown option '{wrong}'; .*odel parameters go in settings=\{{'{wrong}': …\}}"
        with pytest.raises(InvalidInput, match=match) as refused:
            await store.generate("x", "Hello", **{wrong: {}})
        assert refused.value.field == wrong
        assert (await store.stats()).turns == 0


async def test_a_misspelt_option_names_the_nearest_one(opened: Opener) -> None:
    async with opened() as store:
        with pytest.raises(InvalidInput, match=r"unknown option 'token_buget' \(did you mean 'token_budget'\?\)"):
            await store.generate("x", "Hello", token_buget=100)


async def test_an_answer_whose_loop_was_left_is_stored_before_the_store_is_closed(
    opened: Opener, provider: LoopbackProvider
) -> None:
    """Python closes the generator of such a loop later, in another task. It used to find the store closed: the turn
    stayed pending, and the event loop logged StoreClosed."""
    problems: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    gate = threading.Event()
    provider.script(Say(["Once", " upon", " a time"], hold_after=(2, gate)))
    async with opened(model="chat") as store:
        async for event in store.generate_stream("left", "Tell me."):
            if event == TextDelta(" upon"):
                break
    gate.set()
    async with opened() as store:
        (_, answer) = await (await store.find("left")).history(include_superseded=True)
    assert (answer.text, answer.status, answer.finish_reason) == ("Once upon", "complete", "stopped")
    gc.collect()
    await asyncio.sleep(0)
    assert problems == []
