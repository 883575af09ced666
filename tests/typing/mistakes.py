"""Mistakes that a caller may make. A type checker must report each line marked `# error`, and no other line."""

import palaver
from palaver import Conversation, Scope, Store
from palaver.sync import open as open_sync


async def misspelt_options(store: Store, talk: Conversation, turn: palaver.Turn) -> None:
    await talk.append("user", "hello", metdata={})  # error
    talk.stream("assistant", flsh=0.5)  # error
    await talk.append_open("assistant", actr="bot")  # error
    await talk.append_commit(turn, finish_reson="stop")  # error
    await talk.update(titel="Allergies")  # error
    await talk.generate("hello", modle="offline")  # error
    await talk.generate("hello", temperature=1)  # error
    talk.generate_stream("hello", tols=[])  # error
    await talk.build_context(4000, qurey="peanuts")  # error
    await store.conversation("support/42", titel="Allergies")  # error
    await talk.history(20, befor=turn)  # error
    palaver.open("memory:", tennant="acme")  # error
    open_sync("memory:", tennant="acme")  # error


async def wrong_values(store: Store, talk: Conversation, turn: palaver.Turn) -> None:
    await talk.append("human", "hello")  # error
    talk.stream("bot")  # error
    await talk.append("user", "hello", metadata=5)  # error
    await talk.append_commit(turn, tokens="many")  # error
    await talk.history(roles=["human"])  # error
    await talk.build_context(4000, policy="thrifty")  # error
    await talk.build_context(4000, recall_scope="everything")  # error
    await talk.build_context("4000")  # error
    await talk.generate("hello", tools=5)  # error
    await talk.generate("hello", continuity="always")  # error
    await talk.recall("peanuts", scope="everything")  # error
    await store.conversation("a", settings={"compaction": {"strategy": "sometimes"}})  # error
    await store.conversation("a", settings={"retention": "a while"})  # error
    await talk.update(settings={"redcat": True})  # error
    Scope("acme", "ada", frozenset({"read", "wirte"}))  # error


async def wrong_names(talk: Conversation) -> None:
    await talk.apend("user", "hello")  # error
    for turn in await talk.history():
        print(turn.txt)  # error
    for entry in await talk.history(include_summaries=True):
        print(entry.role)  # error
    context = await talk.build_context(4000)
    context.to_opnai()  # error
    async for event in talk.generate_stream("hello"):
        print(event.nonsense)  # error


def synchronous() -> None:
    with open_sync("memory:") as store:
        talk = store.conversation("support/42")
        store.conversation("support/42", titel="Allergies")  # error
        store.conversatoin("support/42")  # error
        talk.apend("user", "hello")  # error
        talk.append("human", "hello")  # error
        talk.append("user", "hello", metdata={})  # error
        talk.history(limit="ten")  # error
        for turn in talk.history():
            print(turn.txt)  # error
        talk.build_context(4000, polcy="balanced")  # error
        with talk.stream() as out:
            out.wirte("hello")  # error
