"""A replication that is killed at any moment loses nothing: the next one completes it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

import palaver
from palaver import Store
from tests.interchange.replication.stores import assert_same, logs

PROGRAM = Path(__file__).with_name("replicator.py")
KILLS, MANY_KILLS = 3, 50
LONGEST = 1.0  # seconds that a process runs after it is ready


def run_and_kill(urls: list[str], folder: Path, seed: str) -> list[str]:
    """Run the program, kill it at a random moment, and return what it said."""
    command = [sys.executable, str(PROGRAM), *urls, str(folder), seed]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        timer = Timer(random.uniform(0, LONGEST), process.kill)
        timer.start()
        said = process.stdout.read().splitlines()
        assert process.wait() == -signal.SIGKILL
    return said


def complete(urls: list[str], folder: Path) -> None:
    end = [sys.executable, str(PROGRAM), *urls, str(folder), "end"]
    assert subprocess.run(end, stdout=subprocess.DEVNULL).returncode == 0


async def contents(store: Store) -> set[str]:
    """Return the texts of all turns of all conversations. Every file must be readable."""
    found: set[str] = set()
    for info in (await store.conversations(limit=100)).items:
        talk = await store.get(info.id)
        for turn in await talk.history(include_superseded=True, limit=1_000):
            found.add(turn.text)
            for file in turn.attachments:
                assert await talk.read_attachment(file)  # which checks its hash
    return found


async def kill_often(urls: list[str], folder: Path, kills: int) -> None:
    said: list[str] = []
    for number in range(kills):
        said += run_and_kill(urls, folder, f"{number}/{random.random()}")
    complete(urls, folder)
    words: dict[str, set[str]] = {"kept": set(), "forgetting": set(), "forgot": set()}
    for line in said:
        action, _, text = line.partition(" ")
        words[action].add(text)
    options = {"embedder": None, "worker": False}
    async with (
        palaver.open(urls[0], files=folder / "left", **options) as left,
        palaver.open(urls[1], files=folder / "right", **options) as right,
    ):
        assert_same(await logs(left), await logs(right))
        for store in (left, right):
            found = await contents(store)
            assert words["kept"] - words["forgetting"] <= found
            assert not words["forgot"] & found


@pytest.mark.costly
async def test_a_killed_replication_loses_nothing(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/left.db", f"sqlite:///{tmp_path}/right.db"]
    await kill_often(urls, tmp_path, KILLS)


@pytest.mark.slow
async def test_fifty_kills_lose_nothing(tmp_path: Path, database_url: str) -> None:
    await kill_often([f"sqlite:///{tmp_path}/left.db", database_url], tmp_path, MANY_KILLS)
