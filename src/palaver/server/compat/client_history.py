"""Stores the messages of a request: makes the conversation what the client says it is, and returns its last turn."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.errors import AppendConflict, InvalidInput, TurnSuperseded
from palaver.generation.tool_calls import server_calls
from palaver.memory.working_memory import HANDED_IN
from palaver.model import Turn
from palaver.server.compat.exchange import EXCHANGE, answer_turns
from palaver.server.compat.history_diff import HistoryPlan, is_at_the_end, plan_history
from palaver.server.compat.references import parse_exchange_id
from palaver.server.compat.request import ClientRequest
from palaver.server.compat.turns import append_drafts, check_results, draft_message, redact_messages, repeat_calls
from palaver.server.errors import Refusal

ATTEMPTS = 5  # to store a history while others write
MARGIN = 16  # turns read beyond the length of the client's history, before all are
MAX_TURNS = 100_000
RECENT = 50  # turns before an earlier answer that are read for its open calls
FIELDS = {"openai-responses": "input"}  # how a body names its messages, if not `messages`


@dataclass(slots=True)
class HistoryWriter:
    """Stores clients' histories, one request at a time in each conversation."""

    store: Store
    locks: MutableMapping[tuple[str, str], asyncio.Lock]

    async def store_history(self, ask: ClientRequest, talk: Conversation, mark: str) -> tuple[Turn, HistoryPlan]:
        """Store the new messages of a request. `mark` is its fingerprint, by which a retry finds them."""
        lock = self.locks.setdefault((talk.info.tenant, talk.id), asyncio.Lock())
        async with lock:
            for _ in range(ATTEMPTS):
                try:
                    return await self._try_to_store(ask, talk, mark)
                except (AppendConflict, TurnSuperseded):
                    continue  # another writer was faster: plan again
        raise Refusal(503, "This conversation is changing too fast", {"Retry-After": "1"})

    async def _try_to_store(self, ask: ClientRequest, talk: Conversation, mark: str) -> tuple[Turn, HistoryPlan]:
        field = FIELDS.get(ask.shape, "messages")
        if not ask.said or ask.said[-1].role == "assistant":
            raise InvalidInput(field, "must end with a message of the user, or with results of tools")
        expected: int | None = None
        stored: list[Turn] = []
        if ask.previous is None and len(ask.said) == 1 and ask.said[0].role == "user" and not ask.whole:
            plan = HistoryPlan(ask.said)
        else:
            expected = (await talk.refresh()).next_seq
            stored, plan = await self._plan(ask, talk)
        check_results(stored, plan, field)
        drafts = await self._draft(ask, talk, mark, stored, plan)
        return await append_drafts(talk, drafts, plan.replaces, expected), plan

    async def _draft(
        self, ask: ClientRequest, talk: Conversation, mark: str, stored: Sequence[Turn], plan: HistoryPlan
    ) -> list[dict[str, Any]]:
        drafts = [*repeat_calls(stored, plan), *[await draft_message(talk, one) for one in plan.new]]
        for draft in drafts[len(drafts) - len(plan.new) : len(drafts) - plan.own]:
            draft["metadata"] = {**draft["metadata"], "origin": HANDED_IN}
        kept = {**ask.kept, "mark": mark, "shape": ask.shape, "own": plan.own}
        drafts[-1]["metadata"] = {**drafts[-1]["metadata"], EXCHANGE: kept}
        return drafts

    async def _plan(self, ask: ClientRequest, talk: Conversation) -> tuple[list[Turn], HistoryPlan]:
        if ask.previous is not None:
            return await self._plan_after_previous(ask, talk)
        if ask.after is not None:
            return await self._plan_after_compaction(ask, talk, ask.after)
        stored: list[Turn] = await talk.history(len(ask.said) + MARGIN)
        if len(stored) >= len(ask.said) + MARGIN and not is_at_the_end(stored, ask.said):
            stored = await talk.history(MAX_TURNS)
        said = await redact_messages(talk, ask.said)
        forgotten = await _count_forgotten(talk, stored)
        return stored, plan_history(stored, said, whole=ask.whole, forgotten=forgotten)

    async def _plan_after_compaction(
        self, ask: ClientRequest, talk: Conversation, id: str
    ) -> tuple[list[Turn], HistoryPlan]:
        """Plan to make the thread after a compacted turn what the client says it is."""
        last = await talk.turn(id)
        if not last.active:
            await talk.switch(last)
        stored: list[Turn] = await talk.history(MAX_TURNS, after=last)
        said = await redact_messages(talk, ask.said)
        return stored, plan_history(stored, said, whole=True, forgotten=await _count_forgotten(talk, stored))

    async def _plan_after_previous(self, ask: ClientRequest, talk: Conversation) -> tuple[list[Turn], HistoryPlan]:
        """Plan to append after an earlier answer. The turns that followed it are superseded."""
        assert ask.previous is not None
        _, id = parse_exchange_id(ask.previous)
        turns = await answer_turns(talk, await talk.turn(id))
        if not turns:
            raise previous_error(400, "It has no answer to continue from")
        if not turns[-1].active:
            await talk.switch(turns[-1])
        following: list[Turn] = await talk.history(MARGIN, after=turns[-1])
        ours = {call.id for call in server_calls(turns[-1])}
        # Results of tools that ran on the server belong to the answer.
        own = [turn for turn in following if turn.role == "tool" and ours.issuperset(r.id for r in turn.tool_results)]
        stored: list[Turn] = [*await talk.history(RECENT, before=turns[-1]), turns[-1], *own]
        next_one = next((turn for turn in following if turn not in own), None)
        return stored, HistoryPlan(ask.said, len(ask.said), replaces=next_one)


async def _count_forgotten(talk: Conversation, stored: Sequence[Turn]) -> int | None:
    """Return how many forgotten turns a client may still send after the last stored one. None: never any turns."""
    if not talk.info.next_seq:
        return None
    missing = talk.info.next_seq - (stored[-1].seq + 1 if stored else 0)
    if not missing or not await talk.audit(kinds=("forget", "reset"), limit=1):
        return 0
    return missing


def previous_error(status: int, detail: str) -> Refusal:
    return Refusal(status, detail, field="previous_response_id", code="previous_response_not_found")
