"""Models that administrators add while the server runs. Keys are kept in a file that only the server's user can read.

The file is next to an SQLite database (`chat.db.models.json`), or where `models_file` says. It is not part of the
database: exports, backups and copies of it hold no key.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from palaver.errors import InvalidInput, PalaverError
from palaver.models.registry import KINDS, OFFLINE, ModelRegistry
from palaver.ports.models import ModelRequest
from palaver.server.settings import LOOPBACK_NAMES, ServerSettings

log = logging.getLogger("palaver.server")
PROVIDER_HOSTS = ("api.openai.com", "api.anthropic.com")
MOST = 100  # models
TEST_SECONDS = 30.0
NO_KEY = "none"  # for servers that need no key: the SDKs require one
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]{0,99}")
Spec = dict[str, str]


def models_file(settings: ServerSettings) -> Path | None:
    """Return where added models are kept: as set, or next to an SQLite file; None if there is no such place."""
    if settings.models_file:
        return Path(settings.models_file)
    parts = urlsplit(settings.url)
    path = f"{parts.netloc}{parts.path}".removeprefix("/")
    return Path(f"{path}.models.json") if parts.scheme == "sqlite" and path else None


@dataclass(slots=True)
class ModelSettings:
    """The models of the server: those of its configuration, and those that were added."""

    settings: ServerSettings
    registry: ModelRegistry
    path: Path | None
    _added: dict[str, Spec] = field(default_factory=dict)
    _read: tuple[int, int] | None = None  # of the file that was read last
    _first_default: str = ""
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._first_default = self.registry.default

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that a base URL may name. This machine is one of them for the one person who uses it."""
        own = () if self.settings.needs_auth else LOOPBACK_NAMES
        return (*PROVIDER_HOSTS, *own, *self.settings.model_hosts)

    # ---- reading

    async def refresh(self) -> None:
        """Read the file, if another process has changed it."""
        if self.path is None:
            return
        async with self._lock:
            with suppress(FileNotFoundError):
                found = self.path.stat()
                if self._read != (found.st_mtime_ns, found.st_size):
                    await self._apply(_read_private(self.path))
                    self._read = (found.st_mtime_ns, found.st_size)

    async def _apply(self, content: Mapping[str, Any]) -> None:
        self._added = {name: dict(spec) for name, spec in content.get("models", {}).items()}
        added = {name: _with_key(spec) for name, spec in self._added.items()}
        names = {**added, **self.settings.models}
        default = str(content.get("default"))
        is_known = default in {OFFLINE, self._first_default, *names}
        await self.registry.replace(names, default if is_known else self._first_default)

    def listed(self) -> list[dict[str, Any]]:
        """Describe every model, without its key."""
        names = sorted({self.registry.default, self._first_default, *self.registry.names})
        return [self.describe(name) for name in names]

    def describe(self, name: str) -> dict[str, Any]:
        added = self._added.get(name)
        known = self.registry.names.get(name, name)
        target = known if isinstance(known, str) else None
        spec: Mapping[str, Any] = known if isinstance(known, Mapping) else {"model": target}
        return {
            "name": name,
            "model": spec.get("model"),
            "base_url": spec.get("base_url"),
            "has_key": "api_key" in (spec if added is None else added),
            "managed": added is not None,
            "is_default": name == self.registry.default,
        }

    # ---- changing

    async def put(self, name: str, spec: Spec) -> None:
        """Add a model, or change one that was added. Without a key, the one that is stored stays."""
        self._check(name, spec)
        before = self._added.get(name, {})
        if "api_key" not in spec and "api_key" in before and before.get("base_url") == spec.get("base_url"):
            spec = {**spec, "api_key": before["api_key"]}  # never for another address: it would be sent there
        if name not in self._added and len(self._added) >= MOST:
            raise InvalidInput("name", f"at most {MOST} models can be added: remove one")
        await self._store({**self._added, name: spec}, self.registry.default)

    async def remove(self, name: str) -> None:
        self._require_added(name)
        rest = {one: spec for one, spec in self._added.items() if one != name}
        default = self.registry.default
        await self._store(rest, self._first_default if default == name else default)

    async def choose(self, name: str) -> None:
        """Make a model the default, for conversations without one of their own."""
        if name not in {OFFLINE, self._first_default, *self.registry.names}:
            known = ", ".join(sorted({OFFLINE, *self.registry.names}))
            raise InvalidInput("name", f"is not a model of this server: {known}")
        await self._store(self._added, name)

    async def _store(self, added: Mapping[str, Spec], default: str) -> None:
        if self.path is None:
            raise InvalidInput("models_file", "is not set: without it, this server cannot keep added models")
        content = {"default": default, "models": added}
        async with self._lock:
            await asyncio.to_thread(_write_private, self.path, content)
            found = self.path.stat()
            await self._apply(content)
            self._read = (found.st_mtime_ns, found.st_size)

    def _check(self, name: str, spec: Spec) -> None:
        if not _NAME.fullmatch(name) or name == OFFLINE:
            raise InvalidInput("name", "must be at most 100 letters, digits and . _ / : @ -, and not 'offline'")
        if name in self.settings.models:
            raise InvalidInput("name", f"{name!r} is in the server's configuration: change it there")
        kind, colon, model = spec["model"].partition(":")
        if kind not in KINDS or not colon or not model.strip():
            raise InvalidInput("model", f"must be {', '.join(f'{one}:MODEL' for one in KINDS)}")
        if "base_url" in spec:
            check_base_url(spec["base_url"], self.hosts)

    def _require_added(self, name: str) -> None:
        if name not in self._added:
            raise InvalidInput("name", "is not a model that was added here")

    # ---- testing

    async def test(self, name: str) -> dict[str, Any]:
        """Ask a model for one word. Errors are part of the result, without anything that the service said."""
        started = time.monotonic()
        problem: str | None = None
        try:
            if name not in {OFFLINE, self._first_default, *self.registry.names}:
                raise InvalidInput("name", "is not a model of this server")
            async with asyncio.timeout(TEST_SECONDS):
                await self._ask(name)
        except TimeoutError:
            problem = f"{name} did not answer within {TEST_SECONDS:g} seconds"
        except PalaverError as error:
            problem = str(error)
        return {"ok": problem is None, "problem": problem, "seconds": round(time.monotonic() - started, 3)}

    async def _ask(self, name: str) -> None:
        model = self.registry.chat(name)
        body = model.body(ModelRequest(messages=({"role": "user", "content": "Say: ready"},)))
        async for _ in model.stream(body):
            return


def check_base_url(url: str, hosts: tuple[str, ...]) -> None:
    """Refuse an address that is not on the list: an administrator must not be able to point the server at any host."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise InvalidInput("base_url", "must be the URL of a service") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise InvalidInput("base_url", "must be the URL of a service, without a user, a query and a fragment")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if not {host, f"{host}:{port}", f"{parts.scheme}://{host}", f"{parts.scheme}://{host}:{port}"} & set(hosts):
        raise InvalidInput("base_url", f"{host} is not allowed: add it to PALAVER_MODEL_HOSTS ({', '.join(hosts)})")
    is_listed_plain = {f"http://{host}", f"http://{host}:{port}"} & set(hosts)
    if parts.scheme == "http" and host not in LOOPBACK_NAMES and not is_listed_plain:
        raise InvalidInput(
            "base_url", "must begin with https://, or PALAVER_MODEL_HOSTS must list its host with http://"
        )


def _with_key(spec: Spec) -> Spec:
    """Fill in a key for an address that has none. The SDKs would send it the key of the environment."""
    if "base_url" not in spec or "api_key" in spec or urlsplit(spec["base_url"]).hostname in PROVIDER_HOSTS:
        return spec
    return {**spec, "api_key": NO_KEY}


# ---- the file ------------------------------------------------------------------------------------------------------


def _read_private(path: Path) -> dict[str, Any]:
    """Read the file. Others must not be able to read it: its mode is corrected, and that is logged."""
    if os.name == "posix" and stat.S_IMODE(path.stat().st_mode) & 0o077:
        log.warning("the file of models was readable by other users: its mode was reset to 0600")
        path.chmod(0o600)
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        raise InvalidInput("models_file", "cannot be read: correct or remove it") from None
    if not isinstance(content, dict):
        raise InvalidInput("models_file", "must hold one JSON object")
    return content


def _write_private(path: Path, content: Mapping[str, Any]) -> None:
    """Replace the file in one step; it is never readable by others, not even for a moment."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    with suppress(FileNotFoundError):
        new.unlink()
    with os.fdopen(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        json.dump(content, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
