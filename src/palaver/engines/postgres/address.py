"""Addresses of a Postgres server: the parameters of a URL, and the settings of the connections to it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from palaver.errors import InvalidInput

# Parameters of our own, and what each means.
OWN = ("pgbouncer", "pool_size", "connect_timeout", "command_timeout", "application_name")
# Parameters that the driver reads.
DRIVER = (
    "host", "port", "dbname", "database", "user", "password", "passfile", "service", "servicefile", "sslmode",
    "sslcert", "sslkey", "sslrootcert", "sslcrl", "sslpassword", "sslnegotiation", "ssl_min_protocol_version",
    "ssl_max_protocol_version", "target_session_attrs", "krbsrvname", "gsslib",
)  # fmt: skip
# Settings of the session. Any other one can be set with options=-c name=value.
SERVER = (
    "options", "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout",
    "tcp_user_timeout", "client_connection_check_interval", "synchronous_commit", "work_mem", "jit", "timezone",
)  # fmt: skip
HINTS = {
    "channel_binding": "the driver does not have it; sslmode=verify-full checks the server",
    "connection_limit": "use pool_size",
    "max_size": "use pool_size",
    "min_size": "use pool_size; connections are opened when they are needed",
}


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, and how its connections are used. Times are in seconds."""

    dsn: str
    pgbouncer: bool = False  # the address is that of a pooler in transaction mode: no prepared statements
    pool_size: int = 16
    connect_timeout: float = 10.0
    command_timeout: float = 60.0  # of one call; also how long a call waits for a free connection
    application_name: str = "palaver"

    def driver_options(self) -> dict[str, Any]:
        """Return what each connection of the driver gets."""
        return {
            "timeout": self.connect_timeout,
            "statement_cache_size": 0 if self.pgbouncer else 100,
            "server_settings": {"application_name": self.application_name},
        }


def parse_address(url: str, **given: Any) -> Address:
    """Read a URL. Options that are given override its parameters. Raises `InvalidInput` for unknown parameters."""
    parts = split_url(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in query:
        _check_known(name)
    own: dict[str, Any] = {name: _own_value(name, query.pop(name)) for name in OWN if name in query}
    own |= {name: _checked(name, name, value) for name, value in given.items() if value is not None}
    dsn = urlunsplit(parts._replace(scheme="postgresql", query=urlencode(query)))
    return replace(Address(dsn), **own)


def split_url(url: str) -> SplitResult:
    """Split a URL. Refuse one that a password cuts in two, without repeating any of it."""
    try:
        parts = urlsplit(url)
        names = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True)]
        is_split = parts.fragment or any("@" in one for one in (parts.path, *names))
        is_whole = [one.port for one in _hosts(parts)] and not is_split
    except ValueError:  # a port that is not a number, or half of a pair of brackets
        is_whole = False
    if not is_whole:
        raise InvalidInput(
            "url",
            "host and port cannot be read. Write special characters of the user and the password percent-encoded: "
            "# is %23, / is %2F, ? is %3F, @ is %40, [ is %5B",
        )
    return parts


def _hosts(parts: SplitResult) -> list[SplitResult]:
    """Return one URL for each host: the driver accepts several, separated by commas."""
    return [urlsplit(f"//{one}") for one in parts.netloc.rpartition("@")[2].split(",")]


def _check_known(name: str) -> None:
    if name in (*OWN, *DRIVER, *SERVER):
        return
    why = f" ({HINTS[name]})" if name in HINTS else ""
    known = ", ".join((*OWN, *SERVER, *DRIVER))
    raise InvalidInput("url", f"has an unknown parameter {name!r}{why}; known parameters: {known}")


def _own_value(name: str, text: str) -> object:
    """Read one of our own parameters, which is text in a URL."""
    if name == "pgbouncer":
        if text not in ("true", "false"):
            raise InvalidInput("url", "pgbouncer must be true or false")
        return text == "true"
    if name == "application_name":
        return _checked(name, "url", text)
    return _checked(name, "url", _number(name, text))


def _number(name: str, text: str) -> float:
    try:
        return int(text) if name == "pool_size" else float(text)
    except ValueError:
        raise InvalidInput("url", f"{name} must be a number, not {text!r}") from None


def _checked(name: str, field: str, value: Any) -> object:
    if name == "application_name":
        if not isinstance(value, str) or not value.isascii() or not value.isprintable() or not 0 < len(value) < 64:
            raise InvalidInput(field, "application_name must be 1 to 63 printable ASCII characters")
    elif name == "pool_size":
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1000:
            raise InvalidInput(field, "pool_size must be between 1 and 1000")
    elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 86_400:
        raise InvalidInput(field, f"{name} must be seconds, more than 0 and at most a day")
    return value
