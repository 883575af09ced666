"""An import that is killed at any moment is completed by running it again: every message once, every branch."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import palaver
from tests.interchange.exports.samples import chatgpt_zip

PROGRAM = Path(__file__).with_name("importer.py")
KILLS = 6


async def contents(url: str) -> dict[str, list[object]]:
    async with palaver.open(url, worker=False, embedder=None) as store:
        result: dict[str, list[object]] = {}
        for info in (await store.conversations()).items:
            talk = await store.get(info.id)
            await talk.verify()
            ids = [turn.idempotency_key for turn in await talk.history(include_superseded=True)]
            assert len(set(ids)) == len(ids)
            active = [turn.content for turn in await talk.history()]
            result[str(info.key)] = [sorted(str(id) for id in ids), active]
        return result


def run_import(url: str, export: Path, *steps: str) -> int:
    return subprocess.run([sys.executable, PROGRAM, url, export, *steps]).returncode


async def test_an_interrupted_import_goes_on(tmp_path: Path) -> None:
    export = chatgpt_zip(tmp_path / "export.zip", conversations=8)
    whole, url = f"sqlite:///{tmp_path}/whole.db", f"sqlite:///{tmp_path}/killed.db"
    assert run_import(whole, export) == 0
    for _ in range(KILLS):
        assert run_import(url, export, str(random.randrange(1, 12))) == -signal.SIGKILL
    assert run_import(url, export) == 0
    assert await contents(url) == await contents(whole)
