"""Checks of what callers pass in, and all limits. Each error names the field and the limit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches

import msgspec

from palaver.core.identity import canonical_json, micros
from palaver.errors import InvalidInput, TooLarge
from palaver.model import (
    ROLES,
    Role,
)

OTHER_NAMES = "see docs/come-from for the names in other systems"
# Names of other systems, and ours for the same thing: the first that is known where it is used.
SYNONYMS = {
    "user_id": ("user", "actor", "owner"),
    "session_id": ("key",),
    "thread_id": ("key",),
    "conversation_id": ("key",),
    "project_id": ("key",),
    "run_id": ("key",),
    "agent_id": ("agent", "actor"),
    "org_id": ("tenant",),
    "api_key": ("key",),
    "max_tokens": ("token_budget",),
    "tokens": ("token_budget",),
    "max_chars": ("char_budget",),
    "max_messages": ("recent_turns",),
    "last_messages": ("recent_turns",),
    "messages": ("history",),
    "chat_history": ("history",),
    "conversation_history": ("history",),
    "message_history": ("history",),
    "previous_response_id": ("continuity",),
    "created_at": ("created",),
    "timestamp": ("created",),
    "system": ("instructions",),
    "system_prompt": ("instructions",),
    "files": ("attachments",),
    "name": ("actor", "title"),
    "sequence": ("seq",),
    "through_sequence": ("through_seq", "through"),
    "working_memory": ("include_working_memory",),
    "summary_text": ("text",),
    "images": ("attachments",),
    "summarizer_model": ("compaction",),
    "trigger_turns": ("compaction",),
    "trigger_tokens": ("compaction",),
}
OTHER_ROLES = {
    "human": "user",
    "ai": "assistant",
    "bot": "assistant",
    "model": "assistant",
    "developer": "system",
    "function": "tool",
}
ROLE_FIRST = """; the role comes before the content, as in append("user", "Hello.")"""
MAX_CONTENT = 5_000_000  # bytes of content and tool fields together
MAX_METADATA = 64 * 1024
MAX_BATCH = 1_000
MAX_NAME = 512  # bytes of an id, a key, an actor
MAX_TITLE = 1_000
MAX_PREVIEW = 160  # characters
MAX_PARTICIPANTS = 1_000
MAX_ATTACHMENTS = 10  # files of a message
MAX_TOOL_FILES = 100  # files of a tool turn: one for each result that is too long
MAX_FILE = 50_000_000  # bytes
MAX_DEPTH = 100  # of nested lists and objects, so that recursive readers do not overflow the stack
MAX_TTL = 100 * 365 * 86_400  # seconds: a hundred years

# Controls, line ends, and invisible or bidirectional format characters: in a prompt, a name with one of them could be
# read as another speaker's line. Joiners (U+200C, U+200D) are part of names in several scripts. Also in checks.sql.
_NOT_IN_NAMES = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]")
# An escaped U+0000 in JSON; an escaped backslash before "u0000" is something else.
_NUL_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def clean_text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(field, f"must be text, not {type(value).__name__}")
    if "\0" in value:
        raise InvalidInput(field, "contains U+0000, which databases cannot store")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInput(field, "contains half of a surrogate pair, which is not valid Unicode") from None
    return value


def replace_unstorable(text: str) -> str:
    """Replace what databases cannot store (U+0000, halves of surrogate pairs) by U+FFFD, in text made by a program."""
    if not text.isascii():
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "\ufffd")


def clean_name(field: str, value: object, limit: int = MAX_NAME) -> str:
    """Check a short text that identifies something: not empty, at most `limit` bytes."""
    text = clean_text(field, value)
    if not text:
        raise InvalidInput(field, "must not be empty")
    if len(text.encode()) > limit:
        raise TooLarge(field, size=len(text.encode()), limit=limit, unit="bytes")
    return text


def clean_actor(field: str, value: object) -> str:
    """Check the name of a participant: one line, without characters that cannot be seen."""
    name = clean_name(field, value)
    if _NOT_IN_NAMES.search(name):
        raise InvalidInput(field, "must not contain line breaks, control characters or invisible format characters")
    return name


def optional_name(field: str, value: object, limit: int = MAX_NAME) -> str | None:
    return None if value is None else clean_name(field, value, limit)


def _describe_not_json(problem: Exception) -> str:
    """Name the type that JSON does not have, without quoting a value."""
    if isinstance(problem, UnicodeEncodeError):
        return "contains half of a surrogate pair, which is not valid Unicode"
    if isinstance(problem, RecursionError):
        return f"has more than {MAX_DEPTH} nested lists or objects"
    if unsupported := re.fullmatch(r"Encoding objects of type (.{1,100}) is unsupported", str(problem)):
        return f"contains a value of type {unsupported[1]}, which JSON does not have"
    if "str keys" in str(problem):
        return "contains a key that is not text"
    return f"is not JSON: {type(problem).__name__}"


def clean_json(field: str, value: object, limit: int = MAX_CONTENT) -> str:
    """Check a value and return it as canonical JSON."""
    try:
        text = canonical_json(value)
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as problem:
        raise InvalidInput(field, _describe_not_json(problem)) from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _is_deep(value):
        raise InvalidInput(field, f"has more than {MAX_DEPTH} nested lists or objects")
    if "null" in text and not _finite(value):
        raise InvalidInput(field, "contains NaN or an infinite number, which JSON does not allow")
    if "\\u0000" in text and _NUL_ESCAPE.search(text):
        raise InvalidInput(field, "contains U+0000, which databases cannot store")
    if len(text.encode()) > limit:
        raise TooLarge(field, size=len(text.encode()), limit=limit, unit="bytes")
    return text


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [inner for one in level for inner in _children(one)]
    return bool(level)


def _children(value: object) -> Iterable[object]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple | set | frozenset) else ()


def _finite(value: object) -> bool:
    """True if JSON can represent every number; the encoder writes `null` for the others."""
    if isinstance(value, float):
        return math.isfinite(value)
    return all(map(_finite, _children(value)))


def clean_mapping(field: str, value: object, limit: int = MAX_METADATA) -> str | None:
    """Check a mapping and return it as JSON; None when it is empty."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidInput(field, f"must be a mapping, not {type(value).__name__}")
    return clean_json(field, dict(value), limit) if value else None


def day_in_utc(value: object) -> object:
    """Return the beginning of a date such as "2026-11-15" in UTC, and any other value unchanged."""
    if not isinstance(value, str) or len(value) != len("2026-11-15"):
        return value
    try:
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    except ValueError:
        return value


def clean_moment(field: str, value: object) -> int:
    """Check a time and return it in microseconds.

    A time without a zone is refused: it could be local time or UTC. A date alone is the beginning of that day in UTC.
    """
    value = day_in_utc(value)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise InvalidInput(field, "is not an ISO 8601 time") from None
    if not isinstance(value, datetime):
        raise InvalidInput(field, f"must be a datetime, not {type(value).__name__}")
    if value.tzinfo is None:
        hint = "write 2026-11-15T09:30:00Z, or datetime.now(UTC) and datetime(…, tzinfo=UTC) in Python"
        raise InvalidInput(field, f"has no time zone: {hint}")
    try:
        return micros(value.astimezone(UTC))
    except OverflowError:
        raise InvalidInput(field, "is outside the years 1 to 9999 in UTC") from None


def clean_count(field: str, value: object) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise InvalidInput(field, "must be a whole number, zero or more")
    return value


def _snake_case(name: object) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", str(name)).lower()


def synonym(name: object, known: Iterable[str]) -> str | None:
    """Return the known name for what other systems call `name`, if there is one."""
    names = set(known)
    return next((one for one in SYNONYMS.get(_snake_case(name), ()) if one in names), None)


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return " (did you mean …?)" for the known name that is spelt like `name` or means the same; else an empty text.

    For a name from another system, such as `triggerTurns`, the hint also names the page that compares names. It names
    the page alone if the thing is not set in this place here.
    """
    snake, names = _snake_case(name), list(known)
    same = synonym(name, names)
    close = [same] if same else get_close_matches(snake, names, n=1)
    if not close:
        return f" ({OTHER_NAMES})" if snake in SYNONYMS else ""
    page = f"; {OTHER_NAMES}" if same or snake != str(name) else ""
    return f" (did you mean {close[0]!r}?{page})"


def clean_flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(field, "must be true or false")
    return value


def clean_limit(field: str, value: object, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise InvalidInput(field, f"must be a whole number from 0 to {most:,}")
    return value


def clean_ttl(value: object) -> int | None:
    """Check a time to live in seconds and return it in microseconds."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_TTL:
        raise InvalidInput("ttl", f"must be seconds, more than 0 and at most {MAX_TTL:,}")
    return max(1, round(value * 1_000_000))


def clean_role(value: object, usage: str = "") -> Role:
    """Check a role. `usage` ends the error if there is no role that the value could mean."""
    for role in ROLES:
        if value == role:
            return role
    kind = "" if isinstance(value, str) else f", not {type(value).__name__}"
    raise InvalidInput("role", f"must be one of {', '.join(ROLES)}{kind}{hint_at_role(value) or usage}")


def hint_at_role(value: object) -> str:
    """Return " (did you mean 'assistant'?)" for "AI" or "Assistant". Empty if there is no such role."""
    lower = value.lower() if isinstance(value, str) else ""
    same = lower if lower in ROLES else OTHER_ROLES.get(lower)
    return f" (did you mean {same!r}?)" if same else ""
