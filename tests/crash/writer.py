"""The program that gets killed: many tasks write to one conversation, and each line says what was acknowledged.

    python writer.py URL KEY RUN

A line is printed after the call returned, so whatever was printed must be found again. (Only what is about to be
deleted is announced before: `leaving`.) Lines are JSON:
`{"kind": "appended" | "opened" | "flushed" | "committed" | "aborted", "id", "text", …}`. It never ends by itself.

A second conversation, `KEY/memory`, has notes, facts and summaries. Turns in it are forgotten, persons are erased, and
rows that the test has damaged since the last run are repaired.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import sys
from contextlib import suppress
from typing import Any

import palaver
from palaver import Scope
from palaver.conversations.internals import engine_of, worker_of
from palaver.memory.worker.jobs.repair import repair_conversation, repair_database
from palaver.testing.fakes import HashEmbedder

LEASE = 0.5
FLUSH = 0.01


def say(kind: str, turn: palaver.Turn | None = None, text: str = "") -> None:
    """One write per line: a kill cannot mix two of them."""
    line: dict[str, Any] = {"kind": kind, "text": text}
    if turn is not None:
        line.update(id=turn.id, seq=turn.seq)
    os.write(1, json.dumps(line).encode() + b"\n")


class Writer:
    def __init__(self, talk: palaver.Conversation, run: str) -> None:
        self.talk, self.run = talk, run
        self.random = random.Random(run)
        self.numbers = itertools.count()

    def text(self, what: str) -> str:
        """Unlike every other text of this test, and one word of it can be searched for."""
        return f"{what} {self.word()} " + "and so on " * self.random.randrange(40)

    def word(self) -> str:
        return f"w{self.run}x{next(self.numbers)}"

    async def append(self) -> None:
        while True:
            text = self.text("one")
            say("appended", await self.talk.append("user", text), text)

    async def append_many(self) -> None:
        while True:
            texts = [self.text("many") for _ in range(self.random.randint(2, 6))]
            turns = await self.talk.append_many({"role": "user", "content": text} for text in texts)
            for turn, text in zip(turns, texts, strict=True):
                say("appended", turn, text)

    async def stream_by_hand(self) -> None:
        """Use the low-level methods, where every chunk is acknowledged by itself."""
        while True:
            turn = await self.talk.append_open("assistant")
            say("opened", turn)
            try:
                await self._chunks(turn)
            except palaver.StreamSealed:
                pass  # this process stood still for longer than the lease: sealed, which is what is being tested

    async def _chunks(self, turn: palaver.Turn) -> None:
        written = ""
        for number in range(self.random.randint(1, 30)):
            piece = self.text("piece")
            await self.talk.append_chunk(turn, number, piece)
            written += piece
            say("flushed", turn, written)
        if self.random.random() < 0.7:
            say("committed", await self.talk.append_commit(turn), written)
        else:
            say("aborted", await self.talk.append_abort(turn), written)

    async def stream(self) -> None:
        """Use `stream`. It does not say when it flushes, so the text is known to be flushed when it can be read."""
        while True:
            written = ""
            try:
                async with self.talk.stream("assistant") as out:
                    assert out.turn is not None
                    say("opened", out.turn)
                    for _ in range(self.random.randint(1, 30)):
                        piece = self.text("piece")
                        await out.write(piece)
                        written += piece
                        say("flushed", out.turn, (await self.talk.turn(out.turn)).text)
                say("committed", out.turn, written)
            except palaver.StreamSealed:
                pass


class Keeper:
    """Writes memory, and deletes, erases and repairs."""

    def __init__(self, store: palaver.Store, talk: palaver.Conversation, run: str) -> None:
        self.store, self.talk, self.run = store, talk, run
        self.numbers = itertools.count()

    def mark(self, what: str) -> str:
        """Return a word that can be searched for in the bytes of a file."""
        return f"zq{what}{self.run}x{next(self.numbers)}z"

    async def remember(self) -> None:
        while True:
            for _ in range(8):
                text = f"I live in {self.mark('town')} and like trains. " * 4
                say("kept", await self.talk.append("user", text), text)
            note = self.mark("note")
            await self.talk.remember("goals", f"see {note}")
            say("noted", text=note)
            await self._drop_notes_but(note)
            await self.talk.extract_facts()
            await self.talk.compact(keep_tokens=200)

    async def _drop_notes_but(self, last: str) -> None:
        notes = (await self.talk.working_memory()).goals
        for index in reversed(range(len(notes))):
            word = notes[index].text.removeprefix("see ")
            if word != last:
                say("leaving", text=word)
                with suppress(palaver.ScrubPending):
                    await self.talk.drop_note("goals", index)
                say("left", text=word)

    async def forget(self) -> None:
        while True:
            word = self.mark("gone")
            turn = await self.talk.append("user", f"a secret of {word}, which lives in {word}")
            say("leaving", turn, word)
            with suppress(palaver.ScrubPending):  # the search for damage is reading: the bytes go when it has ended
                await self.talk.forget(turn)
            say("left", text=word)

    async def erase(self) -> None:
        while True:
            guest = self.mark("guest")
            say("leaving", text=guest)
            await self._visit(guest)
            say("erasing", text=guest)
            with suppress(palaver.ScrubPending):
                await self.store.erase_user(guest)
            say("left", text=guest)

    async def _visit(self, guest: str) -> None:
        scope = Scope.of("default", guest)
        own = await self.store.scoped(scope).conversation("own", title=f"of {guest}")
        await own.append("user", f"words of {guest}")
        await self.talk.append("user", f"{guest} was here", actor=guest)

    async def repair(self) -> None:
        while True:
            await repair(self.store, only=self.talk.id)  # compacting the other one has no end while it grows
            say("repaired")
            await asyncio.sleep(0.05)


async def repair(store: palaver.Store, only: str | None = None) -> None:
    """Do what `palaver doctor --repair` does, and leave the rest to the worker."""
    worker = worker_of(store)
    found = await engine_of(store).find_damage(thorough=True)
    await repair_database(worker)
    for tenant, conversation in {(one.tenant, one.conversation) for one in found}:
        if conversation is not None and only in (None, conversation):
            with suppress(palaver.NotFound):  # deleted since the damage was found
                await repair_conversation(worker, tenant, conversation)


async def main(url: str, key: str, run: str) -> None:
    options: Any = {"stream_lease": LEASE, "stream_flush": FLUSH, "embedder": HashEmbedder(8)}
    async with palaver.open(url, **options) as store, asyncio.TaskGroup() as tasks:
        writer = Writer(await store.conversation(key), run)
        keeper = Keeper(store, await store.conversation(f"{key}/memory", settings={"facts": True}), run)
        say("ready")
        for work in (
            writer.append, writer.append, writer.append, writer.append_many, writer.stream_by_hand,
            writer.stream_by_hand, writer.stream, writer.stream, keeper.remember, keeper.forget, keeper.erase,
            keeper.repair,
        ):  # fmt: skip
            tasks.create_task(work())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
