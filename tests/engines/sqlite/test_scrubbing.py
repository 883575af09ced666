"""Old bytes are removed without stopping the process: neither its event loop nor its other writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

import palaver
from palaver.engines.sqlite import page_scrubbing

WORDS = [f"zebra{n:04}" for n in range(120)]


class RecordingFile(apsw.VFSFile):  # type: ignore[misc]  # apsw has no types for it
    synced = 0

    def xSync(self, flags: int) -> None:
        RecordingFile.synced += 1
        super().xSync(flags)


async def fill_and_forget(path: Path) -> None:
    """Forget every second turn, so that nearly every page has a gap."""
    async with palaver.open(f"sqlite:///{path}", embedder=None, worker=False) as store:
        talk = await store.conversation("x")
        turns = await talk.append_many({"role": "user", "content": f"{word} " * 40} for word in WORDS)
        await talk.search("zebra0001")
        for turn in turns[::2]:
            await talk.forget(turn)


def words_in(path: Path) -> set[str]:
    data = b"".join(one.read_bytes() for one in path.parent.glob(path.name + "*"))
    return {word for word in WORDS if word.encode() in data}


async def test_the_disk_is_never_waited_for_with_the_interpreters_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`VFSFile.xSync` keeps the lock: the event loop would stand still until the disk has finished."""
    monkeypatch.setattr(RecordingFile, "synced", 0)
    monkeypatch.setattr(page_scrubbing.apsw, "VFSFile", RecordingFile)
    await fill_and_forget(tmp_path / "a.db")
    assert RecordingFile.synced == 0
    assert words_in(tmp_path / "a.db") == set(WORDS[1::2])


async def test_gaps_are_cleared_in_several_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Any] = []
    clear = page_scrubbing.clear_gaps

    def recorded(*arguments: Any, **options: Any) -> page_scrubbing.Cleared:
        steps.append(clear(*arguments, **options))
        return steps[-1]

    monkeypatch.setattr(page_scrubbing, "MOST_PAGES", 5)
    monkeypatch.setattr("palaver.engines.sqlite.scrubbing.clear_gaps", recorded)
    await fill_and_forget(tmp_path / "a.db")
    assert any(step.rest is not None for step in steps)
    assert all(len(step.found) <= 5 for step in steps)
    assert words_in(tmp_path / "a.db") == set(WORDS[1::2])
