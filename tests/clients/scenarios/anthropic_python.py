"""The anthropic package: Messages."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import anthropic
from anthropic import beta_tool
from pydantic import BaseModel

from tests.clients.scenarios.harness import DOT, KEY, URL, WRONG_KEY, main, raises, scenario

client = anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=60)
MODEL = "messages"
SIZE = 1_024
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: Any = {"name": "get_weather", "description": "The weather", "input_schema": SCHEMA}


class Person(BaseModel):
    name: str
    age: int


def said(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def ask(text: str, **more: Any) -> Any:
    return client.messages.create(model=MODEL, max_tokens=SIZE, messages=said(text), **more)


@scenario
def messages() -> None:
    done = ask("Say hello there", system="Be brief.")
    assert [block.text for block in done.content] == ["hello there"]
    assert done.stop_reason == "end_turn"
    assert done.usage.input_tokens > 0


@scenario
def stream() -> None:
    with client.messages.stream(model=MODEL, max_tokens=SIZE, messages=said("Count to 9")) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text.split() == [str(n) for n in range(1, 10)]
    assert final.content[0].text == text


def _round_of_tools(cities: str, **result: Any) -> str:
    thread = said(f"What is the weather in {cities}?")
    asked = client.messages.create(model=MODEL, max_tokens=SIZE, messages=thread, tools=[TOOL])
    assert asked.stop_reason == "tool_use"
    results = [
        {"type": "tool_result", "tool_use_id": one.id, "content": str(one.input["city"]), **result}
        for one in asked.content
        if one.type == "tool_use"
    ]
    thread += [{"role": "assistant", "content": asked.content}, {"role": "user", "content": results}]
    done = client.messages.create(model=MODEL, max_tokens=SIZE, messages=thread, tools=[TOOL])
    return str(done.content[0].text)


@scenario
def tools() -> None:
    assert _round_of_tools("Rome") == "Tools: Rome"


@scenario
def parallel_tools() -> None:
    assert _round_of_tools("Rome and Oslo") == "Tools: Rome; Oslo"


@scenario
def tool_that_failed() -> None:
    assert _round_of_tools("Rome", is_error=True) == "Tools: Rome"


@scenario
def streamed_tools() -> None:
    asked = said("the weather in Rome")
    with client.messages.stream(model=MODEL, max_tokens=SIZE, messages=asked, tools=[TOOL]) as stream:
        (call,) = [one for one in stream.get_final_message().content if one.type == "tool_use"]
    assert call.input == {"city": "Rome"}


@scenario
def tool_runner() -> None:
    @beta_tool
    def get_weather(city: str) -> str:
        """Return the weather.

        Args:
            city: Where.
        """
        return f"Sunny in {city}"

    runner = client.beta.messages.tool_runner(
        model=MODEL, max_tokens=SIZE, messages=said("the weather in Rome"), tools=[get_weather]
    )
    assert runner.until_done().content[0].text == "Tools: Sunny in Rome"


@scenario
def parse() -> None:
    done = client.messages.parse(model=MODEL, max_tokens=SIZE, messages=said("Ada as JSON"), output_format=Person)
    assert done.parsed_output == Person(name="Ada", age=36)


@scenario
def picture() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": DOT}
    content: Any = [{"type": "image", "source": source}, {"type": "text", "text": "Say seen"}]
    done = client.messages.create(model=MODEL, max_tokens=SIZE, messages=[{"role": "user", "content": content}])
    assert done.content[0].text == "seen"


@scenario
def conversation_remembers() -> None:
    headers = {"X-Conversation-Id": f"messages/{uuid4()}"}
    ask("My name is Ada.", extra_headers=headers)
    assert "My name is Ada." in ask("What did I say?", extra_headers=headers).content[0].text


@scenario
def conversation_named_in_metadata() -> None:
    metadata: Any = {"conversation_id": f"messages/{uuid4()}"}
    ask("My name is Ada.", metadata=metadata)
    assert "My name is Ada." in ask("What did I say?", metadata=metadata).content[0].text


@scenario
def compaction() -> None:
    headers = {"X-Conversation-Id": f"compacted/{uuid4()}"}
    text = "I keep bees, and my garden is full of lavender. " * 150
    for _ in range(4):
        ask(text, extra_headers=headers)
    edit: Any = {"edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 50_000}}]}
    done = client.beta.messages.create(
        model=MODEL, max_tokens=SIZE, messages=said("Say done"), context_management=edit, extra_headers=headers,
        betas=["compact-2026-01-12"],
    )  # fmt: skip
    assert done.content[-1].text == "done"


@scenario
def count_tokens() -> None:
    assert client.messages.count_tokens(model=MODEL, messages=said("How many?")).input_tokens > 0


@scenario
def bearer_token() -> None:
    other = anthropic.Anthropic(base_url=URL, auth_token=KEY, api_key=None, max_retries=0)
    done = other.messages.create(model=MODEL, max_tokens=SIZE, messages=said("Say hello"))
    assert done.content[0].text == "hello"


@scenario
def errors() -> None:
    raises(anthropic.BadRequestError, lambda: ask("Fail with 400"))
    raises(anthropic.BadRequestError, lambda: client.messages.create(model=MODEL, max_tokens=SIZE, messages=[]))
    missing = raises(
        anthropic.NotFoundError,
        lambda: client.messages.create(model="no-such-model", max_tokens=SIZE, messages=said("Hi")),
    )
    assert missing.body["error"]["type"] == "not_found_error"
    stranger = anthropic.Anthropic(base_url=URL, api_key=WRONG_KEY, max_retries=0)
    wrong = {"model": MODEL, "max_tokens": SIZE, "messages": said("Hi")}
    raises(anthropic.AuthenticationError, lambda: stranger.messages.create(**wrong))


@scenario
def retry_of_the_sdk() -> None:
    again = client.with_options(max_retries=3)
    done = again.messages.create(model=MODEL, max_tokens=SIZE, messages=said(f"Fail once {uuid4()}"))
    assert done.content[0].text == "At last."


@scenario
async def async_client_streams() -> None:
    other = anthropic.AsyncAnthropic(base_url=URL, api_key=KEY, max_retries=0)
    async with other, other.messages.stream(model=MODEL, max_tokens=SIZE, messages=said("Count to 3")) as stream:
        text = "".join([piece async for piece in stream.text_stream])
    assert text == "1 2 3 "


@scenario
def model_of_another_provider() -> None:
    done = client.messages.create(model="chat", max_tokens=SIZE, messages=said("Say hello"))
    assert done.content[0].text == "hello"


if __name__ == "__main__":
    main("anthropic")
