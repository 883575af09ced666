"""Tests run without the local embedder unless they ask for it: loading it takes longer than most of them."""

from __future__ import annotations

import pytest

# Before anything imports them: the guarantees are asserts, and a broken one should say what it found.
pytest.register_assert_rewrite("palaver.testing.guarantees", "palaver.testing.kit")

import palaver.store  # noqa: E402


@pytest.fixture(autouse=True)
def no_embedder_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(palaver.store, "AUTO_EMBEDDER", "none")
