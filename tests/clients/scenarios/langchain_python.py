"""LangChain: ChatOpenAI, ChatAnthropic and its agent."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from langchain.agents import create_agent
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel

from tests.clients.scenarios.harness import KEY, URL, main, scenario


class Person(BaseModel):
    """A person."""

    name: str
    age: int


@tool
def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"Sunny in {city}"


def gpt(**more: Any) -> ChatOpenAI:
    return ChatOpenAI(model="chat", base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=60, **more)


def claude(**more: Any) -> ChatAnthropic:
    return ChatAnthropic(model="messages", base_url=URL, api_key=KEY, max_retries=0, timeout=60, **more)


BRIEF = SystemMessage("Be brief.")


@scenario
def openai_invoke() -> None:
    done = gpt().invoke([BRIEF, HumanMessage("Say hello")])
    assert done.content == "hello"
    assert done.usage_metadata
    assert done.usage_metadata["output_tokens"] > 0


@scenario
def openai_stream() -> None:
    assert "".join(str(one.content) for one in gpt().stream("Count to 5")) == "1 2 3 4 5 "


@scenario
def openai_tools() -> None:
    model = gpt().bind_tools([get_weather])
    thread: list[Any] = [HumanMessage("the weather in Rome and Oslo")]
    asked = model.invoke(thread)
    thread += [asked, *(get_weather.invoke(call) for call in asked.tool_calls)]
    assert all(isinstance(one, ToolMessage) for one in thread[2:])
    assert model.invoke(thread).content == "Tools: Sunny in Rome; Sunny in Oslo"


@scenario
def openai_structured_output() -> None:
    assert gpt().with_structured_output(Person).invoke("Ada as JSON") == Person(name="Ada", age=36)


@scenario
def openai_structured_output_by_a_function() -> None:
    model = gpt().with_structured_output(Person, method="function_calling")
    assert model.invoke("Ada as JSON") == Person(name="Ada", age=36)


@scenario
def openai_batch() -> None:
    done = gpt().batch([f"Say number {n}" for n in range(4)])
    assert [one.content for one in done] == [f"number {n}" for n in range(4)]


@scenario
def openai_conversation_remembers() -> None:
    model = gpt(default_headers={"X-Conversation-Id": f"langchain/{uuid4()}"})
    model.invoke("My name is Ada.")
    assert "My name is Ada." in str(model.invoke("What did I say?").content)


@scenario
def responses_with_previous_id() -> None:
    model = gpt(use_responses_api=True, use_previous_response_id=True)
    first = model.invoke("My name is Ada.")
    done = model.invoke([HumanMessage("My name is Ada."), first, HumanMessage("What did I say?")])
    assert "My name is Ada." in done.text
    assert done.response_metadata["id"] != first.response_metadata["id"]


@scenario
def responses_stream() -> None:
    text = "".join(one.text for one in gpt(use_responses_api=True).stream("Count to 5"))
    assert text == "1 2 3 4 5 "


@scenario
def openai_embeddings() -> None:
    made = OpenAIEmbeddings(model="local", base_url=f"{URL}/v1", api_key=KEY, check_embedding_ctx_length=False)
    assert len(made.embed_query("a dog")) > 100


@scenario
def anthropic_invoke() -> None:
    assert claude().invoke([BRIEF, HumanMessage("Say hello")]).content == "hello"


@scenario
def anthropic_stream() -> None:
    assert "".join(one.text for one in claude().stream("Count to 5")) == "1 2 3 4 5 "


@scenario
def anthropic_tools() -> None:
    model = claude().bind_tools([get_weather])
    thread: list[Any] = [HumanMessage("the weather in Rome")]
    asked = model.invoke(thread)
    assert isinstance(asked, AIMessage)
    thread += [asked, *(get_weather.invoke(call) for call in asked.tool_calls)]
    assert model.invoke(thread).text == "Tools: Sunny in Rome"


@scenario
def agent_of_openai() -> None:
    agent = create_agent(gpt(), tools=[get_weather], system_prompt="Be brief.")
    done = agent.invoke({"messages": [HumanMessage("the weather in Rome")]})
    assert done["messages"][-1].content == "Tools: Sunny in Rome"


@scenario
async def agent_of_anthropic() -> None:
    agent = create_agent(claude(), tools=[get_weather], system_prompt="Be brief.")
    done = await agent.ainvoke({"messages": [HumanMessage("the weather in Rome")]})
    assert done["messages"][-1].text == "Tools: Sunny in Rome"


if __name__ == "__main__":
    main("langchain", "langchain-openai", "langchain-anthropic")
