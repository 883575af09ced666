"""Deletion of a large conversation in slices: what both engines share.

A conversation that is being deleted is hidden: its `expires_at` is one of the times below, shortly after the beginning
of 1970, and every query treats it as one whose time to live has ended. The number says in which way the deletion has to
end, for a process that continues it.
"""

from __future__ import annotations

from typing import Literal

ErasureKind = Literal["forget", "expire", "reset"]

CODES: dict[ErasureKind, int] = {"forget": 0, "expire": 1, "reset": 2}
KINDS: dict[int, ErasureKind] = {code: kind for kind, code in CODES.items()}
RESETTING = "it is being reset, which takes a moment for a long conversation: try again"
