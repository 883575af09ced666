"""OpenAI's own client: Responses and Conversations."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import apsw
import openai
import pytest

from palaver.testing.providers import Fail, LoopbackProvider, Say
from tests.server.compat.conftest import conversations, gpt_of, on_each_engine, thread, turns_of
from tests.server.conftest import Running, running

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    "strict": False,
}
ORDER = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]


@on_each_engine
def test_each_response_goes_on_from_the_one_before(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    provider.script(Say("Noted."), Say("Rice."), Say("Bread."))
    first = gpt.responses.create(model="chat", input="I am allergic to peanuts.")
    second = gpt.responses.create(model="chat", input="What can I eat?", previous_response_id=first.id)
    assert (first.output_text, second.output_text) == ("Noted.", "Rice.")
    assert first.conversation is not None
    assert second.conversation == first.conversation
    assert second.previous_response_id == first.id
    assert "peanuts" in json.dumps(provider.bodies[1]["messages"])
    again = gpt.responses.create(model="chat", input="And for breakfast?", previous_response_id=first.id)
    assert again.output_text == "Bread."
    talk = first.conversation.id.removeprefix("conv_")
    assert [text for _, text in thread(server, talk)] == [
        "I am allergic to peanuts.", "Noted.", "And for breakfast?", "Bread.",
    ]  # fmt: skip
    third = gpt.responses.create(model="chat", input="And then?", previous_response_id=second.id)
    assert [text for _, text in thread(server, talk)][2:] == ["What can I eat?", "Rice.", "And then?", "Yes."]
    assert gpt.responses.retrieve(third.id) == third
    assert gpt.responses.retrieve(again.id).output_text == "Bread.", "also when another branch is the active one"


def test_a_stream_has_every_event_in_order_and_numbered(gpt: openai.OpenAI, provider: LoopbackProvider) -> None:
    provider.script(Say(["You can", " eat rice."]))
    events = list(gpt.responses.create(model="chat", input="What can I eat?", stream=True))
    assert [event.type for event in events] == ORDER
    assert [event.sequence_number for event in events] == list(range(len(ORDER)))
    last: Any = events[-1]
    assert last.response.output_text == "You can eat rice."
    assert last.response.usage.total_tokens > 0
    assert events[2].item.id == last.response.output[0].id  # type: ignore[union-attr]


def test_the_sdk_s_own_accumulator_agrees(gpt: openai.OpenAI, provider: LoopbackProvider) -> None:
    provider.script(Say("Let me see.", calls=[("weather", {"city": "Rome"})]))
    with gpt.responses.stream(model="chat", input="Rain?", tools=[WEATHER]) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["message", "function_call"]
    stored = gpt.responses.retrieve(final.id)
    assert [item.id for item in stored.output] == [item.id for item in final.output]
    assert stored.output_text == final.output_text == "Let me see."


@on_each_engine
def test_a_stream_can_be_resumed_after_any_event(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    held = threading.Event()
    provider.script(Say([f"word{n} " for n in range(20)], hold_after=(10, held)))
    stream = gpt.responses.create(model="chat", input="Go on", stream=True)
    first = [next(stream) for _ in range(12)]  # and then the connection is lost
    stream.close()
    id: str = first[0].response.id  # type: ignore[union-attr]
    assert gpt.responses.retrieve(id).status == "in_progress"
    resumed = gpt.responses.retrieve(id, stream=True, starting_after=first[-1].sequence_number)
    held.set()
    events = [*first, *resumed]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == "".join(f"word{n} " for n in range(20))
    again = list(gpt.responses.retrieve(id, stream=True))
    assert again == events


def test_another_process_tells_the_rest_from_the_log(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    """The pieces differ there: a reader in the middle of the text gets all of it at its end."""
    provider.script(Say("One two three four five."))
    events = list(gpt.responses.create(model="chat", input="Count", stream=True))
    server.app.state.services.recent_exchanges.clear()  # what a restart leaves
    id: str = events[0].response.id  # type: ignore[union-attr]
    whole = list(gpt.responses.retrieve(id, stream=True))
    assert [event.type for event in whole if event.type != "response.output_text.delta"] == [
        event.type for event in events if event.type != "response.output_text.delta"
    ]
    rest = list(gpt.responses.retrieve(id, stream=True, starting_after=6))
    assert [event.sequence_number for event in rest] == [7, 8, 9, 10]
    assert rest[0].text == "One two three four five."  # type: ignore[union-attr]
    assert rest[-1].response == events[-1].response  # type: ignore[union-attr]


def test_a_response_can_be_made_in_the_background_and_cancelled(gpt: openai.OpenAI, provider: LoopbackProvider) -> None:
    held = threading.Event()
    provider.script(Say("One two three", hold_after=(2, held)))
    begun = gpt.responses.create(model="chat", input="Count", background=True)
    assert begun.status == "in_progress"
    cancelled = gpt.responses.cancel(begun.id)
    *_, last = gpt.responses.retrieve(begun.id, stream=True)
    held.set()
    assert cancelled.status == "cancelled"
    assert last.type == "response.incomplete", "a half answer is not told as a whole one"
    assert last.response.status == "cancelled"
    assert "One two three".startswith(last.response.output_text)
    assert gpt.responses.retrieve(begun.id).status == "cancelled"
    assert gpt.responses.cancel(begun.id).status == "cancelled"


def test_a_cancelled_response_is_cancelled_for_another_process_too(
    settings: Any, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    held = threading.Event()
    provider.script(Say("One two three", hold_after=(2, held)))
    begun = gpt.responses.create(model="chat", input="Count", background=True)
    with running(settings()) as other, gpt_of(other) as elsewhere:
        cancelled = elsewhere.responses.cancel(begun.id)
        held.set()
        assert cancelled.status == "cancelled"
        assert elsewhere.responses.retrieve(begun.id).status == "cancelled"
        *_, last = elsewhere.responses.retrieve(begun.id, stream=True)
        assert last.response.status == "cancelled"  # type: ignore[union-attr]
    assert gpt.responses.retrieve(begun.id).status == "cancelled"


def test_a_response_that_fails_in_the_background_says_so(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    held = threading.Event()
    provider.script(lambda _: (held.wait(30), Fail(400))[1])
    begun = gpt.responses.create(model="chat", input="Count", background=True)
    assert begun.status == "in_progress", "the first words are not waited for"
    held.set()
    *_, last = gpt.responses.retrieve(begun.id, stream=True)
    assert last.type == "response.failed"
    assert gpt.responses.retrieve(begun.id).status == "failed"


def test_a_response_that_failed_in_the_background_says_why(gpt: openai.OpenAI, provider: LoopbackProvider) -> None:
    provider.script(Say("One two three", garble_after=1))
    begun = gpt.responses.create(model="chat", input="Count", background=True)
    *_, last = gpt.responses.retrieve(begun.id, stream=True)
    assert last.type == "response.failed"
    found = gpt.responses.retrieve(begun.id)
    assert (found.status, found.error and found.error.message) == ("failed", "openai:test sent a malformed response")


def test_one_that_nobody_began_to_answer_has_failed(server: Running, gpt: openai.OpenAI) -> None:
    """The state after a server was killed between the message and the answer."""

    async def left() -> str:
        talk = await server.app.state.services.store.conversation()
        turn = await talk.append("user", "Hi", metadata={"exchange": {"shape": "openai-responses", "own": 1}})
        return f"resp_{talk.id}{turn.id}"

    id = server.do(left())
    assert gpt.responses.retrieve(id).status == "in_progress"
    server.app.state.services.start_seconds = 0.01
    assert gpt.responses.retrieve(id).status == "failed"
    *_, last = gpt.responses.retrieve(id, stream=True)
    assert last.type == "response.failed"


def test_cancelling_what_is_done_stops_nobody_else(gpt: openai.OpenAI, provider: LoopbackProvider) -> None:
    held = threading.Event()
    provider.script(Say("Done."), Say("One two three", hold_after=(2, held)))
    talk = gpt.conversations.create()
    first = gpt.responses.create(model="chat", input="Hi", conversation=talk.id)
    second = gpt.responses.create(model="chat", input="Count", conversation=talk.id, background=True)
    assert gpt.responses.cancel(first.id).status == "completed"
    held.set()
    *_, last = gpt.responses.retrieve(second.id, stream=True)
    assert last.response.output_text == "One two three"  # type: ignore[union-attr]


def test_every_new_message_is_stored(server: Running, gpt: openai.OpenAI) -> None:
    talk = gpt.conversations.create(
        items=[{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    )
    two: Any = [{"role": "user", "content": "One"}, {"role": "user", "content": "Two"}]
    made = gpt.responses.create(model="chat", input=two, conversation=talk.id)
    assert [text for _, text in thread(server, talk.id.removeprefix("conv_"))] == ["Hello", "Hi", "One", "Two", "Yes."]
    assert len(list(gpt.responses.input_items.list(made.id))) == 2


@on_each_engine
def test_deleting_a_response_of_another_branch_deletes_nothing_of_this_one(server: Running, gpt: openai.OpenAI) -> None:
    first = gpt.responses.create(model="chat", input="Hello")
    two: Any = [{"role": "user", "content": "One"}, {"role": "user", "content": "Two"}]
    left = gpt.responses.create(model="chat", input=two, previous_response_id=first.id)
    gpt.responses.create(model="chat", input="Other", previous_response_id=first.id)
    asked = [item.content[0].text for item in gpt.responses.input_items.list(left.id, order="asc")]  # type: ignore[union-attr]
    assert asked == ["One", "Two"]
    gpt.responses.delete(left.id)
    assert first.conversation is not None
    talk = first.conversation.id.removeprefix("conv_")
    assert [text for _, text in thread(server, talk)] == ["Hello", "Yes.", "Other", "Yes."]
    assert not {"One", "Two"} & {text for _, text in thread(server, talk, include_superseded=True)}


def test_what_is_not_to_be_stored_is_not(server: Running, gpt: openai.OpenAI) -> None:
    made = gpt.responses.create(model="chat", input="Hi", store=False)
    assert made.output_text == "Yes."
    assert conversations(server) == 0
    with pytest.raises(openai.NotFoundError):
        gpt.responses.retrieve(made.id)


def test_what_it_was_asked_with_and_its_end(server: Running, gpt: openai.OpenAI) -> None:
    made = gpt.responses.create(
        model="chat",
        instructions="Be brief.",
        metadata={"ticket": "42"},
        input=[
            {"role": "user", "content": "One"},
            {"role": "assistant", "content": "Two"},
            {"role": "user", "content": [{"type": "input_text", "text": "Three"}]},
        ],
    )
    assert (made.instructions, made.metadata) == ("Be brief.", {"ticket": "42"})
    (item,) = gpt.responses.input_items.list(made.id)
    assert item.content[0].text == "Three"  # type: ignore[union-attr]
    assert gpt.responses.input_tokens.count(model="chat", input="How long is this?").input_tokens > 4
    gpt.responses.delete(made.id)
    for call in (gpt.responses.retrieve, gpt.responses.input_items.list):
        with pytest.raises(openai.NotFoundError):
            call(made.id)
    assert made.conversation is not None
    left = [text for _, text in thread(server, made.conversation.id.removeprefix("conv_"))]
    assert left == ["One", "Two"]


def test_a_reader_of_the_file_keeps_nothing_from_being_deleted(
    server: Running, gpt: openai.OpenAI, tmp_path: Path
) -> None:
    talk = gpt.conversations.create(items=[{"role": "user", "content": "Hello"}])
    made = gpt.responses.create(model="chat", input="Hi", conversation=talk.id)
    (item,) = gpt.conversations.items.list(talk.id, order="asc", limit=1).data
    reader = apsw.Connection(f"{tmp_path}/chat.db")
    reader.execute("BEGIN").fetchall()
    reader.execute("SELECT count(*) FROM turns").fetchall()
    gpt.responses.delete(made.id)
    assert thread(server, talk.id.removeprefix("conv_")) == [("user", "Hello")], "the question and the answer"
    assert gpt.conversations.items.delete(item.id or "", conversation_id=talk.id).id == talk.id
    gone = gpt.conversations.with_raw_response.delete(talk.id)
    assert (gone.status_code, gone.parse().deleted) == (202, True)
    reader.close()


def test_what_was_forgotten_is_not_told_from_memory(server: Running, gpt: openai.OpenAI) -> None:
    with server.client() as client:
        body = {"model": "chat", "input": "Say something"}
        made = client.post("/v1/responses", json=body).json()
        talk = made["conversation"]["id"].removeprefix("conv_")
        answer = turns_of(server, talk)[-1]
        assert client.delete(f"/api/conversations/{talk}/turns/{answer.id}").is_success
        assert client.get(f"/v1/responses/{made['id']}").json()["output"] == []
        again = client.post("/v1/responses", json=body, headers={"x-stainless-retry-count": "1"})
    assert again.status_code == 404


def test_tools_in_a_round_with_the_client(server: Running, gpt: openai.OpenAI, provider: LoopbackProvider) -> None:
    provider.script(Say(calls=[("weather", {"city": "Rome"}), ("weather", {"city": "Oslo"})]), Say("Warm and cold."))
    first = gpt.responses.create(model="chat", input="Weather?", tools=[WEATHER], tool_choice="required")
    assert provider.bodies[0]["tool_choice"] == "required"
    results: Any = [
        {"type": "function_call_output", "call_id": call.call_id, "output": "warm" if n == 0 else "cold"}
        for n, call in enumerate(item for item in first.output if item.type == "function_call")
    ]
    with pytest.raises(openai.BadRequestError):
        gpt.responses.create(model="chat", input=results[:1], tools=[WEATHER], previous_response_id=first.id)
    second = gpt.responses.create(model="chat", input=results, tools=[WEATHER], previous_response_id=first.id)
    assert second.output_text == "Warm and cold."
    assert [one["content"] for one in provider.bodies[-1]["messages"] if one["role"] == "tool"] == ["warm", "cold"]


def test_an_answer_that_breaks_off_is_a_failed_response(gpt: openai.OpenAI, provider: LoopbackProvider) -> None:
    provider.script(Say("One two three", cut_after=2))
    *_, last = gpt.responses.create(model="chat", input="Count", stream=True)
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.output_text == "One two"
    assert gpt.responses.retrieve(last.response.id).status == "failed"


def test_previous_and_conversation_exclude_each_other_and_strangers_are_not_found(gpt: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError):
        gpt.responses.create(model="chat", input="x", previous_response_id="resp_x", conversation="conv_x")
    first = gpt.responses.create(model="chat", input="One")
    second = gpt.responses.create(model="chat", input="Two", previous_response_id=first.id)
    gpt.responses.delete(second.id)
    for id in ("resp_x", f"resp_{'0' * 52}", second.id):
        with pytest.raises(openai.NotFoundError) as refused:
            gpt.responses.create(model="chat", input="x", previous_response_id=id)
        assert (refused.value.param, refused.value.code) == ("previous_response_id", "previous_response_not_found")


# ---- conversations -------------------------------------------------------------------------------------------------


@on_each_engine
def test_all_calls_of_the_conversations_client(server: Running, gpt: openai.OpenAI, provider: LoopbackProvider) -> None:
    made = gpt.conversations.create(
        metadata={"topic": "food"}, items=[{"type": "message", "role": "user", "content": "I like rice."}]
    )
    assert gpt.conversations.retrieve(made.id) == made
    assert gpt.conversations.update(made.id, metadata={"topic": "rice"}).metadata == {"topic": "rice"}
    answer = gpt.responses.create(model="chat", input="What do I like?", conversation=made.id)
    assert "I like rice." in json.dumps(provider.bodies[-1]["messages"])
    assert answer.conversation is not None
    assert answer.conversation.id == made.id
    items = list(gpt.conversations.items.list(made.id, order="asc"))
    assert [item.content[0].text for item in items] == ["I like rice.", "What do I like?", "Yes."]  # type: ignore[union-attr]
    assert items[-1].id == answer.output[0].id
    assert gpt.conversations.items.retrieve(items[0].id or "", conversation_id=made.id) == items[0]
    gpt.conversations.items.delete(items[0].id or "", conversation_id=made.id)
    with pytest.raises(openai.NotFoundError):
        gpt.conversations.items.retrieve(items[0].id or "", conversation_id=made.id)
    assert [item.id for item in gpt.conversations.items.list(made.id)] == [items[2].id, items[1].id]
    assert gpt.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        gpt.conversations.retrieve(made.id)


@on_each_engine
def test_what_is_left_of_a_turn_keeps_the_images_that_it_names(server: Running, gpt: openai.OpenAI) -> None:
    talk = gpt.conversations.create(items=[]).id
    path = f"/api/conversations/{talk.removeprefix('conv_')}"
    with server.client() as client:
        file = client.post(f"{path}/attachments", content=b"The gate opens at nine.").json()
        calls = [{"id": name, "name": "look", "arguments": {}} for name in "ab"]
        content = [{"type": "file", "attachment": file["id"]}]
        turn = {"role": "assistant", "content": content, "tool_calls": calls}
        assert client.post(f"{path}/turns", json=turn).is_success
        items = list(gpt.conversations.items.list(talk, order="asc"))
        gpt.conversations.items.delete(items[-1].id or "", conversation_id=talk)
        (left,) = client.get(f"{path}/turns").json()["items"]
        (kept,) = client.get(f"{path}/attachments").json()["items"]
    assert [one["id"] for one in left["tool_calls"]] == ["a"]
    assert left["content"][0]["attachment"] == left["attachments"][0]["id"] == kept["id"] != file["id"]


def test_items_of_every_kind_come_back_page_by_page(gpt: openai.OpenAI) -> None:
    items: Any = [
        {"type": "message", "role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xyz"},
        {"type": "function_call", "call_id": "a", "name": "weather", "arguments": '{"city":"Rome"}'},
        {"type": "function_call", "call_id": "b", "name": "weather", "arguments": '{"city":"Oslo"}'},
        {"type": "function_call_output", "call_id": "a", "output": "warm"},
        {"type": "function_call_output", "call_id": "b", "output": "cold"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "So so.", "annotations": []}],
        },
    ]
    talk = gpt.conversations.create(items=[]).id
    stored = gpt.conversations.items.create(talk, items=items)
    kinds = [item.type for item in stored.data]
    assert kinds == [one.get("type", "message") for one in items]
    assert stored.data[2].encrypted_content == "xyz"  # type: ignore[union-attr]
    assert [item.role for item in stored.data if item.type == "message"] == ["developer", "user", "assistant"]
    for limit in (1, 2, 3, 5, 100):
        upwards = list(gpt.conversations.items.list(talk, order="asc", limit=limit))
        assert upwards == stored.data
        assert list(gpt.conversations.items.list(talk, limit=limit)) == stored.data[::-1]
    gpt.conversations.items.delete(stored.data[6].id or "", conversation_id=talk)
    left = list(gpt.conversations.items.list(talk, order="asc"))
    assert [item.type for item in left] == kinds[:6] + kinds[7:]
    with pytest.raises(openai.BadRequestError):
        gpt.conversations.items.create(talk, items=items * 3)


def test_others_see_nothing(settings: Any) -> None:
    with running(settings(require_auth=True, jwt_secret="s" * 32)) as server:
        ada, eve = (gpt_of(server, server.key("acme", name)) for name in ("ada", "eve"))
        made = ada.responses.create(model="chat", input="Secret")
        assert made.conversation is not None
        for look in (
            lambda: eve.responses.retrieve(made.id),
            lambda: eve.responses.delete(made.id),
            lambda: eve.responses.create(model="chat", input="?", previous_response_id=made.id),
            lambda: eve.conversations.retrieve(made.conversation.id),  # type: ignore[union-attr]
            lambda: eve.conversations.items.list(made.conversation.id),  # type: ignore[union-attr]
        ):
            with pytest.raises(openai.NotFoundError):
                look()


# ---- retries -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [True, False])
def test_a_retry_after_a_failure_doubles_neither_turn_nor_call(
    server: Running, provider: LoopbackProvider, bound: bool
) -> None:
    """The SDK's own retry: the same body, with a count."""
    provider.script(Fail(400, kind="server_error"), *[Fail(503)] * 3, Say("At last."))
    headers = {"X-Conversation-Id": "retried"} if bound else {}
    with gpt_of(server, max_retries=2) as gpt:
        with pytest.raises(openai.BadRequestError):
            gpt.chat.completions.create(
                model="chat", messages=[{"role": "user", "content": "Hi"}], extra_headers=headers
            )
        answer = gpt.chat.completions.create(
            model="chat", messages=[{"role": "user", "content": "Hello"}], extra_headers=headers
        )
    assert answer.choices[0].message.content == "At last."
    assert len(provider.received) == 5
    if bound:
        assert [text for _, text in thread(server, "retried")] == ["Hi", "Hello", "At last."]


@pytest.mark.parametrize(("stream", "bound"), [(True, False), (False, True)], ids=["streamed", "bound"])
def test_a_retry_of_what_was_answered_or_is_being_answered_tells_it_again(
    server: Running, provider: LoopbackProvider, stream: bool, bound: bool
) -> None:
    held = threading.Event()
    provider.script(Say("One two three", hold_after=(1, held)))
    body = {"model": "chat", "messages": [{"role": "user", "content": "Count"}], "stream": stream}
    headers = {"X-Conversation-Id": "again"} if bound else {}
    answers: list[str] = []

    def ask(count: int) -> None:
        with server.client() as client:
            answer = client.post(
                "/v1/chat/completions", json=body, headers={**headers, "x-stainless-retry-count": str(count)}
            )
            answers.append(answer.text)

    tries = [threading.Thread(target=ask, args=(count,)) for count in (0, 1)]
    tries[0].start()
    provider.asked.wait(30)
    tries[1].start()
    held.set()
    for one in tries:
        one.join(30)
    ask(2)
    assert len(answers) == 3
    assert len(set(answers)) == 1
    assert len(provider.received) == 1
    ask(0)
    assert len(provider.received) == 2, "without the count, an equal message is another one"
    if bound:
        assert [role for role, _ in thread(server, "again")] == ["user", "assistant"] * 2


@on_each_engine
def test_a_retry_finds_the_first_try_in_the_log(server: Running, provider: LoopbackProvider) -> None:
    """As after a restart, or in another process."""
    body = {"model": "chat", "messages": [{"role": "user", "content": "Count"}]}
    with server.client() as client:
        client.headers["X-Conversation-Id"] = "restarted"
        first = client.post("/v1/chat/completions", json=body).json()
        server.app.state.services.retries._known.clear()
        again = client.post("/v1/chat/completions", json=body, headers={"x-stainless-retry-count": "1"}).json()
    assert again == first
    assert len(provider.received) == 1
    assert len(turns_of(server, "restarted")) == 2


@on_each_engine
def test_a_retry_finds_a_first_try_that_named_no_conversation(server: Running, provider: LoopbackProvider) -> None:
    """In another process, or after a crash, too."""
    again = {"x-stainless-retry-count": "1"}
    with server.client() as client:
        first = client.post("/v1/responses", json={"model": "chat", "input": "Hi"}).json()
        client.post("/v1/responses", json={"model": "chat", "input": "Hello"})
        server.app.state.services.retries._known.clear()
        server.app.state.services.recent_exchanges.clear()
        told = client.post("/v1/responses", json={"model": "chat", "input": "Hi"}, headers=again).json()
        assert (told["id"], told["output"]) == (first["id"], first["output"])
        other = client.post("/v1/responses", json={"model": "chat", "input": "Bye"}, headers=again).json()
        assert other["id"] != first["id"], "a first try that never came is made now"
    assert (len(provider.received), conversations(server)) == (3, 3)


def test_a_retry_of_items_stores_them_once(server: Running) -> None:
    with server.client() as client:
        talk = client.post("/v1/conversations", json={}).json()["id"]
        body = {"items": [{"role": "user", "content": "Once"}]}
        url, count = f"/v1/conversations/{talk}/items", {"x-stainless-retry-count": "1"}
        assert client.post(url, json=body).json() == client.post(url, json=body, headers=count).json()
        assert len(client.get(url).json()["data"]) == 1


def test_tools_that_run_on_the_server_are_items_of_the_response(settings: Any, provider: LoopbackProvider) -> None:
    calls = [("search_conversations", {"query": "rain"}), ("search_conversations", {"wrong": 1})]
    provider.script(Say("Let me look.", calls=calls), Say("No rain."), Say("Again."))
    with running(settings(generate={"tools": ["search_conversations"]})) as server:
        gpt = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none")
        kinds, done = [], []
        with gpt.responses.stream(model="chat", input="Rain?", store=True) as stream:
            for event in stream:
                kinds.append(event.type)
                if event.type == "response.output_item.done" and event.item.type == "mcp_call":
                    done.append(event.item)
            final = stream.get_final_response()
        assert [one.type for one in final.output] == ["message", "mcp_call", "mcp_call", "message"]
        assert [(one.name, one.server_label, one.status) for one in done] == [
            ("search_conversations", "palaver", "completed"),
            ("search_conversations", "palaver", "failed"),
        ]
        assert done[0].output is not None
        assert done[1].error is not None
        assert kinds.count("response.mcp_call.in_progress") == 2
        assert (kinds.count("response.mcp_call.completed"), kinds.count("response.mcp_call.failed")) == (1, 1)
        stored = gpt.responses.retrieve(final.id)
        assert [one.type for one in stored.output] == [one.type for one in final.output]
        # A client that sends all items back is understood: nothing is stored twice.
        history: Any = [{"role": "user", "content": "Rain?"}, *(one.model_dump() for one in final.output)]
        gpt.responses.create(model="chat", input=[*history, {"role": "user", "content": "Sure?"}], store=False)
        assert [one["role"] for one in provider.bodies[-1]["messages"]][-1] == "user"
