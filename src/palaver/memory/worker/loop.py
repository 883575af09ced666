"""The outbox loop: embedding, compaction, working memory and facts, after the fact and never in anybody's way.

Any number of workers may run, in any number of processes: a job is leased, and a worker that dies loses it when the
lease ends. Models are called between transactions. A job that fails is tried again, later and later, and is put aside
with the type of its error after the last try.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import structs

from palaver.core.concurrency import Pause, iterate_with_pauses, no_pause
from palaver.core.identity import new_salt
from palaver.errors import (
    ConversationGone,
    ConversationNotFound,
    EngineError,
    EngineUnavailable,
    InvalidInput,
    PalaverError,
)
from palaver.files.reader import Files
from palaver.memory import working_memory
from palaver.memory.compaction import FAN_OUT, SUMMARY_TOKENS, Compaction, oldest_half
from palaver.memory.retention import retention_of
from palaver.memory.worker.throttle import BackgroundThrottle
from palaver.model import ConversationInfo, Fact, Request, Scope, Summary, Turn, WorkingMemory
from palaver.models.model_summarizer import ModelSummarizer, check_summary, plain_title
from palaver.models.offline import summarizer as offline
from palaver.models.registry import OFFLINE, ModelRegistry
from palaver.models.request_log import RequestRecorder
from palaver.ports.clock import Clock, Ids
from palaver.ports.engine import Engine
from palaver.ports.jobs import Job
from palaver.ports.memory import FactsDraft, MemoryDraft, SummaryDraft, Unsummarised
from palaver.ports.models import Counter, Embedder, Usage
from palaver.ports.queries import ConversationChanges
from palaver.ports.recall import Embedded, ToEmbed
from palaver.redaction.apply import redacted_calls, redacted_results
from palaver.redaction.cached import CachedRedactor
from palaver.telemetry import Meter

if TYPE_CHECKING:
    from palaver.memory.facts import FactDraft
    from palaver.redaction.redactor import Redactor

T = TypeVar("T")

LEASE = 120_000_000  # microseconds
EMBED_BATCH = 32
NO_EMBEDDER = "none"
SPAN_TOKENS = 8_000  # of turns in one summary, at most
READ_TOKENS, READ_MOST = 2 * SPAN_TOKENS, 2_000_000  # of unsummarised turns: at first, and where that tells too little
TRIES, FIRST_DELAY, LAST_DELAY = 6, 1_000_000, 60_000_000  # 1, 2, 4, 8 … seconds
IDLE_SECONDS = 1.0
SUMMARIZER_SECONDS = 60.0
FILES_AT_ONCE = 10
TITLE_TURNS = 6  # a title is made from how the conversation began


class Summarizer(Protocol):
    """Writes summaries. The offline one stands in when it fails or is slow."""

    @property
    def name(self) -> str: ...

    async def summarize(self, turns: Sequence[Turn], budget: int) -> str: ...

    async def merge(self, summaries: Sequence[Summary], budget: int) -> str: ...


class Extractor(Protocol):
    """Proposes facts and notes as JSON that follows a schema. What the turns do not bear out is dropped."""

    name: str

    async def extract(self, turns: Sequence[Turn], schema: Mapping[str, Any]) -> str: ...


@dataclass(slots=True)
class OfflineSummarizer:
    """Extracts sentences; no model."""

    counter: Counter
    pause: Pause = no_pause
    name: str = offline.NAME

    async def summarize(self, turns: Sequence[Turn], budget: int) -> str:
        work = partial(offline.summarize, turns, budget=budget, count=self.counter, pause=self.pause)
        return await asyncio.to_thread(work)

    async def merge(self, summaries: Sequence[Summary], budget: int) -> str:
        work = partial(offline.merge, summaries, budget=budget, count=self.counter, pause=self.pause)
        return await asyncio.to_thread(work)


@dataclass(slots=True)
class Worker:
    """Does what the outbox asks for."""

    engine: Engine
    counter: Counter
    ids: Ids
    clock: Clock
    chosen_redactor: Redactor | None = None
    embedder: Embedder | None = None
    summarizer: Summarizer | None = None
    extractor: Extractor | None = None
    models: ModelRegistry | None = None
    meter: Meter = field(default_factory=Meter)
    files: Files | None = None
    in_background: bool = False  # beside others that answer somebody
    cached_redactor: CachedRedactor = field(init=False)
    throttle: BackgroundThrottle = field(init=False)

    def __post_init__(self) -> None:
        self.throttle = BackgroundThrottle(self.engine)
        self.cached_redactor = CachedRedactor(lambda: self.redactor.redact)

    @property
    def redactor(self) -> Redactor:
        """The rules, unless the application brought its own. They are loaded at the first use."""
        if self.chosen_redactor is None:
            from palaver.redaction.redactor import RuleRedactor

            self.chosen_redactor = RuleRedactor()
        return self.chosen_redactor

    async def run(self) -> None:
        """Work for ever: at once when there is news, and now and then in any case."""
        self.in_background = True
        asked = False
        async with self.engine.watch("*jobs*") as signal:
            while True:
                try:
                    if not asked:
                        await self.replace_superseded()
                        asked = True
                    await self._work_off()
                except EngineError:
                    pass  # busy or full now; there is a next time
                try:
                    async with asyncio.timeout(IDLE_SECONDS):  # before 3.12, wait_for may swallow a cancellation
                        await signal.wait()
                except TimeoutError:
                    continue

    async def _work_off(self) -> None:
        """Do what is due."""
        while await self._is_due():
            await self.throttle.let_writers_go_first()
            if not await self.run_one(politely=True):
                return
        self.throttle.mark_idle()

    def _pause(self) -> Pause:
        return self.throttle.pause() if self.in_background else no_pause

    async def _is_due(self) -> bool:
        """A look that takes no lock: claiming a job is a write."""
        due = await self.engine.next_job()
        return due is not None and due <= self.clock.now()

    async def drain(self, tenant: str | None = None) -> None:
        """Work until nothing is left that can be done now, and wait for what others have in hand."""
        with self.throttle.caller_waits():
            await self.engine.index_all()
            await self.replace_superseded(tenant)
            while await self.run_one(tenant) or await self._is_coming(tenant):
                pass

    async def _is_coming(self, tenant: str | None) -> bool:
        """Whether there is still something to do later, or in hand elsewhere; after a moment."""
        due = await self.engine.next_job(tenant)
        if due is not None:
            wait = (due - self.clock.now()).total_seconds()
            await asyncio.sleep(min(max(wait, 0.01), 0.25))
        return due is not None

    async def run_one(self, tenant: str | None = None, *, politely: bool = False) -> bool:
        """Do one job, `politely` in the writers' pauses. False when there was none."""
        job = await self._claim(tenant)
        if job is None:
            return False
        alive = asyncio.create_task(self._keep_lease(job), name="palaver-lease")
        try:
            await self._do(job, politely)
        except (ConversationGone, ConversationNotFound):
            await self.engine.finish_job(job)
        except EngineUnavailable:
            raise
        except asyncio.CancelledError:  # the store is being closed: the next worker need not wait for the lease
            with suppress(EngineError):  # a full disk must not keep it from closing
                await asyncio.shield(self.engine.release_job(job))
            raise
        except Exception as problem:  # whatever a model or a text does: the job is put aside, with the reason
            await self._put_off(job, problem)
        else:
            await self.engine.finish_job(job)
        finally:
            alive.cancel()
        return True

    async def _claim(self, tenant: str | None) -> Job | None:
        """Take a job, or none: when the claim is under way while this task is cancelled, it is given back."""
        claim = asyncio.ensure_future(self.engine.claim_job(LEASE, tenant))
        try:
            return await asyncio.shield(claim)
        except asyncio.CancelledError:
            with suppress(EngineError):
                job = await claim
                if job is not None:
                    await self.engine.release_job(job)
            raise

    async def _keep_lease(self, job: Job) -> None:
        """A sign of life: a slow model must not let another worker begin the same job."""
        while True:
            await asyncio.sleep(LEASE / 3_000_000)
            try:
                await self.engine.renew_job(job, LEASE)
            except EngineError:
                pass  # there are two more tries before the lease ends

    async def _put_off(self, job: Job, problem: Exception) -> None:
        delay = min(FIRST_DELAY * 2 ** min(job.attempts - 1, 20), LAST_DELAY)
        await self.engine.retry_job(job, delay, type(problem).__name__, dead=job.attempts >= TRIES)

    async def _do(self, job: Job, politely: bool) -> None:
        if job.kind == "embed":
            await self.embed(job, politely=politely)
        elif job.kind == "compact":
            assert job.conversation is not None
            await self.compact(Scope.of(job.tenant, None), job.conversation, job.argument, politely=politely)
        elif job.kind == "title":
            assert job.conversation is not None
            await self.entitle(Scope.of(job.tenant, None), job.conversation)
        elif job.kind == "files":
            assert job.conversation is not None
            await self.read_files(Scope.of(job.tenant, None), job.conversation)

    # ---- files

    async def read_files(self, scope: Scope, conversation: str) -> None:
        """Read the files that turns have taken, so that recall finds what they say."""
        assert self.files is not None
        info = await self.engine.conversation(scope, conversation)
        while unread := await self.engine.unread_files(scope, conversation, FILES_AT_ONCE):
            for file in unread:
                text = await self.files.words(scope, conversation, file, self.clean_words(info))
                await self.engine.put_file_text(scope, conversation, text)

    def clean_words(self, info: ConversationInfo) -> Callable[[str], str]:
        """What is taken out of a file's words: secrets, where the conversation wants none stored."""
        return (lambda text: self.redactor.redact(text).text) if info.settings.get("redact") else str

    # ---- titles

    async def entitle(self, scope: Scope, conversation: str) -> None:
        """Give the conversation a title, from how it began; a title that somebody gave stays."""
        info = await self.engine.conversation(scope, conversation)
        turns = await self.engine.span(scope, conversation, 0, TITLE_TURNS)
        if info.title is not None or not any(turn.role == "user" and turn.text.strip() for turn in turns):
            return
        title = self.redactor.redact(await self._title(scope, info, [self.clean(turn) for turn in turns])).text
        if title:
            changes = ConversationChanges(fields=frozenset({"title"}), title=title, salt=new_salt(), if_untitled=True)
            await self.engine.update(scope, conversation, changes)

    async def _title(self, scope: Scope, info: ConversationInfo, turns: Sequence[Turn]) -> str:
        try:
            writer = self._model_writer(scope, info, self.models.fast if self.models is not None else None)
            if writer is not None:
                async with asyncio.timeout(SUMMARIZER_SECONDS):
                    return await writer.title(turns)
        except (PalaverError, TimeoutError):
            pass  # the first line will do
        return plain_title(turns)

    def _model_writer(self, scope: Scope, info: ConversationInfo, name: str | None) -> ModelSummarizer | None:
        """Who writes for this conversation: the model of that name, or its own. None: nobody but the rules."""
        if self.models is None:
            return None
        chosen = name or self.models.choose(info)
        model, price = self.models.chat(chosen), self.models.price(chosen)
        if model.adapter == OFFLINE:
            return None

        async def told(purpose: str, body: dict[str, Any], response: dict[str, Any]) -> None:
            request = Request(
                id=self.ids(),
                conversation=info.id,
                at=at,
                model=model.name,
                adapter=model.adapter,
                purpose=purpose,
                body=body,
            )
            usage = Usage(**response["usage"])
            cost = {} if price is None else {"cost": price.cost(usage)}
            recording = RequestRecorder(self.engine, scope, request, self.cached_redactor, None)
            await recording.finish({**response, **cost}, None)
            self.meter.answered(usage)

        at = self.clock.now()
        return ModelSummarizer(model, self.counter, told)

    # ---- embedding

    async def embed(self, job: Job | None = None, *, politely: bool = False) -> None:
        """Give every new passage its vector, and find the standing instructions among them."""
        name = self.embedder.name if self.embedder else NO_EMBEDDER
        while batch := await self.engine.to_embed(name, EMBED_BATCH, job):
            if politely:
                await self.throttle.let_writers_go_first()
            vectors = await self._vectors([one for one in batch if one.worth_a_vector])
            marks = await asyncio.to_thread(_marks, batch, self._pause())
            passages = tuple((one.pid, one.turn) for one in batch)
            made = Embedded(passages=passages, vectors=vectors, marks=marks, place=batch[0].place)
            await self.engine.put_embedded(name, made)
        if self.embedder is not None:
            await self._embed_facts(self.embedder, job)
        if job is not None and self._superseded:  # only now: until then, a process with the other embedder finds them
            await self.engine.drop_vectors(self._superseded, job)

    @property
    def _superseded(self) -> tuple[str, ...]:
        return tuple(getattr(self.embedder, "supersedes", ()))

    async def replace_superseded(self, tenant: str | None = None) -> None:
        """Enqueue what an earlier version of the embedder has done. Vectors of any other embedder are left alone."""
        if self._superseded:
            await self.engine.enqueue_embedding(self._superseded, tenant)

    async def _embed_facts(self, embedder: Embedder, job: Job | None) -> None:
        while batch := await self.engine.facts_to_embed(embedder.name, EMBED_BATCH, job):
            made = await embedder.embed([one.text for one in batch])
            await self.engine.put_fact_vectors(embedder.name, list(zip(batch, map(_halves, made), strict=True)))

    async def _vectors(self, wanted: Sequence[ToEmbed]) -> tuple[tuple[int, int, int, bytes], ...]:
        if self.embedder is None or not wanted:
            return ()
        vectors = await self.embedder.embed([one.text for one in wanted])
        return tuple((one.pid, one.tid, one.part, _halves(vector)) for one, vector in zip(wanted, vectors, strict=True))

    # ---- compaction

    async def compact(
        self,
        scope: Scope,
        conversation: str,
        keep: int | None = None,
        *,
        force: bool = False,
        politely: bool = False,
    ) -> int:
        """Summarise what is due, and answer how many summaries of turns were written."""
        written, refused = 0, 0
        while refused < TRIES:
            found = await self._unsummarised(scope, conversation, keep, force)
            settings = Compaction.of(found.info.settings)
            rebuilt = await self._rebuild(scope, conversation, found)
            chosen = self._due(found, settings, keep, force) if rebuilt is not None else []
            if rebuilt is None or (chosen and not await self._summarise(scope, conversation, found, chosen)):
                refused += 1  # the thread changed while a summary was being written
                continue
            written += rebuilt + bool(chosen)
            await self._remember(scope, conversation)
            if not chosen:
                break
            force = False
            await self._widen(scope, conversation, settings)
            if politely:
                await self.throttle.let_writers_go_first()
        await self._retire(scope, conversation)
        return written

    async def _unsummarised(self, scope: Scope, conversation: str, keep: int | None, force: bool) -> Unsummarised:
        """As much as it takes to know what is due."""
        tokens = READ_TOKENS
        while True:
            found = await self.engine.unsummarised(scope, conversation, tokens)
            settings = Compaction.of(found.info.settings)
            is_all = settings.strategy == "never" or sum(turn.token_count for turn in found.turns) < tokens
            if is_all or tokens >= READ_MOST or self._due(found, settings, keep, force):
                return found
            tokens *= 4

    async def _retire(self, scope: Scope, conversation: str) -> None:
        """Drop the words of what is summarised, where the conversation does not want them kept."""
        found = await self.engine.unsummarised(scope, conversation, 0)
        kept = retention_of(found.info.settings)
        while kept != "full":
            removed = await self.engine.retire(scope, conversation, found.position, kept == "audit-only")
            if not removed.turns:
                return

    def _due(self, found: Unsummarised, settings: Compaction, keep: int | None, force: bool) -> list[Turn]:
        turns = [turn for turn in found.turns if turn.status == "complete"]
        tokens = sum(turn.token_count for turn in turns)
        if settings.strategy == "never" or not turns:
            return []
        if force or settings.is_due(len(turns), tokens):
            return _span(oldest_half(turns, None), settings.trigger_turns)
        if keep is not None and tokens > keep * 2:
            return _span(oldest_half(turns, keep), settings.trigger_turns)
        return []

    async def _summarise(self, scope: Scope, conversation: str, found: Unsummarised, turns: list[Turn]) -> bool:
        text, model = await self._text(scope, found.info, turns)
        return await self.engine.put_summary(
            scope,
            conversation,
            SummaryDraft(
                id=self.ids(),
                level=0,
                from_seq=found.position,
                through_seq=turns[-1].position + 1,
                turns=len(turns),
                tokens=sum(turn.token_count for turn in turns),
                text=text,
                token_count=self.counter(text),
                model=model,
                revision=found.revision,
            ),
        )

    async def _text(self, scope: Scope, info: ConversationInfo, turns: Sequence[Turn]) -> tuple[str, str]:
        # Before and after: a summary may cut through what could be recognised as a whole, or join what was apart.
        clean = [self.clean(turn) for turn in turns]
        return await self._written(scope, info, lambda writer: writer.summarize(clean, SUMMARY_TOKENS))

    async def _merged(self, scope: Scope, info: ConversationInfo, parts: Sequence[Summary]) -> tuple[str, str]:
        return await self._written(scope, info, lambda writer: writer.merge(parts, SUMMARY_TOKENS))

    def _writer(self, scope: Scope, info: ConversationInfo) -> Summarizer | None:
        """The application's own, or the conversation's `summarizer_model`, which is its own model unless it says."""
        return self.summarizer or self._model_writer(scope, info, Compaction.of(info.settings).summarizer_model)

    async def _written(
        self, scope: Scope, info: ConversationInfo, write: Callable[[Summarizer], Awaitable[str]]
    ) -> tuple[str, str]:
        """A text and who wrote it; the offline summariser stands in for one that fails, is too slow or says nothing."""
        stand_in = OfflineSummarizer(self.counter, self._pause())
        try:
            writer = self._writer(scope, info) or stand_in
        except PalaverError:  # no key, no such model, a missing extra
            named = Compaction.of(info.settings).summarizer_model or (self.models and self.models.choose(info))
            return self.redactor.redact(await write(stand_in)).text, f"{stand_in.name} (in place of {named})"
        try:
            async with asyncio.timeout(SUMMARIZER_SECONDS):  # before 3.12, wait_for may swallow a cancellation
                text, name = await write(writer), writer.name
            if writer is not stand_in:
                text = check_summary(text, SUMMARY_TOKENS, self.counter)
        except Exception:  # a provider's client may raise anything, and no chat may wait for it
            if writer is stand_in:
                raise
            text, name = await write(stand_in), f"{stand_in.name} (in place of {writer.name})"
        return self.redactor.redact(text).text, name

    async def _rebuild(self, scope: Scope, conversation: str, found: Unsummarised) -> int | None:
        """Write the summaries anew whose sources have changed; those whose sources are gone stay gone.

        Answers how many summaries of turns were written; None when the thread changed meanwhile.
        """
        written = 0
        for old in found.stale:
            rebuild = self._rebuild_from_turns if old.level == 0 else self._rebuild_from_summaries
            if not await rebuild(scope, conversation, found, old):
                return None
            written += old.level == 0
        return written

    async def _rebuild_from_turns(self, scope: Scope, conversation: str, found: Unsummarised, old: Summary) -> bool:
        turns = await self.engine.span(scope, conversation, old.from_seq, old.through_seq)
        if not turns:
            await self.engine.drop_summary(scope, conversation, old)
            return True
        text, model = await self._text(scope, found.info, turns)
        tokens = sum(turn.token_count for turn in turns)
        draft = self._draft(old, text, model, len(turns), tokens, found.revision)
        return await self.engine.put_summary(scope, conversation, draft)

    async def _rebuild_from_summaries(self, scope: Scope, conversation: str, found: Unsummarised, old: Summary) -> bool:
        below = await self.engine.summaries(scope, conversation, old.level - 1)
        parts = [one for one in below if one.from_seq >= old.from_seq and one.through_seq <= old.through_seq]
        if not parts:
            await self.engine.drop_summary(scope, conversation, old)
            return True
        text, model = await self._merged(scope, found.info, parts)
        draft = self._draft(old, text, model, sum(one.turns for one in parts), 0, found.revision)
        return await self.engine.put_summary(scope, conversation, draft)

    def _draft(self, old: Summary, text: str, model: str, turns: int, tokens: int, revision: int) -> SummaryDraft:
        return SummaryDraft(
            id=self.ids(),
            level=old.level,
            from_seq=old.from_seq,
            through_seq=old.through_seq,
            turns=turns,
            tokens=tokens,
            text=text,
            token_count=self.counter(text),
            model=model,
            revision=revision,
        )

    async def _widen(self, scope: Scope, conversation: str, settings: Compaction) -> None:
        """Summaries of summaries, so that their number stays small."""
        level = 0
        while True:
            # First the revision, then what is merged: a summary of what was forgotten meanwhile is refused.
            found = await self.engine.unsummarised(scope, conversation, 0)
            open_ones = await self.engine.uncovered(scope, conversation, level)
            rolling = settings.strategy == "rolling"
            if len(open_ones) < (1 if rolling else FAN_OUT) or (rolling and level > 0):
                return
            if rolling:
                open_ones = [*(await self.engine.summaries(scope, conversation, 1)), *open_ones]
            await self._merge(scope, found, open_ones, level + 1)
            level += 1

    async def _merge(self, scope: Scope, found: Unsummarised, parts: Sequence[Summary], level: int) -> None:
        text, model = await self._merged(scope, found.info, parts)
        await self.engine.put_summary(
            scope,
            found.info.id,
            SummaryDraft(
                id=self.ids(),
                level=level,
                from_seq=parts[0].from_seq,
                through_seq=parts[-1].through_seq,
                turns=sum(one.turns for one in parts),
                tokens=0,
                text=text,
                token_count=self.counter(text),
                model=model,
                revision=found.revision,
            ),
        )

    # ---- working memory and facts

    def clean(self, turn: Turn) -> Turn:
        """The turn without what must not be in anything that is derived from it."""
        redact = self.redactor.redact
        text = self.cached_redactor(turn.text)  # read twice: for the summary, and for working memory
        results = tuple(redacted_results(turn.tool_results, redact))
        calls = tuple(redacted_calls(turn.tool_calls, redact))
        content = turn.content if text == turn.text else text
        return structs.replace(turn, content=content, tool_results=results, tool_calls=calls)

    async def _remember(self, scope: Scope, conversation: str) -> None:
        """What the summarised turns leave in working memory, and as facts where the conversation wants them.

        It goes on from where working memory stopped, so that nothing is left out when a worker was killed in between.
        """
        for _ in range(TRIES):
            found = await self.engine.unsummarised(scope, conversation, 0)
            before = working_memory.from_json(found.working_memory) if found.working_memory else WorkingMemory()
            if before.through_seq >= found.position - 1:
                return
            turns = await self.engine.span(scope, conversation, before.through_seq + 1, found.position)
            clean = [self.clean(turn) for turn in turns]
            if found.info.settings.get("facts") and await self.store_facts(scope, conversation, clean, found) is None:
                continue
            read = await asyncio.to_thread(working_memory.update, before, clean, self._pause())
            noted = await self._noted(read, clean)
            after = replace(noted, through_seq=found.position - 1)
            draft = MemoryDraft(
                memory=working_memory.to_json(after),
                through_seq=after.through_seq,
                before=found.working_memory,
                revision=found.revision,
            )
            if await self.engine.put_working_memory(scope, conversation, draft):
                return

    async def store_facts(
        self, scope: Scope, conversation: str, turns: Sequence[Turn], found: Unsummarised
    ) -> list[Fact] | None:
        """Extract facts, and let them take the place of those that they contradict. None when the thread changed."""
        from palaver.memory.facts import extract, reconcile

        result = reconcile(found.facts, [*extract(turns), *await self._proposed_facts(turns)])
        new = {id(draft): self._fact(draft) for draft in result.new}
        for _, draft in result.invalidated:
            new.setdefault(id(draft), self._fact(draft))
        replaced = tuple((old.id, new[id(draft)].id) for old, draft in result.invalidated)
        if not new:
            return []
        facts = FactsDraft(new=tuple(new.values()), replaced=replaced, revision=found.revision)
        return await self.engine.put_facts(scope, conversation, facts)

    async def _proposed_facts(self, turns: Sequence[Turn]) -> list[FactDraft]:
        from palaver.memory.facts import FACTS_SCHEMA, validate_model_facts

        found = await self._asked(turns, FACTS_SCHEMA, lambda raw, by: validate_model_facts(raw, turns, by=by))
        return found or []

    async def _noted(self, memory: WorkingMemory, turns: Sequence[Turn]) -> WorkingMemory:
        schema = working_memory.WORKING_MEMORY_SCHEMA
        check = lambda raw, by: working_memory.validate_model_memory(raw, turns, memory, by=by)  # noqa: E731
        return await self._asked(turns, schema, check) or memory

    async def _asked(
        self, turns: Sequence[Turn], schema: Mapping[str, Any], check: Callable[[str, str], T]
    ) -> T | None:
        """What a model proposes, checked; asked once more when its answer is no JSON. None: the rules have to do."""
        if self.extractor is None or not turns:
            return None
        for _ in range(2):
            try:
                async with asyncio.timeout(SUMMARIZER_SECONDS):
                    raw = await self.extractor.extract(turns, schema)
                return check(raw, f"model:{self.extractor.name}")
            except InvalidInput:
                continue
            except Exception:  # a provider's client may raise anything
                return None
        return None

    def _fact(self, draft: FactDraft) -> Fact:
        return Fact(
            id=self.ids(),
            subject=draft.subject,
            predicate=draft.predicate,
            object=draft.object,
            source_turn=draft.source_turn,
            confidence=draft.confidence,
            valid_from=draft.valid_from,
            by=draft.by,
        )


def _halves(vector: Sequence[float]) -> bytes:
    """A vector as it is stored: half floats."""
    import numpy as np

    return np.asarray(vector, np.float16).tobytes()


def _marks(batch: Sequence[ToEmbed], pause: Pause) -> tuple[tuple[int, int, int], ...]:
    """Which turns hold a standing instruction (2) or a preference (1). Only what a participant says here can be one."""
    from palaver.memory.standing_instructions import standing

    found = []
    for one in iterate_with_pauses(batch, pause):
        kinds = {mark.kind for mark in standing(one.text)} if one.own_words and one.text else set()
        if kinds:
            found.append((one.pid, one.tid, 2 if "instruction" in kinds else 1))
    return tuple(found)


def _span(turns: list[Turn], most_turns: int) -> list[Turn]:
    """No more turns, and no more tokens, than one summary can stand for."""
    tokens, end = 0, 0
    for turn in turns[: max(25, most_turns // 2)]:
        tokens += turn.token_count
        if end and tokens > SPAN_TOKENS:
            break
        end += 1
    if end == len(turns):
        return turns
    return oldest_half(turns, sum(turn.token_count for turn in turns[end:])) or turns
