"""Tests run without the local embedder unless they ask for it: loading it takes longer than most of them."""

from __future__ import annotations

import pytest

import palaver.store


@pytest.fixture(autouse=True)
def no_embedder_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(palaver.store, "AUTO_EMBEDDER", "none")
