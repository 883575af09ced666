"""Building a context: how long it takes as a conversation grows, and how much of a prompt is the same as before."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any

import palaver
from bench.measure import Bench, Figure, Goal, Result, Slice, in_turns, timed
from bench.raw import Raw
from bench.read import BATCH, enough, fill_raw
from palaver.context.options import OVERHEAD_TOKENS
from palaver.context.prefix import common_length
from palaver.context.render import message_text
from palaver.conversations.internals import engine_of
from palaver.core.identity import new_id
from palaver.memory import working_memory
from palaver.memory.compaction import FAN_OUT, SPAN_TURNS, SUMMARY_TOKENS
from palaver.model import WorkingMemory
from palaver.models.tokens import BpeCounter
from palaver.ports.memory import MemoryDraft, SummaryDraft
from palaver.ports.recall import Embedded
from palaver.testing import HashEmbedder

BUDGET = 4_000
RECALL_AT = {10_000: Goal(20, at_least=False, of="value"), 100_000: Goal(150, at_least=False, of="value")}
FAST = Goal(1, at_least=False, of="value")
LONGER_THAN_BUDGET = 10_000  # turns: a context of a shorter thread has less to choose from
FLAT = Goal(1.2, at_least=False)
CHAT_TURNS, USER_TOKENS, ASSISTANT_TOKENS = 300, 40, 80
NOTED_TURNS = 2_000  # are read for working memory
DIMENSIONS = 384  # as many as the local model's
WITHOUT = {"semantic_recall": False}


async def run(bench: Bench) -> list[Result]:
    return [*await _growing(bench), await _beside(bench), *await _stability(bench)]


# ---- how long it takes ---------------------------------------------------------------------------------------------


async def _growing(bench: Bench) -> list[Result]:
    sizes = bench.sizes.histories
    recalling = [turns for turns in sizes if turns in RECALL_AT] or [sizes[-1]]
    async with AsyncExitStack() as stack:
        talks, raws = {}, {}
        for turns in sizes:
            await seed(bench, turns, vectors=turns in recalling)
            store = await stack.enter_async_context(open_long(bench, turns))
            talks[turns] = await store.conversation("long")
            raws[turns] = Raw(bench.folder / f"raw-{turns}.db", "NORMAL")
            stack.callback(raws[turns].close)
            fill_raw(bench, raws[turns], min(turns, 10_000))  # its end is all that is read
        cold = {turns: await _first(bench, talks[turns]) for turns in recalling}
        limit = await enough(talks[sizes[0]])
        rounds = await in_turns(
            bench.sizes.slices,
            {f"plain-{turns}": _builder(bench, talk, **WITHOUT) for turns, talk in talks.items()}
            | {f"recall-{turns}": _builder(bench, talks[turns]) for turns in recalling}
            | {f"raw-{turns}": _reader(bench, raw, limit) for turns, raw in raws.items()},
        )

    def each(name: str) -> float:
        return rounds.seconds(name) / bench.sizes.reads * 1_000

    plain = [
        Figure(
            "context",
            f"build_context({BUDGET:,}), no recall, {turns:,} turns",
            each(f"plain-{turns}"),
            "ms",
            each(f"raw-{turns}"),
            f"raw select of {limit} turns",
            FAST,
            paired=rounds.times(f"plain-{turns}", f"raw-{turns}"),
        )
        for turns in sizes
    ]
    recall = [
        Figure(
            "context",
            f"with recall, warm, {turns:,} turns",
            each(f"recall-{turns}"),
            "ms",
            each(f"plain-{turns}"),
            "without recall",
            RECALL_AT.get(turns),
            f"the first one after opening: {cold[turns]:,.0f} ms; the embedding of the question is apart",
        )
        for turns in recalling
    ]
    base = LONGER_THAN_BUDGET if LONGER_THAN_BUDGET in sizes else sizes[0]
    what = f"no recall, {sizes[-1]:,} turns beside {base:,}"
    flat = Figure("context", what, each(f"plain-{sizes[-1]}"), "ms", each(f"plain-{base}"), f"{base:,} turns", FLAT)
    return [*plain, flat, *recall]


async def _beside(bench: Bench) -> Figure:
    """Measure while the worker summarises another conversation, because computing threads delay others."""
    async with palaver.open(bench.url("beside.db", "NORMAL"), embedder=None) as store:
        talk, other = await store.conversation("talk"), await store.conversation("other")
        for one, turns in ((talk, 40), (other, BATCH)):
            await one.append_many({"role": "user", "content": text} for text in bench.texts.messages(turns))
        build = _builder(bench, talk, **WITHOUT)
        while not await other.summaries():  # noqa: ASYNC110  # the worker begins when nobody writes
            await asyncio.sleep(0.01)
        busy = [await timed(build(None)) for _ in range(bench.sizes.slices)]
        unfinished = bool((await store.stats()).storage["outbox"])
        await store.settle()
        idle = [await timed(build(None)) for _ in range(bench.sizes.slices)]
    each = [statistics.median(seconds) / bench.sizes.reads * 1_000 for seconds in (busy, idle)]
    note = "" if unfinished else "the worker was ready before the end"
    return Figure("context", "no recall, while the worker summarises", each[0], "ms", each[1], "idle", note=note)


def open_long(bench: Bench, turns: int, synchronous: str = "NORMAL", **options: Any) -> Any:
    embedder, url = HashEmbedder(DIMENSIONS), bench.url(f"context-{turns}.db", synchronous)
    return palaver.open(url, embedder=embedder, worker=False, **options)


def _builder(bench: Bench, talk: palaver.Conversation, **options: Any) -> Slice:
    async def build(_: object) -> None:
        for _ in range(bench.sizes.reads):
            await talk.build_context(BUDGET, query=_question(bench), **options)

    return build


def _reader(bench: Bench, raw: Raw, limit: int) -> Slice:
    async def read(_: object) -> None:
        for _ in range(bench.sizes.reads):
            raw.last(limit)

    return read


def _question(bench: Bench) -> str:
    return " ".join(bench.texts.message(120).split()[:8]) + "?"


async def _first(bench: Bench, talk: palaver.Conversation) -> float:
    start = time.perf_counter()
    await talk.build_context(BUDGET, query=_question(bench))
    return (time.perf_counter() - start) * 1_000


# ---- filling: what the worker would have made of it, only faster ---------------------------------------------------


async def seed(bench: Bench, turns: int, *, vectors: bool) -> None:
    """Make a conversation with summaries at every level and, if recall is measured, a vector for each passage."""
    async with open_long(bench, turns) as store:
        talk = await store.conversation("long")
        for start in range(0, turns, BATCH):
            contents = bench.texts.messages(min(BATCH, turns - start))
            roles = ("user", "assistant")
            await talk.append_many({"role": roles[n % 2], "content": text} for n, text in enumerate(contents))
        await talk.append("user", _question(bench))
        await engine_of(store).index_all()
        await _summarise(bench, store, talk.id, turns)
        await _note(store, talk.id, turns)
        if vectors:
            await _embed(store)


async def _summarise(bench: Bench, store: palaver.Store, conversation: str, turns: int) -> None:
    spans = [(start, start + SPAN_TURNS) for start in range(0, turns - SPAN_TURNS, SPAN_TURNS)]
    level, revision = 0, (await engine_of(store).unsummarised(store.scope, conversation, 0)).revision
    while spans:
        for start, end in spans:
            draft = SummaryDraft(
                id=new_id(),
                level=level,
                from_seq=start,
                through_seq=end,
                turns=end - start,
                tokens=0,
                text=bench.texts.message(4 * SUMMARY_TOKENS),
                token_count=SUMMARY_TOKENS,
                model="bench",
                revision=revision,
            )
            if not await engine_of(store).put_summary(store.scope, conversation, draft):
                raise RuntimeError("a summary was refused")
        whole = len(spans) // FAN_OUT * FAN_OUT
        spans = [(spans[n][0], spans[n + FAN_OUT - 1][1]) for n in range(0, whole, FAN_OUT)]
        level += 1


async def _note(store: palaver.Store, conversation: str, turns: int) -> None:
    """Store the working memory of the whole conversation. Its lists are bounded, so the last notes fill it."""
    engine = engine_of(store)
    read = await engine.span(store.scope, conversation, max(0, turns - NOTED_TURNS), turns)
    memory = working_memory.update(WorkingMemory(), read)
    draft = MemoryDraft(memory=working_memory.to_json(memory), through_seq=memory.through_seq, before=None)
    if not await engine.put_working_memory(store.scope, conversation, draft):
        raise RuntimeError("a working memory was refused")


async def _embed(store: palaver.Store) -> None:
    """Store random vectors: the time to compare them does not depend on their meaning."""
    import numpy as np

    name, rng = f"hash-{DIMENSIONS}", np.random.default_rng(1)
    while batch := await engine_of(store).to_embed(name, 2_000):
        made = rng.standard_normal((len(batch), DIMENSIONS), dtype=np.float32)
        made /= np.linalg.norm(made, axis=1, keepdims=True)
        vectors = tuple(
            (one.pid, one.tid, one.part, vector.astype(np.float16).tobytes())
            for one, vector in zip(batch, made, strict=True)
            if one.worth_a_vector
        )
        passages = tuple((one.pid, one.turn) for one in batch)
        await engine_of(store).put_embedded(name, Embedded(passages=passages, vectors=vectors))


# ---- how much is as it was before ----------------------------------------------------------------------------------


async def _stability(bench: Bench) -> list[Result]:
    turns = min(CHAT_TURNS, bench.sizes.histories[-1])
    plain, sliding = await _chat(bench, turns, **WITHOUT)
    recalled, _ = await _chat(bench, turns)
    count = BpeCounter()
    slid = _mean(sliding, count)
    than = "a window that slides by one"
    note = f"{turns} turns of {USER_TOKENS} and {ASSISTANT_TOKENS} tokens, a prompt per user message"
    return [
        Figure(
            "context", "as before, no recall", _mean([one.messages for one in plain], count), "", slid, than,
            Goal(0.88, of="value"), note,
        ),
        Figure(
            "context", "as before, ahead of what is recalled", _mean_ahead(recalled, count), "", slid, than,
            Goal(0.95, of="value"), "of what comes before the recalled block; what was just said does not count",
        ),
        Figure(
            "context", "as before, with recall, whole prompt", _mean([one.messages for one in recalled], count), "",
            slid, than,
        ),
    ]  # fmt: skip


async def _chat(bench: Bench, turns: int, **options: Any) -> tuple[list[palaver.Context], list[list[dict[str, Any]]]]:
    """Simulate a chat turn by turn: the context at each user message, and what a sliding window would have shown."""
    say = _Speaker(bench)
    contexts, sliding = [], []
    url = bench.url(f"chat-{len(options)}.db", "NORMAL")
    async with palaver.open(url, embedder=HashEmbedder(DIMENSIONS), worker=False) as store:
        talk = await store.conversation("chat")
        for _ in range(turns // 2):
            await talk.append("user", say(USER_TOKENS))
            await store.settle()
            contexts.append(await talk.build_context(BUDGET, **options))
            sliding.append(_slide(await talk.history(limit=200)))
            await talk.append("assistant", say(ASSISTANT_TOKENS))
    return contexts, sliding


class _Speaker:
    """Makes texts with an exact number of tokens."""

    def __init__(self, bench: Bench) -> None:
        self.texts, self.count, self.random = bench.texts, BpeCounter(), random.Random(1)

    def __call__(self, tokens: int) -> str:
        words = self.texts.message(tokens * 6).split()
        while self.count(" ".join(words)) > tokens:
            words.pop()
        while self.count(" ".join(words)) < tokens:
            words.append("so")
        return " ".join(words)


def _slide(turns: Sequence[palaver.Turn]) -> list[dict[str, Any]]:
    """Return as many of the last turns as fit, as most systems do."""
    left, start = BUDGET, len(turns)
    while start and left >= turns[start - 1].token_count + 4:
        start -= 1
        left -= turns[start].token_count + 4
    return [{"role": turn.role, "content": turn.text} for turn in turns[start:]]


def _mean(prompts: Sequence[list[dict[str, Any]]], count: BpeCounter) -> float:
    shares = [cached_share(old, new, count) for old, new in pairwise(prompts)]
    return statistics.mean(shares)


def _mean_ahead(contexts: Sequence[palaver.Context], count: BpeCounter) -> float:
    """Compare what precedes the recalled block, without the last question and answer, with the previous prompt."""
    shares = []
    for old, new in pairwise(contexts):
        ahead = new.messages[: max(0, new.stable - 2)]
        if ahead:
            shares.append(cached_share(old.messages[: old.stable], ahead, count))
    return statistics.mean(shares) if shares else 0.0


def cached_share(before: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]], count: BpeCounter) -> float:
    """Return the share of the prompt's tokens that are the same, from its start, as in the previous prompt.

    A provider's cache goes by tokens: the beginning of the first message that differs counts as well.
    """
    same = common_length(before, now)
    costs = [count(message_text(message)) + OVERHEAD_TOKENS for message in now]
    kept = sum(costs[:same])
    if same < min(len(before), len(now)) and before[same]["role"] == now[same]["role"]:
        old, new = message_text(before[same]), message_text(now[same])
        kept += count(new[: common_length(old, new)])
    return kept / sum(costs) if costs else 0.0
