"""Tombstones of erased persons, as lines of JSON: what must not come back with an older backup or export."""

from __future__ import annotations

from collections.abc import Iterable

from palaver.audit.erasure import read_tombstones, tombstone_line
from palaver.conversations.internals import engine_of, eraser_of
from palaver.conversations.store import Store
from palaver.core.rights import require_right
from palaver.model import ADMIN

ERASURE_LINE = '{"kind":"erasure"'


async def erasure_lines(store: Store) -> list[str]:
    """Return a line for each erased person of the tenant. It holds no name."""
    require_right(store.scope, ADMIN)
    return [tombstone_line(store.scope.tenant, one) for one in await engine_of(store).erasures(store.scope) if one.at]


async def import_erasures(store: Store, lines: Iterable[str]) -> int:
    """Take tombstones over, and erase what an older backup brought back. Returns how many persons were found.

    They may have been exported from a tenant with another name.
    """
    return await eraser_of(store).apply_erasures([erasure for _, erasure in read_tombstones(lines)])
