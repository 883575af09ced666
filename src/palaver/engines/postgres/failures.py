"""Translates SQLSTATEs to Palaver's errors, without the server's messages: DETAIL, CONTEXT and HINT quote rows."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import asyncpg

from palaver.core.identity import from_json
from palaver.engines.erasing import RESETTING
from palaver.errors import (
    AlreadyImported,
    AppendConflict,
    AttachmentNotFound,
    ConversationBusy,
    ConversationGone,
    ConversationNotFound,
    DatabaseFull,
    DatabaseReadOnly,
    EngineError,
    EngineUnavailable,
    IdempotencyConflict,
    InvalidInput,
    NotRedacted,
    PalaverError,
    PermissionDenied,
    SchemaMissing,
    StreamMoved,
    StreamSealed,
    TooLarge,
    TurnGone,
    TurnNotFound,
    TurnSuperseded,
    UpdateConflict,
)

# Errors that our SQL functions raise with `palaver.fail` (core.sql); the message is a JSON array of arguments.
OWN_ERRORS: dict[str, Callable[..., PalaverError]] = {
    "PV001": ConversationNotFound,
    "PV002": ConversationGone,
    "PV003": TurnNotFound,
    "PV004": TurnGone,
    "PV005": AttachmentNotFound,
    "PV011": lambda expected, found: AppendConflict(expected=int(expected), found=int(found)),
    "PV012": IdempotencyConflict,
    "PV013": lambda turn, by: TurnSuperseded(turn, by=by),
    "PV014": StreamSealed,
    "PV015": StreamMoved,
    "PV016": AlreadyImported,
    "PV017": lambda expected, found: UpdateConflict(expected=int(expected), found=int(found)),
    "PV018": lambda conversation: ConversationBusy(conversation, RESETTING),
    "PV021": PermissionDenied,
    "PV031": InvalidInput,
    "PV033": lambda kind, _: NotRedacted(kind),
    "PV032": lambda field, size, limit, unit: TooLarge(field, size=int(size), limit=int(limit), unit=unit),
}
DRIVER_ERRORS = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
UNAVAILABLE = {
    "57014": "the statement took longer than the database allows",
    "57P01": "the database is shutting down",
    "57P02": "the database crashed",
    "57P03": "the database is starting up",
    "40001": "the transaction conflicted with another one",
    "40P01": "the transaction deadlocked with another one",
    "55P03": "a lock could not be obtained in time",
    "53300": "the database has no free connection: raise max_connections or the login's limit, or lower pool_size",
    "53200": "the database is out of memory",
}
# Advice for an administrator whose `palaver migrate` cannot create the extension vector, by SQLSTATE.
VECTOR_HINTS = {
    "0A000": "Palaver needs pgvector 0.8 or newer: install it there (on Debian and Ubuntu, the package "
    "postgresql-VERSION-pgvector)",
    "42501": "A superuser has to create it in this database first: CREATE EXTENSION vector SCHEMA extensions "
    "(docs/how-to/postgres.md)",
}
# Citus says so when the shard of a tenant was moved to another node while a function ran on the old one.
SHARD_MOVED = "cannot execute a distributed query from a query on a shard"


def error_for(sqlstate: str | None, message: str) -> PalaverError:
    """Return the error for a SQLSTATE. The message is shown only when one of our own functions wrote it."""
    if sqlstate in OWN_ERRORS:
        return OWN_ERRORS[sqlstate](*from_json(message))
    state = f"SQLSTATE {sqlstate}"
    if sqlstate in UNAVAILABLE:
        return _with_sqlstate(EngineUnavailable(f"{UNAVAILABLE[sqlstate]} ({state})"), sqlstate)
    if sqlstate == "XX000" and message.startswith(SHARD_MOVED):
        return _with_sqlstate(EngineUnavailable(f"the tenant was moved to another node ({state})"), sqlstate)
    if sqlstate and sqlstate.startswith("08"):
        return _with_sqlstate(EngineUnavailable(f"the connection to the database was lost ({state})"), sqlstate)
    if sqlstate == "25006":
        return _with_sqlstate(DatabaseReadOnly(f"this server is read-only ({state})"), sqlstate)
    if sqlstate in ("53100", "58030"):
        return _with_sqlstate(DatabaseFull(f"no disk space left; nothing was written ({state})"), sqlstate)
    if sqlstate in ("3F000", "42883", "42P01"):
        return _with_sqlstate(
            SchemaMissing(f"the database lacks the schema of this version ({state}): run `palaver migrate`"), sqlstate
        )
    if sqlstate == "42501":
        return _with_sqlstate(
            EngineError(f"permission denied for this login ({state}): it must be a member of palaver_app"), sqlstate
        )
    if sqlstate in ("28P01", "28000"):
        why = "check the user, the password (in the address or PGPASSWORD) and pg_hba.conf"
        return _with_sqlstate(EngineError(f"the database rejected this login ({state}): {why}"), sqlstate)
    if sqlstate == "3D000":
        why = "check its name in the address, or create it: docs/how-to/postgres.md"
        return _with_sqlstate(EngineError(f"the server has no database of this name ({state}): {why}"), sqlstate)
    if sqlstate in ("26000", "42P05"):
        why = "the address is that of a pooler in transaction mode: add ?pgbouncer=true to it"
        return _with_sqlstate(EngineError(f"a prepared statement was lost ({state}): {why}"), sqlstate)
    return _with_sqlstate(EngineError(f"the database refused the statement ({state})"), sqlstate)


def _with_sqlstate(problem: EngineError, sqlstate: str | None) -> EngineError:
    problem.sqlstate = sqlstate
    return problem


def error_for_administrator(problem: asyncpg.PostgresError) -> EngineError:
    """Return the error of a statement that changes the schema, with the server's own message.

    Such messages name tables and roles. DETAIL of a violated constraint quotes a row, so that is left out.
    """
    said = [str(getattr(problem, "message", None) or problem)]
    if not (problem.sqlstate or "").startswith("23"):
        said += [text for text in (getattr(problem, "detail", None), getattr(problem, "hint", None)) if text]
    known = error_for(problem.sqlstate, "[]") if problem.sqlstate not in OWN_ERRORS else EngineError("")
    kind = type(known) if isinstance(known, EngineUnavailable | DatabaseFull | DatabaseReadOnly) else EngineError
    if "vector" in said[0]:
        said.append(VECTOR_HINTS.get(problem.sqlstate or "", ""))
    text = ". ".join(one.rstrip(".") for one in said if one)
    return _with_sqlstate(kind(f"Postgres says: {text} (SQLSTATE {problem.sqlstate})"), problem.sqlstate)


@contextmanager
def translate_errors(*, administrator: bool = False) -> Iterator[None]:
    """Translate the driver's errors inside this block. An administrator gets the server's own messages."""
    try:
        yield
    except asyncpg.PostgresError as problem:
        if administrator:
            raise error_for_administrator(problem) from None
        raise error_for(problem.sqlstate, str(problem)) from None
    except TimeoutError:
        raise EngineUnavailable("the database did not respond in time (command_timeout, connect_timeout)") from None
    except asyncpg.ClientConfigurationError as problem:
        raise InvalidInput("url", str(problem)) from None
    except (asyncpg.DataError, asyncpg.UnsupportedClientFeatureError, asyncpg.UnsupportedServerFeatureError) as problem:
        raise EngineError(f"the driver cannot send this statement ({type(problem).__name__})") from None
    except DRIVER_ERRORS as problem:
        raise lost(_unreachable(problem)) from None


def _unreachable(problem: Exception) -> str:
    """Say why there is no connection, and what to check. The driver's text may contain a part of the password."""
    if isinstance(problem, socket.gaierror):
        advice = "its host name is unknown: is the address right, and is the password in it percent-encoded?"
    elif "rejected SSL" in str(problem):
        advice = "it does not use TLS, but sslmode in the address requires it"
    else:
        advice = "is it running, and is the address right?"
    return f"the database cannot be reached ({type(problem).__name__}): {advice}"


def lost(message: str) -> EngineUnavailable:
    """Return the error of a connection that was lost."""
    problem = EngineUnavailable(message)
    problem.connection_lost = True
    return problem


def is_lost(problem: EngineError) -> bool:
    """Return whether the connection was lost, so that another one may work."""
    if not isinstance(problem, EngineUnavailable):
        return False
    state = problem.sqlstate or ""
    return problem.connection_lost or state.startswith("08") or state in ("57P01", "57P02")
