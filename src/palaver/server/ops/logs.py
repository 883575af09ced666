"""The server's log: a line per request, as text or as JSON. It never holds what was said, a query or a secret.

Our own messages are known to hold none. Those of others may quote anything: of them the first line is shown, and of an
exception its type and place.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any

from palaver.server.rest import wire
from palaver.server.settings import ServerSettings

OURS = "palaver"
OTHERS = ("uvicorn.error", "asyncio", "py.warnings", "mcp")


def set_up(settings: ServerSettings) -> None:
    """To stderr, in the chosen form. Called once in each process that serves."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.log_format == "json" else Lines())
    logging.captureWarnings(True)
    for name in (OURS, *OTHERS):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(settings.log_level.upper() if name == OURS else logging.WARNING)


def place_of(problem: BaseException) -> str:
    """Where it was raised: a file and a line, nothing of what was there."""
    where = problem.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    return "?" if where is None else f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}"


def message_of(record: logging.LogRecord) -> str:
    is_ours = record.name == OURS or record.name.startswith(f"{OURS}.")
    said = record.getMessage()
    shown = said if is_ours else _first_line(said)
    problem = record.exc_info[1] if record.exc_info else None
    return shown if problem is None else f"{shown} ({type(problem).__name__} at {place_of(problem)})"


def _first_line(said: str) -> str:
    """Of what others say. A traceback is known by its last line, up to the words of the exception."""
    lines = said.strip().splitlines() or [""]
    return lines[-1].partition(":")[0][:200] if lines[0].startswith("Traceback") else lines[0][:200]


class JsonLines(logging.Formatter):
    """One object per line: at, level, event, process, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, "fields", {})
        return wire.encode(
            {
                "at": datetime.fromtimestamp(record.created, UTC),
                "level": record.levelname.lower(),
                "event": getattr(record, "event", "message"),
                "process": record.process,
                **(fields or {"message": message_of(record)}),
            }
        ).decode()


class Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return f"{at.replace('+00:00', 'Z')} {record.levelname.lower()} {message_of(record)}"
