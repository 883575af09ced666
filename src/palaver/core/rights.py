"""Checks of what a scope may do."""

from __future__ import annotations

from palaver.errors import PermissionDenied
from palaver.model import ADMIN, ConversationInfo, Scope


def require_right(scope: Scope, *rights: str) -> None:
    """Raise `PermissionDenied` for the first right that the scope lacks."""
    for right in rights:
        if right not in scope.rights:
            raise PermissionDenied(right)


def require_owner(scope: Scope, info: ConversationInfo) -> None:
    """Allow what concerns a whole conversation to its owner and to admins only."""
    if scope.user != info.owner:
        require_right(scope, ADMIN)
