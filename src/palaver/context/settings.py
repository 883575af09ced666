"""Defaults of contexts: options that a conversation, an agent, a workspace or the store sets for every call. Pure.

For each option the first level that sets it decides: call, conversation, agent, workspace, store. The policy decides
what no level sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from palaver.context.options import SharedContextOptions, parse_options, policy_named
from palaver.core.validation import did_you_mean
from palaver.errors import InvalidInput

BUDGETS = ("token_budget", "char_budget")


class ContextSettings(SharedContextOptions, total=False):
    """Defaults for the contexts that `build_context` and `generate` build.

    For each option, the first level that sets it decides: call, conversation, agent, workspace, store.

    - `token_budget`: the maximum number of tokens of a context. It cannot be combined with `char_budget`.
    """

    token_budget: int | None


CONTEXT_SETTINGS = tuple(ContextSettings.__annotations__)


def clean_context_settings(field: str, given: object, *, is_stored: bool = False) -> dict[str, Any]:
    """Check the defaults of one level. Raises `InvalidInput`, which names the option, such as `field.policy`.

    `is_stored` is for the settings of a conversation, which are JSON: a policy must be given by its name.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InvalidInput(field, "must be an object")
    for name in given:
        if name not in CONTEXT_SETTINGS:
            hint, known = did_you_mean(name, CONTEXT_SETTINGS), ", ".join(CONTEXT_SETTINGS)
            raise InvalidInput(f"{field}.{name}", f"is unknown{hint}; the options are {known}")
    settings = {name: value for name, value in given.items() if value is not None}
    if is_stored and not isinstance(settings.get("policy", ""), str):
        raise InvalidInput(f"{field}.policy", "must be the name of a policy")
    try:
        parse_options(**settings)
    except InvalidInput as problem:
        raise InvalidInput(f"{field}.{problem.field}", problem.problem) from None
    return settings


def stored_context_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults that a conversation's settings hold. Invalid ones, of another version, are ignored."""
    given = settings.get("context")
    if not isinstance(given, Mapping):
        return {}
    kept = {name: value for name, value in given.items() if _is_valid({name: value})}
    return kept if _is_valid(kept) else {}


def _is_valid(given: Mapping[str, Any]) -> bool:
    try:
        clean_context_settings("context", given, is_stored=True)
    except InvalidInput:
        return False
    return True


def merge_levels(levels: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge options, the strongest level first: for each option, the first level that sets it decides.

    Tokens and characters are one budget. A budget in the other unit than that of a policy from a stronger level is not
    used: who chooses `recent-chars` for a conversation does not want the store's tokens, but the policy's characters.
    """
    merged: dict[str, Any] = {}
    for level in levels:
        given = {name: value for name, value in level.items() if value is not None}
        if any(name in merged for name in BUDGETS):
            given = _without(given, BUDGETS)
        elif "policy" in merged:
            given = _without(given, ("token_budget",) if counts_characters(merged) else ("char_budget",))
        merged = {**given, **merged}
    return merged


def counts_characters(options: Mapping[str, Any]) -> bool:
    """Return whether the budget is in characters, by an option or by the policy."""
    if options.get("char_budget") is not None:
        return True
    policy = policy_named(options.get("policy", "balanced"))
    return policy.char_budget is not None and options.get("token_budget") is None


def _without(options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in names}
