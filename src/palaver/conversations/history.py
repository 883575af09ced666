"""Reading a thread: its turns, its branches, and a search among its words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from palaver.context.pack import covering_summaries
from palaver.conversations.arguments import (
    MAX_READ,
    clean_names,
    one_of,
    optional_moment,
    optional_names,
    optional_turn_id,
    turn_id,
)
from palaver.conversations.emptiness import EmptyResults
from palaver.conversations.handle import Handle
from palaver.core.filters import TurnFilter, Where, clean_where
from palaver.core.turn_options import Moment
from palaver.core.validation import clean_limit, clean_role, clean_text
from palaver.errors import InvalidInput
from palaver.generation.provider_thread import ProviderThreads
from palaver.model import READ, WRITE, Branch, Empty, Results, Role, Summary, Turn, TurnMatch
from palaver.ports.queries import HistoryQuery, SearchQuery
from palaver.recall.emptiness import NOTHING_ASKED
from palaver.recall.terms import terms

MAX_POSITION = 2**62  # after every turn
MAX_STEMS = 64


@dataclass(frozen=True, slots=True)
class ThreadReader:
    """Reads the turns of one conversation, and chooses the branch that is active."""

    handle: Handle
    provider_threads: ProviderThreads
    empties: EmptyResults

    async def history(
        self,
        limit: int,
        *,
        before: Turn | str | None,
        after: Turn | str | None,
        since: Moment | None,
        until: Moment | None,
        include_superseded: bool,
        participants: Iterable[str] | None,
        roles: Iterable[Role] | None,
        include_summaries: bool,
        where: Where | None,
    ) -> list[Turn] | list[Turn | Summary]:
        self.handle.require(READ)
        wanted = clean_where(where)
        if include_summaries and include_superseded:
            raise InvalidInput("include_summaries", "summaries cover the active branch, without superseded turns")
        query = HistoryQuery(
            limit=clean_limit("limit", limit, MAX_READ),
            before=optional_turn_id("before", before),
            after=optional_turn_id("after", after),
            since=one_of("since", optional_moment("since", since), wanted.since),
            until=one_of("until", optional_moment("until", until), wanted.until),
            include_superseded=bool(include_superseded),
            participants=one_of("actor", optional_names("participants", participants), wanted.actors),
            roles=one_of("role", _clean_roles(roles), wanted.roles),
            metadata=wanted.metadata,
        )
        turns = await self.handle.engine.history(self.handle.scope, self.handle.id, query)
        return await self._with_summaries(turns, query) if include_summaries and turns else turns

    async def _with_summaries(self, turns: list[Turn], query: HistoryQuery) -> list[Turn | Summary]:
        """Begin with the summaries of what came before, then place each one before the first turn at or after its
        start."""
        summaries = await self.handle.engine.summaries(self.handle.scope, self.handle.id, None)
        waiting = covering_summaries(summaries, MAX_POSITION)
        page: list[Turn | Summary] = []
        for turn in turns:
            page += [one for one in waiting if one.from_seq <= turn.position]
            waiting = [one for one in waiting if one.from_seq > turn.position]
            page.append(turn)
        return page

    async def turn(self, turn: Turn | str) -> Turn:
        self.handle.require(READ)
        return await self.handle.engine.turn(self.handle.scope, self.handle.id, turn_id("turn", turn))

    async def search(self, text: str, limit: int, where: Where | None) -> Results[TurnMatch]:
        self.handle.require(READ)
        wanted = clean_where(where)
        stems = tuple(dict.fromkeys(terms(clean_text("text", text))))[:MAX_STEMS]
        limit = clean_limit("limit", limit, 1_000)
        query = SearchQuery(stems=stems, limit=limit, conversation=self.handle.id, filter=wanted)
        if not stems:
            return self.empties.report("search", (), NOTHING_ASKED)
        found = await self.handle.engine.matches(self.handle.scope, query)
        return self.empties.report("search", found, None if found else await self._why_empty(wanted))

    async def _why_empty(self, wanted: TurnFilter) -> Empty:
        turns = (await self.handle.engine.conversation(self.handle.scope, self.handle.id)).turn_count
        filtered = "" if wanted.is_empty else " and meets the filter"
        stored = Empty("nothing relevant", f"none of {turns:,} turns has these words{filtered}")
        nothing = Empty("nothing stored", "this conversation has no turns")
        return await self.empties.in_conversation(self.handle.scope, self.handle.info, stored if turns else nothing)

    async def branches(self, turn: Turn | str | None) -> list[Branch]:
        self.handle.require(READ)
        id = optional_turn_id("turn", turn)
        return await self.handle.engine.branches(self.handle.scope, self.handle.id, id)

    async def switch(self, turn: Turn | str) -> None:
        self.handle.require(WRITE)
        await self.handle.engine.switch(self.handle.scope, self.handle.id, turn_id("turn", turn))
        self.provider_threads.drop(self.handle.scope.tenant, self.handle.id)


def _clean_roles(roles: Iterable[Role] | None) -> tuple[str, ...] | None:
    return None if roles is None else tuple(clean_role(role) for role in clean_names("roles", roles))
