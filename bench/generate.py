"""What `generate_stream` adds to calling the SDK directly: to the first token, and per token.

The provider is a process of its own on this machine that answers at once, so that nothing but the overhead is left. The
SDK is given exactly the body that `generate_stream` sends.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import openai

import palaver
from bench.context import open_long, seed
from bench.measure import Bench, Figure, Goal, Result
from palaver.testing.providers import KEY

TOKENS = 200
WITHOUT = {"semantic_recall": False}
AT_ONCE = Goal(10, at_least=False, of="value")
PROVIDER = f"""
import sys
from palaver.testing.providers import LoopbackProvider, Say
with LoopbackProvider() as provider:
    provider.otherwise = Say([" word"] * {TOKENS})
    print(provider.url, flush=True)
    sys.stdin.read()
"""


async def run(bench: Bench) -> list[Result]:
    turns = min(100_000, bench.sizes.histories[-1])
    await seed(bench, turns, vectors=True)
    with _provider() as url:
        models = {"gpt": {"model": "openai:gpt-5", "base_url": f"{url}/v1", "api_key": KEY}}
        async with open_long(bench, turns, "FULL", model="gpt", models=models) as store:
            talk = await store.conversation("long")
            client = openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)
            return await _figures(bench, talk, client, turns)


@contextmanager
def _provider() -> Iterator[str]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PROVIDER], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        yield child.stdout.readline().strip()
        child.communicate("")


async def _figures(bench: Bench, talk: palaver.Conversation, client: openai.AsyncOpenAI, turns: int) -> list[Result]:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ("sdk", "plain", "recall")}
    looking: list[float] = []
    for round in range(-1, bench.sizes.slices):
        question = " ".join(bench.texts.message(120).split()[:8]) + "?"
        plain = await _timed(_generated(talk, question, **WITHOUT))
        body = (await talk.requests(1))[-1].body
        sdk = await _timed(_direct(client, dict(body or {})))
        recall = await _timed(_generated(talk, question))
        # Recall alone, once for a question that is new to it.
        start = time.perf_counter()
        await talk.build_context(32_000, query=f"{question} {round}", model="openai:gpt-5")
        middle = time.perf_counter()
        await talk.build_context(32_000, query=f"{question} {round}", model="openai:gpt-5", **WITHOUT)
        if round >= 0:
            looking.append((middle - start - (time.perf_counter() - middle)) * 1_000)
            for name, one in (("sdk", sdk), ("plain", plain), ("recall", recall)):
                taken[name].append(one)
    first = {name: statistics.median(one[0] for one in taken[name]) for name in taken}
    added = {name: _added(taken[name], taken["sdk"], 0) for name in ("plain", "recall")}
    each = {name: statistics.median((one[1] - one[0]) / TOKENS for one in taken[name]) * 1_000 for name in taken}
    found = statistics.median(looking)
    sdk_each = each["sdk"]
    return [
        Figure(
            "generate",
            f"added to the first token, no recall, {turns:,} turns",
            added["plain"],
            "ms",
            first["sdk"],
            "the SDK's own first token",
            AT_ONCE,
            paired=first["plain"] / first["sdk"],
        ),
        Figure(
            "generate",
            f"added to the first token beyond recall's own time, {turns:,} turns",
            added["recall"] - found,
            "ms",
            first["sdk"],
            "the SDK's own first token",
            AT_ONCE,
            f"recall itself: {found:,.1f} ms",
            paired=first["recall"] / first["sdk"],
        ),
        Figure("generate", f"per token, of {TOKENS}", each["plain"], "µs", sdk_each, "the SDK alone"),
    ]


def _added(ours: list[tuple[float, float]], other: list[tuple[float, float]], which: int) -> float:
    """Return the added milliseconds, compared round by round, because conditions change over time."""
    return statistics.median(a[which] - b[which] for a, b in zip(ours, other, strict=True))


async def _timed(pieces: AsyncIterator[Any]) -> tuple[float, float]:
    """Return the milliseconds to the first piece, and to the last."""
    start = time.perf_counter()
    first = last = start
    async for _ in pieces:
        last = time.perf_counter()
        first = last if first == start else first
    return (first - start) * 1_000, (last - start) * 1_000


async def _direct(client: openai.AsyncOpenAI, body: dict[str, Any]) -> AsyncIterator[str]:
    stream = await client.chat.completions.create(**body)
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            yield chunk.choices[0].delta.content


async def _generated(talk: palaver.Conversation, question: str, **options: Any) -> AsyncIterator[str]:
    async for event in talk.generate_stream(question, **options):
        if isinstance(event, palaver.TextDelta):
            yield event.text
