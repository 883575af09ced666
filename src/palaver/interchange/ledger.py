"""Which conversations were imported, so that one that was forgotten here does not come back with the next import.

The notes are turns of a conversation of the kind `state`, one per owner. They hold a digest of the conversation's name
in its source and its id here, and nothing of its content.
"""

from __future__ import annotations

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.core.identity import digest
from palaver.errors import ConversationGone, ConversationNotFound

KEY = "palaver:imports"
FORGOTTEN_WHOLE = "its conversation was forgotten here; --restore-forgotten brings it back"


class ImportLedger:
    """The notes of one import. With `restore_forgotten`, nothing counts as forgotten."""

    def __init__(self, store: Store, *, restore_forgotten: bool = False) -> None:
        self.store, self.restore_forgotten = store, restore_forgotten
        self._notes: dict[str | None, Conversation] = {}

    async def is_forgotten(self, source: str, name: str, owner: str | None) -> bool:
        """Return whether a conversation was imported from here before, and deleted since."""
        noted = await self._noted(source, name, owner)
        if noted is None or self.restore_forgotten:
            return False
        try:
            await self.store.get(noted)
        except ConversationGone:
            return True
        except ConversationNotFound:  # of another owner by now, or not for this caller
            return False
        return False

    async def note(self, source: str, name: str, owner: str | None, conversation: str) -> None:
        """Note where a conversation is stored, unless that is known."""
        if await self._noted(source, name, owner) != conversation:
            said = {"source": _digest(source, name), "conversation": conversation}
            await (await self._open(owner)).append("assistant", "", metadata=said)

    async def _noted(self, source: str, name: str, owner: str | None) -> str | None:
        notes = await self._open(owner)
        found = await notes.history(1, where={"metadata": {"source": _digest(source, name)}})
        return str(found[-1].metadata["conversation"]) if found else None

    async def _open(self, owner: str | None) -> Conversation:
        if owner not in self._notes:
            self._notes[owner] = await self.store.conversation(KEY, owner=owner, settings={"kind": "state"})
        return self._notes[owner]


def _digest(source: str, name: str) -> str:
    return digest((source, name)).hex()
