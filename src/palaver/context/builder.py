"""Building a context: read what the budget allows, recall, and hand it all to the pure packer."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from palaver.context import render
from palaver.context.inputs import Bound, Context, Material, Recalled
from palaver.context.options import OVERHEAD_TOKENS, ContextOptions, Options, policy_named, with_budget
from palaver.context.pack import covering_summaries, pack_context
from palaver.context.window import ROOM
from palaver.core.identity import canonical_json
from palaver.core.turn_draft import decode_content, encode_content
from palaver.core.validation import clean_name, clean_text
from palaver.errors import InvalidInput
from palaver.memory import working_memory
from palaver.memory.compaction import Compaction
from palaver.memory.retention import retention_of
from palaver.model import WRITE, ConversationInfo, Scope, Turn
from palaver.models.tokens import CharCounter, counter_for
from palaver.ports.engine import Engine
from palaver.ports.memory import ContextSnapshot, ReadBudget
from palaver.ports.models import Counter
from palaver.ports.recall import RecallScope
from palaver.recall.service import MAX_QUERY, RecallService

FACTS = 40
STANDING = 20  # instructions that it offers besides
CANDIDATES, CHOICE = 400, 2  # turns that recall offers to the packer: this many, or twice what would fill the budget
COUNTS = 50_000
REMEMBERED = 256  # contexts whose text is kept, to tell how much of the next one is the same


@dataclass(frozen=True, slots=True)
class _Found:
    """What recall found, without the words: they are read again each time, so that what is forgotten is gone."""

    tid: int
    score: float
    parts: dict[str, float]
    standing: bool
    turn: str | None = None  # whose number it was; numbers are given out again


@dataclass(frozen=True, slots=True)
class _Asked:
    """The message that a context is for, and whether its answer has begun: with a tool call, and one is built again."""

    text: str
    key: Any
    is_again: bool

    @classmethod
    def of(cls, scope: Scope, options: Options, reading: ContextSnapshot, message: Turn | None) -> _Asked:
        current = message or reading.current
        text = options.query or (current.text if current else "")
        asked = options if options.message is None else replace(options, message=None)
        key = (scope, reading.info.id, current and (current.id, current.text), asked)
        behind = reading.tail[-1:] if message is None and current is not None else ()
        return cls(text, key, any(turn.position > current.position for turn in behind if current))


@dataclass(slots=True)
class Remembering:
    """A counter that knows what it counted lately: most of a prompt is as it was before. It keeps no text."""

    counter: Counter
    _counts: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.counter.name

    def __call__(self, text: str) -> int:
        key = (len(text), hash(text))
        count = self._counts.get(key)
        if count is None:
            if len(self._counts) >= COUNTS:
                self._counts.clear()
            count = self._counts[key] = self.counter(text)
        return count


@dataclass(slots=True)
class ContextBuilder:
    """What one open store needs to build contexts."""

    engine: Engine
    recaller: RecallService
    counter: Counter
    _frozen: OrderedDict[Any, tuple[tuple[_Found, ...], str]] = field(default_factory=OrderedDict)
    _previous: OrderedDict[Any, list[int]] = field(default_factory=OrderedDict)
    _counters: dict[str, Remembering] = field(default_factory=dict)

    async def build(self, scope: Scope, conversation: str, options: Options, bound: Bound | None = None) -> Context:
        count = self._counter(options)
        limits = ReadBudget(
            budget=options.budget,
            summarised=_worth_reading(options),
            in_characters=options.char_budget is not None,
            viewer=options.viewer,
            facts=FACTS if options.include_facts else 0,
        )
        reading = await self._read(scope, conversation, limits, bound)
        message = _message(options.message, scope)
        asked = _Asked.of(scope, options, reading, message)
        offered, note = await self._recalled(scope, options, reading, asked, bound)
        material = Material(
            turn_count=reading.info.turn_count + _retired(reading),
            owner=reading.info.owner,
            conversation=conversation,
            tail=reading.tail,
            current=None if message is not None else reading.current,
            message=message,
            summaries=reading.summaries,
            memory_lines=_memory_lines(reading, options),
            facts=reading.facts,
            recalled=tuple(recalled for _, recalled in offered),
            recall_note=note,
            counter=count.name,
            counted=count.name == self.counter.name,
            revision=reading.revision,
        )
        context = pack_context(material, options, count)
        if options.preview:
            return context  # no compaction for a budget that somebody only tries, and nothing is compared with it
        self._freeze(asked, offered, note, context)
        compacts = Compaction.of(reading.info.settings).strategy != "never"
        if context.outgrown is not None and compacts and WRITE in scope.rights:  # a job is a write
            await self.engine.add_job(scope, conversation, "compact", context.outgrown)
        return self._compared(scope, conversation, options, context)

    def _counter(self, options: Options) -> Counter:
        if options.char_budget is not None:
            return CharCounter()
        counter = self.counter if options.model is None else counter_for(options.model)
        if counter.name not in self._counters:
            self._counters[counter.name] = Remembering(counter)
        return self._counters[counter.name]

    # ---- what came before the question

    async def _read(self, scope: Scope, conversation: str, limits: ReadBudget, bound: Bound | None) -> ContextSnapshot:
        """The reading for a context, without what came after the turn that it is bound to."""
        reading = await self.engine.reading(scope, conversation, limits)
        if bound is None:
            return reading
        later, known = _later(reading, bound), 0
        while len(later) > known and not _is_whole(reading):  # they have taken room that is for earlier turns
            known = len(later)
            reading = await self.engine.reading(scope, conversation, _widened(limits, later))
            later = _later(reading, bound)
        kept = tuple(turn for turn in reading.tail if not bound.excludes(turn))
        gone = frozenset(turn.id for turn in later)
        return replace(
            reading,
            info=replace(reading.info, turn_count=_turns_through(reading, kept)),
            tail=kept,
            current=await self._current(scope, conversation, limits.viewer, kept, bound, reading.current),
            working_memory=_without_later_notes(reading.working_memory, gone),
            facts=tuple(fact for fact in reading.facts if fact.source_turn not in gone),
        )

    async def _current(
        self,
        scope: Scope,
        conversation: str,
        viewer: str | None,
        kept: Sequence[Turn],
        bound: Bound,
        found: Turn | None,
    ) -> Turn | None:
        """The message to answer, as it is stored now: one that was replaced is still answered, a deleted one is not."""
        if not bound.is_question:
            return found if found is None or not bound.excludes(found) else _newest_message(kept, viewer)
        stored = next((turn for turn in kept if turn.id == bound.turn.id), None)
        return stored or await self.engine.turn(scope, conversation, bound.turn.id)

    # ---- recall

    async def _recalled(
        self, scope: Scope, options: Options, reading: ContextSnapshot, asked: _Asked, bound: Bound | None
    ) -> tuple[list[tuple[_Found, Recalled]], str]:
        if not options.wants_recall or not asked.text.strip():
            return [], "off" if not options.wants_recall else "nothing to look for"
        kept = self._frozen.get(asked.key) if asked.is_again else None
        found, note = kept or await self._look(scope, options, reading.info, asked.text, bound)
        offered = await self._quoted(scope, options, found, asked.text)
        if bound is not None:
            offered = [(one, recalled) for one, recalled in offered if not bound.excludes(recalled.turn)]
        return offered, note

    def _freeze(self, asked: _Asked, offered: list[tuple[_Found, Recalled]], note: str, context: Context) -> None:
        """What is quoted for a message stays so through its tool rounds: they must not change what stands before."""
        if not asked.is_again:
            quoted = {id for block in context.explanation.blocks if block.kind == "recalled" for id in block.turn_ids}
            kept = tuple(replace(one, turn=what.turn.id) for one, what in offered if what.turn.id in quoted)
            _keep(self._frozen, asked.key, (kept, note))

    async def _look(
        self, scope: Scope, options: Options, info: ConversationInfo, text: str, bound: Bound | None
    ) -> tuple[tuple[_Found, ...], str]:
        """What speaks to the text, and how it was looked for."""
        where = recall_scope_for(options.recall_scope, info)
        # Elsewhere positions mean nothing, and what is later is left out once it is read.
        through = bound.turn.position if bound is not None and where.conversation is not None else None
        ranking = await self.recaller.rank(scope, where, text[:MAX_QUERY], CANDIDATES, through=through)
        profile, scores = ranking.profile, ranking.scores
        offered = ranking.order[: _as_many_as_fit(profile.tokens[ranking.order], options.budget * CHOICE)]
        if options.recall_threshold is not None:
            offered = offered[scores.total[offered] >= options.recall_threshold]
        standing = ranking.standing(STANDING)
        chosen, standings = list(dict.fromkeys([*offered.tolist(), *standing])), set(standing)
        parts = zip(*(values[chosen].round(4).tolist() for values in scores.named.values()), strict=True)
        columns = (chosen, profile.tid[chosen].tolist(), scores.total[chosen].tolist(), parts)
        found = (
            _Found(tid, total, dict(zip(scores.named, values, strict=True)), i in standings)
            for i, tid, total, values in zip(*columns, strict=True)
        )
        return tuple(found), ranking.note

    async def _quoted(
        self, scope: Scope, options: Options, found: tuple[_Found, ...], text: str
    ) -> list[tuple[_Found, Recalled]]:
        """What was found, with the words as they are stored now, and what files say to it."""
        turns = await self.engine.turns_by_number(scope, [one.tid for one in found])
        quotes = await self.recaller.quotes(scope, turns, text)
        wanted = options.filter_participants
        return [
            (one, Recalled(turn, one.score, one.parts, one.standing, quotes.get(one.tid)))
            for one in found
            if (turn := turns.get(one.tid)) is not None
            and one.turn in (None, turn.id)
            and (wanted is None or turn.actor in wanted)
        ]

    # ---- how much is the same

    def _compared(self, scope: Scope, conversation: str, options: Options, context: Context) -> Context:
        key = (scope.tenant, conversation, options.policy.name, options.viewer, options.budget)
        previous = self._previous.get(key)
        marks = [_mark(message) for message in context.messages]
        _keep(self._previous, key, marks)
        if previous is None:
            return context
        same = _same(previous, marks)
        share = _share(context.messages, same)
        return replace(context, explanation=replace(context.explanation, identical_prefix=share))


def _mark(message: dict[str, Any]) -> int:
    """A number that tells one message from another, for as long as this process lives."""
    content = message["content"]
    if isinstance(content, str) and len(message) == 2:
        return hash((message["role"], content))
    return hash(canonical_json(message))


def identical_prefix(before: list[dict[str, Any]], now: list[dict[str, Any]], count: Counter) -> float:
    """The share of the prompt's tokens that are the same, from its start, as in the prompt before.

    A provider's cache goes by tokens: the beginning of the first message that differs counts as well.
    """
    same = _same(before, now)
    costs = [count(render.message_text(message)) + OVERHEAD_TOKENS for message in now]
    kept = sum(costs[:same])
    if same < min(len(before), len(now)) and before[same]["role"] == now[same]["role"]:
        kept += count(_beginning(render.message_text(before[same]), render.message_text(now[same])))
    return kept / sum(costs) if costs else 0.0


def _beginning(one: str, other: str) -> str:
    """What two texts have in common, from their start."""
    return one[: _same(one, other)]


def _same(before: Sequence[object], now: Sequence[object]) -> int:
    return next(
        (n for n, (old, new) in enumerate(zip(before, now, strict=False)) if old != new), min(len(before), len(now))
    )


def _share(messages: Sequence[dict[str, Any]], same: int) -> float:
    """By characters: counting tokens would cost more than the rest."""
    costs = [_size(message) + OVERHEAD_TOKENS for message in messages]
    return sum(costs[:same]) / sum(costs) if costs else 0.0


def _size(message: dict[str, Any]) -> int:
    content = message["content"]
    return len(content if isinstance(content, str) and len(message) == 2 else render.message_text(message))


def _keep(cache: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    cache.pop(key, None)
    cache[key] = value
    while len(cache) > REMEMBERED:
        cache.popitem(last=False)


def _as_many_as_fit(costs: Any, budget: int) -> int:
    return int(costs.cumsum().searchsorted(budget, "right"))


def recall_scope_for(kind: str, info: ConversationInfo) -> RecallScope:
    """The conversations to look at: this one, all of its owner's, or the tenant's; as far as the scope may see them."""
    if kind == "conversation":
        return RecallScope(conversation=info.id)
    if kind == "owner":
        return RecallScope(owner=info.owner)
    if kind == "tenant":
        return RecallScope()
    raise InvalidInput("scope", "must be conversation, owner or tenant")


def _worth_reading(options: Options) -> int | None:
    """How much of the turns that summaries cover can be in the window; None when that is not known beforehand."""
    policy = options.policy
    limited = (options.recent_turns, policy.recent_turns, options.filter_participants, options.viewer)
    if not policy.strides or policy.recall_first or any(one is not None for one in limited):
        return None
    return int(options.budget * ROOM)


def _later(reading: ContextSnapshot, bound: Bound) -> list[Turn]:
    return [turn for turn in reading.tail if bound.excludes(turn)]


def _is_whole(reading: ContextSnapshot) -> bool:
    """Whether the thread was read from its first turn on."""
    return bool(reading.tail) and reading.tail[0].position == 0


def _widened(limits: ReadBudget, later: Sequence[Turn]) -> ReadBudget:
    """Limits with room for turns that are left out again: more than they take, in tokens or in characters."""
    more = sum(2 * len(turn.text) + 4 * turn.token_count + 1 for turn in later)
    summarised = None if limits.summarised is None else limits.summarised + more
    return replace(limits, budget=limits.budget + more, summarised=summarised)


def _turns_through(reading: ContextSnapshot, kept: Sequence[Turn]) -> int:
    """How many turns there were; exact when all of them were read."""
    if _is_whole(reading):
        return len(kept)
    return max(len(kept), reading.info.turn_count - len(reading.tail) + len(kept))


def _newest_message(turns: Sequence[Turn], viewer: str | None) -> Turn | None:
    """What somebody said last; for one agent of several, somebody else."""
    for turn in reversed(turns):
        is_other = turn.role in ("user", "assistant") and turn.actor != viewer and not turn.tool_calls
        if is_other if viewer is not None else turn.role == "user":
            return turn
    return None


def _without_later_notes(memory: str | None, later: frozenset[str]) -> str | None:
    if memory is None or not later:
        return memory
    return working_memory.to_json(reduce(working_memory.without_turn, later, working_memory.from_json(memory)))


def _retired(reading: ContextSnapshot) -> int:
    """How many turns have lost their words: no longer in the view, but summaries still stand for them."""
    if retention_of(reading.info.settings) == "full":
        return 0
    told = sum(one.turns for one in covering_summaries(reading.summaries, reading.summarized_position))
    return max(0, told - reading.summarized_turns)


def _message(message: Any, scope: Scope) -> Turn | None:
    """A current message that is not stored: text or parts."""
    if message is None:
        return None
    text, is_parts = encode_content(message)
    return Turn(
        id="",
        conversation="",
        seq=-1,
        position=2**62,
        role="user",
        actor=scope.user or "user",
        content=decode_content(text, is_parts),
        created=datetime.now(UTC),
    )


def _memory_lines(reading: ContextSnapshot, options: Options) -> tuple[str, ...]:
    if not options.include_working_memory or reading.working_memory is None:
        return ()
    text = working_memory.render(working_memory.from_json(reading.working_memory))
    return tuple(line for line in text.splitlines() if line.strip())


# ---- options from keywords -----------------------------------------------------------------------------------------


def parse_options(
    *,
    token_budget: int | None = None,
    char_budget: int | None = None,
    query: str | None = None,
    message: Any = None,
    instructions: str | None = None,
    viewer: str | None = None,
    recent_turns: int | None = None,
    semantic_recall: Mapping[str, Any] | bool | None = None,
    recall_scope: str = "conversation",
    include_facts: bool = True,
    include_working_memory: bool = True,
    filter_participants: Iterable[str] | None = None,
    note_omissions: bool = True,
    shorten: bool = True,
    image_tokens: int | None = None,
    file_tokens: int | None = None,
    policy: Any = "balanced",
    model: str | None = None,
    preview: bool = False,
) -> Options:
    """The keywords of `build_context`, checked."""
    k, threshold, recall = _recall_options(semantic_recall)
    given = {"image_tokens": image_tokens, "file_tokens": file_tokens}
    if recall_scope not in ("conversation", "owner", "tenant"):
        raise InvalidInput("recall_scope", "must be conversation, owner or tenant")
    options = Options(
        policy=policy_named(policy),
        query=None if query is None else clean_text("query", query)[:MAX_QUERY],
        message=message,
        instructions=None if instructions is None else clean_text("instructions", instructions),
        viewer=None if viewer is None else clean_name("viewer", viewer),
        recent_turns=None if recent_turns is None else _whole("recent_turns", recent_turns),
        recall_k=k,
        recall_threshold=threshold,
        recall=recall,
        recall_scope=recall_scope,
        include_facts=include_facts,
        include_working_memory=include_working_memory,
        filter_participants=None if filter_participants is None else frozenset(filter_participants),
        note_omissions=note_omissions,
        shorten=shorten,
        model=model,
        preview=preview,
        **{name: _whole(name, value) for name, value in given.items() if value is not None},
    )
    return with_budget(options, token_budget, char_budget)


OPTIONS = ("token_budget", *ContextOptions.__annotations__)


def _recall_options(given: Mapping[str, Any] | bool | None) -> tuple[int | None, float | None, bool]:
    if given is None or isinstance(given, bool):
        return None, None, given is not False
    unknown = given.keys() - {"k", "threshold"}
    if unknown:
        raise InvalidInput(f"semantic_recall.{sorted(unknown)[0]}", "is not known; there are k and threshold")
    k, threshold = given.get("k"), given.get("threshold")
    if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, int | float)):
        raise InvalidInput("semantic_recall.threshold", "must be a number")
    return None if k is None else _whole("semantic_recall.k", k), threshold, True


def _whole(field: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**53:
        raise InvalidInput(field, "must be a whole number, zero or more")
    return value
