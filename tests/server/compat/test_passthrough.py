"""A client's request reaches the model, even one with another protocol; what cannot reach it is refused."""

from __future__ import annotations

import threading
from base64 import b64encode
from dataclasses import replace
from typing import Any

import anthropic
import openai
import pytest

from palaver.context.render import provider_name
from palaver.core.strides import LARGE
from palaver.server.compat.request import ClientMessage, ClientRequest, count_tokens
from palaver.testing.providers import LoopbackProvider, Say
from tests.server.compat.conftest import conversations, thread
from tests.server.conftest import Running

HI: Any = {"role": "user", "content": "Hi"}
SCHEMA: Any = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
EACH_MODEL = pytest.mark.parametrize("model", ["chat", "responses", "messages"])
NAMES = pytest.mark.parametrize("name", ["", "c"], ids=["without memory", "with memory"])
WORDS = "The lease ends in March."
LEASE = f"data:text/plain;base64,{b64encode(WORDS.encode()).decode()}"


def headers(name: str) -> dict[str, str]:
    return {"X-Conversation-Id": name} if name else {}


def strictness(sent: dict[str, Any]) -> Any:
    (tool,) = sent["tools"]
    return tool.get("function", tool).get("strict")


@NAMES
@EACH_MODEL
def test_strict_tools_stay_strict(
    gpt: openai.OpenAI, claude: anthropic.Anthropic, provider: LoopbackProvider, model: str, name: str
) -> None:
    told: Any = {"name": "f", "description": "d", "strict": True}
    tool: Any = {"type": "function", "function": {**told, "parameters": SCHEMA}}
    gpt.chat.completions.create(model=model, messages=[HI], tools=[tool], extra_headers=headers(name))
    flat: Any = {"type": "function", **told, "parameters": SCHEMA}
    gpt.responses.create(model=model, input="Hi", tools=[flat], store=False, extra_headers=headers(name))
    own: Any = {**told, "input_schema": SCHEMA}
    claude.messages.create(model=model, max_tokens=9, messages=[HI], tools=[own], extra_headers=headers(name))
    assert [strictness(sent) for sent in provider.bodies] == [True, True, True]


def test_nobody_is_stricter_than_the_client(gpt: openai.OpenAI, provider: LoopbackProvider) -> None:
    tool: Any = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
    for model in ("chat", "responses", "messages"):
        gpt.chat.completions.create(model=model, messages=[HI], tools=[tool])
    assert [strictness(sent) for sent in provider.bodies] == [None, False, None]


def form_of(sent: dict[str, Any]) -> Any:
    """The format of the answer, from a request of any protocol."""
    if "response_format" in sent:
        return sent["response_format"]["json_schema"]["schema"]
    return (sent.get("text") or sent.get("output_config") or {}).get("format", {}).get("schema")


@NAMES
@EACH_MODEL
def test_what_an_answer_must_look_like_is_told_to_every_model(
    gpt: openai.OpenAI, claude: anthropic.Anthropic, provider: LoopbackProvider, model: str, name: str
) -> None:
    schema: Any = {"name": "n", "schema": SCHEMA, "strict": True}
    wanted: Any = {"type": "json_schema", "json_schema": schema}
    gpt.chat.completions.create(model=model, messages=[HI], response_format=wanted, extra_headers=headers(name))
    text: Any = {"format": {"type": "json_schema", **schema}}
    gpt.responses.create(model=model, input="Hi", text=text, store=False, extra_headers=headers(name))
    config: Any = {"format": {"type": "json_schema", "schema": SCHEMA}}
    claude.messages.create(model=model, max_tokens=9, messages=[HI], output_config=config, extra_headers=headers(name))
    assert [form_of(sent) for sent in provider.bodies] == [SCHEMA, SCHEMA, SCHEMA]


def test_a_form_that_the_model_does_not_know_is_refused_and_leaves_nothing(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    for name in ("", "c"):
        with pytest.raises(openai.BadRequestError, match="json_schema"):
            gpt.chat.completions.create(
                model="messages", messages=[HI], response_format={"type": "json_object"}, extra_headers=headers(name)
            )
    assert (provider.bodies, conversations(server)) == ([], 0)
    for model in ("chat", "responses"):
        gpt.chat.completions.create(model=model, messages=[HI], response_format={"type": "json_object"})
    assert provider.bodies[0]["response_format"] == provider.bodies[1]["text"]["format"] == {"type": "json_object"}


@NAMES
@EACH_MODEL
def test_one_call_at_a_time_is_told_to_every_model(
    gpt: openai.OpenAI, claude: anthropic.Anthropic, provider: LoopbackProvider, model: str, name: str
) -> None:
    tool: Any = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
    gpt.chat.completions.create(
        model=model, messages=[HI], tools=[tool], parallel_tool_calls=False, extra_headers=headers(name)
    )
    choice: Any = {"type": "auto", "disable_parallel_tool_use": True}
    own: Any = {"name": "f", "input_schema": SCHEMA}
    claude.messages.create(
        model=model, max_tokens=9, messages=[HI], tools=[own], tool_choice=choice, extra_headers=headers(name)
    )
    for sent in provider.bodies:
        told = sent["tool_choice"] if model == "messages" else sent
        assert told.get("disable_parallel_tool_use", not told.get("parallel_tool_calls", True)) is True


@NAMES
def test_that_a_tool_failed_is_told_to_the_model(
    claude: anthropic.Anthropic, provider: LoopbackProvider, name: str
) -> None:
    tool: Any = {"name": "f", "input_schema": SCHEMA}
    provider.script(Say(calls=[("f", {"a": "1"})]))
    told: Any = {"model": "messages", "max_tokens": 9, "tools": [tool], "extra_headers": headers(name)}
    asked = claude.messages.create(messages=[HI], **told)
    call: Any = asked.content[-1]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "no such city", "is_error": True}
    back: Any = [HI, {"role": "assistant", "content": [call.model_dump()]}, {"role": "user", "content": [result]}]
    claude.messages.create(messages=back, **told)
    assert provider.bodies[-1]["messages"][-1]["content"] == [result]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@NAMES
def test_where_the_model_was_told_to_stop_is_told_to_the_client(
    claude: anthropic.Anthropic, provider: LoopbackProvider, name: str, stream: bool
) -> None:
    provider.script(Say("One two", finish="stop_sequence"), Say("One two three"))
    asked: Any = {"model": "messages", "max_tokens": 9, "messages": [HI], "stop_sequences": ["three"]}
    ends = []
    for _ in range(2):
        if stream:
            with claude.messages.stream(**asked, extra_headers=headers(name)) as told:
                answer: Any = told.get_final_message()
        else:
            answer = claude.messages.create(**asked, extra_headers=headers(name))
        ends.append((answer.stop_reason, answer.stop_sequence))
    assert ends == [("stop_sequence", "three"), ("end_turn", None)]


# ---- files without memory: nobody could read them later ------------------------------------------------------------


def file_of(sent: dict[str, Any]) -> Any:
    content = (sent.get("messages") or sent.get("input"))[-1]["content"]
    (found,) = [part for part in content if part["type"] in ("file", "input_file", "document")]
    return found


@EACH_MODEL
def test_a_document_is_passed_on_with_its_words(
    server: Running, gpt: openai.OpenAI, claude: anthropic.Anthropic, provider: LoopbackProvider, model: str
) -> None:
    part: Any = {"type": "file", "file": {"filename": "lease.txt", "file_data": LEASE}}
    gpt.chat.completions.create(model=model, messages=[{"role": "user", "content": [part]}])
    item: Any = {"type": "input_file", "filename": "lease.txt", "file_data": LEASE}
    gpt.responses.create(model=model, input=[{"role": "user", "content": [item]}], store=False)
    source = {"type": "text", "media_type": "text/plain", "data": WORDS}
    block: Any = {"type": "document", "title": "lease.txt", "source": source}
    claude.messages.create(model=model, max_tokens=9, messages=[{"role": "user", "content": [block]}])
    expected = {"chat": part, "responses": item, "messages": block}[model]
    assert [file_of(sent) for sent in provider.bodies] == [expected] * 3
    assert conversations(server) == 0


def test_a_document_of_bytes_and_one_by_its_address(
    gpt: openai.OpenAI, claude: anthropic.Anthropic, provider: LoopbackProvider
) -> None:
    bytes_: Any = {"type": "base64", "media_type": "application/pdf", "data": b64encode(b"%PDF-1.4").decode()}
    address: Any = {"type": "url", "url": "https://example.org/lease.pdf"}
    for source in (bytes_, address):
        block: Any = {"type": "document", "title": "lease", "source": source}
        claude.messages.create(model="messages", max_tokens=9, messages=[{"role": "user", "content": [block]}])
        assert file_of(provider.bodies[-1]) == block
    item: Any = {"type": "input_file", "file_url": address["url"]}
    gpt.responses.create(model="responses", input=[{"role": "user", "content": [item]}], store=False)
    assert file_of(provider.bodies[-1]) == item
    with pytest.raises(openai.BadRequestError, match="does not accept URLs"):
        gpt.responses.create(model="chat", input=[{"role": "user", "content": [item]}], store=False)


def test_counting_has_tools_pictures_and_results(server: Running, claude: anthropic.Anthropic) -> None:
    claude.messages.create(model="messages", max_tokens=9, messages=[HI], extra_headers=headers("c"))

    def count(content: Any, tools: Any = ()) -> int:
        asked: Any = {"model": "messages", "messages": [{"role": "user", "content": content}]}
        more: Any = {"tools": tools} if tools else {}
        return claude.messages.count_tokens(**asked, **more, extra_headers=headers("c")).input_tokens

    picture = {"type": "image", "source": {"type": "url", "url": "https://example.org/cat.png"}}
    alone = count("Look")
    assert count([{"type": "text", "text": "Look"}, picture]) > alone
    assert count("Look", [{"name": "f", "description": "A tool with many words.", "input_schema": SCHEMA}]) > alone
    assert count([{"type": "tool_result", "tool_use_id": "x", "content": "long " * 99}]) > count("Look") + 50
    assert thread(server, "c") == [("user", "Hi"), ("assistant", "Yes.")]


@NAMES
@EACH_MODEL
def test_a_clients_tool_keeps_its_name_whatever_the_provider_accepts(
    gpt: openai.OpenAI, provider: LoopbackProvider, model: str, name: str
) -> None:
    odd = "files.read:1"
    provider.script(Say(calls=[(provider_name(odd), {})]))
    tool: Any = {"type": "function", "function": {"name": odd, "parameters": SCHEMA}}
    made = gpt.chat.completions.create(model=model, messages=[HI], tools=[tool], extra_headers=headers(name))
    (call,) = made.choices[0].message.tool_calls or ()
    assert call.type == "function"
    assert call.function.name == odd
    assert odd not in str(provider.bodies[-1])


async def test_a_large_request_is_counted_outside_of_the_event_loop() -> None:
    here, threads = threading.get_ident(), set()

    def count(text: str) -> int:
        threads.add(threading.get_ident())
        return len(text)

    small = ClientRequest(shape="openai-chat", model="chat", said=(ClientMessage(role="user", content="Hi"),))
    large = replace(small, said=(ClientMessage(role="user", content="1 " * LARGE),))
    assert await count_tokens(small, count) < await count_tokens(large, count)
    assert threads - {here}
