"""Checks of what a scope may do."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from palaver.errors import PermissionDenied
from palaver.model import ACT_FOR, ADMIN, GENERATE, RIGHTS, WRITE, ConversationInfo, Right, Scope, Turn

NO_GENERATE = "no_generate"  # in a stored key or a token: may write, and ask no model


def require_right(scope: Scope, *rights: str) -> None:
    """Raise `PermissionDenied` for the first right that the scope lacks."""
    for right in rights:
        if right not in scope.rights:
            raise PermissionDenied(right)


def may_act_for(scope: Scope, actor: str) -> bool:
    """Return whether user turns may be appended under this name: one's own, or any with the right to act for others."""
    return scope.user in (None, actor) or ACT_FOR in scope.rights or ADMIN in scope.rights


def actor_of_edit(scope: Scope, turn: Turn) -> str | None:
    """Return the actor of an edited turn: as before, or the editor (None) where that would be another person's name."""
    return turn.actor if turn.role != "user" or may_act_for(scope, turn.actor) else None


def require_owner(scope: Scope, info: ConversationInfo) -> None:
    """Raise `PermissionDenied` unless the scope is that of the conversation's owner or an admin."""
    if scope.user != info.owner:
        require_right(scope, ADMIN)


# ---- rights in stored keys and in tokens ---------------------------------------------------------------------------


def rights_from_names(names: Collection[str]) -> frozenset[Right]:
    """Return the rights that a stored key or a token names.

    `write` includes `generate` unless `no_generate` is named: keys and tokens from before that right existed keep it.
    """
    has_generate = GENERATE in names or (WRITE in names and NO_GENERATE not in names)
    return frozenset(one for one in RIGHTS if one in names or (one == GENERATE and has_generate))


def names_from_rights(rights: Iterable[str]) -> list[str]:
    """Return the names that `rights_from_names` reads as these rights."""
    given = set(rights)
    return sorted({*given, NO_GENERATE} if WRITE in given and GENERATE not in given else given)
