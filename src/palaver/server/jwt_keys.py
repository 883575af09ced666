"""The public keys of an issuer of JWTs (JWKS): fetched from a URL or a file, and cached."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jwt

from palaver.server.errors import Refusal
from palaver.server.settings import is_loopback

log = logging.getLogger("palaver.server")

# Algorithms of a published key that does not name its own, by key type.
ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
ASYMMETRIC = frozenset(one for family in ALGORITHMS.values() for one in family)
CACHE_SECONDS = 300.0  # how long a set of keys is cached
PAUSE = 30.0  # minimum between two fetches, however many unknown keys are named
RETRY = 2.0  # minimum between two fetches while no set could be read yet
TIMEOUT = 10.0  # seconds for a whole fetch: every caller with a JWT waits for it
PublishedKey = tuple[Any, list[str]]  # a public key and its allowed algorithms


@dataclass(slots=True)
class PublishedKeys:
    """The keys of one set, by id. If a fetch fails, the known keys stay in use."""

    retry: float = RETRY
    _keys: dict[str, PublishedKey] = field(default_factory=dict)
    _fetched_at: float = -1e9  # by the monotonic clock
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def find(self, place: str, id: str) -> PublishedKey:
        """Return the key with this id, and its allowed algorithms. Fetches the set if it may have changed."""
        async with self._lock:
            wait = CACHE_SECONDS if id in self._keys else PAUSE if self._keys else self.retry
            if time.monotonic() - self._fetched_at > wait:
                await self._fetch(place)
        if not self._keys:
            raise Refusal(503, "The keys for JWTs cannot be read at the moment", {"Retry-After": "5"})
        if id not in self._keys:
            raise jwt.InvalidKeyError
        return self._keys[id]

    async def _fetch(self, place: str) -> None:
        try:
            self._keys = await asyncio.wait_for(asyncio.to_thread(_read_key_set, place), TIMEOUT)
        except (OSError, HTTPException, ValueError, LookupError, TypeError) as problem:
            log.warning("the keys for JWTs cannot be read (%s)", type(problem).__name__)
        self._fetched_at = time.monotonic()


def _read_key_set(place: str) -> dict[str, PublishedKey]:
    """Read public keys by id. Keys that cannot verify signatures are skipped."""
    text = _fetch(place) if "://" in place else Path(place).read_text()
    found: dict[str, PublishedKey] = {}
    for one in json.loads(text)["keys"]:
        algorithms = _allowed_algorithms(one) if isinstance(one, dict) and one.get("use", "sig") == "sig" else []
        if algorithms:
            with suppress(jwt.PyJWTError):
                found[str(one.get("kid", ""))] = (jwt.PyJWK(one).key, algorithms)
    return found


def _allowed_algorithms(key: Mapping[str, Any]) -> list[str]:
    """Return the algorithm that a key names, or all that its type allows."""
    able = ALGORITHMS.get(str(key.get("kty")), ())
    return [one for one in able if one == key.get("alg", one)]


def _fetch(url: str) -> str:
    check_url(url)
    with urllib.request.urlopen(url, timeout=5) as answer:
        check_url(answer.url)  # after redirects
        return str(answer.read(1_000_000).decode())


def check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise OSError("the keys for JWTs are read over https only")
