"""Options of `palaver.open`: groups of keywords as types, their defaults and their checks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from palaver.core.budgets import BudgetOptions
from palaver.core.validation import did_you_mean
from palaver.errors import InvalidInput
from palaver.generation.settings import Agent, GenerateSettings, Workspace
from palaver.memory.person_settings import PersonMode, PersonOptions
from palaver.memory.shapes import SubjectShapeOptions
from palaver.model import Scope, warn_renamed
from palaver.models.registry import Named
from palaver.ports.blobs import Blobs
from palaver.ports.clock import Clock, Ids
from palaver.ports.engine import Token
from palaver.ports.models import Counter, Embedder, Extractor, Summarizer
from palaver.telemetry import Meter

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from palaver.redaction.findings import Redactor

DEFAULT_URL = "sqlite:///palaver.db"
STREAM_LEASE = 30.0  # seconds of silence after which the writer of a stream is considered dead
STREAM_FLUSH = 0.25
# Options that are in no group.
NAMED = ("tenant", "user", "scope", "model", "models", "agents", "workspaces", "generate", "embedder", "budgets")
NOT_SUGGESTED = frozenset({"key", "token", "counter"})  # secrets, which a session's id must not become, and an old name
SWEEP_EVERY = 30.0  # seconds, in the server and the worker


class MemoryOptions(TypedDict, total=False):
    """Parts of memory that can be replaced.

    - `summarizer`: writes summaries, in place of the model and the rules.
    - `extractor`: proposes facts and notes, as JSON, in place of the model and the rules.
    - `extractor_model`: the model that proposes them; by default the conversation's own. `none`: rules alone.
    - `redactor`: finds secrets and personal data, in place of the rules.
    - `token_counter`: counts tokens; by default the o200k table.
    - `model_calls_per_day`: how many calls of models background work may make per conversation (20): summaries, titles,
      notes and facts. After that the rules write. `None`: no limit, and no waiting until a conversation is in use.
    - `person`: what people say is remembered across conversations: `off`, `read`, `read-write`, or `PersonOptions`.
    - `subjects`: fields of the memory of subjects by kind, and words that are never remembered; `SubjectShapeOptions`.
    """

    summarizer: Summarizer | None
    extractor: Extractor | None
    extractor_model: str | None
    redactor: Redactor | None
    token_counter: Counter | None
    model_calls_per_day: int | None
    person: PersonMode | PersonOptions
    subjects: Mapping[str, SubjectShapeOptions] | None


class FileOptions(TypedDict, total=False):
    """Where attachments are stored: a `folder` or bucket URL, or `blobs`, a storage of your own."""

    folder: Path | str | None
    blobs: Blobs | None


class StreamTimes(TypedDict, total=False):
    """Times of streamed turns in seconds.

    - `lease`: a stream whose writer is silent for this long is aborted, and a background job whose worker is silent
      for this long is given to another worker (30).
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
    - `pool_size`: Postgres: the most connections for calls, of this process; 16. In the URL: `?pool_size=4`.
    - `connect_timeout`, `command_timeout`: Postgres: seconds to connect (10) and for one call (60); in the URL, too.
    - `application_name`: Postgres: what `pg_stat_activity` shows for the connections; in the URL, too.
    - `pool`: Postgres: an `asyncpg.Pool` of the application, which is used and not closed.
    - `key`: Supabase: the project's API key; by default the environment's SUPABASE_KEY. A Palaver server: a key of it.
    - `token`: Supabase or a Palaver server: the user's token, or a function that returns it.
    """

    migrate_url: str | None
    listen_url: str | None
    read_url: str | None
    pool_size: int | None
    connect_timeout: float | None
    command_timeout: float | None
    application_name: str | None
    pool: object
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


GROUPS: Mapping[str, type] = {
    "memory": MemoryOptions,
    "files": FileOptions,
    "streams": StreamTimes,
    "background": BackgroundOptions,
    "database": DatabaseOptions,
    "telemetry": TelemetryOptions,
    "testing": TestingOptions,
}
# Flat keywords whose names differ from those inside their group.
_FLAT_NAMES = {("streams", "lease"): "stream_lease", ("streams", "flush"): "stream_flush"}
_PLACES = {
    _FLAT_NAMES.get((group, key), key): (group, key) for group, kind in GROUPS.items() for key in kind.__annotations__
}
_SHORT_FORMS = {"files": "folder", "telemetry": "spans"}  # of a group that is given as one value


class AnswerOptions(TypedDict):
    """The options of `palaver.open` that concern answers."""

    model: str | None
    models: Mapping[str, Named] | None
    agents: Mapping[str, Agent | Mapping[str, object]] | None
    workspaces: Mapping[str, str | Workspace | Mapping[str, object]] | None
    generate: GenerateSettings | Mapping[str, object] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """All options of `palaver.open`, by group."""

    url: str
    scope: Scope
    embedder: Embedder | str | None
    answers: AnswerOptions
    budgets: BudgetOptions | None
    memory: MemoryOptions
    files: FileOptions
    streams: StreamTimes
    background: BackgroundOptions
    database: DatabaseOptions
    telemetry: TelemetryOptions
    testing: TestingOptions


def group_options(flat: Mapping[str, Any], **groups: Any) -> dict[str, Any]:
    """Return the options of all groups, flat ones included. Raises `InvalidInput` for unknown and doubled ones."""
    found = {name: _read_group(name, group) for name, group in groups.items()}
    unknown = flat.keys() - FlatOptions.__annotations__.keys()
    if unknown:
        name = min(unknown)
        known = [*NAMED, *groups, *FlatOptions.__annotations__]
        known = ["key"] if name == "api_key" else [one for one in known if one not in NOT_SUGGESTED]
        raise InvalidInput(name, f"is not an option of palaver.open{did_you_mean(name, known)}")
    if "counter" in flat:
        warn_renamed("palaver.open(counter=…)", "token_counter")
        flat = {**flat, "token_counter": flat["counter"]}
    for name, value in flat.items():
        if name != "counter":
            group, key = _PLACES[name]
            if key in found[group]:
                raise InvalidInput(f"{group}.{key}", f"was given twice: here and as {name}=")
            found[group][key] = value
    return found


def _read_group(name: str, given: object) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        if name not in _SHORT_FORMS:
            raise InvalidInput(name, "must be a mapping")
        return {_SHORT_FORMS[name]: given}
    known = GROUPS[name].__annotations__
    for key in given:
        if key not in known:
            raise InvalidInput(f"{name}.{key}", f"is not known; there are {', '.join(known)}")
    return dict(given)


class SystemClock:
    """The time of the machine, in UTC."""

    def now(self) -> datetime:
        """Return the current time."""
        return datetime.now(UTC)

    def elapsed(self) -> float:
        """Return seconds that do not change when the clock is set."""
        return time.monotonic()


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
