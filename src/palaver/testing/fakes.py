"""Stand-ins for what is slow, random or paid. They do what their ports say, and the same thing every time."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from palaver.core.identity import CROCKFORD, ID_LENGTH, STAMP
from palaver.model import ToolCall
from palaver.ports.models import CallReady, Finished, ModelEvent, ModelRequest, Started, TextDelta

START = datetime(2026, 1, 1, 12, tzinfo=UTC)


class FakeClock:
    """A clock that changes only when a test sets it. With `tick`, each reading advances it by this many seconds."""

    def __init__(self, start: datetime = START, *, tick: float = 0.0) -> None:
        self._now, self._tick = start, timedelta(seconds=tick)
        self.set(start)

    def now(self) -> datetime:
        shown = self._now
        self._now += self._tick
        return shown

    def advance(self, seconds: float) -> None:
        """Move the clock forwards, or backwards if `seconds` is negative."""
        self._now += timedelta(seconds=seconds)

    def set(self, moment: datetime) -> None:
        if moment.tzinfo is None:
            raise ValueError("the moment needs a time zone")
        self._now = moment.astimezone(UTC)


class CountingIds:
    """Makes valid ids that count up, the same in every run.

    An engine writes a turn's seq over the last seven letters of its id, so the counter stands before them. Two
    generators on one database need different starts.
    """

    def __init__(self, start: int = 0) -> None:
        self._numbers = count(start)

    def __call__(self) -> str:
        number = next(self._numbers)
        return _crockford(number, ID_LENGTH - STAMP) + _crockford(number, STAMP)


def _crockford(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 32)
        digits.append(CROCKFORD[digit])
    return "".join(reversed(digits))


class HashEmbedder:
    """An embedder without a model. The vectors of texts that share words are similar; it uses hashes of the words."""

    def __init__(self, dimensions: int = 32) -> None:
        self.name, self.dimensions = f"hash-{dimensions}", dimensions

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.0] * self.dimensions
        for word in re.findall(r"\w+", text.lower()) or [""]:
            digest = hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()
            vector[int.from_bytes(digest[:8], "big") % self.dimensions] += 1.0
        length = math.hypot(*vector)
        return [value / length for value in vector]


class UnexpectedCall(AssertionError):
    """A `ScriptedModel` was called more often than its script has steps."""


Step = str | Sequence[str | ToolCall] | BaseException


class ScriptedModel:
    """A model that returns the answers of a script, one per call, and keeps the requests in `requests`.

    A step is a text (streamed word by word), a list of pieces (streamed as they are, a ToolCall among them is called),
    or an exception (raised).

    Background work takes steps as well, for titles, summaries and facts. Open the store with `model_calls_per_day=0`
    to prevent that.
    """

    adapter = "scripted"
    provider = "palaver"
    remembers = False
    project = ""

    def __init__(self, script: Iterable[Step] = (), *, name: str = "scripted", window: int | None = None) -> None:
        self.name, self.window = name, window
        self.requests: list[ModelRequest] = []
        self._script = list(script)

    @property
    def calls(self) -> list[list[dict[str, Any]]]:
        """The messages of each request."""
        return [list(request.messages) for request in self.requests]

    def body(self, request: ModelRequest) -> dict[str, Any]:
        self.requests.append(deepcopy(request))
        return {"model": self.name, "messages": deepcopy(list(request.messages)), "stream": request.stream}

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[ModelEvent]:
        if not self._script:
            raise UnexpectedCall(f"call {len(self.requests)}, and the script is at its end")
        step = self._script.pop(0)
        if isinstance(step, BaseException):
            raise step
        yield Started(None, self.name)
        calls = False
        for piece in re.findall(r"\s*\S+|\s+", step) if isinstance(step, str) else step:
            calls = calls or isinstance(piece, ToolCall)
            yield CallReady(piece) if isinstance(piece, ToolCall) else TextDelta(piece)
        yield Finished("tool_calls" if calls else "stop")

    def assert_finished(self) -> None:
        """Raise `AssertionError` if steps of the script were not used."""
        if self._script:
            raise AssertionError(f"{len(self._script)} steps of the script were not used")
