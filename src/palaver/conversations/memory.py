"""Memory of one conversation: its summaries, its notes (working memory) and its facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from palaver.conversations.arguments import turn_id
from palaver.conversations.emptiness import EmptyResults, why_no_facts, why_no_notes, why_no_summaries
from palaver.conversations.handle import Handle
from palaver.conversations.redaction import TurnRedaction
from palaver.core.identity import moment
from palaver.core.rights import may_act_for
from palaver.core.turn_options import Moment
from palaver.core.validation import clean_actor, clean_count, clean_moment, clean_name, clean_text
from palaver.errors import PermissionDenied
from palaver.memory import working_memory
from palaver.memory.compaction import check_policy
from palaver.memory.facts_over_time import BY_PERSON, clean_object, correctable, corrected, facts_believed_at
from palaver.memory.settings import CompactionSettings
from palaver.memory.worker.loop import Worker
from palaver.model import (
    ACT_FOR,
    GENERATE,
    READ,
    WRITE,
    ConversationInfo,
    Empty,
    Fact,
    Results,
    Summary,
    Turn,
    WorkingMemory,
)
from palaver.ports.memory import FactsDraft, MemoryDraft, ReadBudget
from palaver.telemetry import Telemetry

MAX_EXTRACT = 200_000  # tokens of turns that one extraction of facts reads


@dataclass(frozen=True, slots=True)
class ConversationMemory:
    """Reads and changes the memory of one conversation."""

    handle: Handle
    worker: Worker
    telemetry: Telemetry
    redaction: TurnRedaction
    empties: EmptyResults

    # ---- summaries

    async def summaries(self) -> Results[Summary]:
        self.handle.require(READ)
        found = await self.handle.engine.summaries(self.handle.scope, self.handle.id, None)
        why = None if found else why_no_summaries(await self._info())
        return self.empties.report("summaries", found, why)

    async def _info(self) -> ConversationInfo:
        return await self.handle.engine.conversation(self.handle.scope, self.handle.id)

    async def compact(self, keep_tokens: int | None, policy: CompactionSettings | None) -> int:
        self.handle.require(READ, WRITE, GENERATE)
        self.handle.require_talk("summarise")
        keep = clean_count("keep_tokens", keep_tokens)
        check_policy("policy", policy)
        return await self.worker.compact(self.handle.scope, self.handle.id, keep, policy=policy)

    async def summarize(self, through: Turn | str | None) -> list[Summary]:
        self.handle.require(READ, WRITE, GENERATE)
        self.handle.require_talk("summarise")
        end = await self._position(through)
        await self.worker.compact(self.handle.scope, self.handle.id, force=True, through=end)
        return await self.summaries()

    async def _position(self, through: Turn | str | None) -> int | None:
        """Return the current position of the turn `through`."""
        if through is None:
            return None
        id = turn_id("through", through)
        return (await self.handle.engine.turn(self.handle.scope, self.handle.id, id)).position

    # ---- notes

    async def notes(self) -> WorkingMemory:
        self.handle.require(READ)
        return await self._explain_empty((await self._read_notes())[0])

    async def _explain_empty(self, notes: WorkingMemory) -> WorkingMemory:
        if not working_memory.is_empty(notes):
            return notes
        why = why_no_notes(await self._info(), notes.through_seq)
        self.empties.note("notes", why)
        return replace(notes, empty=why)

    async def _read_notes(self) -> tuple[WorkingMemory, str | None]:
        """Return the notes, and the JSON that they are stored as."""
        stored = (
            await self.handle.engine.context_snapshot(self.handle.scope, self.handle.id, ReadBudget())
        ).working_memory
        return (working_memory.from_json(stored) if stored else WorkingMemory()), stored

    async def add_note(self, list_name: str, text: str, by: str | None) -> WorkingMemory:
        author, text = self._author(by), await self._clean_note(text)
        return await self._edit(lambda notes: working_memory.remember(notes, list_name, text, author))

    async def correct_note(self, list_name: str, index: int, text: str, by: str | None) -> WorkingMemory:
        author, text = self._author(by), await self._clean_note(text)
        return await self._remove(lambda notes: working_memory.correct(notes, list_name, index, text, author))

    async def drop_note(self, list_name: str, index: int) -> WorkingMemory:
        return await self._explain_empty(await self._remove(lambda notes: working_memory.drop(notes, list_name, index)))

    async def names(self, user: str) -> bool:
        """Return whether a user wrote or said any of the notes."""
        before, _ = await self._read_notes()
        return working_memory.without_person(before, user) != before

    async def drop_notes_of(self, user: str) -> WorkingMemory:
        return await self._remove(lambda notes: working_memory.without_person(notes, user))

    async def _clean_note(self, text: object) -> str:
        return await self.redaction.redact_note(clean_text("text", text))

    def _author(self, by: str | None) -> str:
        """Return the author of a note. Under the name of another participant it needs the right to act for others."""
        info = self.handle.info
        if by is not None and by in (info.owner, *info.participants) and not may_act_for(self.handle.scope, by):
            raise PermissionDenied(ACT_FOR)
        author = clean_actor("by", by or self.handle.default_actor("user"))
        self.redaction.check_identity("by", author)
        return author

    async def _remove(self, edit: Callable[[WorkingMemory], WorkingMemory]) -> WorkingMemory:
        """Change the notes, and remove the old bytes of what they said before."""
        notes = await self._edit(edit)
        await self.handle.engine.scrub()  # a reader may keep some for a while: then they go without us
        return notes

    async def _edit(self, edit: Callable[[WorkingMemory], WorkingMemory]) -> WorkingMemory:
        self.handle.require(READ, WRITE)
        with self.telemetry.memory("upsert_memory", self.handle.id):
            while True:  # repeat if the notes changed between reading and writing
                before, stored = await self._read_notes()
                notes = edit(before)
                draft = MemoryDraft(memory=working_memory.to_json(notes), through_seq=notes.through_seq, before=stored)
                if await self.handle.engine.put_working_memory(self.handle.scope, self.handle.id, draft):
                    return notes

    # ---- facts

    async def facts(self, include_invalidated: bool, as_of: Moment | None = None) -> Results[Fact]:
        self.handle.require(READ)
        at = None if as_of is None else moment(clean_moment("as_of", as_of))
        known = await self._stored_facts() if at is not None else []
        found = facts_believed_at(known, at) if at is not None else await self._stored_facts(include_invalidated)
        if known and not found:
            return self.empties.report(
                "facts", found, Empty("other scope", "there are facts, but none was believed at that time")
            )
        why = None if found else why_no_facts(await self._info(), (await self._read_notes())[0].through_seq)
        return self.empties.report("facts", found, why)

    async def _stored_facts(self, include_invalidated: bool = True) -> list[Fact]:
        return await self.handle.engine.facts(self.handle.scope, self.handle.id, include_invalidated)

    async def correct_fact(
        self, fact: Fact | str, text: str, by: str | None, valid_from: Moment | None, valid_to: Moment | None
    ) -> Fact:
        self.handle.require(READ, WRITE)
        id = fact.id if isinstance(fact, Fact) else clean_name("fact", fact)
        author, words = self._author(by), clean_object(await self._clean_note(text))
        with self.telemetry.memory("upsert_memory", self.handle.id):
            old = correctable(await self._stored_facts(), id, words)
            new = corrected(old, self.worker.ids(), words, author, self.worker.clock.now())
            new = replace(
                new,
                valid_from=new.valid_from if valid_from is None else moment(clean_moment("valid_from", valid_from)),
                valid_to=None if valid_to is None else moment(clean_moment("valid_to", valid_to)),
            )
            draft = FactsDraft(new=(new,), replaced=((old.id, new.id),))
            await self.handle.engine.put_facts(self.handle.scope, self.handle.id, draft)
        return next(one for one in await self._stored_facts() if one.id == new.id)

    async def corrections_by(self, user: str) -> list[str]:
        """Return the ids of the facts that a user wrote."""
        return [fact.id for fact in await self._stored_facts() if fact.by == f"{BY_PERSON}{user}"]

    async def learn_again(self) -> None:
        """Read the turns again for the memory of persons, after another branch or the setting was chosen."""
        info = self.handle.info
        if self.worker.person.mode_of(self.handle.scope.tenant, info.settings) == "read-write":
            await self.handle.engine.add_job(self.handle.scope, self.handle.id, "person", 0)

    async def extract_facts(self, through: Turn | str | None) -> list[Fact]:
        self.handle.require(READ, WRITE, GENERATE)
        self.handle.require_talk("summarise")
        end = await self._position(through)
        return await self.worker.extract_facts(self.handle.scope, self.handle.id, MAX_EXTRACT, end)
