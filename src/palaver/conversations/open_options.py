"""Options of `palaver.open`: their defaults and their checks."""

from datetime import UTC, datetime, timedelta

from palaver.errors import InvalidInput

DEFAULT_URL = "sqlite:///palaver.db"
STREAM_LEASE = 30.0  # seconds that a stream's writer may be silent before it is taken for dead
STREAM_FLUSH = 0.25
SWEEP_EVERY = 300.0  # seconds, in the server and the worker


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)


def clean_minutes(value: float) -> timedelta:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 100 * 366 * 24 * 60:
        raise InvalidInput("retention_minutes", "must be minutes, more than 0 and less than a hundred years")
    return timedelta(minutes=value)


def clean_seconds(field: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 86_400:
        raise InvalidInput(field, "must be seconds, more than 0 and less than a day")
    return value
