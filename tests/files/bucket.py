"""A bucket that speaks S3, on loopback: moto's server. Import both fixtures where one is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

PATIENCE = 120.0  # seconds: the first request makes it import much, on a machine that may be busy


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    httpx.put(f"http://{host}:{port}/files", timeout=PATIENCE).raise_for_status()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return f"s3://files/{tmp_path.name}?endpoint={endpoint}&region=us-east-1"
