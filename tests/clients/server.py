"""The server of the scenarios: as deployed, with keys, and with a model on this machine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from palaver.cli.keys import PRESETS
from palaver.server.settings import ServerSettings
from palaver.testing.providers import LoopbackProvider
from tests.clients.scripted_model import ScriptedModel
from tests.server.conftest import running


@dataclass(frozen=True, slots=True)
class Target:
    """Where a scenario connects: an address and a key with the rights of the preset `backend`."""

    url: str
    key: str
    document: Path  # the OpenAPI document
    embedder: str

    @property
    def environment(self) -> dict[str, str]:
        told = {"URL": self.url, "KEY": self.key, "DOCUMENT": str(self.document), "EMBEDDER": self.embedder}
        return {f"PALAVER_{name}": value for name, value in told.items()}


@contextmanager
def target(folder: Path, embedder: str = "none") -> Iterator[Target]:
    with LoopbackProvider() as provider:
        provider.otherwise = ScriptedModel()
        settings = ServerSettings(
            url=f"sqlite:///{folder}/chat.db?synchronous=NORMAL",
            files=str(folder / "files"),
            model="chat",
            models=provider.models(),
            embedder=embedder,
            require_auth=True,
            jwt_secret="x" * 32,
            generate={"titles": False, "retry_pause": 0.001},
        )
        with running(settings) as server:
            document = folder / "openapi.json"
            document.write_text(json.dumps(server.app.openapi()))
            key = server.key(user=None, rights=" ".join(PRESETS["backend"]), visibility="tenant")
            yield Target(server.url, key, document, embedder)
