"""One conversation, as one scope uses it: the state that all its services share."""

from __future__ import annotations

from dataclasses import dataclass

from palaver.core.rights import require_owner, require_right
from palaver.errors import InvalidInput
from palaver.memory.settings import is_state
from palaver.model import READ, ConversationInfo, Scope
from palaver.ports.engine import Engine


@dataclass(slots=True)
class Handle:
    """A conversation's id and details, the scope that uses it, and the engine that stores it."""

    engine: Engine
    scope: Scope
    info: ConversationInfo  # as it was last read

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def uploader(self) -> str:
        """The name that files are stored under."""
        return self.scope.user or self.info.owner

    def require(self, *rights: str) -> None:
        require_right(self.scope, *rights)

    @property
    def is_state(self) -> bool:
        """Whether the conversation holds state and not talk. This never changes."""
        return is_state(self.info.settings)

    def require_talk(self, what: str) -> None:
        """Refuse what only makes sense for talk."""
        if self.is_state:
            raise InvalidInput("conversation", f"holds state, which has no words: there is nothing to {what}")

    async def refresh(self) -> ConversationInfo:
        self.info = await self.engine.conversation(self.scope, self.id)
        return self.info

    async def require_owner(self) -> None:
        """Allow the call to the owner and to admins. A scope that cannot see the conversation gets `NotFound`."""
        self.require(READ)
        require_owner(self.scope, await self.refresh())

    def default_actor(self, role: str) -> str:
        """Return the actor of a turn for which the caller gives none."""
        if role == "user":
            return self.scope.user or self.info.owner or "user"
        if role == "assistant":
            return self.info.agent or "assistant"
        return role
