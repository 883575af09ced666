"""`python -m bench languages`: how often recall finds the turn that answers a question in other languages.

`bench/data/languages` has for each language pairs of a question and the turn with its answer, and other turns. All
turns of a language are one conversation. Half of the pairs (`tuned`) were looked at while the rules were made, the
other half (`held_out`) was not. R@k is the share of questions whose turn is among the best k.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import palaver
from palaver import Conversation

DATA = Path(__file__).parent / "data" / "languages"
LANGUAGES = ("de", "fr", "es", "it", "pt", "zh", "ja", "ko")
HALVES = ("tuned", "held_out")


class Pair(NamedTuple):
    question: str
    turn: str


class Found(NamedTuple):
    """The place of each question's turn among the hits, from 0; None if it is not among them."""

    places: list[int | None]

    def at(self, k: int) -> float:
        return sum(place is not None and place < k for place in self.places) / max(1, len(self.places))


def read_pairs(language: str, half: str) -> list[Pair]:
    lines = (DATA / f"{language}.{half}.tsv").read_text(encoding="utf-8").splitlines()
    return [Pair(*line.split("\t")) for line in lines]


def read_others(language: str) -> list[str]:
    return (DATA / f"{language}.others.txt").read_text(encoding="utf-8").splitlines()


def _mix(turns: Sequence[str]) -> Iterator[str]:
    """Yield turns in another order, always the same one: neighbours of a turn must not be about the same things."""
    for step in range(7):
        yield from turns[step::7]


async def fill(talk: Conversation, language: str) -> None:
    turns = [pair.turn for half in HALVES for pair in read_pairs(language, half)] + read_others(language)
    await talk.append_many({"role": "user", "content": turn} for turn in _mix(turns))


async def ask(talk: Conversation, pairs: Sequence[Pair]) -> Found:
    places: list[int | None] = []
    for pair in pairs:
        texts = [hit.turn.text for hit in await talk.recall(pair.question, 10, include_facts=False) if hit.turn]
        places.append(texts.index(pair.turn) if pair.turn in texts else None)
    return Found(places)


async def measure(languages: Sequence[str], embedder: str, misses: bool) -> None:
    print(f"{'':4}" + "".join(f"{half + ' R@1':>16}{'R@5':>7}{'R@10':>7}" for half in HALVES))
    for language in languages:
        with TemporaryDirectory() as folder:
            async with palaver.open(f"sqlite:///{folder}/{language}.db", embedder=embedder) as store:
                talk = await store.conversation("talk")
                await fill(talk, language)
                await store.settle()
                halves = {half: await ask(talk, read_pairs(language, half)) for half in HALVES}
        cells = (f"{found.at(1):16.3f}{found.at(5):7.3f}{found.at(10):7.3f}" for found in halves.values())
        print(f"{language:4}" + "".join(cells))
        if misses:  # of the half that may be looked at
            for pair, place in zip(read_pairs(language, "tuned"), halves["tuned"].places, strict=True):
                if place is None or place >= 1:
                    print(f"      {place}: {pair.question} | {pair.turn}")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench languages", description=__doc__)
    parser.add_argument("--only", default=",".join(LANGUAGES), help="some of the languages")
    parser.add_argument("--embedder", default="local", help="none: by words alone")
    parser.add_argument("--misses", action="store_true", help="print the tuned questions whose turn is not the first")
    chosen = parser.parse_args(arguments)
    asyncio.run(measure(chosen.only.split(","), chosen.embedder, chosen.misses))
