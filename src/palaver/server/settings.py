"""Settings of the server: from `palaver serve`, from PALAVER_* in the environment, from a file. Read only here."""

from __future__ import annotations

import ipaddress
import json
import secrets
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from palaver.audit.seals import clean_sealing_key
from palaver.conversations.open_options import DEFAULT_URL, STREAM_LEASE, SWEEP_EVERY
from palaver.core.budgets import clean_options
from palaver.core.validation import did_you_mean
from palaver.errors import InvalidInput
from palaver.memory.model_calls import CALLS_PER_DAY, check_limit
from palaver.memory.person_settings import PERSON_MODES, PersonMode, PersonOptions
from palaver.models.registry import check_named_model

LOCAL_USER = "user"  # the user on loopback without keys, who owns the memory
PORT = 8484
MEGABYTE = 1_000_000
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
LOG_FORMATS = ("text", "json")
RATE_SCOPES = ("server", "database")
INTERRUPTED = ("keep", "ask_again")
CLOSING_SHARE, LONGEST_CLOSING = 0.2, 2.0  # of `shutdown_seconds`, for connections and the database to close
ON, OFF = frozenset(("1", "true", "yes", "on")), frozenset(("0", "false", "no", "off"))  # flags in the environment
LOG_LEVELS = ("debug", "info", "warning", "error")
# Fields of requests under /v1 that Palaver reads itself, or that make a provider run tools: never passed as they are.
RESERVED_FIELDS = frozenset(
    "model messages input system instructions stream stream_options tools tool_choice functions function_call store "
    "conversation previous_response_id background prompt mcp_servers container web_search_options palaver".split()
)
PREFIX = "PALAVER_"  # of settings in the environment
PASSED_ON = "PALAVER_SERVE_SETTINGS"  # from `palaver serve` to its workers


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of the server. Times are in seconds, sizes in bytes. The defaults are restrictive."""

    url: str = DEFAULT_URL  # the URL of the database
    host: str = "127.0.0.1"  # the address to listen on; on any other than loopback, callers need a key or a token
    port: int = PORT  # the port to listen on
    workers: int = 1  # the number of processes; more than one requires Postgres
    #: the folder or bucket (`s3://bucket/prefix?endpoint=…`) for attachments. None: a folder next to an SQLite file;
    #: with Postgres, attachments are refused until it is set
    files: str | None = None
    tenant: str = "default"  # the tenant of callers without a key, on loopback
    # authentication
    require_auth: bool = False  # whether callers need a key or a token even on loopback
    #: the secret to verify tokens that are signed with HS256, at least 32 bytes
    jwt_secret: str | None = field(default=None, repr=False)
    jwks: str | None = None  # the public keys to verify tokens (JWKS): a URL or the path of a file
    jwt_audience: str = "authenticated"  # the audience that tokens must have
    jwt_issuer: str | None = None  # the issuer that tokens must have; None: any
    jwt_tenant_claim: str = "tenant"  # the claim of a token that contains the tenant
    jwt_tenant: str | None = None  # the tenant of tokens without that claim; None: they are rejected
    hosts: tuple[str, ...] = ()  # further host names of this server, which the Host header may contain
    origins: tuple[str, ...] = ()  # further web origins whose pages may call this server
    public_url: str | None = None  # the URL of this server for callers, behind a proxy: https://chat.example.org
    # limits
    max_body: int = 16 * MEGABYTE  # the largest request
    max_upload: int = 51 * MEGABYTE  # the largest request with a file
    body_seconds: float = 30.0  # how long the body of a request may take to arrive
    upload_seconds: float = 600.0  # how long a file may take to arrive
    request_seconds: float = 60.0  # how long until the response to a request without a model begins
    answer_seconds: float = 600.0  # how long until the response to a request with a model begins
    rate: float = 50.0  # requests per second and caller; 0: no limit
    burst: int = 200  # requests that a caller may send at once
    #: where requests and failed logins are counted: `server` (all processes of this server together) or `database` (all
    #: servers of the database together)
    rate_scope: str = "server"
    failed_login_rate: float = 5.0  # failed logins per second and address; 0: no limit
    failed_login_burst: int = 30  # failed logins at once per address
    max_streams: int = 100  # open live streams per caller and process; no limit on loopback without a key
    max_feeds: int = 100  # conversations in one multiplexed stream
    heartbeat: float = 15.0  # the time between two heartbeats of a live stream
    ticket_seconds: float = 60.0  # how long a ticket for a live stream is valid
    #: the secret that signs tickets, links and uploads, at least 32 bytes. Several servers of one database need the
    #: same one. If it is not set, links stop working after a restart
    ticket_secret: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    shutdown_seconds: float = 10.0  # the longest time from SIGTERM to the exit
    #: the shortest time that the socket stays open after SIGTERM; at most half of `shutdown_seconds` is used
    drain_seconds: float = 1.0
    #: what happens to an answer that a shutdown interrupts. `keep`: the text so far is kept as the answer. `ask_again`:
    #: another process generates the answer again
    interrupted_answers: str = "keep"
    stream_lease: float = STREAM_LEASE  # after this time without a sign of life from its writer, a stream is aborted
    # operations
    log_format: str = "text"  # text, or json with one object per line
    log_level: str = "info"  # debug, info, warning or error
    #: the token that reads /metrics, at least 32 characters; without it, /metrics is closed where callers need a key
    metrics_token: str | None = field(default=None, repr=False)
    telemetry: bool = False  # whether to export spans and metrics by OTLP; the OTEL_… variables configure the target
    ready_lag: float = 600.0  # how far background work may lag before /readyz returns 503; 0: no limit
    # MCP
    mcp_forget: bool = False  # whether assistants may delete turns and conversations
    mcp_system: bool = False  # whether assistants may store system turns
    # the log
    audit_key: str | None = field(default=None, repr=False)  # the key that signs the seals of the log; None: no seals
    seal_every: float = 60.0  # the time between two seals
    # retention
    sweep_every: float = SWEEP_EVERY  # the time between two sweeps, less than a day; 0: never
    retention_minutes: float | None = None  # sweeps delete turns that are older, in minutes; None: turns are kept
    # models
    #: the model for recall by meaning: `local`, `minilm` (the previous local model), `openai:MODEL` or `none`. `auto`:
    #: `local` if it is installed, otherwise `none`
    embedder: str = "auto"
    model: str | None = None  # the default model, such as openai:gpt-5; None: offline
    any_model: bool = False  # whether callers may use models that are not configured here
    provider_fields: tuple[str, ...] = ()  # further fields of /v1 requests that are passed to the provider
    models: Mapping[str, Any] = field(default_factory=dict)  # models by your own names: docs/how-to/answers.md
    #: the file for models that administrators add. None: a file next to an SQLite file; with Postgres, models cannot be
    #: added until it is set
    models_file: str | None = None
    model_hosts: tuple[str, ...] = ()  # further hosts that the base URL of an added model may have
    agents: Mapping[str, Any] = field(default_factory=dict)  # agents by name: docs/how-to/several-agents.md
    workspaces: Mapping[str, Any] = field(default_factory=dict)  # the model and context of each workspace
    generate: Mapping[str, Any] = field(default_factory=dict)  # settings of generate, as below
    #: the model that proposes notes and facts, in addition to the rules. None: the model of the conversation. `"none"`:
    #: the rules alone
    extractor_model: str | None = None
    #: whether persons are remembered: `off`, `read` or `read-write`. `auto`: `read-write` on loopback without keys,
    #: otherwise `off`
    person: str = "auto"
    model_calls_per_day: int = CALLS_PER_DAY  # model calls of background work per conversation and day (UTC); 0: none
    #: limits of every tenant, user and key, as below: docs/how-to/budgets.md
    budgets: Mapping[str, Any] = field(default_factory=dict)

    @property
    def on_loopback(self) -> bool:
        return is_loopback(self.host)

    @property
    def needs_auth(self) -> bool:
        return self.require_auth or not self.on_loopback

    @property
    def person_options(self) -> PersonOptions:
        """How persons are remembered. Without keys there is one user, who has no name."""
        mode: PersonMode = "off" if self.needs_auth else "read-write"
        if self.person in PERSON_MODES:
            mode = self.person
        return {"mode": mode} if self.needs_auth else {"mode": mode, "default_person": LOCAL_USER}

    def store_options(self) -> dict[str, Any]:
        """Return the options of `palaver.open` that a server and a separate worker have in common."""
        same = (
            "files", "embedder", "model", "models", "agents", "workspaces", "model_calls_per_day", "extractor_model",
            "generate", "budgets",
        )  # fmt: skip
        return {name: getattr(self, name) for name in same} | {"person": self.person_options}

    @property
    def closing_seconds(self) -> float:
        """How long closing takes, after the answers have ended."""
        return min(LONGEST_CLOSING, self.shutdown_seconds * CLOSING_SHARE)

    @property
    def has_jwt(self) -> bool:
        return bool(self.jwt_secret or self.jwks)

    @property
    def names(self) -> frozenset[str]:
        """The allowed values of the Host header, without the port."""
        own = LOOPBACK_NAMES if self.on_loopback else ()
        listening = () if self.host in ("0.0.0.0", "::") else (self.host,)
        return frozenset(name.lower() for name in (*own, *listening, *self.hosts))

    def check(self) -> ServerSettings:
        if self.jwt_secret is not None and len(self.jwt_secret.encode()) < 32:
            raise InvalidInput("jwt_secret", "must be at least 32 bytes long: HS256 requires it")
        if len(self.ticket_secret.encode()) < 32:
            raise InvalidInput(
                "ticket_secret", "must be at least 32 bytes long: guessing it would give access to everything"
            )
        if self.audit_key is not None:
            clean_sealing_key(self.audit_key.encode())
        if not 0 <= self.port <= 65_535:
            raise InvalidInput("port", "must be from 0 to 65535")
        if self.workers < 1:
            raise InvalidInput("workers", "must be 1 or more")
        if self.workers > 1 and self.url.startswith(("sqlite:", "memory:")):
            raise InvalidInput("workers", "must be 1 with SQLite: use Postgres for more processes")
        if self.log_format not in LOG_FORMATS:
            raise InvalidInput("log_format", f"must be one of {', '.join(LOG_FORMATS)}")
        if self.log_level not in LOG_LEVELS:
            raise InvalidInput("log_level", f"must be one of {', '.join(LOG_LEVELS)}")
        if self.metrics_token is not None and len(self.metrics_token) < 32:
            raise InvalidInput("metrics_token", "must be at least 32 characters long")
        if self.shutdown_seconds <= 0:
            raise InvalidInput("shutdown_seconds", "must be more than 0")
        if self.drain_seconds < 0:
            raise InvalidInput("drain_seconds", "must be 0 or more")
        if self.rate_scope not in RATE_SCOPES:
            raise InvalidInput("rate_scope", f"must be one of {', '.join(RATE_SCOPES)}")
        if self.interrupted_answers not in INTERRUPTED:
            raise InvalidInput("interrupted_answers", f"must be one of {', '.join(INTERRUPTED)}")
        if not 0 <= self.sweep_every < 86_400:
            raise InvalidInput("sweep_every", "must be less than 86400 seconds; 0: never")
        if self.retention_minutes is not None and not self.retention_minutes > 0:
            raise InvalidInput("retention_minutes", "must be more than 0 minutes")
        if decided := RESERVED_FIELDS.intersection(self.provider_fields):
            raise InvalidInput("provider_fields", f"cannot contain {sorted(decided)[0]!r}: Palaver sets it")
        clean_options(self.budgets)
        for name, spec in self.models.items():
            check_named_model(name, spec)
        check_limit("model_calls_per_day", self.model_calls_per_day)
        if self.person not in ("auto", *PERSON_MODES):
            raise InvalidInput("person", f"must be one of auto, {', '.join(PERSON_MODES)}")
        if "*" in self.origins:
            raise InvalidInput("origins", "must name each origin; * would allow every page")
        return self

    # ---- for worker processes

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> ServerSettings:
        return cls(**_lists_to_tuples(json.loads(text)))


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_settings(environment: Mapping[str, str], config: str | None, **given: Any) -> ServerSettings:
    """Read a file, then the environment, then `given`. Later ones override earlier ones."""
    named = config or environment.get("PALAVER_CONFIG")
    found: dict[str, Any] = _read_file(Path(named)) if named else {}
    for one in fields(ServerSettings):
        text = environment.get(f"PALAVER_{one.name.upper()}")
        if text:
            found[one.name] = _parse_value(one.name, text)
    found.update({name: value for name, value in given.items() if value is not None})
    found = _lists_to_tuples(found)
    for name, value in found.items():
        _check_type(name, value)
    return replace(ServerSettings(), **found).check()


def misspelt_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a warning for each variable whose name is nearly that of a setting: nothing reads it.

    Other variables with this prefix may be right: Kubernetes sets PALAVER_SERVICE_HOST for a service named palaver.
    """
    names = {one.name.upper() for one in fields(ServerSettings)} | {"CONFIG", "USER"}
    found = []
    for variable in sorted(one for one in environment if one.startswith(PREFIX)):
        name = variable.removeprefix(PREFIX)
        if name not in names and (close := get_close_matches(name, names, n=1, cutoff=0.8)):
            found.append(f"{variable} is not a setting and is ignored: did you mean {PREFIX}{close[0]}?")
    return found


def _read_file(path: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(path.read_text())
    except tomllib.TOMLDecodeError as problem:
        raise InvalidInput("config", f"{path} is not valid TOML: {problem}") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidInput("config", f"{path} cannot be read ({type(problem).__name__})") from None
    found = {**data.pop("server", {}), **data}
    known = {one.name for one in fields(ServerSettings)}
    if unknown := found.keys() - known:
        name = sorted(unknown)[0]
        hint = did_you_mean(name, known)
        raise InvalidInput(f"config.{name}", f"is unknown{hint}; known settings: {', '.join(sorted(known))}")
    return found


def _parse_value(name: str, text: str) -> Any:
    kind = str(ServerSettings.__annotations__[name])
    try:
        if kind.startswith("Mapping"):
            return json.loads(text)
        if kind.startswith("tuple"):
            return tuple(part.strip() for part in text.split(",") if part.strip())
        if kind == "bool":
            return _parse_flag(text.strip().lower())
        return int(text) if kind == "int" else float(text) if kind.startswith("float") else text
    except ValueError:
        raise InvalidInput(f"PALAVER_{name.upper()}", f"must be {_kind_in_words(kind)}") from None


def _parse_flag(text: str) -> bool:
    """Read a flag. Raises ValueError for a typo, which must not turn off `require_auth`."""
    if text not in ON | OFF:
        raise ValueError
    return text in ON


def _check_type(name: str, value: Any) -> None:
    """Refuse a value of another type now, instead of failing at each request."""
    kind = str(ServerSettings.__annotations__[name])
    if value is None and "None" in kind:
        return
    if kind.startswith("Mapping"):
        is_right = isinstance(value, Mapping)
    elif kind.startswith("tuple"):
        is_right = isinstance(value, tuple) and all(isinstance(one, str) for one in value)
    elif kind == "bool":
        is_right = isinstance(value, bool)
    elif kind.startswith(("int", "float")):
        is_number = isinstance(value, int) or (kind.startswith("float") and isinstance(value, float))
        is_right = is_number and not isinstance(value, bool)
    else:
        is_right = isinstance(value, str)
    if not is_right:
        raise InvalidInput(name, f"must be {_kind_in_words(kind)}")


def _kind_in_words(kind: str) -> str:
    if kind.startswith("Mapping"):
        return "a mapping: in TOML a table, in the environment a JSON object"
    if kind.startswith("tuple"):
        return "a list of texts"
    words = {"bool": "true or false", "int": "a whole number", "float": "a number"}
    return words.get(kind.split(" ")[0], "text")


def _lists_to_tuples(found: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}
