"""The program that gets killed in the middle of an answer: talks to the provider of the test, and says what it sees.

    python talker.py DATABASE PROVIDER MARKS

Each line on stdout is one event, printed after it happened. The tool `work` leaves a line in the file MARKS and hangs.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import palaver
from palaver.testing.providers import KEY


def say(text: str) -> None:
    os.write(1, text.encode() + b"\n")


async def main(url: str, provider: str, marks: Path) -> None:
    async def work(what: str) -> str:
        """Work for ever."""
        with marks.open("a") as file:
            file.write(what + "\n")
        say("working")
        await asyncio.sleep(3600)
        return "done"

    models = {"chat": {"model": "openai:test", "base_url": f"{provider}/v1", "api_key": KEY}}
    async with palaver.open(url, user="ada", model="chat", models=models, worker=False, stream_flush=0.01) as store:
        talk = await store.conversation("x")
        asyncio.create_task(watch(talk))  # noqa: RUF006
        async for event in talk.generate_stream("Work, please.", tools=[work], idempotency_key="k1"):
            say(type(event).__name__)


async def watch(talk: palaver.Conversation) -> None:
    """Print how much of the answer is on disk, as another process sees it."""
    async for event in talk.subscribe():
        if event.kind == "chunk" and event.turn is not None:
            say("stored " + (await talk.turn(event.turn)).text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
