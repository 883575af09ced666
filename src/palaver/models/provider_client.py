"""The base of the chat models that use a provider's SDK: connections, streaming, and typed errors."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, ClassVar, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

from palaver.errors import ModelError
from palaver.models.context_windows import window_of
from palaver.ports.models import JsonObject, ModelEvent, ModelRequest
from palaver.telemetry import trace_headers


def trace_options() -> Any:
    """Return options of an SDK's request that pass the trace on."""
    headers = trace_headers()
    return {"headers": headers} if headers else {}


class SdkClient(Protocol):
    """A client object of a provider's SDK."""

    async def close(self) -> None: ...


C = TypeVar("C", bound=SdkClient)


class ClientPool(Generic[C]):
    """One SDK client per event loop, because connections belong to the loop that opened them.

    `connect` holds the API key, so that neither a repr nor a dump of the attributes shows it.
    """

    def __init__(self, connect: Callable[[], C]) -> None:
        self._connect = connect
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, C] = WeakKeyDictionary()

    def get(self) -> C:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = self._connect()
        return self._clients[loop]

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()


class ProviderClient(ABC, Generic[C]):
    """A chat model behind a provider's SDK. `failures` are the SDK's exceptions, and those of parsing its responses."""

    adapter: str
    provider: str
    remembers = False
    failures: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, model: str, name: str, window: int | None, project: str, connect: Callable[[], C]) -> None:
        self.model, self.name, self.project = model, name, project
        self.window = window or window_of(name)
        self._clients = ClientPool(connect)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r})"

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._clients.aclose()

    async def stream(self, body: JsonObject) -> AsyncIterator[ModelEvent]:
        """Send the request once, and yield the events of the response. Raises a ModelError."""
        read = self._read_stream if "stream" in body else self._read_whole
        try:
            async with aclosing(read(body)) as events:
                async for event in events:
                    yield event
            return
        except self.failures as error:
            failure = error if isinstance(error, ModelError) else self._translate_error(error)
        # Raised outside the handler, so that it does not carry the SDK's error: that one quotes request and response.
        raise failure

    @abstractmethod
    def body(self, request: ModelRequest) -> JsonObject:
        """Return the request in the provider's form: exactly what `stream` will send."""

    @abstractmethod
    def _read_stream(self, body: JsonObject) -> AsyncGenerator[ModelEvent]:
        """Send the request and yield events as they arrive."""

    @abstractmethod
    def _read_whole(self, body: JsonObject) -> AsyncGenerator[ModelEvent]:
        """Send the request and yield the events of a response that arrives in one piece."""

    @abstractmethod
    def _translate_error(self, error: Exception) -> ModelError:
        """Return our error for the SDK's. It names the kind of failure and never quotes the service."""
