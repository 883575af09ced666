"""The server's log: a line per request, as text or as JSON. It never contains content, queries or secrets.

Palaver's own messages contain none. Messages of libraries may quote anything, so only their first line is logged, and
of an exception only its type and place.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

from palaver.server import wire
from palaver.server.settings import ServerSettings

OWN = "palaver"
LIBRARIES = ("uvicorn.error", "asyncio", "py.warnings", "mcp", "opentelemetry")


def set_up(settings: ServerSettings) -> None:
    """Log to stderr in the configured format. Called once in each server process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else TextFormatter())
    logging.captureWarnings(True)
    for name in (OWN, *LIBRARIES):
        log = logging.getLogger(name)
        log.handlers, log.propagate = [handler], False
        log.setLevel(settings.log_level.upper() if name == OWN else logging.WARNING)


def raised_at(problem: BaseException) -> str:
    """Return the file and line where an exception was raised."""
    where = problem.__traceback__
    while where is not None and where.tb_next is not None:
        where = where.tb_next
    return "?" if where is None else f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}"


def format_message(record: logging.LogRecord) -> str:
    is_own = record.name == OWN or record.name.startswith(f"{OWN}.")
    text = record.getMessage()
    shown = text if is_own else _first_line(text)
    problem = record.exc_info[1] if record.exc_info else None
    return shown if problem is None else f"{shown} ({type(problem).__name__} at {raised_at(problem)})"


def _first_line(text: str) -> str:
    """Shorten a library's message to its first line; a traceback to the type of its exception."""
    lines = text.strip().splitlines() or [""]
    return lines[-1].partition(":")[0][:200] if lines[0].startswith("Traceback") else lines[0][:200]


class JsonFormatter(logging.Formatter):
    """One object per line: at, level, event, process, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = getattr(record, "fields", {})
        return wire.encode(
            {
                "at": datetime.fromtimestamp(record.created, UTC),
                "level": record.levelname.lower(),
                "event": getattr(record, "event", "message"),
                "process": record.process,
                **(fields or {"message": format_message(record)}),
            }
        ).decode()


class TextFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return f"{at.replace('+00:00', 'Z')} {record.levelname.lower()} {format_message(record)}"
