"""The context builder: reads what the budget allows, recalls, and hands everything to the pure packer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from palaver.audit.derived import name_of
from palaver.context.cached_counter import CachedCounter
from palaver.context.inputs import Bound, Context, Material, QuoteHints, ReadFile, RecalledTurn
from palaver.context.options import Options
from palaver.context.pack import longest_turn, pack_context
from palaver.context.person_reader import PersonReader
from palaver.context.prefix import fingerprint, identical_prefix
from palaver.context.snapshot import (
    at_bound,
    count_turns,
    cut_off,
    is_far_back,
    is_whole,
    later_turns,
    memory_lines,
    newest_message,
    read_budget,
    shows_standing,
    standing_lines,
    tokens_before,
    turn_size,
    unread_span,
    unread_turns,
    widen,
)
from palaver.core.bounded_dict import BoundedDict
from palaver.core.concurrency import run_in_strides
from palaver.core.identity import micros
from palaver.core.strides import size_of
from palaver.core.turn_draft import decode_content, encode_content, referenced_attachments
from palaver.errors import DatabaseCorrupt, DatabaseFull, DatabaseReadOnly, EngineUnavailable, InvalidInput
from palaver.memory.compaction import Compaction
from palaver.memory.model_calls import IN_USE, is_postponed, postponed_for
from palaver.memory.person_settings import PersonSettings
from palaver.memory.retention import retention_of
from palaver.memory.standing_instructions import MAX_READ
from palaver.memory.working_memory import find_instructions
from palaver.model import WRITE, Attachment, ConversationInfo, Empty, FileQuote, FileText, Note, Scope, Summary, Turn
from palaver.models.offline.condenser import RuleCondenser
from palaver.models.tokens import CharCounter, counter_for
from palaver.ports.conversation import FileTexts
from palaver.ports.damage import describe, merge
from palaver.ports.engine import Engine
from palaver.ports.memory import ContextSnapshot, ReadBudget
from palaver.ports.models import Counter
from palaver.ports.queries import HistoryQuery
from palaver.ports.recall import RecallScope
from palaver.recall.emptiness import NOTHING_ASKED, explain_ranking
from palaver.recall.passages import passage_ends, rank_passages
from palaver.recall.service import RecallService
from palaver.recall.terms import MAX_QUERY

if TYPE_CHECKING:  # numpy is imported when something is recalled, not when a store is opened
    from palaver.recall.ranking import RankedTurn

log = logging.getLogger("palaver.context")  # types and ids only

CANDIDATES, CHOICE = 400, 2  # recall offers at most 400 turns, and at most twice what would fill the budget
FLOOR = 0.1  # the least relevance of a recalled turn, unless the caller sets another: docs/explanation/recall.md
STANDING = 20  # standing instructions that it offers in addition
PAGE, MOST_BACK = 200, 10_000  # turns per read, and in all, before a question that lies far back
MOST_UNSUMMARISED = 200  # turns that are read before the tail because they have no summary yet
CACHED_SPEAKERS = 4_096  # summaries whose speakers are known
UNREAD = 2_000  # turns that are searched for standing instructions for one context
PLAIN_TURNS = 20_000  # ids of turns without standing instructions that are kept
SWITCHED_OFF = Empty("switched off", "recall is turned off by the options or the policy")
ALL_SHOWN = Empty("all shown", "every relevant turn is already in the context")
CACHED_CONTEXTS = 256  # prompts whose fingerprints and recalled turns are kept


@dataclass(frozen=True, slots=True)
class _Question:
    """The message to answer, and whether the context is being built again after a tool call."""

    text: str
    key: Hashable
    is_rebuild: bool

    @classmethod
    def of(cls, scope: Scope, options: Options, snapshot: ContextSnapshot, message: Turn | None) -> _Question:
        current = message or snapshot.current
        text = options.query or (current.text if current else "")
        hashable = options if options.message is None else replace(options, message=None)
        key = (scope, snapshot.info.id, current and (current.id, current.text), hashable)
        is_stored = message is None and current is not None
        behind = [turn for turn in snapshot.tail[-1:] if current is not None and turn.position > current.position]
        return cls(text, key, is_stored and bool(behind))


@dataclass(frozen=True, slots=True)
class _Recall:
    """The turns that recall offers, with their text, a note on how they were found, and hints for quoting them."""

    offered: tuple[tuple[RankedTurn, RecalledTurn], ...]
    note: str
    hints: QuoteHints = field(default_factory=QuoteHints)
    room: int = 0
    empty: Empty | None = None  # why nothing is offered


@dataclass(frozen=True, slots=True)
class _Found:
    """The same without texts, as it is kept for the next prompt of the same answer."""

    turns: tuple[RankedTurn, ...]
    note: str
    hints: QuoteHints
    room: int = 0  # that the quotations took
    empty: Empty | None = None


@dataclass(frozen=True, slots=True)
class _Searched:
    """The standing instructions of the turns at [`low`, `high`), with their positions.

    `stamp` is the revision of the thread, which changes when a turn is edited or forgotten, and where reading begins.
    """

    stamp: tuple[int, int]
    low: int
    high: int
    found: tuple[tuple[int, Note], ...] = ()


@dataclass(slots=True)
class ContextBuilder:
    """Builds the contexts of one open store."""

    engine: Engine
    recall: RecallService
    counter: Counter
    person: PersonSettings = field(default_factory=PersonSettings)
    _frozen: BoundedDict[Hashable, _Found] = field(default_factory=lambda: BoundedDict(CACHED_CONTEXTS))
    _file_rooms: BoundedDict[Hashable, int] = field(default_factory=lambda: BoundedDict(CACHED_CONTEXTS))
    _previous: BoundedDict[Hashable, list[int]] = field(default_factory=lambda: BoundedDict(CACHED_CONTEXTS))
    _asked: BoundedDict[Hashable, tuple[date, frozenset[str]]] = field(
        default_factory=lambda: BoundedDict(CACHED_CONTEXTS)
    )
    _speakers: BoundedDict[str, frozenset[str]] = field(default_factory=lambda: BoundedDict(CACHED_SPEAKERS))
    _searched: BoundedDict[Hashable, _Searched] = field(default_factory=lambda: BoundedDict(CACHED_CONTEXTS))
    _plain: BoundedDict[str, None] = field(default_factory=lambda: BoundedDict(PLAIN_TURNS))
    _counters: dict[str, CachedCounter] = field(default_factory=dict)
    _condensers: dict[str, RuleCondenser] = field(default_factory=dict)

    async def build(
        self,
        scope: Scope,
        conversation: str,
        options: Options,
        bound: Bound | None = None,
        files: FileTexts | None = None,
    ) -> Context:
        """Build a context for the newest message, or for the one that it is bound to. `files` reads its files."""
        count = self._counter(options)
        snapshot = await self._read(scope, conversation, read_budget(options), bound)
        snapshot = await self._read_unsummarised(scope, snapshot)
        message = await self._unstored_message(scope, conversation, options)
        question = _Question.of(scope, options, snapshot, message)
        recall = await self._recall(scope, options, snapshot, question, bound)
        material = self._material(options, snapshot, message, recall, count)
        material = await PersonReader(self.engine, self.person).add(
            scope, material, snapshot.info, options, question.text, bound
        )
        hidden = await self._summaries_of_others(scope, options, snapshot)
        material = replace(material, summaries=tuple(one for one in snapshot.summaries if one not in hidden))
        material = await self._add_files(material, question, files)
        context = await self._pack(scope, options, snapshot, material, count)
        context = _note_hidden(_note_postponed(context, snapshot), hidden)
        context = _note_refused(_note_damage(context, snapshot), snapshot)
        context = _explain_empty(context, recall)
        if options.preview:  # nothing follows from it: no compaction, and no other context is compared with it
            return context
        self._freeze(question, recall, context)
        await self._request_jobs(scope, snapshot, context)
        return self._compare(scope, conversation, options, context)

    def _counter(self, options: Options) -> Counter:
        if options.char_budget is not None:
            return CharCounter()
        counter = self.counter if options.model is None else counter_for(options.model)
        if counter.name not in self._counters:
            self._counters[counter.name] = CachedCounter(counter.name, counter)
        return self._counters[counter.name]

    def _condenser(self, count: Counter) -> RuleCondenser:
        if count.name not in self._condensers:
            self._condensers[count.name] = RuleCondenser(count)
        return self._condensers[count.name]

    def _material(
        self, options: Options, snapshot: ContextSnapshot, message: Turn | None, recall: _Recall, count: Counter
    ) -> Material:
        return Material(
            turn_count=count_turns(snapshot),
            owner=snapshot.info.owner,
            participants=snapshot.info.participants,
            conversation=snapshot.info.id,
            tail=snapshot.tail,
            current=None if message is not None else snapshot.current,
            message=message,
            summaries=snapshot.summaries,
            memory_lines=memory_lines(snapshot, options),
            facts=snapshot.facts,
            recalled=tuple(recalled for _, recalled in recall.offered),
            recall_note=recall.note,
            hints=recall.hints,
            recall_room=recall.room,
            counter=count.name,
            counted=count.name == self.counter.name,
            tokens_before=tokens_before(snapshot),
            summarized=snapshot.summarized_position,
            reads_from_start=is_whole(snapshot),
            compacts=Compaction.of(snapshot.info.settings).strategy != "never",
            condenser=self._condenser(count),
            revision=snapshot.revision,
        )

    async def _add_files(self, material: Material, question: _Question, files: FileTexts | None) -> Material:
        """Add the files of the current message, with their text."""
        current = material.message or material.current
        if files is None or current is None or not current.attachments:
            return material
        texts = await files.texts(current.attachments)
        # Splitting and ranking a million characters takes a tenth of a second.
        read = await asyncio.to_thread(_rank_all, current.attachments, texts, question.text)
        room = self._file_rooms.get(question.key) if question.is_rebuild else None
        return replace(material, files=tuple(read), file_room=room)

    async def _summaries_of_others(self, scope: Scope, options: Options, snapshot: ContextSnapshot) -> list[Summary]:
        """Return the summaries of spans in which a participant spoke who is filtered out: they may quote it."""
        wanted = options.filter_participants
        if wanted is None:
            return []
        # A summary never changes: one that is written again has another id.
        unknown = [one for one in snapshot.summaries if one.id not in self._speakers]
        spans = [(one.from_seq, one.through_seq) for one in unknown]
        retired = retention_of(snapshot.info.settings) != "full"
        found = await self.engine.speakers(scope, snapshot.info.id, spans, retired) if spans else []
        known = {one.id: actors for one, actors in zip(unknown, found, strict=True)}
        known |= {one.id: self._speakers[one.id] for one in snapshot.summaries if one.id in self._speakers}
        for id, actors in known.items():
            self._speakers[id] = actors
        return [one for one in snapshot.summaries if not known[one.id] <= wanted]

    # ---- standing instructions

    async def _pack(
        self, scope: Scope, options: Options, snapshot: ContextSnapshot, material: Material, count: Counter
    ) -> Context:
        """Pack the context, with the standing instructions of turns that are neither in working memory nor shown.

        An instruction in the memory block takes room from the window, so turns may fall out of it: then again.
        """
        size = _longest_text(material)
        if not shows_standing(options):
            return await run_in_strides(lambda: pack_context(material, options, count), size)
        older, unknown = await self._search_older(scope, snapshot)
        seen: set[str] = set()
        found: list[tuple[int, Note]] = list(older)
        while True:
            notes = [note for _, note in sorted(found, key=lambda one: one[0])]
            whole = replace(material, standing=standing_lines(snapshot, options, notes))
            context = await run_in_strides(partial(pack_context, whole, options, count), size)
            fallen = [turn for turn in unread_turns(snapshot, context) if turn.id not in seen]
            seen.update(turn.id for turn in fallen)
            more = await self._find_instructions(fallen)
            if not more:
                return _note_unknown(context, unknown)
            found += more

    async def _search_older(self, scope: Scope, snapshot: ContextSnapshot) -> tuple[list[tuple[int, Note]], int]:
        """Find the standing instructions of turns between working memory and the tail.

        A long span is searched from its end, some more of it with each context; the second value is how many turns are
        left. Where compaction reads the turns, the span is short.
        """
        start, end = unread_span(snapshot)
        if start >= end:
            return [], 0
        key, stamp = (scope.tenant, snapshot.info.id), (snapshot.revision, start)
        known = self._searched.get(key)
        if known is None or known.stamp != stamp or known.low > end:
            known = _Searched(stamp, end, end)
        low, high = max(start, known.low - UNREAD), max(end, known.high)
        older = await self._search_span(scope, snapshot.info.id, low, known.low)
        newer = await self._search_span(scope, snapshot.info.id, known.high, high)
        self._searched[key] = known = _Searched(stamp, low, high, (*older, *known.found, *newer))
        return [one for one in known.found if one[0] < end], low - start

    async def _search_span(self, scope: Scope, conversation: str, start: int, end: int) -> list[tuple[int, Note]]:
        return (
            await self._find_instructions(await self.engine.span(scope, conversation, start, end))
            if start < end
            else []
        )

    async def _find_instructions(self, turns: Sequence[Turn]) -> list[tuple[int, Note]]:
        """Find the standing instructions of turns, with their positions. Turns without any are not searched again."""
        unknown = [turn for turn in turns if turn.id not in self._plain]
        size = sum(min(len(turn.text), MAX_READ) for turn in unknown)
        found = await run_in_strides(lambda: [find_instructions(turn) for turn in unknown], size)
        for turn, notes in zip(unknown, found, strict=True):
            if not notes:
                self._plain[turn.id] = None
        return [(turn.position, note) for turn, notes in zip(unknown, found, strict=True) for note in notes]

    # ---- jobs

    async def _request_jobs(self, scope: Scope, snapshot: ContextSnapshot, context: Context) -> None:
        """Enqueue compaction and repair. A database that cannot be written now can still be read."""
        try:
            await self._request_compaction(scope, snapshot, context)
            if (snapshot.damage or snapshot.refused) and WRITE in scope.rights:
                await self.engine.add_job(scope, snapshot.info.id, "repair", None)
        except (DatabaseFull, DatabaseReadOnly, DatabaseCorrupt, EngineUnavailable) as problem:
            log.warning("no job was enqueued for conversation %s (%s)", snapshot.info.id, type(problem).__name__)

    async def _request_compaction(self, scope: Scope, snapshot: ContextSnapshot, context: Context) -> None:
        compacts = Compaction.of(snapshot.info.settings).strategy != "never"
        if not compacts or WRITE not in scope.rights:  # adding a job is a write
            return
        postponed = self._newly_postponed(scope, snapshot)
        if context.outgrown is not None or postponed:
            argument = IN_USE if context.outgrown is None else context.outgrown
            await self.engine.add_job(scope, snapshot.info.id, "compact", argument)

    def _newly_postponed(self, scope: Scope, snapshot: ContextSnapshot) -> bool:
        """Return whether a model may now write what the rules wrote in its place. Asked once a day while it waits."""
        waiting = frozenset(one.id for one in snapshot.summaries if is_postponed(one.model))
        key, asked = (scope.tenant, snapshot.info.id), (self.recall.clock.now().date(), waiting)
        if not waiting or self._asked.get(key) == asked:
            return False
        self._asked[key] = asked
        return True

    def _compare(self, scope: Scope, conversation: str, options: Options, context: Context) -> Context:
        """Note how much of the prompt is the same as in the previous one of this kind."""
        key = (scope.tenant, conversation, options.policy.name, options.viewer, options.budget)
        previous = self._previous.get(key)
        self._previous[key] = prints = [fingerprint(message) for message in context.messages]
        if previous is None:
            return context
        share = identical_prefix(previous, prints, context.messages)
        return replace(context, explanation=replace(context.explanation, identical_prefix=share))

    # ---- reading

    async def _read(self, scope: Scope, conversation: str, budget: ReadBudget, bound: Bound | None) -> ContextSnapshot:
        """Read a snapshot, without everything that came after the turn that the context is bound to."""
        snapshot = await self.engine.context_snapshot(scope, conversation, budget)
        if bound is None:
            return snapshot
        if is_far_back(snapshot, bound):
            snapshot = await self._read_back_there(scope, conversation, budget, snapshot, bound)
        later, known = later_turns(snapshot, bound), 0
        while len(later) > known and not is_whole(snapshot):  # later turns took the room of earlier ones
            known = len(later)
            snapshot = await self.engine.context_snapshot(scope, conversation, widen(budget, later))
            later = later_turns(snapshot, bound)
        return cut_off(snapshot, bound, await self._find_current(scope, conversation, budget.viewer, snapshot, bound))

    async def _read_unsummarised(self, scope: Scope, snapshot: ContextSnapshot) -> ContextSnapshot:
        """Read the turns between the last summary and the tail too: until they have a summary, rules write one."""
        start, end = snapshot.summarized_position, snapshot.tail[0].position if snapshot.tail else 0
        compacts = Compaction.of(snapshot.info.settings).strategy != "never"
        if not compacts or not 0 < end - start <= MOST_UNSUMMARISED:
            return snapshot
        span = await self.engine.span(scope, snapshot.info.id, start, end)
        older = (turn for turn in span if turn.status == "complete" and turn.active)
        return replace(snapshot, tail=(*older, *snapshot.tail))

    async def _read_back_there(
        self, scope: Scope, conversation: str, budget: ReadBudget, snapshot: ContextSnapshot, bound: Bound
    ) -> ContextSnapshot:
        """Read the turns up to the bound, page by page, in place of those at the end of the thread."""
        size = turn_size(in_characters=budget.in_characters)
        found: list[Turn] = []
        left, cursor, is_more = budget.budget, bound.turn.id, True
        while is_more and left >= 0 and len(found) < MOST_BACK:
            page = await self.engine.history(scope, conversation, HistoryQuery(limit=PAGE, before=cursor))
            for turn in reversed(page):
                found.append(turn)
                left -= size(turn)
            is_more = len(page) == PAGE
            cursor = page[0].id if page else cursor
        query = HistoryQuery(limit=PAGE, after=bound.turn.id)
        following = await self.engine.history(scope, conversation, query)
        return at_bound(snapshot, bound, found[::-1], following)

    async def _find_current(
        self, scope: Scope, conversation: str, viewer: str | None, snapshot: ContextSnapshot, bound: Bound
    ) -> Turn | None:
        """Return the message to answer, as stored now. It is still answered if it was replaced, but not if deleted."""
        kept = [turn for turn in snapshot.tail if not bound.excludes(turn)]
        if not bound.is_question:
            newest = snapshot.current
            return newest if newest is None or not bound.excludes(newest) else newest_message(kept, viewer)
        stored = next((turn for turn in kept if turn.id == bound.turn.id), None)
        return stored or await self.engine.turn(scope, conversation, bound.turn.id)

    async def _unstored_message(self, scope: Scope, conversation: str, options: Options) -> Turn | None:
        """Return the current message as a turn, if it is given as an option instead of being stored."""
        if options.message is None:
            return None
        text, is_parts = encode_content(options.message)
        content = decode_content(text, is_parts)
        named = [await self.engine.attachment(scope, conversation, id) for id in referenced_attachments(content)]
        return Turn(
            id="",
            conversation="",
            seq=-1,
            position=2**62,
            role="user",
            actor=scope.user or "user",
            content=content,
            created=datetime.now(UTC),
            attachments=tuple(named),
        )

    # ---- recall

    async def _recall(
        self, scope: Scope, options: Options, snapshot: ContextSnapshot, question: _Question, bound: Bound | None
    ) -> _Recall:
        if not options.wants_recall:
            return _Recall((), "off", empty=SWITCHED_OFF)
        if not question.text.strip():
            return _Recall((), "there is no text to search for", empty=NOTHING_ASKED)
        frozen = self._frozen.get(question.key) if question.is_rebuild else None
        found = frozen or await self._rank(scope, options, snapshot, question.text, bound)
        offered = await self._read_recalled(scope, options, found.turns, question.text)
        kept = [one for one in offered if bound is None or not bound.excludes(one[1].turn)]
        # The current message is always in, and so are its files.
        current = snapshot.current.id if snapshot.current is not None and options.message is None else None
        others = tuple(one for one in kept if one[1].turn.id != current)
        foreign = "" if frozen else self.recall.describe_languages([what.turn.text for _, what in others])
        return _Recall(others, found.note + foreign, found.hints, found.room, found.empty)

    def _freeze(self, question: _Question, recall: _Recall, context: Context) -> None:
        """Keep the quoted turns and the room of files for the tool rounds of this message.

        So the prompt before the rounds stays the same.
        """
        if question.is_rebuild:
            return
        if context.file_room is not None:
            self._file_rooms[question.key] = context.file_room
        quoted = context.quoted
        by_id = {what.turn.id: one for one, what in recall.offered}
        kept = tuple(replace(by_id[id], turn_id=id, spans=spans) for id, spans in quoted.items() if id in by_id)
        room = sum(block.tokens for block in context.explanation.blocks if block.kind == "recalled")
        self._frozen[question.key] = _Found(kept, recall.note, recall.hints, room, recall.empty)

    async def _rank(
        self, scope: Scope, options: Options, snapshot: ContextSnapshot, text: str, bound: Bound | None
    ) -> _Found:
        """Find turns that fit the text."""
        where = recall_scope_for(options.recall_scope, snapshot.info)
        stored = snapshot.current if options.message is None else None
        asked = bound.turn if bound is not None else stored
        # In other conversations positions mean nothing; later turns of those are left out once they are read.
        through = bound.turn.position if bound is not None and where.conversation is not None else None
        own = None if asked is None else (micros(asked.created), asked.position)
        ranking = await self.recall.rank(scope, where, text[:MAX_QUERY], CANDIDATES, through=through, asked=own)
        floor = FLOOR if options.recall_threshold is None else options.recall_threshold
        offered = ranking.offer(options.budget * CHOICE, longest_turn(options), floor, STANDING)
        note = ranking.note
        if ranking.best_relevance < floor and len(ranking.order):
            note += f"; nothing is relevant ({ranking.best_relevance:.2f} at best, floor {floor:g})"
        empty = None if offered else explain_ranking(ranking, floor, embeds=self.recall.embedder is not None)
        hints = QuoteHints(
            ranking.hints.rarity, ranking.hints.asks_assistant, ranking.hints.collects, ranking.hints.past
        )
        return _Found(offered, note, hints, empty=empty)

    async def _read_recalled(
        self, scope: Scope, options: Options, found: Sequence[RankedTurn], text: str
    ) -> list[tuple[RankedTurn, RecalledTurn]]:
        """Read the turns that were found, as they are stored now, and fitting passages of their files."""
        turns = await self.engine.turns_by_number(scope, [one.tid for one in found])
        quotes = await self.recall.quotes(scope, turns, text)
        wanted = options.filter_participants
        return [
            (one, _recalled(one, turn, quotes.get(one.tid)))
            for one in found
            if (turn := turns.get(one.tid)) is not None
            and one.turn_id in (None, turn.id)
            and (wanted is None or turn.actor in wanted)
        ]


def _explain_empty(context: Context, recall: _Recall) -> Context:
    """Say why the context quotes no recalled turn."""
    explanation = context.explanation
    if any(block.kind == "recalled" for block in explanation.blocks):
        return context
    empty = recall.empty
    if empty is None:
        shown = {id for block in explanation.blocks for id in block.turn_ids}
        left = [what for _, what in recall.offered if what.turn.id not in shown]
        empty = (
            Empty("no room", f"{len(left):,} turns match the question, but none fits the budget") if left else ALL_SHOWN
        )
    return replace(context, explanation=replace(explanation, empty=empty))


def _recalled(one: RankedTurn, turn: Turn, quote: FileQuote | None) -> RecalledTurn:
    return RecalledTurn(turn, one.score, one.parts, one.standing, quote, one.relevance, one.place, one.spans)


def _longest_text(material: Material) -> int:
    """Return the characters of the longest text in the material: packing many short ones is quick."""
    turns = chain(material.tail, (one.turn for one in material.recalled))
    given = (turn for turn in (material.message, material.current) if turn is not None)
    return max((size_of(turn) for turn in chain(turns, given)), default=0)


def _note_unknown(context: Context, turns: int) -> Context:
    """Let the explanation say in how many turns standing instructions were not looked for yet."""
    if not turns:
        return context
    note = f"standing instructions of {turns:,} older turns are not known yet: each context searches some more of them"
    return replace(context, explanation=replace(context.explanation, notes=(*context.explanation.notes, note)))


def _note_damage(context: Context, snapshot: ContextSnapshot) -> Context:
    """Let the explanation say which rows of memory were left out because they are damaged."""
    if not snapshot.damage:
        return context
    note = f"damaged and left out ({describe(merge(snapshot.damage))}): they are being rebuilt from the turns"
    return replace(context, explanation=replace(context.explanation, notes=(*context.explanation.notes, note)))


def _note_refused(context: Context, snapshot: ContextSnapshot) -> Context:
    """Let the explanation name the rows of memory that are left out because the log says something else of them."""
    if not snapshot.refused:
        return context
    which = ", ".join(name_of(key) for key in snapshot.refused)
    note = f"damaged and left out, because it does not match the log: {which}"
    return replace(context, explanation=replace(context.explanation, notes=(*context.explanation.notes, note)))


def _note_postponed(context: Context, snapshot: ContextSnapshot) -> Context:
    """Let the explanation say how many summaries the rules wrote because no model was to be called."""
    reasons = [reason for one in snapshot.summaries if (reason := postponed_for(one.model))]
    if not reasons:
        return context
    why = ", ".join(sorted(set(reasons)))
    note = f"{len(reasons)} of the summaries were written by rules ({why}): a model may write them again later"
    return replace(context, explanation=replace(context.explanation, notes=(*context.explanation.notes, note)))


def _note_hidden(context: Context, hidden: Sequence[Summary]) -> Context:
    """Let the explanation say which summaries are left out. Their turns are summarised: nothing has to be compacted."""
    if not hidden:
        return context
    which = "1 summary" if len(hidden) == 1 else f"{len(hidden)} summaries"
    start, end = min(one.from_seq for one in hidden), max(one.through_seq for one in hidden)
    note = f"{which} of turns {start} to {end - 1} left out, because participants who are filtered out spoke there"
    explanation = replace(context.explanation, notes=(*context.explanation.notes, note))
    return replace(context, explanation=explanation, outgrown=None)


def recall_scope_for(kind: str, info: ConversationInfo) -> RecallScope:
    """Return the conversations to search: this one, all of its owner's, or the tenant's, as far as they are visible."""
    if kind == "conversation":
        return RecallScope(conversation=info.id)
    if kind == "owner":
        return RecallScope(owner=info.owner)
    if kind == "tenant":
        return RecallScope()
    raise InvalidInput("scope", "must be conversation, owner or tenant")


def _rank_all(files: Sequence[Attachment], texts: Sequence[FileText | None], question: str) -> list[ReadFile]:
    return [read_file(file, text, question) for file, text in zip(files, texts, strict=True)]


def read_file(file: Attachment, found: FileText | None, question: str) -> ReadFile:
    """Split the text of a file into passages, and find those that fit the question."""
    if found is None or not found.text:
        return ReadFile(attachment=file, problem=None if found is None else found.problem or "")
    text, ends = found.text, passage_ends(found.text)
    passages = [text[start:end] for start, end in pairwise((0, *ends))]
    return ReadFile(attachment=file, text=text, ends=ends, ranking=rank_passages(passages, question))
