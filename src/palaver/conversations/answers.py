"""Answers in one conversation: starting them, stopping them, and the requests that were sent to models."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from palaver.conversations.arguments import MAX_READ, optional_turn_id
from palaver.conversations.handle import Handle
from palaver.core.validation import clean_limit, optional_name
from palaver.generation.answer_place import AnswerPlace
from palaver.generation.events import GenerateEvent
from palaver.generation.options import GenerateOptions, parse_generate_options
from palaver.generation.plan import check_budgets, plan_answer
from palaver.generation.run import Generation
from palaver.generation.services import GenerationServices
from palaver.model import GENERATE, READ, SYSTEM, WRITE, ContentInput, Request, Turn
from palaver.ports.conversation import Thread


@dataclass(frozen=True, slots=True)
class Answers:
    """Makes the answers of one conversation."""

    handle: Handle
    services: GenerationServices

    def stream(
        self,
        thread: Thread,
        message: ContentInput | None,
        options: GenerateOptions | Mapping[str, Any],
        place: AnswerPlace | None = None,
    ) -> AsyncGenerator[GenerateEvent]:
        """Answer, at a `place` that was reserved before, or at one of its own."""
        self.handle.require(READ, WRITE, GENERATE)
        self.handle.require_talk("answer")
        if options.get("instructions") is not None:
            self.handle.require(SYSTEM)
        arguments = replace(parse_generate_options(message, options), place=place)
        return Generation(thread, self.services, arguments).events()

    async def check_budgets(self, thread: Thread, message: ContentInput | None, options: Mapping[str, Any]) -> None:
        """Raise BudgetExceeded if the budgets allow no answer now, and what `stream` raises for its options."""
        self.handle.require(READ, WRITE, GENERATE)
        await check_budgets(plan_answer(thread, self.services, parse_generate_options(message, options)))

    async def reserve(self) -> AnswerPlace:
        """Take the place of an answer whose question is not stored yet. Raises ConversationBusy."""
        self.handle.require(READ, WRITE, GENERATE)
        self.handle.require_talk("answer")
        place = AnswerPlace(self.handle.info, self.services)
        await place.reserve()
        return place

    async def stop(self) -> int:
        self.handle.require(READ, WRITE)
        await self.handle.refresh()
        running = tuple(self.services.shared.running.get((self.handle.scope.tenant, self.handle.id), ()))
        for one in running:
            one.stop()
        return len(running)

    async def ask_to_stop(self, turn: Turn | str | None) -> int:
        self.handle.require(WRITE)
        id = optional_turn_id("turn", turn)
        return await self.handle.engine.announce(self.handle.scope, self.handle.id, "stop", id)

    async def requests(self, limit: int, turn: Turn | str | None, before: Request | str | None) -> list[Request]:
        self.handle.require(READ)
        await self.handle.require_owner()
        id = before.id if isinstance(before, Request) else optional_name("before", before)
        of = optional_turn_id("turn", turn)
        limit = clean_limit("limit", limit, MAX_READ)
        return await self.handle.engine.requests(self.handle.scope, self.handle.id, of, id, limit)
