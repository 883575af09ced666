"""Checks of what a scope may do."""

from __future__ import annotations

from palaver.errors import PermissionDenied
from palaver.model import ACT_FOR, ADMIN, ConversationInfo, Scope, Turn


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
    """Allow what concerns a whole conversation to its owner and to admins only."""
    if scope.user != info.owner:
        require_right(scope, ADMIN)
