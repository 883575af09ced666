"""The openai package: Chat Completions, Responses, Conversations, Embeddings, Models."""

from __future__ import annotations

import json
import time
from typing import Any
from uuid import uuid4

import openai
from openai.types.responses import Response
from pydantic import BaseModel

from tests.clients.scenarios.harness import DOT, KEY, URL, WRONG_KEY, main, raises, scenario

client = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=60)
MODEL = "chat"
PICTURE = f"data:image/png;base64,{DOT}"
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: Any = {"type": "function", "function": {"name": "get_weather", "description": "…", "parameters": PARAMETERS}}
FLAT_TOOL: Any = {"type": "function", "name": "get_weather", "parameters": PARAMETERS, "strict": False}


class Person(BaseModel):
    name: str
    age: int


def said(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def city_of(arguments: str) -> str:
    return str(json.loads(arguments)["city"])


# ---- Chat Completions ----------------------------------------------------------------------------------------------


@scenario
def chat() -> None:
    done = client.chat.completions.create(model=MODEL, messages=said("Say hello there"))
    assert done.choices[0].message.content == "hello there"
    assert done.choices[0].finish_reason == "stop"
    assert done.usage
    assert done.usage.total_tokens > 0


@scenario
def chat_stream_with_usage() -> None:
    options: Any = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(model=MODEL, messages=said("Count to 9"), stream=True, stream_options=options)
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text.split() == [str(n) for n in range(1, 10)]
    assert chunks[-1].usage
    assert chunks[-1].usage.completion_tokens > 0


@scenario
def chat_stream_helper() -> None:
    with client.chat.completions.stream(model=MODEL, messages=said("Count to 3")) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content == "1 2 3 "


def _round_of_tools(cities: str) -> str:
    messages = said(f"What is the weather in {cities}?")
    asked = client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL])
    message = asked.choices[0].message
    assert asked.choices[0].finish_reason == "tool_calls"
    messages.append(message)
    for call in message.tool_calls or ():
        messages.append({"role": "tool", "tool_call_id": call.id, "content": city_of(call.function.arguments)})
    done = client.chat.completions.create(model=MODEL, messages=messages, tools=[TOOL])
    return done.choices[0].message.content or ""


@scenario
def chat_tools() -> None:
    assert _round_of_tools("Rome") == "Tools: Rome"


@scenario
def chat_parallel_tools() -> None:
    assert _round_of_tools("Rome and Oslo") == "Tools: Rome; Oslo"


@scenario
def chat_streamed_tools() -> None:
    with client.chat.completions.stream(model=MODEL, messages=said("the weather in Rome"), tools=[TOOL]) as stream:
        stream.until_done()
        call = (stream.get_final_completion().choices[0].message.tool_calls or [])[0]
    assert (call.function.name, city_of(call.function.arguments)) == ("get_weather", "Rome")


@scenario
def chat_parse() -> None:
    done = client.chat.completions.parse(model=MODEL, messages=said("Ada as JSON"), response_format=Person)
    assert done.choices[0].message.parsed == Person(name="Ada", age=36)


@scenario
def chat_system_message_and_picture() -> None:
    content = [{"type": "text", "text": "Say seen"}, {"type": "image_url", "image_url": {"url": PICTURE}}]
    messages: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
    assert client.chat.completions.create(model=MODEL, messages=messages).choices[0].message.content == "seen"


@scenario
def chat_in_a_conversation_remembers() -> None:
    headers = {"X-Conversation-Id": f"chat/{uuid4()}"}
    for text in ("My name is Ada.", "What did I say?"):
        done = client.chat.completions.create(model=MODEL, messages=said(text), extra_headers=headers)
    assert "My name is Ada." in (done.choices[0].message.content or "")


@scenario
def chat_stored_completions() -> None:
    made = client.chat.completions.create(model=MODEL, messages=said("Say kept"), store=True, metadata={"a": "1"})
    kept = client.chat.completions.retrieve(made.id)
    assert kept.choices[0].message.content == "kept"
    assert made.id in [one.id for one in client.chat.completions.list()]
    assert client.chat.completions.update(made.id, metadata={"a": "2"}).metadata == {"a": "2"}
    assert [one.content for one in client.chat.completions.messages.list(made.id)] == ["Say kept"]
    assert client.chat.completions.delete(made.id).deleted
    raises(openai.NotFoundError, lambda: client.chat.completions.retrieve(made.id))


@scenario
def raw_response_has_a_request_id() -> None:
    raw = client.chat.completions.with_raw_response.create(model=MODEL, messages=said("Say hello"))
    assert raw.headers["x-request-id"]
    assert raw.parse().choices[0].message.content == "hello"


@scenario
def errors() -> None:
    ask = client.chat.completions.create
    refused = raises(openai.BadRequestError, lambda: ask(model=MODEL, messages=said("Fail with 400")))
    assert refused.body["message"], refused.body
    raises(openai.NotFoundError, lambda: ask(model="no-such-model", messages=said("Hi")))
    stranger = client.with_options(api_key=WRONG_KEY).chat.completions.create
    raises(openai.AuthenticationError, lambda: stranger(model=MODEL, messages=said("Hi")))
    raises(openai.BadRequestError, lambda: ask(model=MODEL, messages=[]))


@scenario
def retry_of_the_sdk_asks_once_more_and_stores_once() -> None:
    talk = client.conversations.create()
    done = client.with_options(max_retries=3).responses.create(
        model=MODEL, input=f"Fail once {uuid4()}", conversation=talk.id
    )
    assert done.output_text == "At last."
    items = [one for one in client.conversations.items.list(talk.id) if one.type == "message"]
    assert [one.role for one in items] == ["assistant", "user"]


@scenario
async def async_client_many_at_once() -> None:
    import asyncio

    async with openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0) as many:
        asked = [many.chat.completions.create(model=MODEL, messages=said(f"Say number {n}")) for n in range(8)]
        done = await asyncio.gather(*asked)
    assert [one.choices[0].message.content for one in done] == [f"number {n}" for n in range(8)]


# ---- Responses -----------------------------------------------------------------------------------------------------


@scenario
def responses() -> None:
    done = client.responses.create(model=MODEL, input="Say hello", instructions="Be brief.")
    assert (done.output_text, done.status) == ("hello", "completed")
    assert done.usage
    assert done.usage.output_tokens > 0
    assert client.responses.retrieve(done.id).output_text == "hello"
    assert [one.type for one in client.responses.input_items.list(done.id)] == ["message"]
    client.responses.delete(done.id)
    raises(openai.NotFoundError, lambda: client.responses.retrieve(done.id))


@scenario
def responses_stream() -> None:
    with client.responses.stream(model=MODEL, input="Count to 5") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [one.sequence_number for one in events] == list(range(len(events)))
    assert final.output_text == "1 2 3 4 5 "


@scenario
def responses_continue_from_the_previous_one() -> None:
    first = client.responses.create(model=MODEL, input="My name is Ada.")
    second = client.responses.create(model=MODEL, input="What did I say?", previous_response_id=first.id)
    assert "My name is Ada." in second.output_text
    other = client.responses.create(model=MODEL, input="What did I say?", previous_response_id=first.id)
    assert "What did I say?" not in other.output_text.removeprefix("You said:"), "another branch is visible"


@scenario
def responses_tools() -> None:
    asked = client.responses.create(model=MODEL, input="the weather in Rome and Oslo", tools=[FLAT_TOOL])
    calls = [one for one in asked.output if one.type == "function_call"]
    results: Any = [
        {"type": "function_call_output", "call_id": one.call_id, "output": city_of(one.arguments)} for one in calls
    ]
    done = client.responses.create(model=MODEL, input=results, previous_response_id=asked.id, tools=[FLAT_TOOL])
    assert done.output_text == "Tools: Rome; Oslo"


@scenario
def responses_parse() -> None:
    done = client.responses.parse(model=MODEL, input="Ada as JSON", text_format=Person)
    assert done.output_parsed == Person(name="Ada", age=36)


def _poll(id: str, until: set[str]) -> Response:
    while (found := client.responses.retrieve(id)).status not in until:
        time.sleep(0.05)
    return found


@scenario
def responses_in_the_background() -> None:
    made = client.responses.create(model=MODEL, input="Count to 4", background=True)
    assert made.status in ("queued", "in_progress", "completed")
    assert _poll(made.id, {"completed", "failed"}).output_text == "1 2 3 4 "


@scenario
def responses_cancelled() -> None:
    made = client.responses.create(model=MODEL, input="Count slowly to 200", background=True)
    client.responses.cancel(made.id)
    assert _poll(made.id, {"completed", "failed", "cancelled"}).status == "cancelled"


@scenario
def responses_resumed_after_an_event() -> None:
    seen: list[str] = []
    stream = client.responses.create(model=MODEL, input="Count slowly to 20", background=True, stream=True)
    for event in stream:
        if event.type == "response.created":
            id = event.response.id
        if event.type == "response.output_text.delta":
            seen.append(event.delta)
        last = event.sequence_number
        if len(seen) == 3:
            stream.close()
            break
    for event in client.responses.retrieve(id, stream=True, starting_after=last):
        if event.type == "response.output_text.delta":
            seen.append(event.delta)
    assert "".join(seen).split() == [str(n) for n in range(1, 21)]


@scenario
def responses_count_input_tokens() -> None:
    assert client.responses.input_tokens.count(model=MODEL, input="How many?").input_tokens > 0


@scenario
def responses_compacted() -> None:
    first = client.responses.create(model=MODEL, input="My cat is called Ginger.")
    compacted = client.responses.compact(model=MODEL, previous_response_id=first.id)
    assert compacted.output[-1].type == "compaction"
    sent: Any = [*(one.model_dump() for one in compacted.output), {"role": "user", "content": "What did I say?"}]
    assert client.responses.create(model=MODEL, input=sent).status == "completed"


# ---- Conversations, Embeddings, Models -----------------------------------------------------------------------------


@scenario
def conversations() -> None:
    item: Any = {"type": "message", "role": "user", "content": "I live in Rome."}
    talk = client.conversations.create(items=[item], metadata={"topic": "travel"})
    done = client.responses.create(model=MODEL, input="What did I say?", conversation=talk.id)
    assert "I live in Rome." in done.output_text
    assert client.conversations.update(talk.id, metadata={"topic": "home"}).metadata == {"topic": "home"}
    assert client.conversations.retrieve(talk.id).metadata == {"topic": "home"}
    found = list(client.conversations.items.list(talk.id, order="asc", limit=1))  # several pages
    assert [one.type for one in found] == ["message"] * 3
    assert client.conversations.items.retrieve(found[0].id or "", conversation_id=talk.id).type == "message"
    client.conversations.items.delete(found[0].id or "", conversation_id=talk.id)
    assert client.conversations.delete(talk.id).deleted
    raises(openai.NotFoundError, lambda: client.conversations.retrieve(talk.id))


@scenario
def embeddings() -> None:
    made = client.embeddings.create(model="local", input=["a dog", "a puppy"])
    assert len(made.data) == 2
    assert len(made.data[0].embedding) > 100


@scenario
def models() -> None:
    assert MODEL in [one.id for one in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL


if __name__ == "__main__":
    main("openai")
