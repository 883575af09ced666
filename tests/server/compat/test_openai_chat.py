"""OpenAI's own client, with one URL changed: Chat Completions."""

from __future__ import annotations

import base64
import json
from typing import Any

import anthropic
import openai
import pytest

from palaver.cli.keys import PRESETS
from palaver.generation.tool_calls import CLIENT_CALLS
from palaver.testing.providers import Fail, LoopbackProvider, Say
from tests.server.compat.conftest import claude_of, conversations, gpt_of, on_each_engine, thread, turns_of
from tests.server.conftest import Running, ok, running

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}


def user(text: Any) -> Any:
    return {"role": "user", "content": text}


def bot(text: str) -> Any:
    return {"role": "assistant", "content": text}


def bound(name: str) -> Any:
    return {"X-Conversation-Id": name}


@on_each_engine
def test_only_the_new_message_is_needed(server: Running, gpt: openai.OpenAI, provider: LoopbackProvider) -> None:
    provider.script(Say("Noted."), Say("Rice."))
    for text in ("I am allergic to peanuts.", "What can I eat?"):
        answer = gpt.chat.completions.create(model="chat", messages=[user(text)], extra_headers=bound("support/42"))
    assert answer.choices[0].message.content == "Rice."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
    assert thread(server, "support/42") == [
        ("user", "I am allergic to peanuts."),
        ("assistant", "Noted."),
        ("user", "What can I eat?"),
        ("assistant", "Rice."),
    ]
    assert "peanuts" in json.dumps(provider.bodies[1]["messages"])


def test_a_conversation_can_be_named_in_the_metadata(server: Running, gpt: openai.OpenAI) -> None:
    gpt.chat.completions.create(model="chat", messages=[user("Hi")], metadata={"conversation_id": "by/metadata"})
    assert thread(server, "by/metadata") == [("user", "Hi"), ("assistant", "Yes.")]


@on_each_engine
def test_a_stream_tells_every_piece_and_what_memory_did(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    provider.script(Say(["You can", " eat", " rice."]))
    raw = gpt.chat.completions.with_raw_response.create(
        model="chat",
        messages=[user("What can I eat?")],
        stream=True,
        stream_options={"include_usage": True},
        extra_headers=bound("streamed"),
    )
    chunks = list(raw.parse())
    assert [one.choices[0].delta.content for one in chunks[1:4]] == ["You can", " eat", " rice."]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [one.choices[0].finish_reason for one in chunks if one.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    (answer,) = [turn for turn in turns_of(server, "streamed") if turn.role == "assistant"]
    assert raw.headers["x-conversation-id"] == answer.conversation
    assert int(raw.headers["x-context-tokens"]) > 0
    assert raw.headers["x-recalled-turns"] == "0"
    with server.client() as client:
        (record,) = client.get(raw.headers["link"].split(">")[0][1:]).json()["items"]
    assert record["explanation"]["tokens"] == int(raw.headers["x-context-tokens"])


def test_usage_comes_only_when_it_is_asked_for(gpt: openai.OpenAI) -> None:
    chunks = list(gpt.chat.completions.create(model="chat", messages=[user("Hi")], stream=True))
    assert all(one.choices for one in chunks)


# ---- whole histories -----------------------------------------------------------------------------------------------


@on_each_engine
def test_a_client_that_sends_everything_leaves_no_doubles(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    history: list[Any] = [{"role": "system", "content": "Be brief."}]
    for n in range(4):
        provider.script(Say(f"Answer {n}."))
        history.append(user(f"Question {n}?"))
        answer = gpt.chat.completions.create(model="chat", messages=history, extra_headers=bound("all"))
        history.append(bot(answer.choices[0].message.content or ""))
    assert thread(server, "all") == [(one["role"], one["content"]) for one in history[1:]]
    assert turns_of(server, "all") == turns_of(server, "all", include_superseded=True)


@on_each_engine
def test_an_edit_supersedes_what_it_replaces(server: Running, gpt: openai.OpenAI, provider: LoopbackProvider) -> None:
    provider.script(Say("Cats."), Say("Dogs."), Say("Birds."))
    ask = lambda *said: gpt.chat.completions.create(model="chat", messages=list(said), extra_headers=bound("edit"))  # noqa: E731
    ask(user("Which animal?"))
    ask(user("Which animal?"), bot("Cats."), user("And another?"))
    ask(user("Which animal?"), bot("Cats."), user("And one that flies?"))
    assert [text for _, text in thread(server, "edit")] == ["Which animal?", "Cats.", "And one that flies?", "Birds."]
    everything = turns_of(server, "edit", include_superseded=True)
    assert [turn.text for turn in everything if not turn.active] == ["And another?", "Dogs."]


def test_a_window_of_the_latest_messages_is_recognised(server: Running, gpt: openai.OpenAI) -> None:
    history: list[Any] = []
    for n in range(6):
        history.append(user(f"Question {n}?"))
        gpt.chat.completions.create(model="chat", messages=history[-5:], extra_headers=bound("window"))
        history.append(bot("Yes."))
    assert thread(server, "window") == [(one["role"], one["content"]) for one in history]


def test_a_history_from_elsewhere_is_taken_in_once(server: Running, gpt: openai.OpenAI) -> None:
    """And nothing in it becomes a standing instruction: nobody said it here."""
    old = [user("From now on, always answer in French."), bot("Oui.")]
    gpt.chat.completions.create(model="chat", messages=[*old, user("Hi")], extra_headers=bound("moved"))
    more = [*old, user("Hi"), bot("Yes."), user("Bye")]
    gpt.chat.completions.create(model="chat", messages=more, extra_headers=bound("moved"))
    assert [text for _, text in thread(server, "moved")] == [
        "From now on, always answer in French.", "Oui.", "Hi", "Yes.", "Bye", "Yes.",
    ]  # fmt: skip
    origins = [turn.metadata.get("origin") for turn in turns_of(server, "moved")]
    assert origins == ["client-history", "client-history", None, None, None, None]


def test_a_history_that_has_nothing_to_do_with_the_thread_is_quoted_and_not_stored(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    gpt.chat.completions.create(model="chat", messages=[user("One")], extra_headers=bound("other"))
    strange = [user("I live in Rome."), bot("Nice."), user("Two")]
    gpt.chat.completions.create(model="chat", messages=strange, extra_headers=bound("other"))
    assert [text for _, text in thread(server, "other")] == ["One", "Yes.", "Two", "Yes."]
    assert "I live in Rome." in provider.bodies[-1]["messages"][-1]["content"]


@on_each_engine
def test_what_was_forgotten_stays_so_though_the_client_still_has_it(server: Running, gpt: openai.OpenAI) -> None:
    history: list[Any] = []
    for text in ("One", "My PIN is 1234.", "Three"):
        history.append(user(text))
        gpt.chat.completions.create(model="chat", messages=history, extra_headers=bound("forget"))
        history.append(bot("Yes."))
    gone = turns_of(server, "forget")[2]
    with server.client() as client:
        talk = f"/api/conversations/{gone.conversation}"
        assert client.delete(f"{talk}/turns/{gone.id}").is_success
        gpt.chat.completions.create(model="chat", messages=[*history, user("Four")], extra_headers=bound("forget"))
        assert "1234" not in client.get(f"{talk}/turns", params={"include_superseded": True}).text
        assert [text for _, text in thread(server, "forget")] == ["One", *["Yes."] * 2, "Three", "Yes.", "Four", "Yes."]
        assert client.post(f"{talk}/reset").is_success
        gpt.chat.completions.create(model="chat", messages=[*history, user("Five")], extra_headers=bound("forget"))
    assert thread(server, "forget") == [("user", "Five"), ("assistant", "Yes.")]


def test_what_is_redacted_here_is_recognised_all_the_same(server: Running, gpt: openai.OpenAI) -> None:
    with server.client() as client:
        talk = client.post("/api/conversations", json={"settings": {"redact": True}}).json()["id"]
    history: list[Any] = []
    for text in ("My card is 4111 1111 1111 1111.", "And now?"):
        history.append(user(text))
        gpt.chat.completions.create(model="chat", messages=history, extra_headers=bound(talk))
        history.append(bot("Yes."))
    stored = turns_of(server, talk, include_superseded=True)
    assert len(stored) == 4
    assert "4111" not in stored[0].text


def test_redacted_parts_calls_and_results_are_recognised_too(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    card = "4111 1111 1111 1111"
    provider.script(Say(calls=[("weather", {"city": card})]), Say("Noted."))
    with server.client() as client:
        talk = client.post("/api/conversations", json={"settings": {"redact": True}}).json()["id"]
    history: list[Any] = [user([{"type": "text", "text": f"Card: {card}"}, {"type": "text", "text": "Keep it."}])]
    asked = gpt.chat.completions.create(model="chat", messages=history, tools=[WEATHER], extra_headers=bound(talk))
    (call,) = asked.choices[0].message.tool_calls or []
    history += [asked.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": f"took {card}"}]
    gpt.chat.completions.create(model="chat", messages=history, tools=[WEATHER], extra_headers=bound(talk))
    history += [bot("Noted."), user("And now?")]
    gpt.chat.completions.create(model="chat", messages=history, tools=[WEATHER], extra_headers=bound(talk))
    stored = turns_of(server, talk, include_superseded=True)
    assert [turn.role for turn in stored] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert card not in str(stored)


def test_equal_messages_are_two_turns(server: Running, gpt: openai.OpenAI) -> None:
    for _ in range(2):
        gpt.chat.completions.create(model="chat", messages=[user("Hi")], extra_headers=bound("twice"))
    assert [role for role, _ in thread(server, "twice")] == ["user", "assistant"] * 2


def test_what_was_sent_is_not_kept_in_memory_once_it_is_answered(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    """Only what failed may have to be asked again."""
    provider.script(Say("Yes."), Fail(400))
    gpt.chat.completions.create(model="chat", messages=[user("One")])
    with pytest.raises(openai.BadRequestError):
        gpt.chat.completions.create(model="chat", messages=[user("Two")], extra_headers=bound("kept"))
    gpt.chat.completions.create(model="chat", messages=[user("Three")], extra_headers=bound("kept"))
    first, second, _ = server.app.state.services.recent_exchanges.values()
    assert first.ask.said == ()
    assert [one.text for one in second.ask.said] == ["Two"]


# ---- without a conversation ----------------------------------------------------------------------------------------


def test_without_a_conversation_a_request_passes_through(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    messages = [{"role": "system", "content": "Be brief."}, user("One"), bot("Two"), user("Three")]
    answer = gpt.chat.completions.create(model="chat", messages=messages, temperature=0.5, seed=7)  # type: ignore[arg-type]
    assert answer.choices[0].message.content == "Yes."
    sent = provider.bodies[-1]
    assert sent["messages"] == messages
    assert (sent["temperature"], sent["seed"]) == (0.5, 7)
    assert conversations(server) == 0


def test_it_is_stored_when_asked(server: Running, gpt: openai.OpenAI) -> None:
    raw = gpt.chat.completions.with_raw_response.create(model="chat", messages=[user("Keep this")], store=True)
    assert thread(server, raw.headers["x-conversation-id"]) == [("user", "Keep this"), ("assistant", "Yes.")]


@on_each_engine
def test_stored_completions_are_retrieved_listed_updated_and_deleted(server: Running, gpt: openai.OpenAI) -> None:
    kept = [
        gpt.chat.completions.create(model="chat", messages=[user(f"Keep {n}")], store=True, metadata={"n": str(n)})
        for n in range(3)
    ]
    stored = gpt.chat.completions.retrieve(kept[0].id)
    assert (stored.id, stored.model, stored.choices) == (kept[0].id, "chat", kept[0].choices)
    assert [one.id for one in gpt.chat.completions.list(limit=2)] == [one.id for one in kept]  # over two pages
    assert [one.id for one in gpt.chat.completions.list(order="desc")] == [one.id for one in reversed(kept)]
    assert [one.id for one in gpt.chat.completions.list(metadata={"n": "1"})] == [kept[1].id]
    assert not gpt.chat.completions.list(model="another").data
    (message,) = gpt.chat.completions.messages.list(kept[2].id).data
    assert (message.role, message.content) == ("user", "Keep 2")
    changed = gpt.chat.completions.update(kept[1].id, metadata={"n": "one"})
    assert changed.metadata == {"n": "one"}
    assert [one.id for one in gpt.chat.completions.list(metadata={"n": "one"})] == [kept[1].id]
    assert gpt.chat.completions.delete(kept[1].id).deleted
    assert [one.id for one in gpt.chat.completions.list()] == [kept[0].id, kept[2].id]
    with pytest.raises(openai.NotFoundError):
        gpt.chat.completions.retrieve(kept[1].id)
    assert conversations(server) == 2  # the unnamed conversation went with it


def test_a_stored_completion_of_another_user_or_protocol_is_not_found(settings: Any) -> None:
    with running(settings(require_auth=True, jwt_secret="s" * 32)) as server:
        ada, bob = (gpt_of(server, server.key(user=name)) for name in ("ada", "bob"))
        mine = ada.chat.completions.create(model="chat", messages=[user("Keep this")], store=True)
        response = ada.responses.create(model="chat", input="Keep this")
        for client, id in ((bob, mine.id), (ada, f"chatcmpl-{response.id.removeprefix('resp_')}"), (ada, "chatcmpl-x")):
            for call in (client.chat.completions.retrieve, client.chat.completions.delete):
                with pytest.raises(openai.NotFoundError):
                    call(id)
        assert not bob.chat.completions.list().data


@pytest.mark.parametrize("model", ["chat", "responses", "messages"])
def test_any_provider_may_answer(gpt: openai.OpenAI, provider: LoopbackProvider, model: str) -> None:
    for headers in ({}, bound("x")):
        answer = gpt.chat.completions.create(
            model=model, messages=[user("Hi")], temperature=0.2, max_tokens=9, extra_headers=headers
        )
        assert answer.choices[0].message.content == "Yes."
        assert provider.bodies[-1]["temperature"] == 0.2
        assert 9 in (provider.bodies[-1].get("max_tokens"), provider.bodies[-1].get("max_output_tokens"))


# ---- tools and images ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "stream"), [({}, False), (bound("tools"), True)], ids=["unbound", "bound and streamed"]
)
def test_tools_of_the_client_go_back_to_the_client(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider, headers: Any, stream: bool
) -> None:
    provider.script(Say("Let me see.", calls=[("weather", {"city": "Rome"})]), Say("Sunny."))
    history: list[Any] = [user("Do I need an umbrella?")]
    common: Any = {"model": "chat", "tools": [WEATHER], "extra_headers": headers}
    message = said(gpt, stream, messages=history, **common)
    (call,) = message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", {"city": "Rome"})
    history.append({"role": "assistant", "content": message.content, "tool_calls": [call.model_dump()]})
    history.append({"role": "tool", "tool_call_id": call.id, "content": "25 degrees"})
    assert said(gpt, stream, messages=history, **common).content == "Sunny."
    sent = provider.bodies[-1]["messages"]
    assert [one["role"] for one in sent] == ["user", "assistant", "tool"]
    assert sent[-1]["content"] == "25 degrees"
    if headers:
        assert [turn.role for turn in turns_of(server, "tools")] == ["user", "assistant", "tool", "assistant"]


def said(gpt: openai.OpenAI, stream: bool, **asked: Any) -> Any:
    """The message, streamed with the SDK's own accumulator or whole."""
    if not stream:
        return gpt.chat.completions.create(**asked).choices[0].message
    with gpt.chat.completions.stream(**asked) as events:
        return events.get_final_completion().choices[0].message


def test_a_tool_can_be_demanded(gpt: openai.OpenAI, provider: LoopbackProvider) -> None:
    choice: Any = {"type": "function", "function": {"name": "weather"}}
    for wanted in (choice, "required", "none"):
        gpt.chat.completions.create(
            model="chat", messages=[user("Hi")], tools=[WEATHER], tool_choice=wanted, extra_headers=bound("x")
        )
        assert provider.bodies[-1]["tool_choice"] == wanted


def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: page 7"


@on_each_engine
def test_tools_of_the_server_run_there_and_both_may_be_in_one_round(settings: Any, provider: LoopbackProvider) -> None:
    provider.script(
        Say("First.", calls=[("look_up", {"word": "rain"}), ("weather", {"city": "Rome"})]),
        Say("Page 7, and sunny."),
        Say("As I said."),
    )
    with running(settings(generate={"tools": [look_up]})) as server, gpt_of(server) as gpt:
        history: list[Any] = [user("Rain?")]
        common: Any = {"model": "chat", "tools": [WEATHER], "extra_headers": bound("both")}
        message = gpt.chat.completions.create(messages=history, **common).choices[0].message
        assert [call.function.name for call in message.tool_calls or ()] == ["weather"]
        history.append(message.model_dump(exclude_none=True))
        history.append({"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"})
        answer = gpt.chat.completions.create(messages=history, **common).choices[0].message
        history += [bot(answer.content or ""), user("Again?")]
        gpt.chat.completions.create(messages=history, **common)
        stored = turns_of(server, "both", include_superseded=True)
    assert [turn.role for turn in stored] == [
        "user", "assistant", "tool", "tool", "assistant", "user", "assistant",
    ]  # fmt: skip
    assert stored[1].metadata[CLIENT_CALLS] == [message.tool_calls[0].id]
    results = [one["content"] for one in provider.bodies[1]["messages"] if one["role"] == "tool"]
    assert results == ["rain: page 7", "sunny"]


def test_rounds_of_the_server_are_nothing_to_the_client(settings: Any, provider: LoopbackProvider) -> None:
    """It sees one answer, and sends it back as one."""
    provider.script(Say("Let me look.", calls=[("look_up", {"word": "rain"})]), Say("Page 7."), Say("Yes."))
    with running(settings(generate={"tools": [look_up]})) as server, gpt_of(server) as gpt:
        history: list[Any] = [user("Rain?")]
        answer = said(gpt, True, model="chat", messages=history, extra_headers=bound("ours"))
        assert answer.content == "Let me look.\n\nPage 7."
        history += [bot(answer.content), user("Sure?")]
        gpt.chat.completions.create(model="chat", messages=history, extra_headers=bound("ours"))
        assert not [turn for turn in turns_of(server, "ours", include_superseded=True) if not turn.active]


def test_results_reach_the_model_though_another_message_came_first(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    provider.script(Say("", calls=[("weather", {"city": "Rome"})]), Say("Sunny."))
    common: Any = {"model": "chat", "tools": [WEATHER], "extra_headers": bound("meanwhile")}
    raw = gpt.chat.completions.with_raw_response.create(messages=[user("Rain?")], **common)
    call = raw.parse().choices[0].message.tool_calls[0]  # type: ignore[index]
    with server.client() as client:
        talk = f"/api/conversations/{raw.headers['x-conversation-id']}"
        assert client.post(f"{talk}/turns", json={"role": "user", "content": "Hello?"}).is_success
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "25 degrees"}
    gpt.chat.completions.create(messages=[result], **common)
    assert [one["content"] for one in provider.bodies[-1]["messages"] if one["role"] == "tool"] == ["25 degrees"]


def test_results_and_the_next_message_may_come_together(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    provider.script(Say(calls=[("weather", {"city": "Rome"})]), Say("Then walk."))
    asked = gpt.chat.completions.create(
        model="chat", messages=[user("Rome?")], tools=[WEATHER], extra_headers=bound("both")
    )
    (call,) = asked.choices[0].message.tool_calls or []
    new: list[Any] = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"}, user("Shall I walk?")]
    gpt.chat.completions.create(model="chat", messages=new, tools=[WEATHER], extra_headers=bound("both"))
    assert [role for role, _ in thread(server, "both")] == ["user", "assistant", "tool", "user", "assistant"]
    assert [one["role"] for one in provider.bodies[-1]["messages"][-4:]] == ["user", "assistant", "tool", "user"]
    new[0]["tool_call_id"] = "nobody's"
    with pytest.raises(openai.BadRequestError, match="is waiting"):
        gpt.chat.completions.create(model="chat", messages=new, extra_headers=bound("both"))


def test_results_that_nobody_asked_for_are_refused(gpt: openai.OpenAI) -> None:
    history: Any = [user("Hi"), bot("Yes."), {"role": "tool", "tool_call_id": "nowhere", "content": "x"}]
    with pytest.raises(openai.BadRequestError, match="nowhere"):
        gpt.chat.completions.create(model="chat", messages=history, extra_headers=bound("x"))


@on_each_engine
def test_an_image_is_kept_as_a_file_and_recognised_by_its_bytes(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    url = f"data:image/png;base64,{PIXEL}"
    history: list[Any] = [
        user([{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}])
    ]
    gpt.chat.completions.create(model="chat", messages=history, extra_headers=bound("image"))
    assert provider.bodies[-1]["messages"][-1]["content"][1]["image_url"]["url"] == url
    history += [bot("Yes."), user("Sure?")]
    gpt.chat.completions.create(model="chat", messages=history, extra_headers=bound("image"))
    first, *rest = turns_of(server, "image", include_superseded=True)
    assert [one.bytes for one in first.attachments] == [len(base64.b64decode(PIXEL))]
    assert len(rest) == 3


@on_each_engine
def test_a_file_is_read_and_recognised_by_its_bytes(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    data = f"data:text/plain;base64,{base64.b64encode(b'The lease ends in March.').decode()}"
    document = {"type": "file", "file": {"filename": "lease.txt", "file_data": data}}
    history: list[Any] = [user([{"type": "text", "text": "Summarise this."}, document])]
    gpt.chat.completions.create(model="chat", messages=history, extra_headers=bound("file"))
    sent = provider.bodies[-1]
    assert "The lease ends in March." in json.dumps(sent["messages"][-1])
    assert [one["function"]["name"] for one in sent["tools"]] == ["read_attachment"]
    history += [bot("Yes."), user("Sure?")]
    gpt.chat.completions.create(model="chat", messages=history, extra_headers=bound("file"))
    assert len(turns_of(server, "file", include_superseded=True)) == 4


def test_an_edited_message_keeps_the_files_that_this_protocol_cannot_name(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    gpt.chat.completions.create(model="chat", messages=[user("Hi")], extra_headers=bound("kept"))
    with server.client() as client:
        (found,) = [one for one in ok(client.get("/api/conversations"))["items"] if one["key"] == "kept"]
        talk = f"/api/conversations/{found['id']}"
        lease = b"The lease ends in March."
        file = ok(client.post(f"{talk}/attachments", params={"filename": "lease.txt"}, content=lease), 201)
        ok(client.post(f"{talk}/turns", json={"role": "user", "content": "This?", "attachments": [file["id"]]}), 201)
        ok(client.post(f"{talk}/turns", json={"role": "assistant", "content": "A lease."}), 201)
    history: Any = [user("Hi"), bot("Yes."), user("What is this, exactly?")]
    gpt.chat.completions.create(model="chat", messages=history, extra_headers=bound("kept"))
    edited = turns_of(server, "kept")[2]
    assert edited.text == "What is this, exactly?"
    assert [one.filename for one in edited.attachments] == ["lease.txt"]
    assert lease.decode() in json.dumps(provider.bodies[-1])


# ---- errors --------------------------------------------------------------------------------------------------------


def test_errors_have_the_provider_s_own_shape(server: Running, gpt: openai.OpenAI, provider: LoopbackProvider) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        gpt.chat.completions.create(model="gpt-none", messages=[user("Hi")])
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        gpt.chat.completions.create(model="gpt-none", messages=[user("Hi")], extra_headers=bound("nothing"))
    assert conversations(server) == 0
    with pytest.raises(openai.BadRequestError) as wrong:
        gpt.chat.completions.create(model="chat", messages=[])
    assert (wrong.value.param, wrong.value.type) == ("messages", "invalid_request_error")
    with pytest.raises(openai.BadRequestError):
        gpt.chat.completions.create(model="chat", messages=[user("Hi")], n=2)
    with pytest.raises(openai.NotFoundError):
        gpt.chat.completions.create(
            model="chat", messages=[user("Hi")], extra_headers=bound("01KA2V4YFM3Q2D7N9V1C6T0000")
        )
    provider.script(Fail(400, message="secret words", kind="invalid_request_error"))
    with pytest.raises(openai.BadRequestError) as refused:
        gpt.chat.completions.create(model="chat", messages=[user("Hi")])
    assert "secret words" not in str(refused.value)
    provider.script(*[Fail(503)] * 3)
    with pytest.raises(openai.InternalServerError) as busy:
        gpt.chat.completions.create(model="chat", messages=[user("Hi")], stream=True, extra_headers=bound("busy"))
    assert busy.value.status_code == 503


def test_an_answer_that_breaks_off_says_so_in_the_stream(gpt: openai.OpenAI, provider: LoopbackProvider) -> None:
    provider.script(Say("One two three four", cut_after=2))
    chunks = iter(gpt.chat.completions.create(model="chat", messages=[user("Hi")], stream=True))
    assert [next(chunks).choices[0].delta.content for _ in range(3)] == ["", "One", " two"]
    with pytest.raises(openai.APIError):
        next(chunks)


def test_keys_and_rights_are_those_of_the_server(settings: Any) -> None:
    with running(settings(require_auth=True, jwt_secret="s" * 32)) as server:
        with pytest.raises(openai.AuthenticationError) as nobody:
            gpt_of(server).chat.completions.create(model="chat", messages=[user("Hi")])
        assert nobody.value.code == "invalid_api_key"
        ada, eve = server.key("acme", "ada"), server.key("acme", "eve")
        raw = gpt_of(server, ada).chat.completions.with_raw_response.create(
            model="chat", messages=[user("Mine")], extra_headers=bound("private")
        )
        with pytest.raises(openai.NotFoundError):
            gpt_of(server, eve).chat.completions.create(
                model="chat", messages=[user("Mine?")], extra_headers=bound(raw.headers["x-conversation-id"])
            )
        told: list[Any] = [{"role": "system", "content": "Obey."}, user("Hi")]
        with pytest.raises(openai.PermissionDeniedError):
            gpt_of(server, ada).chat.completions.create(model="chat", messages=told)


def test_a_backend_key_may_send_a_system_message_and_a_refusal_says_how(
    settings: Any, provider: LoopbackProvider
) -> None:
    messages: list[Any] = [{"role": "system", "content": "Be brief."}, user("Hi")]
    with running(settings(require_auth=True, jwt_secret="s" * 32)) as server:
        backend = server.key("acme", None, rights=" ".join(PRESETS["backend"]), visibility="tenant")
        for headers in ({}, bound("kept")):
            gpt_of(server, backend).chat.completions.create(model="chat", messages=messages, extra_headers=headers)
            assert provider.bodies[-1]["messages"][0]["content"].startswith("Be brief.")
        frontend = server.key("acme", "ada", rights=" ".join(PRESETS["frontend"]))
        with pytest.raises(openai.PermissionDeniedError) as refused:
            gpt_of(server, frontend).chat.completions.create(model="chat", messages=messages)
        assert "'system'" in refused.value.message
        assert "palaver keys create --right system" in refused.value.message
        assert "palaver_rights" in refused.value.message
        assert "Scope" not in refused.value.message, "no hint for Python programs"
    assert len(provider.received) == 2


@pytest.mark.parametrize("rights", ["read", "write", "read write", "system", "admin"])
def test_a_key_without_the_right_to_generate_asks_no_model(
    settings: Any, provider: LoopbackProvider, rights: str
) -> None:
    with running(settings(require_auth=True, jwt_secret="s" * 32)) as server:
        gpt, claude = (make(server, server.key(rights=rights)) for make in (gpt_of, claude_of))
        calls: list[Any] = [
            lambda: gpt.chat.completions.create(model="chat", messages=[user("Hi")]),
            lambda: gpt.responses.create(model="chat", input="Hi", store=False),
            lambda: claude.messages.create(model="chat", max_tokens=9, messages=[user("Hi")]),  # type: ignore[list-item]
        ]
        for call in calls:
            with pytest.raises((openai.PermissionDeniedError, anthropic.PermissionDeniedError), match="'generate'"):
                call()
        assert provider.received == []
        only = gpt_of(server, server.key(rights="generate"))
        assert only.chat.completions.create(model="chat", messages=[user("Hi")]).choices[0].message.content == "Yes."
        with pytest.raises(openai.PermissionDeniedError, match="'read'"):
            only.chat.completions.create(model="chat", messages=[user("Hi")], extra_headers=bound("kept"))
        assert conversations(server) == 0


def test_models_are_those_that_are_configured(gpt: openai.OpenAI, provider: LoopbackProvider) -> None:
    assert {one.id for one in gpt.models.list()} == {"chat", "responses", "messages"}
    assert gpt.models.retrieve("chat").id == "chat"
    with pytest.raises(openai.NotFoundError):
        gpt.models.retrieve("none")
    assert gpt.chat.completions.create(model="test", messages=[user("Hi")]).model == "test", "the provider's own name"
