"""palaver doctor: which extras are installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from palaver.cli import doctor


def test_the_api_of_opentelemetry_alone_is_not_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """fastapi requires `opentelemetry-api`, which exports nothing."""

    def find_spec(name: str) -> ModuleSpec | None:
        if name.startswith("opentelemetry.exporter."):
            raise ModuleNotFoundError(name)
        return ModuleSpec(name, None) if name in ("opentelemetry", "opentelemetry.trace") else None

    monkeypatch.setattr(doctor, "find_spec", find_spec)
    found = doctor._extra(*doctor.EXTRAS["otel"])
    assert not found["installed"]
    assert found["missing"] == ["opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"]


def test_a_key_in_the_address_of_the_files_is_not_shown(
    ok: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALAVER_FILES", "s3://AKIA:hunter2@files")
    shown = ok("doctor", "--db", "memory:")
    assert "s3://AKIA:…@files" in shown
    assert "hunter2" not in shown


def test_a_folder_for_files_that_cannot_be_used_is_named(
    ok: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("PALAVER_FILES", str(tmp_path / "file"))
    assert "attachments cannot be stored" in ok("doctor", "--db", "memory:")
