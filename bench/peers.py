"""Two widely used stores next to ours, in the same run. Neither keeps a text index, a log or a hash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

import palaver
from bench.measure import Bench, Result, Rounds, Skipped, Slice, in_turns, settle
from bench.raw import Raw

READ = 20


class Peer(Protocol):
    """The operations that are measured on every store."""

    async def append(self, content: str) -> Any: ...
    async def read(self) -> Any: ...
    async def settle(self) -> Any:
        """Do postponed work. Only our store postpones any."""


class RawPeer(Peer):
    def __init__(self, raw: Raw) -> None:
        self.raw = raw

    async def append(self, content: str) -> None:
        self.raw.append(content)

    async def read(self) -> Any:
        return self.raw.last(READ)


class Ours(Peer):
    def __init__(self, store: palaver.Store, talk: palaver.Conversation) -> None:
        self.store, self.talk = store, talk

    async def settle(self) -> None:
        await settle(self.store)

    async def append(self, content: str) -> None:
        await self.talk.append("user", content)

    async def read(self) -> Any:
        return await self.talk.history(limit=READ)


class OpenAIAgents(Peer):
    def __init__(self, session: Any) -> None:
        self.session = session

    async def append(self, content: str) -> None:
        await self.session.add_items([{"role": "user", "content": content}])

    async def read(self) -> Any:
        return await self.session.get_items(limit=READ)


class LangGraph(Peer):
    """One message per step, through a graph whose only node does nothing."""

    def __init__(self, graph: Any) -> None:
        self.graph, self.config = graph, {"configurable": {"thread_id": "bench"}}

    async def append(self, content: str) -> None:
        await self.graph.ainvoke({"messages": [("user", content)]}, self.config)

    async def read(self) -> Any:
        state = await self.graph.aget_state(self.config)
        return state.values["messages"][-READ:]


# ---- opening -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def open_raw(path: Path) -> AsyncIterator[Peer]:
    raw = Raw(path)
    yield RawPeer(raw)
    raw.close()


@asynccontextmanager
async def open_ours(path: Path) -> AsyncIterator[Peer]:
    async with palaver.open(f"sqlite:///{path}", embedder=None) as store:
        yield Ours(store, await store.conversation("bench"))


@asynccontextmanager
async def open_agents(path: Path) -> AsyncIterator[Peer]:
    from agents import SQLiteSession

    session = SQLiteSession("bench", path)
    yield OpenAIAgents(session)
    session.close()


@asynccontextmanager
async def open_langgraph(path: Path) -> AsyncIterator[Peer]:
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from langgraph.graph import END, START, MessagesState, StateGraph

    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        builder = StateGraph(MessagesState)
        builder.add_node("keep", lambda state: {})
        builder.add_edge(START, "keep")
        builder.add_edge("keep", END)
        yield LangGraph(builder.compile(checkpointer=saver))


Opener = Callable[[Path], AbstractAsyncContextManager[Peer]]
BASELINE, THAN = "raw", "raw apsw, FULL"
CAPPED = "LangGraph AsyncSqliteSaver"  # its file grows with the square of the turns
PEERS: dict[str, Opener] = {
    BASELINE: open_raw,
    "palaver": open_ours,
    "openai-agents SQLiteSession": open_agents,
    CAPPED: open_langgraph,
}


# ---- measuring -----------------------------------------------------------------------------------------------------


async def run(bench: Bench) -> list[Result]:
    skipped: list[Result] = []
    peers: dict[str, Peer] = {}
    async with AsyncExitStack() as stack:
        for number, (name, opener) in enumerate(PEERS.items()):
            try:
                peers[name] = await stack.enter_async_context(opener(bench.folder / f"peer-{number}.db"))
            except ModuleNotFoundError as problem:
                why = f"{name}: {problem.name} is not installed; pip install -r bench/requirements.txt"
                skipped.append(Skipped("peers", why))
        return [*await _measure(bench, peers), *skipped]


async def _measure(bench: Bench, peers: dict[str, Peer]) -> list[Result]:
    slices = min(bench.sizes.slices, 9)
    count = max(bench.sizes.peer_turns // (slices + 1), 1)  # one more slice than counted: the first one warms up
    appends = await in_turns(
        slices,
        {name: _append(peer) for name, peer in peers.items()},
        material=lambda: bench.texts.messages(count),
        after=lambda: asyncio.gather(*(peer.settle() for peer in peers.values())),
    )
    reads = await in_turns(slices, {name: _read(peer, bench.sizes.reads) for name, peer in peers.items()})
    lasting = await in_turns(
        bench.sizes.slices,
        {name: _append_all(peer) for name, peer in peers.items() if name != CAPPED},
        material=lambda: bench.texts.messages(bench.sizes.slice),
    )
    stored, more = count * (slices + 1), bench.sizes.slice * (bench.sizes.slices + 1)
    return [
        *_speeds(appends, f"append, {stored} turns", count),
        *_speeds(reads, f"read {READ}", bench.sizes.reads),
        *_speeds(lasting, f"append until indexed, {more:,} turns more", bench.sizes.slice),
    ]


def _speeds(rounds: Rounds, what: str, count: int) -> list[Result]:
    others = [name for name in rounds.taken if name != BASELINE]
    return [rounds.speed("peers", f"{name}: {what}", count, name, BASELINE, than=THAN) for name in others]


def _append(peer: Peer) -> Slice:
    async def slice(messages: Sequence[str]) -> None:
        for message in messages:
            await peer.append(message)

    return slice


def _append_all(peer: Peer) -> Slice:
    """Append all turns, including postponed work."""
    append = _append(peer)

    async def slice(messages: Sequence[str]) -> None:
        await append(messages)
        await peer.settle()

    return slice


def _read(peer: Peer, times: int) -> Slice:
    async def slice(_: object) -> None:
        for _ in range(times):
            await peer.read()

    return slice
