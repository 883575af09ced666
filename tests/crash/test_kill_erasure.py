"""`kill -9` while a person is erased: the same call, or a sweep, continues, and nothing of the person is left."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.security.test_erasing import ADA, WORD, filled, opened, traces
from tests.support.memory import url

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]
ERASER = Path(__file__).with_name("eraser.py")


async def erase_until(folder: Path, step: int) -> bool:
    """Erase in another process until it has killed itself. False when it came to its end before."""
    arguments = (url(folder), str(folder / "files"), ADA, str(step))
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(ERASER), *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await child.communicate()
    assert child.returncode in (0, -9), err.decode()
    assert (child.returncode == 0) == (out == b"finished\n")
    return child.returncode == -9


LONG = [pytest.param([1] * 4 + [2] * 20, by_sweep, marks=pytest.mark.slow) for by_sweep in (False, True)]
LONG += [pytest.param([step], step % 2 == 0, marks=pytest.mark.slow) for step in range(1, 20)]


@pytest.mark.parametrize(("steps", "by_sweep"), [([1, 3, 4], False), ([6], True), *LONG])
async def test_an_erasure_goes_on_where_it_was_killed(tmp_path: Path, steps: list[int], by_sweep: bool) -> None:
    async with opened(tmp_path) as store:
        talk = await filled(store)
    killed = [await erase_until(tmp_path, step) for step in steps]
    assert killed[0] or steps[0] > 10
    async with opened(tmp_path) as store:
        if by_sweep:
            await store.sweep()
        else:
            receipt = await store.erase_user(ADA)
            assert not all(killed) or len(receipt.erased["conversations"]) == 1  # what was erased before the kill, too
        await store.settle()
        assert await traces(tmp_path, ADA, WORD) == []
        await (await store.get(talk.id)).verify()
