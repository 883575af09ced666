"""The context window of a model by its name, and the default token budget for it. Pure."""

from __future__ import annotations

import re

from palaver.context.options import DEFAULT_BUDGET

# The first match counts. A model that is not listed gets the default budget, which is small enough for any server.
_WINDOWS: tuple[tuple[re.Pattern[str], int], ...] = tuple(
    (re.compile(pattern), window)
    for pattern, window in (
        (r"^offline", 128_000),
        (r"gpt-4\.1", 1_000_000),
        (r"gpt-(?:[5-9]|\d\d)", 272_000),
        (r"(?:^|[:/])o[1-9](?!\w)", 200_000),
        (r"gpt-4o|gpt-4-turbo|chatgpt-|gpt-oss", 128_000),
        (r"gpt-4-32k", 32_768),
        (r"gpt-4", 8_192),
        (r"gpt-3\.5", 16_385),
        (r"claude", 200_000),
    )
)
MAX_DEFAULT = 32_000  # tokens: an affordable default; a larger budget has to be chosen
WINDOW_SHARE = 0.75  # the rest is for the answer, and for errors of counting


def window_of(model: str) -> int | None:
    name = model.lower()
    return next((window for pattern, window in _WINDOWS if pattern.search(name)), None)


def default_budget(window: int | None) -> int:
    """Return the default budget of a context for a model with a window of `window` tokens."""
    return DEFAULT_BUDGET if window is None else min(MAX_DEFAULT, max(1, int(window * WINDOW_SHARE)))
