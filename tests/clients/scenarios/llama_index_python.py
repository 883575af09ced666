"""LlamaIndex: OpenAILike and its agent."""

from __future__ import annotations

from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

from tests.clients.scenarios.harness import KEY, URL, main, scenario


def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"Sunny in {city}"


def model(**more: Any) -> OpenAILike:
    options = {"is_chat_model": True, "is_function_calling_model": True, "max_retries": 0, "timeout": 60.0, **more}
    return OpenAILike(model="chat", api_base=f"{URL}/v1", api_key=KEY, context_window=8_000, **options)


@scenario
def chat() -> None:
    done = model().chat([ChatMessage(role="system", content="Be brief."), ChatMessage(content="Say hello")])
    assert done.message.content == "hello"


@scenario
def complete() -> None:
    assert model().complete("Say hello").text == "hello"


@scenario
def stream_chat() -> None:
    pieces = [one.delta for one in model().stream_chat([ChatMessage(content="Count to 5")])]
    assert "".join(filter(None, pieces)) == "1 2 3 4 5 "


@scenario
async def async_chat() -> None:
    assert (await model().achat([ChatMessage(content="Say hello")])).message.content == "hello"


@scenario
def conversation_remembers() -> None:
    from uuid import uuid4

    kept = model(default_headers={"X-Conversation-Id": f"llama/{uuid4()}"})
    kept.chat([ChatMessage(content="My name is Ada.")])
    assert "My name is Ada." in str(kept.chat([ChatMessage(content="What did I say?")]).message.content)


@scenario
def tools() -> None:
    known = FunctionTool.from_defaults(get_weather)
    done = model().predict_and_call([known], user_msg="the weather in Rome")
    assert "Sunny in Rome" in str(done)


@scenario
async def agent() -> None:
    worker = FunctionAgent(tools=[get_weather], llm=model(), system_prompt="Be brief.", streaming=True)
    assert "Sunny in Rome" in str(await worker.run("the weather in Rome"))


if __name__ == "__main__":
    main("llama-index-llms-openai-like", "llama-index-core")
