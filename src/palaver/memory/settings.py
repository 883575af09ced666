"""The settings of a conversation, checked before they are stored. Pure.

Reading stays tolerant: a key that an older version stored is ignored, never an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, TypedDict

from palaver.errors import InvalidInput
from palaver.memory import compaction, retention


class CompactionSettings(TypedDict, total=False):
    """When a conversation is summarised, and how.

    - `trigger_turns`, `trigger_tokens`: summarise once this much is not covered by a summary (50 turns, 8,000 tokens).
    - `strategy`: `hierarchical` (summaries of summaries), `rolling` (one level) or `never`.
    - `summarizer_model`: the model that writes the summaries; by default the store's `fast` model, or rules.
    """

    trigger_turns: int
    trigger_tokens: int
    strategy: compaction.Strategy
    summarizer_model: str | None


class ConversationSettings(TypedDict, total=False):
    """Settings of one conversation.

    - `compaction`: when it is summarised; see `CompactionSettings`.
    - `retention`: `full`; `audit-only` keeps hashes of summarised turns; `ephemeral` keeps neither text nor hash.
    - `redact`: remove secrets and personal data before anything is stored.
    - `facts`: extract facts in the background.
    """

    compaction: CompactionSettings
    retention: retention.Retention
    redact: bool
    facts: bool


SETTINGS = tuple(ConversationSettings.__annotations__)


def check_settings(settings: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> None:
    """Refuse settings that would be ignored or misread later; unknown keys that are stored already may stay."""
    for name in settings:
        if name not in SETTINGS and not _is_stored(name, settings, stored or {}):
            raise InvalidInput(
                f"settings.{name}",
                f"is not a setting of a conversation{did_you_mean(name, SETTINGS)}; those are {', '.join(SETTINGS)}. "
                "Data of your application goes into metadata",
            )
    compaction.check_settings(settings)
    retention.check_settings(settings)


def _is_stored(name: str, settings: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    return name in stored and stored[name] == settings[name]


def did_you_mean(name: str, known: Collection[str]) -> str:
    """The known name that is spelt most like `name`, as the end of a sentence; empty when there is none."""
    close = get_close_matches(name.lower(), known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def misplaced(metadata: Mapping[str, Any]) -> str | None:
    """The first key of `metadata` that looks like a setting by its name and its value, where it has no effect."""
    return next((name for name in SETTINGS if name in metadata and _is_setting(name, metadata[name])), None)


def _is_setting(name: str, value: object) -> bool:
    if name == "compaction":
        return isinstance(value, Mapping)
    if name == "retention":
        return value in retention.RETENTIONS
    return isinstance(value, bool)
