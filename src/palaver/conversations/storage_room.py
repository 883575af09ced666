"""Storage budgets: checks that turns and files fit into them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palaver.conversations.handle import Handle
from palaver.core.budgets import Payer
from palaver.core.turn_draft import TurnDraft
from palaver.models.budgets import ANSWER_ROOM, Budgets
from palaver.ports.queries import StreamEnd


@dataclass(frozen=True, slots=True)
class StorageRoom:
    """Counts what is stored in one conversation. Its owner pays, and the key that the caller used."""

    handle: Handle
    budgets: Budgets

    @property
    def _payer(self) -> Payer:
        return Payer(self.handle.scope.tenant, self.handle.info.owner or None, self.handle.scope.key)

    async def take_for(self, drafts: Sequence[TurnDraft]) -> None:
        """Take room for turns. Answers and results of tools may go a little over: they were paid for already."""
        if not await self.budgets.limits_storage(self._payer):
            return
        asks = any(draft.role in ("user", "system") for draft in drafts)
        size = sum(_size(draft.content, draft.tool_calls, draft.tool_results) for draft in drafts)
        await self.budgets.take_room(self._payer, bytes=size, spare=0 if asks else ANSWER_ROOM)

    async def take_bytes(self, size: int) -> None:
        """Take room for a file."""
        await self.budgets.take_room(self._payer, bytes=size)

    async def require_some(self) -> None:
        """Refuse to open a stream if there is no room at all."""
        await self.budgets.take_room(self._payer, bytes=1, spare=ANSWER_ROOM)

    async def add_end(self, end: StreamEnd) -> None:
        """Count the text of a stream that is committed."""
        if not await self.budgets.limits_storage(self._payer):
            return
        await self.budgets.add_bytes(self._payer, _size(end.content, end.tool_calls))


def _size(*texts: str | None) -> int:
    return sum(len(text.encode()) for text in texts if text)
