"""A LangGraph graph whose threads and memories are in one SQLite file.

pip install "palaver[langgraph]"
python examples/langgraph_agent.py
"""

import asyncio
from typing import Annotated, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.base import BaseStore

import palaver
from palaver.adapters.langgraph_checkpointer import PalaverSaver
from palaver.adapters.langgraph_store import PalaverStore


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


async def answer(state: State, *, store: BaseStore) -> State:
    """Stand-in for a model: store the message as a memory, and reply with the memory that fits best."""
    question = str(state["messages"][-1].content)
    found = await store.asearch(("memories", "ada"), query=question, limit=1)
    await store.aput(("memories", "ada"), str(len(state["messages"])), {"text": question})
    known = found[0].value["text"] if found else "nothing yet"
    return {"messages": [AIMessage(f"Message {len(state['messages'])}. I remember: {known}")]}


async def main() -> None:
    async with palaver.open("sqlite:///langgraph.db") as store:
        builder = StateGraph(State).add_node(answer).add_edge(START, "answer")
        graph = builder.compile(checkpointer=PalaverSaver(store), store=PalaverStore(store))
        config = {"configurable": {"thread_id": "42"}}
        for text in ("My dog is called Rex.", "What is my dog called?"):
            result = await graph.ainvoke({"messages": [HumanMessage(text)]}, config)
            print(result["messages"][-1].content)
        print(len([one async for one in graph.aget_state_history(config)]), "checkpoints")


asyncio.run(main())
