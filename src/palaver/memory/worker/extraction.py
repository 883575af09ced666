"""Notes and facts from turns: found by rules, and by the application's extractor or a model where there is one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from palaver.core.concurrency import run_in_strides
from palaver.errors import InvalidInput, PalaverError
from palaver.memory import working_memory
from palaver.memory.compaction import SPAN_TURNS, Compaction
from palaver.memory.model_calls import NOT_IN_USE
from palaver.memory.retention import retention_of
from palaver.memory.worker.model_calls import CallLimit
from palaver.memory.worker.services import TRIES, JobServices, log
from palaver.memory.worker.writers import model_writer
from palaver.model import ConversationInfo, Fact, Scope, Turn, WorkingMemory
from palaver.models.model_extractor import ModelExtractor
from palaver.ports.memory import FactsDraft, MemoryDraft, Unsummarised
from palaver.ports.models import Extractor

if TYPE_CHECKING:
    from palaver.memory.facts import FactDraft

T = TypeVar("T")
NO_MODEL = "none"  # `extractor_model` for rules alone


@dataclass(frozen=True, slots=True)
class Proposal(Generic[T]):
    """The checked answer of the extractor; None without one. `failure` is its name and the type of its error.

    `postponed`: it was not called because of the daily limit, which `failure` then names. `dropped`: how many of its
    items were not kept.
    """

    value: T | None = None
    failure: str | None = None
    postponed: bool = False
    dropped: int = 0


@dataclass(slots=True)
class Extraction:
    """Reads the turns of one conversation into working memory and facts."""

    services: JobServices
    scope: Scope
    conversation: str
    limit: CallLimit
    asks_now: bool = True  # false: a caller waits for summaries, and a job asks the model for notes later
    _own: ModelExtractor | None = None

    async def update_working_memory(self) -> None:
        """Read the summarised turns into working memory, and into facts where the conversation has them turned on.

        Reading continues where working memory stopped, so that nothing is left out after a worker was killed.
        """
        for _ in range(TRIES):
            found = await self._unsummarised(0)
            before = _stored_memory(found)
            if before.through_seq >= found.position - 1 or await self._read_turns(found, before):
                break
        while await self._catch_up():
            pass

    async def _read_turns(self, found: Unsummarised, before: WorkingMemory) -> bool:
        """Read the turns after `before`. False when the thread changed since it was read."""
        span = await self.services.engine.span(self.scope, self.conversation, before.through_seq + 1, found.position)
        turns = await self.services.clean(span)
        facts = await self._facts_if_wanted(turns, found)
        if facts.value is None:
            return False
        notes = await self._note(before, turns, found.info)
        unread = before.extractor_postponed
        if facts.postponed or notes.postponed:
            unread = (unread[0] if unread else before.through_seq + 1, found.position)
        after = replace(
            notes.value or before,
            through_seq=found.position - 1,
            extractor_failure=facts.failure or notes.failure,
            extractor_postponed=unread,
            extractor_dropped=self._count_dropped(before, facts, notes),
        )
        await self._learn_people(turns, found.info)
        return await self._put_memory(after, found, found.revision)

    def _count_dropped(self, before: WorkingMemory, *proposals: Proposal[Any]) -> int:
        """Count the items that were not kept, and report them."""
        dropped = sum(one.dropped for one in proposals)
        if dropped:
            self.services.meter.dropped(dropped)
        return before.extractor_dropped + dropped

    async def _learn_people(self, turns: Sequence[Turn], info: ConversationInfo) -> None:
        """Add what the model found to the memory of the persons who said it, where persons are remembered."""
        from palaver.memory.worker.jobs.person import learn_facts

        asked = self._own is not None and self._own.asked(turns)
        if asked and self.services.person.mode_of(self.scope.tenant, info.settings) == "read-write":
            proposal = await self._propose_facts(turns, info)
            await learn_facts(self.services, self.scope, info, turns, proposal.value or [])

    async def _catch_up(self) -> bool:
        """Let the extractor read some of the turns that it was not called for. False when there is nothing to do."""
        found = await self._unsummarised(0)
        before = _stored_memory(found)
        if before.extractor_postponed is None or self._extractor(found.info) is None:
            return False
        start, end = before.extractor_postponed
        middle = min(start + SPAN_TURNS, end)
        span = await self.services.engine.span(self.scope, self.conversation, start, middle)
        turns = await self.services.clean(span)
        notes = await self._propose_notes(before, turns, found.info)
        facts = await self._facts_if_wanted(turns, found) if not notes.postponed else None
        if facts is None or facts.value is None or facts.postponed:
            return False
        after = replace(
            notes.value or before,
            extractor_failure=facts.failure or notes.failure,
            extractor_postponed=(middle, end) if middle < end else None,
            extractor_dropped=self._count_dropped(before, facts, notes),
        )
        await self._learn_people(turns, found.info)
        return await self._put_memory(after, found, found.revision)

    async def _facts_if_wanted(self, turns: Sequence[Turn], found: Unsummarised) -> Proposal[list[Fact]]:
        return await self._store_facts(turns, found) if found.info.settings.get("facts") else Proposal([])

    async def extract_facts(self, tokens: int, through: int | None = None) -> list[Fact]:
        """Store the facts of the turns that no summary covers yet, and return the new ones. Reads `tokens` at most.

        `through` is the position of the last turn to read.
        """
        while True:  # until the thread does not change in between
            found = await self._unsummarised(tokens)
            turns = [turn for turn in found.turns if through is None or turn.position <= through]
            stored = await self._store_facts(await self.services.clean(turns), found)
            if stored.value is not None:
                await self._mark(stored)
                return stored.value

    async def extract_facts_again(self) -> None:
        """Store the facts of the summarised turns again, after some were lost. Those that are there are not doubled."""
        found = await self._unsummarised(0)
        if not found.info.settings.get("facts"):
            return
        for start in range(0, found.position, SPAN_TURNS):
            end = min(start + SPAN_TURNS, found.position)
            span = await self.services.engine.span(self.scope, self.conversation, start, end)
            await self._store_facts(await self.services.clean(span), await self._unsummarised(0))

    async def _store_facts(self, turns: Sequence[Turn], found: Unsummarised) -> Proposal[list[Fact]]:
        """Store facts in the place of those that they contradict. Its value is None when the thread changed since."""
        from palaver.memory.facts import extract, reconcile, without_sentences

        proposal = await self._propose_facts(turns, found.info)
        stated = await run_in_strides(lambda: extract(turns), sum(len(turn.text) for turn in turns))
        if retention_of(found.info.settings) != "full":
            stated = [short for one in stated if (short := without_sentences(one)).object]
        result = reconcile(await self._known_facts(found), [*stated, *(proposal.value or [])])
        new = {id(draft): self._fact(draft) for draft in result.new}
        for _, draft in result.invalidated:
            new.setdefault(id(draft), self._fact(draft))
        older = {id(draft): self._fact(draft) for draft, _ in result.superseded}
        if not new:
            return _with_value(proposal, [])
        replaced = tuple((old.id, new[id(draft)].id) for old, draft in result.invalidated)
        made = {**older, **new}
        replaced += tuple(
            (older[id(old)].id, made[id(draft)].id) for old, draft in result.superseded if id(draft) in made
        )
        facts = FactsDraft(new=tuple(made.values()), replaced=replaced, revision=found.revision)
        stored = await self.services.engine.put_facts(self.scope, self.conversation, facts)
        ended = {fact.id for fact in older.values()}
        return _with_value(proposal, None if stored is None else [fact for fact in stored if fact.id not in ended])

    async def _known_facts(self, found: Unsummarised) -> Sequence[Fact]:
        """Return the current facts. If a person corrected one, return the replaced ones as well."""
        from palaver.memory.facts_over_time import is_correction

        if not any(is_correction(fact.by) for fact in found.facts):
            return found.facts
        return await self.services.engine.facts(self.scope, self.conversation, True)

    async def _propose_facts(self, turns: Sequence[Turn], info: ConversationInfo) -> Proposal[list[FactDraft]]:
        from palaver.memory.facts import FACTS_SCHEMA, count_dropped_facts, validate_model_facts

        def check(raw: str, by: str, quotes: bool) -> tuple[list[FactDraft], int]:
            kept = validate_model_facts(raw, turns, by=by, quotes=quotes)
            return kept, count_dropped_facts(raw, kept)

        return await self._ask_extractor(turns, info, FACTS_SCHEMA, check)

    async def _note(
        self, before: WorkingMemory, turns: Sequence[Turn], info: ConversationInfo
    ) -> Proposal[WorkingMemory]:
        """Return the working memory after the rules, and then the extractor, have read the turns."""
        keep_words = retention_of(info.settings) == "full"
        read = await asyncio.to_thread(
            working_memory.update, before, turns, self.services.pause(), keep_words=keep_words
        )
        proposal = await self._propose_notes(read, turns, info)
        return _with_value(proposal, proposal.value or read)

    async def _propose_notes(
        self, read: WorkingMemory, turns: Sequence[Turn], info: ConversationInfo
    ) -> Proposal[WorkingMemory]:
        def check(raw: str, by: str, quotes: bool) -> tuple[WorkingMemory, int]:
            dropped = working_memory.count_dropped_notes(raw, turns, by=by, quotes=quotes)
            return working_memory.validate_model_memory(raw, turns, read, by=by, quotes=quotes), dropped

        return await self._ask_extractor(turns, info, working_memory.WORKING_MEMORY_SCHEMA, check)

    async def _ask_extractor(
        self,
        turns: Sequence[Turn],
        info: ConversationInfo,
        schema: Mapping[str, object],
        check: Callable[[str, str, bool], tuple[T, int]],
    ) -> Proposal[T]:
        """Ask the extractor and check its answer; ask once more when the answer is not JSON."""
        try:
            extractor = self._extractor(info)
        except PalaverError as failed:  # no key, no such model, a missing extra
            return self._failed(self._wanted_model(info), failed)
        if extractor is None or not turns:
            return Proposal()
        problem: Exception
        for _ in range(2):
            if refusal := await self._refusal(info, extractor, turns):
                return Proposal(failure=_why(extractor.name, refusal), postponed=True)
            if extractor is self.services.extractor:
                await self.limit.record("extract", extractor.name)
            try:
                async with asyncio.timeout(self.services.model_seconds):
                    raw = await extractor.extract(turns, schema)
                value, dropped = check(raw, f"model:{extractor.name}", isinstance(extractor, ModelExtractor))
                return Proposal(value, dropped=dropped)
            except InvalidInput as invalid:
                problem = invalid
                if isinstance(extractor, ModelExtractor):
                    extractor.again()
            except Exception as failed:  # a provider's client may raise anything
                problem = failed
                break
        return self._failed(extractor.name, problem)

    def _extractor(self, info: ConversationInfo) -> Extractor | None:
        """Return the application's extractor, or one over `extractor_model`, by default the conversation's model."""
        if self.services.extractor is not None:
            return self.services.extractor
        wanted = self._wanted_model(info)
        if wanted == NO_MODEL or retention_of(info.settings) != "full":
            return None
        if self._own is None:
            writer = model_writer(self.services, self.scope, info, wanted or None)
            self._own = None if writer is None else ModelExtractor(writer)
        return self._own

    def _wanted_model(self, info: ConversationInfo) -> str:
        return Compaction.of(info.settings).extractor_model or self.services.extractor_model or ""

    async def _refusal(self, info: ConversationInfo, extractor: Extractor, turns: Sequence[Turn]) -> str | None:
        """Return why the extractor may not be called now. One call of a model gives notes and facts."""
        if isinstance(extractor, ModelExtractor):
            if not self.asks_now:
                await self.services.engine.add_job(self.scope, self.conversation, "compact", None)
                return NOT_IN_USE
            return None if extractor.asked(turns) else await self.limit.refusal(info, waits=True)
        return await self.limit.refusal(info, waits=False)

    def _failed(self, extractor: str, problem: Exception) -> Proposal[T]:
        kind = type(problem).__name__
        log.warning("extractor %s failed (%s) in conversation %s", extractor, kind, self.conversation)
        return Proposal(failure=f"{extractor}: {kind}")

    async def _mark(self, proposal: Proposal[Any]) -> None:
        """Store in working memory that the extractor failed or works again, and how many items were not kept."""
        for _ in range(TRIES):
            found = await self._unsummarised(0)
            memory = _stored_memory(found)
            dropped = memory.extractor_dropped + proposal.dropped
            marked = replace(memory, extractor_failure=proposal.failure, extractor_dropped=dropped)
            if marked == memory or await self._put_memory(marked, found, None):
                return

    async def remove_sentences(self) -> None:
        """Put keywords in the place of sentences that the rules noted before the text of turns was to be removed."""
        for _ in range(TRIES):
            found = await self._unsummarised(0)
            memory = _stored_memory(found)
            shorter = working_memory.without_sentences(memory)
            if shorter == memory or await self._put_memory(shorter, found, None):
                return

    async def _unsummarised(self, tokens: int) -> Unsummarised:
        return await self.services.engine.unsummarised(self.scope, self.conversation, tokens)

    async def _put_memory(self, memory: WorkingMemory, found: Unsummarised, revision: int | None) -> bool:
        draft = MemoryDraft(
            memory=working_memory.to_json(memory),
            through_seq=memory.through_seq,
            before=found.working_memory,
            revision=revision,
        )
        return await self.services.engine.put_working_memory(self.scope, self.conversation, draft)

    def _fact(self, draft: FactDraft) -> Fact:
        return Fact(
            id=self.services.ids(),
            subject=draft.subject,
            predicate=draft.predicate,
            object=draft.object,
            source_turn=draft.source_turn,
            confidence=draft.confidence,
            valid_from=draft.valid_from,
            by=draft.by,
            valid_to=draft.valid_to,
            learnt=draft.learnt,
        )


def _why(extractor: str, refusal: str) -> str | None:
    """Return the reason to store. Waiting until a conversation is in use is not a failure."""
    return None if refusal == NOT_IN_USE else f"{extractor}: {refusal}"


def _with_value(proposal: Proposal[Any], value: T | None) -> Proposal[T]:
    return Proposal(value, proposal.failure, proposal.postponed, proposal.dropped)


def _stored_memory(found: Unsummarised) -> WorkingMemory:
    return working_memory.from_json(found.working_memory) if found.working_memory else WorkingMemory()
