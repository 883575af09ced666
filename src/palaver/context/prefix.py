"""How much of a prompt is the same, from its start, as in the prompt before: a provider's cache can use that. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.context.options import OVERHEAD_TOKENS
from palaver.context.render import Message, message_text
from palaver.core.identity import canonical_json


def fingerprint(message: Message) -> int:
    """Return a number that identifies a message, for the lifetime of this process."""
    content = message["content"]
    if isinstance(content, str) and len(message) == 2:
        return hash((message["role"], content))
    return hash(canonical_json(message))


def identical_prefix(before: Sequence[int], now: Sequence[int], messages: Sequence[Message]) -> float:
    """Return the share of `messages` that is the same as before, given the fingerprints of both prompts.

    The share is by characters: counting tokens would cost more than building the context.
    """
    sizes = [_size(message) + OVERHEAD_TOKENS for message in messages]
    return sum(sizes[: common_length(before, now)]) / sum(sizes) if sizes else 0.0


def common_length(before: Sequence[object], now: Sequence[object]) -> int:
    """Return how many elements two sequences have in common, from their start."""
    pairs = enumerate(zip(before, now, strict=False))
    return next((n for n, (old, new) in pairs if old != new), min(len(before), len(now)))


def _size(message: Message) -> int:
    content = message["content"]
    return len(content if isinstance(content, str) and len(message) == 2 else message_text(message))
