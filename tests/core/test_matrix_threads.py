"""Palaver's matrix products run in one thread; the program's own setting is restored afterwards."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_info, threadpool_limits

import palaver
from palaver.core.matrix_threads import OneMatrixThread, with_one_matrix_thread
from palaver.models.offline.bert import Bert
from palaver.models.offline.embedder import _NumpyModel
from palaver.recall.scoring import Floats
from palaver.recall.vectors import VectorBlock
from palaver.testing import HashEmbedder


def threads() -> list[int]:
    return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


@pytest.fixture(autouse=True)
def two_threads() -> None:
    np.zeros(1)
    for one in ThreadpoolController().select(user_api="blas").lib_controllers:
        one.set_num_threads(2)
        one.clear_controlling_thread(force=True)


def test_inside_there_is_one_thread_and_afterwards_as_many_as_before() -> None:
    one_thread = OneMatrixThread()
    with one_thread:
        assert set(threads()) == {1}
    assert set(threads()) == {2}


def test_the_last_of_several_threads_lifts_the_limit() -> None:
    one_thread, first_is_in, first_may_leave = OneMatrixThread(), threading.Event(), threading.Event()

    def first() -> None:
        with one_thread:
            first_is_in.set()
            first_may_leave.wait(60)

    other = threading.Thread(target=first)
    other.start()
    assert first_is_in.wait(60)
    with one_thread:
        first_may_leave.set()
        other.join()
        assert set(threads()) == {1}, "one is still inside"
    assert set(threads()) == {2}


def test_a_limit_that_the_program_has_set_in_another_thread_stays() -> None:
    one_thread, is_set, may_end = OneMatrixThread(), threading.Event(), threading.Event()

    def program() -> None:
        with threadpool_limits(limits=2, user_api="blas"):
            is_set.set()
            may_end.wait(60)

    other = threading.Thread(target=program)
    other.start()
    assert is_set.wait(60)
    with one_thread:
        assert set(threads()) == {2}
    assert set(threads()) == {2}
    may_end.set()
    other.join()


def test_an_error_lifts_the_limit() -> None:
    @with_one_matrix_thread
    def fail() -> None:
        assert set(threads()) == {1}
        raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert set(threads()) == {2}


def test_the_encoder_computes_with_one_thread() -> None:
    class Spy:
        def vector(self, _text: str) -> list[int]:
            return threads()

    found: Any = _NumpyModel(cast("Bert", Spy())).vector("Some words.")
    assert set(found) == {1}


async def test_the_ranking_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    compare = VectorBlock.compare

    def spy(self: VectorBlock, question: Floats) -> Floats:
        found.extend(threads())
        return compare(self, question)

    monkeypatch.setattr(VectorBlock, "compare", spy)
    async with palaver.open(f"sqlite:///{tmp_path}/a.db", embedder=HashEmbedder(), worker=False) as store:
        talk = await store.conversation()
        await talk.append("user", "I live in Oslo.")
        await store.settle()
        await talk.recall("Where do I live?")
    assert set(found) == {1}
