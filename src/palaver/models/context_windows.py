"""How many tokens a model reads, by its name, and the budget that follows from it. Pure."""

from __future__ import annotations

import re

from palaver.context.options import DEFAULT_BUDGET

# The first that fits. A model that is not here gets the default budget: small enough for any server.
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
MOST = 32_000  # tokens: a default that everybody can pay for; a larger budget is a choice
SHARE = 0.75  # of the window: the rest is for the answer, and for what a count may be off by


def window_of(model: str) -> int | None:
    name = model.lower()
    return next((window for pattern, window in _WINDOWS if pattern.search(name)), None)


def default_budget(window: int | None) -> int:
    """The budget of a context for a model that reads `window` tokens."""
    return DEFAULT_BUDGET if window is None else min(MOST, max(1, int(window * SHARE)))
