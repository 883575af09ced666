"""Options of `palaver.open`: groups of keywords as types, their defaults and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from palaver.errors import InvalidInput
from palaver.model import warn_renamed
from palaver.ports.blobs import Blobs
from palaver.ports.clock import Clock, Ids
from palaver.ports.engine import Token
from palaver.ports.models import Counter, Extractor, Summarizer
from palaver.telemetry import Meter

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from palaver.redaction.findings import Redactor

DEFAULT_URL = "sqlite:///palaver.db"
STREAM_LEASE = 30.0  # seconds of silence after which the writer of a stream is considered dead
STREAM_FLUSH = 0.25
SWEEP_EVERY = 300.0  # seconds, in the server and the worker


class MemoryOptions(TypedDict, total=False):
    """Parts of memory that can be replaced.

    - `summarizer`: writes summaries, in place of the model and the rules.
    - `extractor`: proposes facts and notes, as JSON.
    - `redactor`: finds secrets and personal data, in place of the rules.
    - `token_counter`: counts tokens; by default the o200k table.
    - `model_calls_per_day`: how many calls of models background work may make per conversation (20): summaries, titles,
      notes and facts. After that the rules write. `None`: no limit, and no waiting until a conversation is in use.
    """

    summarizer: Summarizer | None
    extractor: Extractor | None
    redactor: Redactor | None
    token_counter: Counter | None
    model_calls_per_day: int | None


class FileOptions(TypedDict, total=False):
    """Where attachments are stored: a `folder` or bucket URL, or `blobs`, a storage of your own."""

    folder: Path | str | None
    blobs: Blobs | None


class StreamTimes(TypedDict, total=False):
    """Times of streamed turns in seconds.

    - `lease`: a stream whose writer is silent for this long is aborted (30).
    - `flush`: text is on disk at most this long after it was written (0.25).
    """

    lease: float
    flush: float


class BackgroundOptions(TypedDict, total=False):
    """Work in the background.

    - `worker`: `False` leaves memory work to another process, or to `store.settle()`.
    - `sweep_every`: seconds between two sweeps; `None` for no sweeps.
    - `retention_minutes`: sweeps also delete turns that are older than this.
    """

    worker: bool
    sweep_every: float | None
    retention_minutes: float | None


class DatabaseOptions(TypedDict, total=False):
    """How the database is reached.

    - `migrate_url`: Postgres: create or upgrade the schema first, with this login.
    - `listen_url`: Postgres behind pgbouncer: where to listen for changes.
    - `read_url`: Postgres: a replica for reads.
    - `key`: Supabase: the project's API key; by default the environment's SUPABASE_KEY.
    - `token`: Supabase: the user's token, or a function that returns it.
    """

    migrate_url: str | None
    listen_url: str | None
    read_url: str | None
    key: str | None
    token: Token | None


class TelemetryOptions(TypedDict, total=False):
    """Observation, never with content: OpenTelemetry `spans` (`True` or a tracer provider) and a `meter`."""

    spans: bool | TracerProvider | None
    meter: Meter | None


class TestingOptions(TypedDict, total=False):
    """For tests: a `clock` with `now()`, and `ids`, a function that makes ids."""

    clock: Clock | None
    ids: Ids | None


class FlatOptions(MemoryOptions, BackgroundOptions, DatabaseOptions, TestingOptions, total=False):
    """The options of all groups under their own names, as keywords of `palaver.open`.

    `stream_lease` and `stream_flush` are those of `StreamTimes`; `counter` is the old name of `token_counter`.
    """

    blobs: Blobs | None
    meter: Meter | None
    stream_lease: float
    stream_flush: float
    counter: Counter | None


# The names inside of a group that differ from the flat keyword.
_FLAT_NAMES = {"folder": "files", "lease": "stream_lease", "flush": "stream_flush", "spans": "telemetry"}
GROUPS = {
    "memory": MemoryOptions,
    "files": FileOptions,
    "streams": StreamTimes,
    "background": BackgroundOptions,
    "database": DatabaseOptions,
    "telemetry": TelemetryOptions,
    "testing": TestingOptions,
}


def flatten_groups(options: Mapping[str, Any], **groups: Any) -> dict[str, Any]:
    """Return the options of all groups by their flat names. Raises `InvalidInput` for unknown and doubled ones."""
    flat = dict(options)
    unknown = flat.keys() - FlatOptions.__annotations__.keys()
    if unknown:
        raise InvalidInput(sorted(unknown)[0], "is not an option of palaver.open")
    if "counter" in flat:
        warn_renamed("palaver.open(counter=…)", "token_counter")
        flat["token_counter"] = flat.pop("counter")
    for name, group in groups.items():
        if isinstance(group, Mapping):
            _add_group(flat, name, group)
        elif group is not None:
            _add(flat, name, {"files": "files", "telemetry": "telemetry"}.get(name), group)
    return flat


def _add_group(flat: dict[str, Any], name: str, group: Mapping[str, Any]) -> None:
    for key, value in group.items():
        if key not in GROUPS[name].__annotations__:
            known = ", ".join(GROUPS[name].__annotations__)
            raise InvalidInput(f"{name}.{key}", f"is not known; there are {known}")
        _add(flat, f"{name}.{key}", _FLAT_NAMES.get(key, key), value)


def _add(flat: dict[str, Any], field: str, name: str | None, value: object) -> None:
    if name is None:
        raise InvalidInput(field, "must be a mapping")
    if name in flat:
        raise InvalidInput(field, f"was given twice: here and as {name}=")
    flat[name] = value


class SystemClock:
    """The time of the machine, in UTC."""

    def now(self) -> datetime:
        """Return the current time."""
        return datetime.now(UTC)


def clean_minutes(value: float) -> timedelta:
    """Check `retention_minutes`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 100 * 366 * 24 * 60:
        raise InvalidInput("retention_minutes", "must be minutes, more than 0 and less than a hundred years")
    return timedelta(minutes=value)


def clean_seconds(field: str, value: float) -> float:
    """Check a time in seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 86_400:
        raise InvalidInput(field, "must be seconds, more than 0 and less than a day")
    return value
