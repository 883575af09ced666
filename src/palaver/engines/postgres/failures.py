"""From SQLSTATEs to errors of ours. The server's own words stay behind: DETAIL, CONTEXT and HINT quote rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import asyncpg

from palaver.core.identity import from_json
from palaver.errors import (
    AlreadyImported,
    AppendConflict,
    AttachmentNotFound,
    ConversationGone,
    ConversationNotFound,
    DatabaseFull,
    DatabaseReadOnly,
    EngineError,
    EngineUnavailable,
    IdempotencyConflict,
    InvalidInput,
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

# What our own functions raise: `palaver.fail` in core.sql, with its arguments.
OURS: dict[str, Callable[..., PalaverError]] = {
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
    "PV021": PermissionDenied,
    "PV031": InvalidInput,
    "PV032": lambda field, size, limit, unit: TooLarge(field, size=int(size), limit=int(limit), unit=unit),
}
UNAVAILABLE = {
    "57014": "the statement took longer than the database allows",
    "57P01": "the database is shutting down",
    "57P02": "the database went down",
    "57P03": "the database is starting",
    "40001": "another transaction was faster",
    "40P01": "another transaction was faster",
    "55P03": "a lock was not to be had",
    "53300": "the database has no connection left",
    "53200": "the database has no memory left",
}


def failure(sqlstate: str | None, message: str) -> PalaverError:
    """The error that a SQLSTATE stands for. Of the message, only what our own functions wrote is used."""
    if sqlstate in OURS:
        told: list[Any] = from_json(message)
        return OURS[sqlstate](*told)
    state = f"SQLSTATE {sqlstate}"
    if sqlstate in UNAVAILABLE:
        return _carrying(EngineUnavailable(f"{UNAVAILABLE[sqlstate]} ({state})"), sqlstate)
    if sqlstate and sqlstate.startswith("08"):
        return _carrying(EngineUnavailable(f"the connection to the database was lost ({state})"), sqlstate)
    if sqlstate == "25006":
        return _carrying(DatabaseReadOnly(f"this server answers questions only ({state})"), sqlstate)
    if sqlstate in ("53100", "58030"):
        return _carrying(DatabaseFull(f"no space left; nothing was written ({state})"), sqlstate)
    if sqlstate in ("3F000", "42883", "42P01"):
        return _carrying(
            SchemaMissing(f"the database has not this version's schema ({state}): run `palaver migrate`"), sqlstate
        )
    if sqlstate == "42501":
        return _carrying(
            EngineError(f"this login may not do that ({state}): it must be a member of palaver_app"), sqlstate
        )
    if sqlstate in ("28P01", "28000"):
        return _carrying(EngineError(f"the database refuses this login ({state})"), sqlstate)
    return _carrying(EngineError(f"the database could not do it ({state})"), sqlstate)


def _carrying(problem: EngineError, sqlstate: str | None) -> EngineError:
    problem.sqlstate = sqlstate
    return problem


@contextmanager
def translated() -> Iterator[None]:
    """Nothing of the driver leaves this block."""
    try:
        yield
    except asyncpg.PostgresError as problem:
        raise failure(problem.sqlstate, str(problem)) from None
    except (OSError, asyncpg.InterfaceError, TimeoutError) as problem:
        what = f"the database is out of reach ({type(problem).__name__})"
        raise EngineUnavailable(f"{what}: is it running, is the address right?") from None
