"""Options of `palaver.open`: groups of keywords as types, their defaults and their checks."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from palaver.context.settings import CONTEXT_SETTINGS
from palaver.core.budgets import BudgetOptions
from palaver.core.validation import SYNONYMS, did_you_mean
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
    """How summaries, notes, facts and the memory of persons are made.

    - `summarizer`: your own summariser. It writes summaries in place of the model; the built-in rules write one only if
      it fails or may not be called.
    - `extractor`: your own extractor. It proposes facts and notes, as JSON, in place of the model. The built-in rules
      run as well, and their results are kept even if it fails.
    - `extractor_model`: the model that proposes facts and notes, in addition to the rules; by default the
      conversation's model. `none`: the rules alone.
    - `redactor`: your own redactor. It finds secrets and personal data in place of the built-in rules.
    - `token_counter`: the function that counts tokens; by default with the o200k table of OpenAI.
    - `model_calls_per_day`: the maximum number of model calls of background work for one conversation per day (UTC),
      for summaries, titles, notes and facts; 20 by default. After that, the rules write. The rules also write until a
      conversation is in use: until an answer or a context was requested. `None`: no limit, and no such wait.
    - `person`: whether persons are remembered across conversations: `off` (the default), `read`, `read-write`, or
      `PersonOptions`.
    - `subjects`: for each kind of subject, the names and types of its fields and the words that are never remembered,
      such as `{"project": {"fields": {"budget": "number"}, "never": ["salary"]}}`.
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
    """Where attachments are stored. Give one of the two.

    - `folder`: a folder, or the URL of a bucket (`s3://bucket/prefix?endpoint=…`). By default, with SQLite, the folder
      next to the database file: `chat.db-files`. Postgres has no default.
    - `blobs`: your own storage, an object with the methods of the protocol `Blobs`.
    """

    folder: Path | str | None
    blobs: Blobs | None


class StreamTimes(TypedDict, total=False):
    """Times for streamed turns, in seconds: more than 0, less than a day.

    - `lease`: after this time without a sign of life from its writer, a stream is aborted. After this time without one
      from its worker, a background job is given to another worker. 30 by default.
    - `flush`: the longest time between `write` and the moment when the text is on disk; 0.25 by default.
    """

    lease: float
    flush: float


class BackgroundOptions(TypedDict, total=False):
    """Work that this process does in the background.

    - `worker`: whether to run background jobs: summaries, notes, facts, vectors, texts of files. `True` by default.
      With `False`, another process or `store.settle()` runs them.
    - `sweep_every`: the seconds between two sweeps (see `Store.sweep`), less than a day. `None`, the default: never.
    - `retention_minutes`: sweeps also delete turns that are older than this. It has no effect without `sweep_every`.
      `None`, the default: turns are kept.
    """

    worker: bool
    sweep_every: float | None
    retention_minutes: float | None


class DatabaseOptions(TypedDict, total=False):
    """How to connect to the database. SQLite needs none of these options.

    For Postgres:

    - `migrate_url`: the URL of a login that may change the schema. If it is set, opening the store first creates or
      upgrades the schema. It is also an option for Supabase.
    - `listen_url`: a direct URL for LISTEN, if `url` leads through pgbouncer.
    - `read_url`: the URL of a replica, which reads use.
    - `pool_size`: the maximum number of connections for calls of this process, in addition to one that listens; 16 by
      default.
    - `connect_timeout`, `command_timeout`: the longest time to connect (10 by default) and for one call (60), in
      seconds. The second one also applies to calls of a Palaver server.
    - `application_name`: the name of the connections in `pg_stat_activity`.
    - `pool`: an `asyncpg.Pool` of your own, which the store uses and does not close.

    `pool_size`, the timeouts and `application_name` can also be in the query string of `url`: `?pool_size=4`.

    For Supabase and for a Palaver server:

    - `key`: the API key of the Supabase project, or a key of the Palaver server. For Supabase, the default is
      SUPABASE_KEY, SUPABASE_ANON_KEY or SUPABASE_PUBLISHABLE_KEY of the environment.
    - `token`: the user's token, or a function that returns it.
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
    """Traces and metrics. They never have content.

    - `spans`: `True` for OpenTelemetry spans with the global tracer provider, or a tracer provider of your own.
    - `meter`: an object that receives counts and durations; a subclass of `palaver.telemetry.Meter`.
    """

    spans: bool | TracerProvider | None
    meter: Meter | None


class TestingOptions(TypedDict, total=False):
    """Replacements for the clock and the ids, for tests.

    - `clock`: an object with `now()`, such as `palaver.testing.FakeClock`.
    - `ids`: a function that returns a new id, such as `palaver.testing.CountingIds()`.
    """

    clock: Clock | None
    ids: Ids | None


class FlatOptions(MemoryOptions, BackgroundOptions, DatabaseOptions, TestingOptions, total=False):
    """The options of all groups as direct keywords of `palaver.open`: `palaver.open(url, sweep_every=600)`.

    - `stream_lease`, `stream_flush`: `lease` and `flush` of `StreamTimes`.
    - `blobs`: `blobs` of `FileOptions`.
    - `meter`: `meter` of `TelemetryOptions`.
    - `counter`: the old name of `token_counter`.
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


def _place_of(name: str) -> str:
    """Return where an option of `generate`, under its own or another common name, belongs; or nothing."""
    known = {*GenerateSettings.__annotations__, *CONTEXT_SETTINGS}
    names = [one for one in (name, *SYNONYMS.get(name, ())) if one in known]
    return f" (give it as generate={{{names[0]!r}: …}})" if names else ""


def group_options(flat: Mapping[str, Any], **groups: Any) -> dict[str, Any]:
    """Return the options of all groups, flat ones included. Raises `InvalidInput` for unknown and doubled ones."""
    found = {name: _read_group(name, group) for name, group in groups.items()}
    unknown = flat.keys() - FlatOptions.__annotations__.keys()
    if unknown:
        name = min(unknown)
        known = [*NAMED, *groups, *FlatOptions.__annotations__]
        known = ["key"] if name == "api_key" else [one for one in known if one not in NOT_SUGGESTED]
        raise InvalidInput(name, f"is not an option of palaver.open{_place_of(name) or did_you_mean(name, known)}")
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
            raise InvalidInput(f"{name}.{key}", f"is unknown; the options are {', '.join(known)}")
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
