"""Whether background work may call a model for a conversation, and the record of calls that are not on it otherwise.

Calls are counted from the stored requests of the conversation, so that the limit holds for all processes and restarts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from palaver.core.budgets import payer_of
from palaver.core.identity import micros
from palaver.memory.model_calls import BUDGET_REACHED, LIMIT_REACHED, NOT_IN_USE
from palaver.memory.worker.services import JobServices
from palaver.model import ConversationInfo, Request, Scope

Cause = Literal["append", "context", "caller"]
"""The cause of a job: turns that were added, a context that was built, or a call of the application."""

APPLICATION = "application"  # the adapter of a call that an object of the application makes


@dataclass(frozen=True, slots=True)
class CallLimit:
    """Counts the calls for one conversation, and says when the rules have to write instead.

    A model waits until the conversation is in use: an answer was generated, or a context was built. Work that the
    application asked for itself is not limited, but counts.
    """

    services: JobServices
    scope: Scope
    conversation: str
    cause: Cause = "append"

    async def refusal(self, info: ConversationInfo, *, waits: bool) -> str | None:
        """Return why no model may be called now; None if it may. `waits`: not before the conversation is in use."""
        if await self._is_over_budget(info):
            return BUDGET_REACHED
        limit = self.services.limit_of(info)
        if limit is None or self.cause == "caller":
            return None
        count = await self.services.engine.count_calls(self.scope, self.conversation, self._midnight())
        if count.calls >= limit:
            return LIMIT_REACHED
        return NOT_IN_USE if waits and self.cause == "append" and not count.in_use else None

    async def _is_over_budget(self, info: ConversationInfo) -> bool:
        budgets = self.services.budgets
        return budgets is not None and await budgets.are_used_up(payer_of(self.scope, info.owner))

    def _midnight(self) -> int:
        return micros(self.services.clock.now().replace(hour=0, minute=0, second=0, microsecond=0))

    async def record(self, purpose: str, name: str) -> None:
        """Record, before it is made, a call of an object of the application, without its content."""
        request = Request(
            id=self.services.ids(),
            conversation=self.conversation,
            at=self.services.clock.now(),
            model=name,
            adapter=APPLICATION,
            purpose=purpose,
            response={},
        )
        await self.services.engine.put_request(self.scope, self.conversation, request, None)
        if self.services.budgets is not None:
            owner = (await self.services.engine.conversation(self.scope, self.conversation)).owner
            await self.services.budgets.count_request(payer_of(self.scope, owner))
