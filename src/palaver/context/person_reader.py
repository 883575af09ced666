"""The person in a context: read from the memory of that person, and ranked for the question.

It is shown only if the person takes part alone, besides agents: others would read it in the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from palaver.context.inputs import Bound, Material, PersonItem
from palaver.context.options import Options
from palaver.errors import ConversationNotFound
from palaver.memory.person_settings import PersonSettings
from palaver.memory.subjects import heading, profile_lines, rank
from palaver.model import PERSON, READ, ConversationInfo, MemoryItem, Scope
from palaver.ports.engine import Engine
from palaver.ports.subjects import ItemQuery, memory_place

WISHES, NEWEST, FITTING = 50, 120, 20  # items that are read: wishes, the newest ones, and those that fit the question


@dataclass(frozen=True, slots=True)
class PersonReader:
    """Adds what is known about the person to what a context is made from."""

    engine: Engine
    settings: PersonSettings

    async def add(
        self,
        scope: Scope,
        material: Material,
        info: ConversationInfo,
        options: Options,
        query: str,
        bound: Bound | None,
    ) -> Material:
        """Return the material with what is known about the person who asks; unchanged where nothing is to be shown."""
        if not options.include_person or options.policy.person <= 0 or options.policy.quoted:
            return material
        if self.settings.mode_of(scope.tenant, info.settings) == "off":
            return material
        person = self._asking(scope, material, info)
        if person is None:
            return material
        items, ranks = await self._read(Scope(scope.tenant, person, frozenset({READ}), "own"), person, query)
        known = [one for one in items if _is_from_elsewhere(one, info.id) and _is_known(one, bound)]
        return replace(material, person=_as_lines(known, ranks), person_name=person)

    def _asking(self, scope: Scope, material: Material, info: ConversationInfo) -> str | None:
        """Return the person who asks; None if others would see the answer, or if another user builds the context."""
        current = material.message or material.current
        actor = current.actor if current is not None and current.role == "user" else ""
        person = self.settings.person_of(actor, info.owner)
        agents = {info.agent, *(turn.actor for turn in material.tail if turn.role == "assistant")}
        speakers = {turn.actor for turn in material.tail if turn.role == "user"}
        people = {*info.participants, *speakers, info.owner} - {None, "", "user", person} - agents
        return person if not people and scope.user in (None, person) else None

    async def _read(self, theirs: Scope, person: str, query: str) -> tuple[list[MemoryItem], dict[str, int]]:
        """Return items, the newest first, and the places of those that fit the question."""
        try:
            log = await self.engine.find_conversation(theirs, *memory_place(PERSON, person))
        except ConversationNotFound:
            return [], {}
        wishes = await self.engine.items(theirs, log.id, ItemQuery(kind="instruction", limit=WISHES))
        newest = await self.engine.items(theirs, log.id, ItemQuery(limit=NEWEST))
        words = [(one.id, one.text) for one in newest]
        if len(newest) == NEWEST:
            found = await self.engine.item_words(theirs, log.id)
            words = [(one.id, f"{one.subject} {one.predicate} {one.object}") for one in found]
        best = [id for id, _ in rank(words, query, FITTING)]
        read = {one.id: one for one in (*wishes, *newest)}
        missing = tuple(id for id in best if id not in read)
        older = await self.engine.items(theirs, log.id, ItemQuery(ids=missing)) if missing else []
        return [*read.values(), *older], {id: place for place, id in enumerate(best)}


def _is_from_elsewhere(item: MemoryItem, conversation: str) -> bool:
    """Return whether more than this conversation says it: what it says itself is in its turns and its own memory."""
    return not item.sources or any(source.conversation != conversation for source in item.sources)


def _is_known(item: MemoryItem, bound: Bound | None) -> bool:
    return bound is None or item.learnt_at <= bound.turn.created


def _as_lines(items: Sequence[MemoryItem], ranks: dict[str, int]) -> tuple[PersonItem, ...]:
    newest = sorted(items, key=lambda one: (one.kind != "instruction", -one.learnt_at.timestamp(), one.id))
    priority = {one.id: place for place, one in enumerate(newest)}
    return tuple(
        PersonItem(
            line=line,
            heading=heading(item.kind),
            priority=priority[item.id],
            rank=ranks.get(item.id),
            turns=tuple(source.turn for source in item.sources),
        )
        for item, line in profile_lines(items)
    )
