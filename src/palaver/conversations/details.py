"""Checks of a conversation's own fields and of scopes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from palaver.conversations.arguments import check_keywords
from palaver.conversations.handle import Handle
from palaver.conversations.options import CONVERSATION_FIELDS
from palaver.conversations.redaction import redact_details
from palaver.core.identity import new_salt
from palaver.core.turn_options import Moment
from palaver.core.validation import (
    MAX_PARTICIPANTS,
    MAX_TITLE,
    clean_actor,
    clean_mapping,
    clean_moment,
    clean_name,
    clean_ttl,
    did_you_mean,
    optional_name,
)
from palaver.errors import InvalidInput, TooLarge
from palaver.memory.settings import check_settings, completed, describe_misplaced, misplaced, place_in_settings
from palaver.model import RIGHTS, WRITE, ConversationInfo, Scope, caller_level
from palaver.ports.queries import ConversationChanges

if TYPE_CHECKING:
    from palaver.redaction import Redactor


def clean_changes(fields: Mapping[str, object], stored: ConversationInfo | None = None) -> ConversationChanges:
    """Check the fields of a new conversation, or the changes to a `stored` one."""
    named = ("key", "owner") if stored is None else ()
    check_keywords(fields, CONVERSATION_FIELDS, "a field of a conversation that can be set", named, place_in_settings)
    return ConversationChanges(
        fields=frozenset(fields),
        title=optional_name("title", fields.get("title"), MAX_TITLE),
        workspace=optional_name("workspace", fields.get("workspace")),
        agent=_clean_agent(fields.get("agent")),
        model=optional_name("model", fields.get("model")),
        participants=_clean_participants(fields.get("participants") or ()),
        metadata=_clean_metadata(fields.get("metadata")),
        settings=_clean_settings(fields.get("settings"), stored),
        ttl=clean_ttl(fields.get("ttl")),
        salt=new_salt(),
    )


def _clean_settings(value: object, stored: ConversationInfo | None) -> str | None:
    text = clean_mapping("settings", value)
    if not isinstance(value, Mapping | None):
        return text
    before = None if stored is None else stored.settings
    if value is not None:
        check_settings(value, before)
    return clean_mapping("settings", completed(value or {}, before))


def _clean_metadata(value: object) -> str | None:
    text = clean_mapping("metadata", value)
    name = misplaced(value) if isinstance(value, Mapping) else None
    if name is not None:
        # A warning, not an error: metadata belongs to the application, which may use this name for something else.
        warnings.warn(describe_misplaced(name), stacklevel=caller_level())
    return text


def _clean_agent(value: object) -> str | None:
    return None if value is None else clean_actor("agent", value)


def _clean_participants(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidInput("participants", "must be a list of names")
    names = tuple(dict.fromkeys(clean_actor("participants", one) for one in value))
    if len(names) > MAX_PARTICIPANTS:
        raise TooLarge("participants", size=len(names), limit=MAX_PARTICIPANTS, unit="names")
    return names


def clean_owner(value: object) -> str:
    """Return the name of a user; the application itself is the empty text."""
    return "" if value == "" else clean_name("owner", value)


def clean_scope(scope: Scope) -> Scope:
    if not isinstance(scope, Scope):
        raise InvalidInput("scope", f"must be a palaver.Scope, not {type(scope).__name__}")
    clean_name("tenant", scope.tenant)
    optional_name("user", scope.user)
    optional_name("workspace", scope.workspace)
    if scope.visibility not in ("own", "workspace", "tenant"):
        raise InvalidInput("visibility", "must be own, workspace or tenant")
    if not isinstance(scope.rights, frozenset):
        raise InvalidInput("rights", "must be a frozenset of rights")
    for one in scope.rights.difference(RIGHTS):
        raise InvalidInput(
            "rights", f"{one!r} is unknown{did_you_mean(one, RIGHTS)}; the rights are {', '.join(RIGHTS)}"
        )
    return scope


async def update_details(
    handle: Handle, fields: Mapping[str, object], expected_updated: Moment | None, redactor: Redactor
) -> ConversationInfo:
    """Change the fields of a stored conversation, for its owner."""
    handle.require(WRITE)
    await handle.require_owner()
    changes = clean_changes(await redact_details(fields, handle.info, redactor), handle.info)
    if expected_updated is not None:
        changes = replace(changes, expected_updated=clean_moment("expected_updated", expected_updated))
    handle.info = await handle.engine.update(handle.scope, handle.id, changes)
    return handle.info
