"""litellm: completion, responses and embedding, by OpenAI's and Anthropic's protocol."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import litellm

from tests.clients.scenarios.harness import KEY, URL, WRONG_KEY, main, raises, scenario

OPENAI: dict[str, Any] = {"model": "openai/chat", "api_base": f"{URL}/v1", "api_key": KEY, "num_retries": 0}
ANTHROPIC: dict[str, Any] = {"model": "anthropic/messages", "api_base": URL, "api_key": KEY, "num_retries": 0}
PARAMETERS = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: Any = {"type": "function", "function": {"name": "get_weather", "description": "…", "parameters": PARAMETERS}}


def said(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def _round_of_tools(call: dict[str, Any]) -> str:
    thread = said("the weather in Rome")
    asked = litellm.completion(messages=thread, tools=[TOOL], **call).choices[0].message
    thread.append(asked.model_dump())
    for one in asked.tool_calls:
        thread.append({"role": "tool", "tool_call_id": one.id, "content": "Sunny"})
    return str(litellm.completion(messages=thread, tools=[TOOL], **call).choices[0].message.content)


@scenario
def openai_completion() -> None:
    assert litellm.completion(messages=said("Say hello"), **OPENAI).choices[0].message.content == "hello"


@scenario
def openai_stream() -> None:
    chunks = litellm.completion(messages=said("Count to 5"), stream=True, **OPENAI)
    assert "".join(one.choices[0].delta.content or "" for one in chunks) == "1 2 3 4 5 "


@scenario
def openai_tools() -> None:
    assert _round_of_tools(OPENAI) == "Tools: Sunny"


@scenario
def openai_conversation_remembers() -> None:
    headers = {"X-Conversation-Id": f"litellm/{uuid4()}"}
    litellm.completion(messages=said("My name is Ada."), extra_headers=headers, **OPENAI)
    done = litellm.completion(messages=said("What did I say?"), extra_headers=headers, **OPENAI)
    assert "My name is Ada." in done.choices[0].message.content


@scenario
def openai_responses() -> None:
    done = litellm.responses(input="Say hello", **OPENAI)
    assert done.output[0].content[0].text == "hello"


@scenario
def openai_embedding() -> None:
    made = litellm.embedding(**{**OPENAI, "model": "openai/local"}, input=["a dog"], encoding_format="float")
    assert len(made.data[0]["embedding"]) > 100


@scenario
def anthropic_completion() -> None:
    assert litellm.completion(messages=said("Say hello"), **ANTHROPIC).choices[0].message.content == "hello"


@scenario
def anthropic_stream() -> None:
    chunks = litellm.completion(messages=said("Count to 5"), stream=True, **ANTHROPIC)
    assert "".join(one.choices[0].delta.content or "" for one in chunks) == "1 2 3 4 5 "


@scenario
def anthropic_tools() -> None:
    assert _round_of_tools(ANTHROPIC) == "Tools: Sunny"


@scenario
async def async_completion() -> None:
    done = await litellm.acompletion(messages=said("Say hello"), **OPENAI)
    assert done.choices[0].message.content == "hello"


@scenario
def errors() -> None:
    call: Any = {**OPENAI, "messages": said("Hi")}
    raises(litellm.AuthenticationError, lambda: litellm.completion(**{**call, "api_key": WRONG_KEY}))
    raises(litellm.NotFoundError, lambda: litellm.completion(**{**call, "model": "openai/no-such-model"}))
    raises(litellm.BadRequestError, lambda: litellm.completion(**{**call, "messages": said("Fail with 400")}))


if __name__ == "__main__":
    main("litellm")
