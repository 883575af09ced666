"""Writes to two stores and replicates between them, over and over: `replicator.py URL_A URL_B FOLDER SEED`.

It prints what it is about to do and what is done, so that the test that kills it knows what was acknowledged. With the
seed `end`, it only replicates, once.
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import suppress
from pathlib import Path

import palaver
from palaver import Conversation, Store, TooLarge

KEYS = ("one", "two", "three")
LEASE = 0.5  # seconds


def tell(*words: str) -> None:
    print(*words, flush=True)


def open_side(url: str, folder: Path) -> palaver.Opening:
    return palaver.open(url, files=folder, embedder=None, worker=False, streams={"lease": LEASE})


async def act(talk: Conversation, chance: random.Random) -> None:
    """Do something to a conversation."""
    text = f"{chance.getrandbits(60):x}"
    action = chance.choices(("say", "stream", "attach", "edit", "forget", "note", "rename"), (8, 2, 2, 2, 2, 1, 1))[0]
    turns = await talk.history()
    if action == "stream":
        async with talk.stream("assistant") as writer:
            await writer.write(text)
        tell("kept", text)
    elif action == "attach":
        file = await talk.attach(text.encode(), filename="note.txt")
        await talk.append("user", text, attachments=[file])
        tell("kept", text)
    elif action == "edit" and turns:
        await talk.append("user", text, replaces=chance.choice(turns), discard_after=chance.random() < 0.5)
        tell("kept", text)
    elif action == "forget" and turns:
        turn = chance.choice(turns)
        tell("forgetting", turn.text)
        await talk.forget(turn)
        tell("forgot", turn.text)
    elif action == "note":
        with suppress(TooLarge):  # after many kills, the list has its 20 notes
            await talk.remember("goals", text, by="ada")
    elif action == "rename":
        await talk.rename(text)
    else:
        await talk.append("user", text)
        tell("kept", text)


async def write(store: Store, chance: random.Random) -> None:
    for _ in range(chance.randrange(4)):
        await act(await store.conversation(chance.choice(KEYS)), chance)


async def main(first: str, second: str, folder: Path, seed: str) -> None:
    chance = random.Random(seed)
    async with open_side(first, folder / "left") as left, open_side(second, folder / "right") as right:
        tell("ready")
        while seed != "end":
            await write(left, chance)
            await write(right, chance)
            await palaver.replicate(left, right)
        while not (report := await palaver.replicate(left, right)).is_complete:
            assert not report.counts.get("refused"), report
            await asyncio.sleep(LEASE)  # an answer that was being written when an earlier process was killed
            await left.sweep()
            await right.sweep()


asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4]))
