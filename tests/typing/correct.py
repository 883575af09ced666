"""Right uses of the public surface. A type checker must report nothing here."""

from datetime import UTC, datetime

import palaver
from palaver import Conversation, Scope, Store, Summary, TextDelta, TokenUsage, Turn


async def opening() -> None:
    scope = Scope("acme", "ada", frozenset({"read", "write"}))
    async with palaver.open("memory:", scope=scope, embedder="none") as store:
        await storing(await store.conversation("support/42", title="Allergies", metadata={"plan": "free"}, ttl=3600))
        await reading(store, await store.conversation())


async def storing(talk: Conversation) -> None:
    turn = await talk.append("user", "I'm allergic to peanuts.", metadata={"a": 1}, created=datetime.now(UTC))
    await talk.append("user", "No, to hazelnuts.", replaces=turn, discard_after=True, idempotency_key="k")
    await talk.append_many([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}])
    async with talk.stream("assistant", flush=0.1, actor="bot") as out:
        await out.write("Noted.")
    opened = await talk.append_open("assistant", actor="bot")
    await talk.append_chunk(opened, 0, "Noted.")
    sealed: Turn = await talk.append_commit(opened, finish_reason="stop", tokens=TokenUsage(), metadata={})
    await talk.update(title="Allergies", settings={"retention": "full", "compaction": {"strategy": "rolling"}})
    await talk.forget(sealed)


async def reading(store: Store, talk: Conversation) -> None:
    texts: list[str] = [turn.text for turn in await talk.history(20, roles=["user"])]
    for entry in await talk.history(include_summaries=True):
        texts.append(entry.text if isinstance(entry, Summary) else f"{entry.role}: {entry.text}")
    context = await talk.build_context(4000, query="peanuts", policy="balanced", recall_scope="owner")
    print(context.to_openai(), context.to_anthropic(), context.explain())
    for hit in await talk.recall("peanuts", 5, scope="tenant"):
        print(hit.score, hit.turn.text if hit.turn else "")
    async for found in talk.recall("peanuts"):
        print(found.score)
    print([info.title for info in (await store.conversations(limit=10)).items], texts)


async def answering(talk: Conversation) -> None:
    answer: Turn = await talk.generate("What can I eat?", model="offline", settings={"temperature": 0.2})
    async for event in talk.generate_stream("Anything else?", instructions="Be short.", token_budget=2000):
        if isinstance(event, TextDelta):
            print(event.text, answer.id)


def synchronous() -> None:
    with palaver.sync.open("memory:", tenant="acme", user="ada") as store:
        talk = store.conversation("support/42", title="Allergies")
        turn = talk.append("user", "I'm allergic to peanuts.")
        texts: list[str] = [one.text for one in talk.history(20)]
        with talk.stream("assistant") as out:
            out.write("Noted.")
        for event in talk.generate_stream("What can I eat?", model="offline"):
            print(event)
        print(turn.id, texts, talk.build_context(4000, query="peanuts").to_openai())
