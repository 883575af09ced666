"""Drive Debian's Firefox over WebDriver BiDi: just enough of the protocol to use the app as a person does."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

PATIENCE = 60.0  # seconds
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Control": "\ue009"}


def firefox() -> str | None:
    return shutil.which("firefox-esr") or shutil.which("firefox")


@dataclass
class Firefox:
    """One tab of a Firefox."""

    socket: ClientConnection
    context: str = ""
    count: int = 0

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self.count += 1
        await self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while True:  # events come between
            reply = json.loads(await asyncio.wait_for(self.socket.recv(), PATIENCE))
            if reply.get("id") == self.count:
                assert reply["type"] == "success", reply
                return dict(reply["result"])

    async def open(self, url: str) -> None:
        await self.call("browsingContext.navigate", context=self.context, url=url, wait="complete")

    async def size(self, width: int, height: int) -> None:
        await self.call(
            "browsingContext.setViewport", context=self.context, viewport={"width": width, "height": height}
        )

    async def value(self, expression: str) -> Any:
        """Evaluate JavaScript whose result is JSON."""
        wrapped = f"Promise.resolve({expression}).then((one) => JSON.stringify(one ?? null))"
        target = {"context": self.context}
        found = await self.call("script.evaluate", expression=wrapped, target=target, awaitPromise=True)
        assert found["type"] == "success", found
        return json.loads(found["result"]["value"])

    async def wait(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + PATIENCE
        while not await self.value(expression):
            assert time.monotonic() < end, f"not true in time: {expression}"
            await asyncio.sleep(0.05)

    async def press(self, *keys: str) -> None:
        """Press keys together."""
        named = [KEYS.get(key, key) for key in keys]
        down = [{"type": "keyDown", "value": key} for key in named]
        up = [{"type": "keyUp", "value": key} for key in reversed(named)]
        await self._act([*down, *up])

    async def type(self, text: str) -> None:
        await self._act([{"type": kind, "value": letter} for letter in text for kind in ("keyDown", "keyUp")])

    async def _act(self, actions: list[dict[str, str]]) -> None:
        source = {"type": "key", "id": "keys", "actions": actions}
        await self.call("input.performActions", context=self.context, actions=[source])


@asynccontextmanager
async def browsing(profile: Path) -> AsyncIterator[Firefox]:
    """A headless Firefox with a profile of its own."""
    program = firefox()
    assert program
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [program, "--headless", "--no-remote", "--profile", str(profile), "--remote-debugging-port", str(port)]
    quiet = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
    try:
        async with await _connected(port) as connection:
            tab = Firefox(connection)
            await tab.call("session.new", capabilities={})
            tab.context = (await tab.call("browsingContext.getTree"))["contexts"][0]["context"]
            yield tab
    finally:
        process.terminate()
        await process.wait()


async def _connected(port: int) -> ClientConnection:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return await connect(f"ws://127.0.0.1:{port}/session", max_size=None, proxy=None)
        except OSError:
            assert time.monotonic() < end, "Firefox does not listen"
            await asyncio.sleep(0.1)
