"""The settings of a conversation, checked before they are stored. Pure.

Reading stays tolerant: a key that an older version stored is ignored, never an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal, TypedDict, get_args

from palaver.context.settings import CONTEXT_SETTINGS, ContextSettings, clean_context_settings
from palaver.core.validation import OTHER_NAMES, did_you_mean, synonym
from palaver.errors import InvalidInput
from palaver.memory import compaction, retention
from palaver.memory.person_settings import PERSON_MODES, PersonMode, check_mode

Simultaneous = Literal["parallel", "queue", "reject"]
Kind = Literal["talk", "state", "items"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SIMULTANEOUS: tuple[Simultaneous, ...] = get_args(Simultaneous)


class CompactionSettings(TypedDict, total=False):
    """When and how a conversation is summarised.

    - `trigger_turns`, `trigger_tokens`: the number of turns or tokens without a summary at which a summary is written;
      50 turns or 8,000 tokens by default, whichever is reached first.
    - `strategy`: `hierarchical` (the default: summaries of summaries), `rolling` (one level) or `never`.
    - `summarizer_model`: the name of the model that writes the summaries; by default the model of the conversation.
      Without a model, rules write them.
    - `extractor_model`: the name of the model that takes notes and facts from summarised turns, in addition to the
      rules; by default that of the store, or else the model of the conversation. `none`: the rules alone.
    - `model_calls_per_day`: the maximum number of model calls of background work for this conversation per day (UTC);
      by default the limit of the store (20). None: no limit.
    """

    trigger_turns: int
    trigger_tokens: int
    strategy: compaction.Strategy
    summarizer_model: str | None
    extractor_model: str | None
    model_calls_per_day: int | None


class ConversationSettings(TypedDict, total=False):
    """Settings of one conversation.

    - `compaction`: when and how it is summarised; see `CompactionSettings`.
    - `retention`: what is kept of turns after they are summarised. `full` (the default): everything. `audit-only`: a
      hash, but no text. `ephemeral`: neither text nor hash.
    - `redact`: whether to remove secrets and personal data before anything is stored; `False` by default.
    - `facts`: whether to extract facts in the background; `False` by default.
    - `simultaneous`: how to handle a question while another one is being answered. `parallel`: answer both at the same
      time. `queue`: answer one after the other. `reject`: raise `ConversationBusy`. The default is the
      setting of the store (`GenerateSettings`), which is `parallel` unless you change it.
    - `person`: whether persons are remembered across conversations: `off`, `read` or `read-write`. The
      default is the setting of the store (`PersonOptions`), or `off` if `retention` is not `full`.
    - `context`: defaults for its contexts, such as `policy` and `token_budget`; see `ContextSettings`.
    - `kind`: `talk` (the default) is for messages of people and models. `state` is for data of a program, such as
      checkpoints; it is never indexed, embedded or summarised. `items` is for texts that are searched and recalled, but
      not summarised. Lists of conversations contain only `talk` unless you request another kind. The kind is set when
      the conversation is created, and cannot be changed.
    """

    compaction: CompactionSettings
    retention: retention.Retention
    redact: bool
    facts: bool
    simultaneous: Simultaneous
    person: PersonMode
    context: ContextSettings
    kind: Kind


SETTINGS = tuple(ConversationSettings.__annotations__)
# Values of settings that are not stored.
_DEFAULTS: Mapping[str, Any] = {
    "compaction": asdict(compaction.Compaction()),
    "retention": "full",
    "redact": False,
    "facts": False,
    "kind": "talk",
}
# Settings that work on words, which a conversation of the kind `state` does not have.
_OF_TALK = ("compaction", "facts", "redact", "context", "simultaneous")
NEVER: Mapping[str, Any] = {"strategy": "never"}


def place_in_settings(name: str) -> str:
    """Return a hint for a name that is a setting, or stands for one in other systems; else an empty text."""
    return f" (did you mean settings.{name}?)" if name in SETTINGS else _inner_place(name)


def _inner_place(name: str) -> str:
    inner = name if name in CONTEXT_SETTINGS else synonym(name, CONTEXT_SETTINGS)
    return f" (did you mean settings.context.{inner}?)" if inner else ""


def check_settings(settings: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> None:
    """Reject settings that would be ignored or misread later; unknown keys that are stored already may stay."""
    for name in settings:
        if name not in SETTINGS and not _is_stored(name, settings, stored or {}):
            raise InvalidInput(
                f"settings.{name}",
                f"is not a setting of a conversation{_inner_place(name) or did_you_mean(name, SETTINGS)}; "
                f"known settings: {', '.join(SETTINGS)}. Data of your application goes into metadata",
            )
    compaction.check_settings(settings)
    retention.check_settings(settings)
    if "simultaneous" in settings:
        check_simultaneous("settings.simultaneous", settings["simultaneous"])
    if "person" in settings:
        check_mode("settings.person", settings["person"])
    clean_context_settings("settings.context", settings.get("context"), is_stored=True)
    _check_kind(settings, stored)


def _check_kind(settings: Mapping[str, Any], stored: Mapping[str, Any] | None) -> None:
    kind = settings.get("kind", "talk")
    if kind not in KINDS:
        raise InvalidInput("settings.kind", f"must be one of {', '.join(KINDS)}")
    if stored is not None and "kind" in settings and kind != kind_of(stored):
        raise InvalidInput("settings.kind", "is set when the conversation is created, and cannot be changed")
    talk = [name for name in _OF_TALK if settings.get(name) not in (None, False, (stored or {}).get(name), NEVER)]
    if talk and (is_state(settings) or is_state(stored or {})):
        raise InvalidInput(
            f"settings.{talk[0]}", "does not apply to a conversation of the kind state, which has no words"
        )


def kind_of(settings: Mapping[str, Any]) -> Kind:
    """Return the kind of a conversation. One that a later version stored counts as talk."""
    return next((kind for kind in KINDS if settings.get("kind") == kind), "talk")


def is_state(settings: Mapping[str, Any]) -> bool:
    """Return whether a conversation holds state, which has no words."""
    return bool(settings.get("kind") == "state")


def completed(settings: Mapping[str, Any], stored: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return settings as they are stored: the kind stays, and only talk is ever summarised."""
    kind = kind_of({**(stored or {}), **settings})
    return dict(settings) if kind == "talk" else {**settings, "kind": kind, "compaction": dict(NEVER)}


def check_simultaneous(field: str, value: object) -> None:
    """Refuse a value that is not one of the modes."""
    if value not in SIMULTANEOUS:
        raise InvalidInput(field, f"must be one of {', '.join(SIMULTANEOUS)}")


def _is_stored(name: str, settings: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    return name in stored and stored[name] == settings[name]


def differing(given: Mapping[str, Any], stored: Mapping[str, Any]) -> str | None:
    """Name the first setting in `given` that has another value in `stored`; None when all of them are the same.

    A setting that is not stored has its default, and settings that are not given do not matter.
    """
    for name, value in given.items():
        if isinstance(value, Mapping) and name in ("compaction", "context"):
            kept = {**_DEFAULTS.get(name, {}), **(stored.get(name) or {})}
            different = [inner for inner, one in value.items() if one != kept.get(inner)]
            if different:
                return f"settings.{name}.{different[0]}"
        elif value != stored.get(name, _DEFAULTS.get(name)):
            return f"settings.{name}"
    return None


def misplaced(metadata: Mapping[str, Any]) -> str | None:
    """The first key of `metadata` that looks like a setting by its name and its value, where it has no effect."""
    return next((name for name in SETTINGS if name in metadata and _is_setting(name, metadata[name])), None)


def describe_misplaced(name: str) -> str:
    """Say that a key of `metadata` has no effect, and where it belongs."""
    return f"metadata.{name} has no effect on the conversation; give it as settings.{name}; {OTHER_NAMES}"


def _is_setting(name: str, value: object) -> bool:
    if name == "compaction":
        return isinstance(value, Mapping)
    if name == "context":
        return isinstance(value, Mapping) and bool(value.keys() & set(CONTEXT_SETTINGS))
    if name == "retention":
        return value in retention.RETENTIONS
    if name == "simultaneous":
        return value in SIMULTANEOUS
    if name == "kind":
        return value in ("state", "items")
    if name == "person":
        return value in PERSON_MODES
    return isinstance(value, bool)
