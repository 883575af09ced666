"""A killed restore leaves no copy behind: the next one that opens the database removes it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import palaver
from palaver.engines.sqlite.leftovers import find, private_folder

WORKING = """
import sys, pathlib
from palaver.engines.sqlite.leftovers import private_folder
with private_folder(pathlib.Path(sys.argv[1])) as part:
    (part / "palaver.db").write_bytes(b"a copy of everything")
    print(part, flush=True)
    sys.stdin.read()
"""


async def opened(path: Path) -> None:
    async with palaver.open(f"sqlite:///{path}", worker=False):
        pass


def test_a_killed_restore_leaves_no_copy_behind(tmp_path: Path) -> None:
    target = tmp_path / "chat.db"
    command = [sys.executable, "-c", WORKING, str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        part = Path(child.stdout.readline().strip())
        asyncio.run(opened(target))
        assert part.exists(), "somebody works in it"
        os.kill(child.pid, signal.SIGKILL)
    assert find(target) == [part]
    asyncio.run(opened(target))
    assert not part.exists()


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    target = tmp_path / "chat.db"
    for name, file in ((".chat.db-notes", "palaver.db"), (".chat.db-abcdefgh", "letters.txt")):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).touch()
    with private_folder(target):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [".chat.db-abcdefgh", ".chat.db-notes"]
