"""The job `compact`: summaries of older turns, then working memory and facts, then retention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from palaver.memory.compaction import FAN_OUT, SPAN_TURNS, SUMMARY_TOKENS, Compaction, oldest_half, turns_through
from palaver.memory.model_calls import rewrite_order
from palaver.memory.retention import retention_of
from palaver.memory.worker.extraction import Extraction
from palaver.memory.worker.model_calls import CallLimit, Cause
from palaver.memory.worker.services import TRIES, JobServices
from palaver.memory.worker.writers import write_summary
from palaver.model import ConversationInfo, Scope, Summary, Turn
from palaver.models.offline import summarizer, topic_summarizer
from palaver.ports.jobs import Job
from palaver.ports.memory import SummaryDraft, Unsummarised

SPAN_TOKENS = 8_000  # of turns in one summary, at most
FIRST_READ = 2 * SPAN_TOKENS  # tokens of unsummarised turns; four times as many when that does not decide what is due
LONGEST_READ = 2_000_000


async def run(services: JobServices, job: Job, give_way: bool) -> None:
    """Compact the job's conversation; its argument is how many tokens to keep unsummarised."""
    assert job.conversation is not None
    scope = Scope.of(job.tenant, None)
    cause: Cause = "append" if job.argument is None else "context"
    compactor = Compactor(services, scope, job.conversation, CallLimit(services, scope, job.conversation, cause))
    await compactor.compact(job.argument, give_way=give_way)


@dataclass(frozen=True, slots=True)
class Compactor:
    """Writes the summaries of one conversation.

    `through` is the position of the last turn to summarise, due or not. `policy` is used in place of the conversation's
    own settings of compaction, as far as it goes.
    """

    services: JobServices
    scope: Scope
    conversation: str
    limit: CallLimit
    through: int | None = None
    policy: Mapping[str, Any] = field(default_factory=dict)

    async def compact(self, keep: int | None = None, *, force: bool = False, give_way: bool = False) -> int:
        """Write the summaries that are due. Returns how many of them summarise turns.

        `keep` is how many tokens of turns stay unsummarised; `force` summarises the oldest half even if nothing is due.
        """
        written, refused = 0, 0
        while refused < TRIES:
            found = await self._read_unsummarised(keep, force)
            settings = Compaction.of(found.info.settings)
            rebuilt = await self._rebuild_stale(found)
            due = self._choose(found, settings, keep, force) if rebuilt is not None else []
            if rebuilt is None or (due and not await self._summarise(found, due)):
                refused += 1  # the thread changed while a summary was being written
                continue
            written += rebuilt + bool(due)
            asks_now = self.limit.cause != "caller"
            reader = Extraction(self.services, self.scope, self.conversation, self.limit, asks_now)
            await reader.update_working_memory()
            if not due:
                break
            force = False
            await self._merge_summaries(settings)
            if give_way:
                await self.services.throttle.let_writers_go_first()
        await self._rewrite_postponed()
        await self._apply_retention()
        return written

    async def _read_unsummarised(self, keep: int | None, force: bool) -> Unsummarised:
        """Read as many turns as it takes to decide what is due."""
        tokens = FIRST_READ
        while True:
            found = await self._unsummarised(tokens)
            settings = Compaction.of(found.info.settings)
            is_all = settings.strategy == "never" or sum(turn.token_count for turn in found.turns) < tokens
            if is_all or tokens >= LONGEST_READ or self._choose(found, settings, keep, force):
                return found
            tokens *= 4

    def _choose(self, found: Unsummarised, settings: Compaction, keep: int | None, force: bool) -> list[Turn]:
        if self.through is None:
            return _choose_turns(found, settings, keep, force)
        turns = [turn for turn in found.turns if turn.status == "complete" and settings.strategy != "never"]
        wanted = turns_through(turns, self.through)
        return _limit_span(wanted, settings.trigger_turns) if wanted else []

    async def _unsummarised(self, tokens: int) -> Unsummarised:
        found = await self.services.engine.unsummarised(self.scope, self.conversation, tokens)
        if not self.policy:
            return found
        settings = found.info.settings
        compaction = {**(settings.get("compaction") or {}), **self.policy}
        return replace(found, info=replace(found.info, settings={**settings, "compaction": compaction}))

    async def _apply_retention(self) -> None:
        """Delete the words of summarised turns, where the conversation's `retention` asks for it."""
        found = await self._unsummarised(0)
        retention = retention_of(found.info.settings)
        if retention != "full":
            await self._remove_sentences()
        while retention != "full":
            keep_salt = retention == "audit-only"
            removed = await self.services.engine.retire(self.scope, self.conversation, found.position, keep_salt)
            if not removed.turns:
                return

    async def _remove_sentences(self) -> None:
        """Write again what the rules wrote with sentences of turns, before `retention` was set."""
        await Extraction(self.services, self.scope, self.conversation, self.limit).remove_sentences()
        summaries = await self.services.engine.summaries(self.scope, self.conversation, None)
        for old in summaries:
            if old.model.startswith(summarizer.NAME):
                text = topic_summarizer.without_sentences(old.text)
                model = old.model.replace(summarizer.NAME, topic_summarizer.NAME, 1)
                found = await self._unsummarised(0)
                await self._put(self._redraft(old, text, model, old.turns, 0, found.revision))

    # ---- summaries of turns

    async def _summarise(self, found: Unsummarised, turns: list[Turn]) -> bool:
        """Write and store one summary. False when the thread changed since it was read."""
        text, model = await self._summarise_turns(found.info, turns)
        draft = SummaryDraft(
            id=self.services.ids(),
            level=0,
            from_seq=found.position,
            through_seq=turns[-1].position + 1,
            turns=len(turns),
            tokens=sum(turn.token_count for turn in turns),
            text=text,
            token_count=self.services.counter(text),
            model=model,
            revision=found.revision,
        )
        return await self._put(draft)

    async def _summarise_turns(self, info: ConversationInfo, turns: Sequence[Turn]) -> tuple[str, str]:
        clean = await self.services.clean(turns)
        return await write_summary(self.limit, info, lambda writer: writer.summarize(clean, SUMMARY_TOKENS))

    async def _put(self, draft: SummaryDraft) -> bool:
        return await self.services.engine.put_summary(self.scope, self.conversation, draft)

    # ---- stale summaries

    async def _rebuild_stale(self, found: Unsummarised) -> int | None:
        """Rewrite the summaries whose sources have changed, and delete those whose sources are gone.

        Returns how many summaries of turns were written; None when the thread changed since it was read.
        """
        written = 0
        for old in found.stale:
            if not await self._rebuild(found, old):
                return None
            written += old.level == 0
        return written

    async def _rebuild(self, found: Unsummarised, old: Summary) -> bool:
        rebuild = self._rebuild_from_turns if old.level == 0 else self._rebuild_from_summaries
        return await rebuild(found, old)

    async def _rewrite_postponed(self) -> None:
        """Let the model write the summaries that the rules wrote in its place, as far as it may be called now."""
        if self.limit.cause == "caller":
            return  # the application asked for what is due, not for this
        for old in rewrite_order(await self.services.engine.summaries(self.scope, self.conversation, None)):
            found = await self._unsummarised(0)
            if await self.limit.refusal(found.info, waits=self.services.summarizer is None):
                return
            if old.level or await self._has_words(old):
                await self._rebuild(found, old)

    async def _has_words(self, summary: Summary) -> bool:
        """Return whether all turns of a summary still have their words: retention may have removed them."""
        turns = await self.services.engine.span(self.scope, self.conversation, summary.from_seq, summary.through_seq)
        return len(turns) == summary.turns and all(turn.status == "complete" for turn in turns)

    async def _rebuild_from_turns(self, found: Unsummarised, old: Summary) -> bool:
        turns = await self.services.engine.span(self.scope, self.conversation, old.from_seq, old.through_seq)
        if not turns:
            return await self._drop(old)
        text, model = await self._summarise_turns(found.info, turns)
        tokens = sum(turn.token_count for turn in turns)
        return await self._put(self._redraft(old, text, model, len(turns), tokens, found.revision))

    async def _rebuild_from_summaries(self, found: Unsummarised, old: Summary) -> bool:
        below = await self.services.engine.summaries(self.scope, self.conversation, old.level - 1)
        parts = [one for one in below if one.from_seq >= old.from_seq and one.through_seq <= old.through_seq]
        if not parts:
            return await self._drop(old)
        text, model = await self._merge_texts(found.info, parts)
        turns = sum(one.turns for one in parts)
        return await self._put(self._redraft(old, text, model, turns, 0, found.revision))

    async def _drop(self, summary: Summary) -> bool:
        await self.services.engine.drop_summary(self.scope, self.conversation, summary)
        return True

    def _redraft(self, old: Summary, text: str, model: str, turns: int, tokens: int, revision: int) -> SummaryDraft:
        """Return a draft that takes the place of a summary."""
        return SummaryDraft(
            id=self.services.ids(),
            level=old.level,
            from_seq=old.from_seq,
            through_seq=old.through_seq,
            turns=turns,
            tokens=tokens,
            text=text,
            token_count=self.services.counter(text),
            model=model,
            revision=revision,
        )

    # ---- summaries of summaries

    async def _merge_summaries(self, settings: Compaction) -> None:
        """Summarise summaries level by level, so that their number stays small."""
        level = 0
        while True:
            # The revision is read before the parts: if a part is forgotten in between, the merged text is refused.
            found = await self._unsummarised(0)
            parts = await self.services.engine.uncovered(self.scope, self.conversation, level)
            rolling = settings.strategy == "rolling"
            if len(parts) < (1 if rolling else FAN_OUT) or (rolling and level > 0):
                return
            if rolling:
                parts = [*(await self.services.engine.summaries(self.scope, self.conversation, 1)), *parts]
            await self._merge(found, parts, level + 1)
            level += 1

    async def _merge(self, found: Unsummarised, parts: Sequence[Summary], level: int) -> None:
        text, model = await self._merge_texts(found.info, parts)
        draft = SummaryDraft(
            id=self.services.ids(),
            level=level,
            from_seq=parts[0].from_seq,
            through_seq=parts[-1].through_seq,
            turns=sum(one.turns for one in parts),
            tokens=0,
            text=text,
            token_count=self.services.counter(text),
            model=model,
            revision=found.revision,
        )
        await self._put(draft)

    async def _merge_texts(self, info: ConversationInfo, parts: Sequence[Summary]) -> tuple[str, str]:
        return await write_summary(self.limit, info, lambda writer: writer.merge(parts, SUMMARY_TOKENS))


def _choose_turns(found: Unsummarised, settings: Compaction, keep: int | None, force: bool) -> list[Turn]:
    """Return the turns that the next summary covers; none when nothing is due."""
    turns = [turn for turn in found.turns if turn.status == "complete"]
    tokens = sum(turn.token_count for turn in turns)
    if settings.strategy == "never" or not turns:
        return []
    if force or settings.is_due(len(turns), tokens):
        return _limit_span(oldest_half(turns, None), settings.trigger_turns)
    if keep is not None and tokens > keep * 2:
        return _limit_span(oldest_half(turns, keep), settings.trigger_turns)
    return []


def _limit_span(turns: list[Turn], trigger_turns: int) -> list[Turn]:
    """Return as many turns, and tokens, as one summary may cover."""
    tokens, end = 0, 0
    for turn in turns[: max(SPAN_TURNS, trigger_turns // 2)]:
        tokens += turn.token_count
        if end and tokens > SPAN_TOKENS:
            break
        end += 1
    if end == len(turns):
        return turns
    return oldest_half(turns, sum(turn.token_count for turn in turns[end:])) or turns
