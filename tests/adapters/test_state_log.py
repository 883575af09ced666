"""The log of values that adapters keep state in."""

from __future__ import annotations

import os

import pytest

from palaver import Store, TooLarge
from palaver.adapters.state_log import PAGE, StateLog, Value, log_key

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]


PIECE = 50_000


async def open_log(store: Store) -> StateLog:
    log = await StateLog.open(store, "log", "test", {})
    log.piece = PIECE
    return log


async def values(log: StateLog) -> list[bytes | None]:
    return await log.read(await log.read_new())


async def test_values_of_any_size_come_back_in_order(store: Store) -> None:
    given = [b"", b"small", b"\x00" * 1_000, os.urandom(2 * PIECE + 1), b"text " * 200_000, os.urandom(PIECE)]
    log = await open_log(store)
    await log.append([Value({"n": n}, data) for n, data in enumerate(given)])
    other = await StateLog.find(store, "log")
    assert other is not None
    entries = await other.read_new()
    assert [entry.labels["n"] for entry in entries] == list(range(len(given)))
    assert [entry.pieces for entry in entries] == [1, 1, 1, 3, 1, 1]
    assert await other.read(entries) == given
    assert await other.read_new() == []
    await log.talk.verify()


async def test_a_reader_gets_what_another_stored_since(store: Store) -> None:
    writer, reader = await open_log(store), await open_log(store)
    for start in (0, PAGE + 5, 2 * PAGE + 10):
        await writer.append([Value({}, str(n).encode()) for n in range(start, start + PAGE + 5)])
        assert await values(reader) == [str(n).encode() for n in range(start, start + PAGE + 5)]
    assert len(await values(await open_log(store))) == 3 * (PAGE + 5)


async def test_a_value_that_was_deleted_elsewhere_is_not_returned(store: Store) -> None:
    one, two = await open_log(store), await open_log(store)
    await one.append([Value({"n": 0}, b"first"), Value({"n": 1}, os.urandom(2 * PIECE)), Value({"n": 2}, b"last")])
    entries = await two.read_new()
    await one.forget((await one.read_new())[:2])
    assert await two.read(entries) == [None, None, b"last"]
    await two.forget(entries)
    assert await values(await open_log(store)) == []
    await one.append([Value({}, b"again")])
    assert await values(two) == [b"again"]


async def test_a_value_over_the_limit_is_refused(store: Store) -> None:
    log = await open_log(store)
    log.max_value = 1_000
    with pytest.raises(TooLarge) as refusal:
        await log.append([Value({}, b"fits"), Value({}, bytes(1_001))])
    assert (refusal.value.field, refusal.value.limit) == ("value", 1_000)
    assert await values(log) == []


async def test_a_long_name_has_a_key(store: Store) -> None:
    name = "é" * 1_000
    assert len(log_key("p", name).encode()) <= 512
    assert log_key("p", name) != log_key("p", name + "é")
    assert log_key("p", "short") == "p/short"
