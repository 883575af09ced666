"""Filling the budget. Pure: from material that was read to a context that fits.

Order of the prompt: instructions, summaries (growing at their end), memory (which may change anywhere) · recent turns
(growing at the end) · the current message with what was recalled at its head (new each time, therefore last) · its tool
rounds so far. What comes before the recent turns is stable between compactions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from palaver.context import render
from palaver.context.costs import LEAST_TEXT, Costs, Count, Entry
from palaver.context.explain import Block, Explanation, Omission
from palaver.context.inputs import Context, Material, Recalled
from palaver.context.options import Options
from palaver.context.render import Message, View
from palaver.context.tool_rounds import Unit, units
from palaver.context.window import sliding_start, stride_start
from palaver.errors import BudgetTooSmall
from palaver.model import Summary, Turn

ROUNDS_SHARE = 0.75  # of what the current message leaves: its own tool rounds
ANSWER_SHARE = 0.25  # an answer that is complete already
LONG_SHARE = 3  # a turn may take a third of its block before it is shortened
# The current message is reserved in steps of a sixteenth of the budget, so that its length does not move the window.
RESERVE_STEPS = 16
NEARLY, KEEP_TAIL = 0.96, 0.12  # when compaction is asked for, and what it leaves of the window's share
ONE_SUMMARY = 220  # what one summary takes, with its marks
END = 2**62
NOTE_COST = 32  # what the note on omissions may take


def assemble(material: Material, options: Options, count: Count) -> Context:
    return _Packer(material, options, count).context()


class _Packer:
    def __init__(self, material: Material, options: Options, count: Count) -> None:
        self.material, self.options, self.count = material, options, count
        self.view = View(material.owner, options.viewer)
        self.costs = Costs(self.view, options, count, counted=material.counted)
        self.budget, self.overhead = options.budget, options.overhead
        self.left = options.budget - options.priming
        self.blocks: list[Block] = []
        self.omissions: list[Omission] = []
        self.seen: set[str] = set()
        self.verbatim: list[str] = []
        self.outgrown: int | None = None
        self.window_start = 0
        self.recalled_places: list[int] = []

    def context(self) -> Context:
        past, rounds = self._split()
        current = self._current()
        after = self._rounds(rounds)
        if self.options.policy.quoted:
            return self._quoted_context(past, current, after)
        if self.options.policy.recall_first:
            return self._recall_first(past, current, after)
        return self._balanced(past, current, after)

    def _balanced(self, past: list[Unit], current: Message | None, after: list[Entry]) -> Context:
        policy = self.options.policy
        memory = self._memory(int(self.budget * policy.memory))
        recall = int(self.budget * policy.recall) if self.options.wants_recall else 0
        window = self._window(past, self._window_cap(recall))
        summaries = self._summaries(self._summaries_share(), self._start_of(window))
        quoted = self._recall(min(recall, self.left))
        return self._finish(summaries + memory, window, quoted, current, after)

    def _recall_first(self, past: list[Unit], current: Message | None, after: list[Entry]) -> Context:
        policy = self.options.policy
        window = self._window(past, min(self.left, int(self.budget * policy.recent)))
        quoted = self._recall(self.left)
        memory = self._memory(min(self.left, int(self.budget * policy.memory)))
        summaries = self._summaries(min(self.left, int(self.budget * policy.summaries)), self._start_of(window))
        return self._finish(summaries + memory, window, quoted, current, after)

    def _quoted_context(self, past: list[Unit], current: Message | None, after: list[Entry]) -> Context:
        """The last turns as one quoted text before the current message."""
        head = self._memory(0)
        text = self._conversation_so_far(past)
        message = {"role": "user", "content": text}
        messages = [*self._system(head), *([message] if text else []), *([current] if current else [])]
        stable = len(messages) - bool(current)
        messages += [one for entry in after for one in entry.messages]
        return self._result(messages, stable)

    # ---- what must be in

    def _split(self) -> tuple[list[Unit], list[Unit]]:
        """The turns before the current message, and its own tool rounds and answers after it."""
        tail, current = self.material.tail, self.material.current
        if self.material.message is not None or current is None:
            return units(tail), []
        before = [turn for turn in tail if turn.position < current.position]
        behind = [turn for turn in tail if turn.position > current.position]
        return units(before), units(behind)

    def _current(self) -> Message | None:
        turn = self.material.message or self.material.current
        fixed = self._instructions_cost()
        if turn is None:
            self._need("instructions", fixed)
            return None
        cost = self.costs.turn(turn)
        self._need("the current message", fixed + cost)
        self.left -= cost
        if turn.id:
            self.seen.add(turn.id)
            self.verbatim.append(turn.id)
        self._block("current", "the message to answer; always in", cost, [turn] if turn.id else [])
        return render.messages(turn, self.view)[0]

    def _instructions_cost(self) -> int:
        text = self.options.instructions
        if not text:
            return 0
        cost = self.count(text) + self.overhead
        self._block("instructions", "given by the application", cost)
        self.left -= cost
        return cost

    def _need(self, what: str, cost: int) -> None:
        needed = cost + self.options.priming
        if needed > self.budget:
            raise BudgetTooSmall(what, needed=needed, budget=self.budget, unit=self._unit)

    def _rounds(self, rounds: list[Unit]) -> list[Entry]:
        """What follows the current message: while a tool loop is under way, its newest rounds, as many as fit, the last
        one shortened if it must be; an answer that is complete takes no more than recent turns do."""
        under_way = bool(rounds) and rounds[-1].is_tool_round
        share = ROUNDS_SHARE if under_way else min(ANSWER_SHARE, self.options.policy.recent)
        cap, used = int(self.left * share), 0
        entries: list[Entry] = []
        for unit in reversed(self._usable(rounds)):
            entry = self.costs.entry(unit, self.costs.unit(unit))
            room = (self.left if under_way and not entries else cap) - used
            if entry.cost > room:
                shorter = self.costs.shorter(unit, room) if not entries else None
                if shorter is None:
                    self._omit("an earlier step of the answer that did not fit", [unit])
                    cap = 0  # nothing older than a gap
                    continue
                entry = shorter
            entries.append(entry)
            used += entry.cost
        entries.reverse()
        reason = "the answer so far: tool calls with their results" if under_way else "what was answered to it"
        self._take(entries, "rounds", reason)
        return entries

    # ---- the window

    def _window_cap(self, recall: int) -> int:
        step = max(1, self.budget // RESERVE_STEPS)
        spare = -self._spent_on("current") % step
        return max(0, self.left - spare - recall - self._summaries_reserve())

    def _summaries_reserve(self) -> int:
        """Their share; less in a small budget whose summaries are short. It changes only when one is written."""
        cover = covering_summaries(self.material.summaries, END)
        if not cover:
            return 0
        share, note = self._summaries_share(), self.overhead + NOTE_COST
        if share > self.budget * self.options.policy.summaries:
            share = min(share, self._head_cost(render.summary_block(cover)))
        return share + note

    def _summaries_share(self) -> int:
        """The policy's share, and room for one summary also where the budget is small."""
        share = self.options.policy.summaries
        return max(int(self.budget * share), min(ONE_SUMMARY, self.budget // 3)) if share else 0

    def _spent_on(self, kind: str) -> int:
        return sum(block.tokens for block in self.blocks if block.kind == kind)

    def _window(self, past: list[Unit], cap: int) -> list[Entry]:
        options = self.options
        usable = self._usable(past)
        cap -= self._opening_cost
        limit = max(1, cap // LONG_SHARE)
        sized = [one for unit in usable if (one := self._sized(unit, limit)) is not None]
        found, costs = [unit for unit, _, _ in sized], [cost for _, cost, _ in sized]
        most = options.recent_turns if options.recent_turns is not None else options.policy.recent_turns
        if options.policy.strides:
            boundaries = [s.through_seq for s in self.material.summaries if s.level == 0]
            whole = self.material.turn_count <= len(self.material.tail)
            start = stride_start(found, costs, cap, boundaries, whole=whole)
            self._notice_outgrowth(found, costs, cap)
        else:
            start = sliding_start(costs, cap, None)
        if most is not None:
            start = max(start, len(found) - most)
        # What lies before the start is accounted for with the summaries.
        entries = [shorter or self.costs.entry(unit, cost) for unit, cost, shorter in sized[start:]]
        self._take(entries, "recent", "the last turns, word for word")
        return self._opened(entries)

    def _sized(self, unit: Unit, limit: int) -> tuple[Unit, int, Entry | None] | None:
        """A unit with its cost, shortened where it is too long. None, and named, when it cannot be."""
        cost = self.costs.unit(unit)
        if cost <= limit or (len(unit.turns) == 1 and cost <= limit * 2):
            return unit, cost, None
        shorter = self.costs.shorter(unit, limit)
        if shorter is None:
            self._omit("longer than its share of the budget", [unit])
            return None
        return unit, shorter.cost, shorter

    def _notice_outgrowth(self, found: Sequence[Unit], costs: Sequence[int], cap: int) -> None:
        """Compaction should run before the unsummarised tail, with one more exchange like the last, does not fit."""
        end = max((s.through_seq for s in self.material.summaries), default=0)
        tail = [cost for cost, unit in zip(costs, found, strict=True) if unit.position >= end]
        older = self.material.turn_count > len(self.material.tail)
        if sum(tail) > cap * NEARLY or sum(tail) + sum(tail[-2:]) > cap or (older and not self.material.summaries):
            self.outgrown = int(cap * KEEP_TAIL)

    def _opened(self, entries: list[Entry]) -> list[Entry]:
        """A provider that wants a user to speak first gets a line of its own; its cost is kept free."""
        if entries and entries[0].messages[0]["role"] == "assistant":
            self.left -= self._opening_cost
        return entries

    @property
    def _opening_cost(self) -> int:
        return self.count(render.OPENING) + self.overhead

    def _start_of(self, window: Sequence[Entry]) -> int:
        """The position from which nothing needs a summary."""
        if window:
            return window[0].unit.position
        current = self.material.current
        if current is not None:
            return current.position
        return self.material.tail[-1].position + 1 if self.material.tail else self.material.turn_count

    # ---- memory, summaries, recall

    def _memory(self, cap: int) -> list[str]:
        lines = [*self.material.memory_lines]
        if self.material.facts and self.options.include_facts:
            lines += ["Known facts:", *render.facts_lines(self.material.facts)]
        kept = self._fit_block(lines, cap, render.memory_block)
        if not kept:
            return []
        text = render.memory_block(kept)
        return [self._head("memory", text, "working memory, facts and standing instructions")]

    def _fit_block(self, lines: list[str], cap: int, wrap: Callable[[Sequence[str]], str]) -> list[str]:
        """As many lines as fit, whole ones."""
        kept: list[str] = []
        cap = min(cap, self.left)
        room = cap - self._head_cost(wrap([""]))
        for one in lines:
            cost = self.count(one) + 1
            if cost > room:
                continue
            kept.append(one)
            room -= cost
        while kept and self._head_cost(wrap(kept)) > cap:
            kept.pop()
        return [] if not kept or all(one.endswith(":") for one in kept) else kept

    def _summaries(self, cap: int, start: int) -> list[str]:
        """The summaries that stand for everything before the window, the widest ones first."""
        self.window_start = start
        whole = covering_summaries(self.material.summaries, start)
        cover = self._fitting_cover(whole, min(cap, self.left))
        older = self._older_turns(start)
        notes: list[str] = []
        covered = min(older, sum(summary.turns for summary in cover))
        if covered:
            text = render.summary_block(cover)
            span = (cover[0].from_seq, cover[-1].through_seq)
            notes.append(self._head("summaries", text, f"stands for {covered} turns before the window", span))
            self.omissions.append(_span_omission("summarised", covered, *span, True))
        self._omit_unsummarised(older - covered, whole[: len(whole) - len(cover)], whole, start)
        if older and self.options.note_omissions and not self.options.policy.recall_first:
            notes += self._omission_note(older, covered)
        return notes

    def _omit_unsummarised(self, left: int, dropped: list[Summary], whole: list[Summary], start: int) -> None:
        """What no summary in the prompt stands for: its summary did not fit, or there is none yet."""
        unfit = min(left, sum(one.turns for one in dropped))
        if unfit:
            self.omissions.append(
                _span_omission("their summary did not fit", unfit, dropped[0].from_seq, dropped[-1].through_seq)
            )
        if left > unfit:
            reason = "not yet summarised" if self.options.policy.summaries else "older than what this policy shows"
            first = whole[-1].through_seq if whole else 0
            self.omissions.append(_span_omission(reason, left - unfit, first, self._unread_through(start)))

    def _fitting_cover(self, cover: list[Summary], cap: int) -> list[Summary]:
        """The newest ones that fit."""
        if cover and self._head_cost(render.summary_block(cover)) <= cap:  # as nearly always
            return cover
        kept: list[Summary] = []
        for summary in reversed(cover):
            trial = [summary, *kept]
            if self._head_cost(render.summary_block(trial)) > cap:
                break
            kept = trial
        return kept

    def _older_turns(self, start: int) -> int:
        """How many turns of the view lie before the window, without reading them."""
        inside = sum(1 for turn in self.material.tail if turn.position >= start)
        current = self.material.current
        if current is not None and current.position >= start and current not in self.material.tail:
            inside += 1
        return max(0, self.material.turn_count - inside)

    def _unread_through(self, start: int) -> int:
        """Where what was read begins, if that is behind the current message: its answer is longer than the budget."""
        first = self.material.tail[0].position if self.material.tail else 0
        return first if first > start + 1 else start

    def _omission_note(self, older: int, covered: int) -> list[str]:
        done = "summarised above" if covered == older else f"{covered} of them summarised above" if covered else ""
        text = f"[{older} earlier turns are left out here{', ' + done if done else ''}.]"
        if self._head_cost(text) > self.left:
            return []
        return [self._head("omission note", text, "says that something is missing")]

    def _head_cost(self, text: str) -> int:
        """What a piece of the system message costs; the first one pays for the message."""
        opened = any(block.kind in HEAD for block in self.blocks)
        return self.count(text) + 2 + (0 if opened else self.overhead)

    def _head(self, kind: str, text: str, reason: str, span: tuple[int, int] | None = None) -> str:
        cost = self._head_cost(text)
        self.left -= cost
        start, end = span or (None, None)
        self.blocks.append(Block(kind=kind, reason=reason, tokens=cost, from_seq=start, through_seq=end))
        return text

    def _recall(self, cap: int) -> str | None:
        wanted = [self._with_quote(one) for one in self.material.recalled if one.quote or one.turn.id not in self.seen]
        # Without a current message to stand at the head of, the block is a message of its own.
        own = self.overhead if self.material.current is None and self.material.message is None else 0
        cap -= own
        if not self.options.wants_recall or not wanted or cap < LEAST_TEXT:
            return None
        chosen = self._pick(wanted, cap)
        text = render.recalled_block([one.turn for one in chosen])
        while chosen and self.count(text) + 2 > cap:
            chosen.pop()
            text = render.recalled_block([one.turn for one in chosen])
        if not chosen:
            return None
        cost = self.count(text) + 2 + own
        self.left -= cost
        turns = [one.turn for one in chosen]
        self.verbatim += [turn.id for turn in turns]
        self.seen.update(turn.id for turn in turns)
        self.recalled_places = [turn.position for turn in turns if turn.conversation == self.material.conversation]
        scores = tuple(
            {"turn": one.turn.id, "conversation": one.turn.conversation, "score": one.score, "parts": one.parts}
            for one in chosen
        )
        self._block("recalled", f"the best of {len(wanted)} found for this message", cost, turns, scores)
        return text

    def _with_quote(self, one: Recalled) -> Recalled:
        """The turn and what its file says; of a turn that is in the prompt already, only that."""
        if one.quote is None:
            return one
        turn = one.turn
        said = [] if turn.id in self.seen else [render.spoken(turn)]
        words = "\n".join([*said, render.quoted(one.quote)])
        return replace(one, turn=structs.replace(turn, content=words, tool_calls=(), tool_results=(), attachments=()))

    def _pick(self, wanted: list[Recalled], cap: int) -> list[Recalled]:
        """Walk the ranking and take every turn that still fits, in the order of the ranking."""
        room = cap - self.count(render.recalled_block([])) - 2
        days: set[object] = set()
        chosen: list[Recalled] = []
        most = self.options.recall_k
        standing = [one for one in wanted if one.standing]
        room = self._walk(standing, room, min(room, self.budget // 10), days, chosen, most)
        taken = {id(one) for one in chosen}
        self._walk([one for one in wanted if id(one) not in taken], room, room, days, chosen, most)
        rank = {id(one): index for index, one in enumerate(wanted)}
        return sorted(chosen, key=lambda one: (not one.standing, rank[id(one)]))

    def _walk(
        self, wanted: list[Recalled], room: int, cap: int, days: set[object], chosen: list[Recalled], most: int | None
    ) -> int:
        for one in wanted:
            if most is not None and len(chosen) >= most:
                break
            day = one.turn.created.date()
            cost = self.count(render.line(one.turn)) + 1 + (0 if day in days else DATE_COST)
            if cost <= cap:
                chosen.append(one)
                days.add(day)
                room -= cost
                cap -= cost
            if cap < 8:
                break
        return room

    def _conversation_so_far(self, past: list[Unit]) -> str:
        most = self.options.recent_turns or self.options.policy.recent_turns or len(past)
        turns = [turn for unit in past for turn in unit.turns][-most:]
        while turns and self.count(self._so_far(turns)) + self.overhead > self.left:
            turns = turns[1:]
        text = self._so_far(turns) if turns else ""
        cost = self.count(text) + self.overhead if text else 0
        self.left -= cost
        self.verbatim += [turn.id for turn in turns]
        if turns:
            self._block("recent", f"the {len(turns)} turns before the current one", cost, turns)
        older = self._turns_before(len(turns))
        if older > 0:
            self.omissions.append(_span_omission("older than the last turns that this policy shows", older, None, None))
        return text

    def _so_far(self, turns: list[Turn]) -> str:
        older = self._turns_before(len(turns))
        lines = ["Conversation so far"]
        if older > 0:
            lines.append(f"(older messages omitted; showing last {len(turns)} messages)")
        return "\n".join([*lines, *(f"{turn.role}: {render.spoken(turn)}" for turn in turns)])

    def _turns_before(self, shown: int) -> int:
        """How many turns of the view come before the ones that are shown."""
        current = self.material.current
        if current is None:
            return self.material.turn_count - shown
        behind = sum(1 for turn in self.material.tail if turn.position > current.position)
        return self.material.turn_count - shown - behind - 1

    # ---- units

    def _usable(self, found: list[Unit]) -> list[Unit]:
        """Without what must not or cannot be sent; each exclusion is named."""
        kept: list[Unit] = []
        for unit in found:
            reason = self._unusable(unit)
            if reason:
                self._omit(reason, [unit])
            else:
                kept.append(unit)
        return kept

    def _unusable(self, unit: Unit) -> str | None:
        if not unit.whole:
            return "a tool call without its result, or a result without its call"
        wanted = self.options.filter_participants
        if wanted is not None and unit.first.actor not in wanted:
            return "said by somebody who was filtered out"
        if self.options.viewer is not None and unit.is_tool_round and unit.first.actor != self.options.viewer:
            return "another agent's tool round"
        return None

    # ---- book-keeping

    def _take(self, entries: Sequence[Entry], kind: str, reason: str) -> None:
        if not entries:
            return
        turns = [turn for entry in entries for turn in entry.unit.turns]
        cost = sum(entry.cost for entry in entries)
        self.left -= cost
        self.seen.update(turn.id for turn in turns)
        self.verbatim += [turn.id for entry in entries if entry.verbatim for turn in entry.unit.turns]
        cut = sum(not entry.verbatim for entry in entries)
        self._block(kind, reason + (f"; {cut} shortened in the middle" if cut else ""), cost, turns)

    def _block(
        self, kind: str, reason: str, tokens: int, turns: Sequence[Turn] = (), scores: tuple[dict[str, Any], ...] = ()
    ) -> None:
        positions = [turn.position for turn in turns]
        self.blocks.append(
            Block(
                kind=kind,
                reason=reason,
                tokens=tokens,
                turn_ids=tuple(turn.id for turn in turns),
                from_seq=min(positions, default=None),
                through_seq=max(positions) + 1 if positions else None,
                scores=scores,
            )
        )

    def _omit(self, reason: str, found: Sequence[Unit]) -> None:
        turns = [turn for unit in found for turn in unit.turns]
        if turns:
            start, end = turns[0].position, turns[-1].position + 1
            self.omissions.append(Omission(reason=reason, turns=len(turns), from_seq=start, through_seq=end, unit=True))

    @property
    def _unit(self) -> str:
        return "tokens" if self.options.char_budget is None else "characters"

    # ---- the result

    def _system(self, head: Sequence[str]) -> list[Message]:
        pieces = ([self.options.instructions] if self.options.instructions else []) + list(head)
        return [{"role": "system", "content": "\n\n".join(pieces)}] if pieces else []

    def _finish(
        self, head: list[str], window: list[Entry], quoted: str | None, current: Message | None, after: list[Entry]
    ) -> Context:
        messages = self._system(head)
        messages += [message for entry in window for message in entry.messages]
        stable = len(messages)
        if current is not None:
            messages.append(render.with_head(current, quoted) if quoted else current)
        elif quoted:
            messages.append({"role": "user", "content": quoted})
        messages += [message for entry in after for message in entry.messages]
        return self._result(messages, stable)

    def _result(self, messages: list[Message], stable: int) -> Context:
        order = {kind: index for index, kind in enumerate(ORDER)}
        blocks = tuple(sorted(self.blocks, key=lambda block: order.get(block.kind, len(order))))
        tokens = self.budget - self.left
        explanation = Explanation(
            budget=self.budget,
            tokens=tokens,
            unit=self._unit,
            counter=self.material.counter,
            policy=self.options.policy.name,
            blocks=blocks,
            left_out=tuple(self._left_out()),
            turns_total=self.material.turn_count,
            turns_verbatim=len(set(self.verbatim)),
            recall=self.material.recall_note,
        )
        ids = tuple(dict.fromkeys(self.verbatim))
        return Context(
            messages=messages,
            tokens=tokens,
            turn_ids=ids,
            explanation=explanation,
            stable=stable,
            revision=self.material.revision,
            outgrown=self.outgrown,
        )

    def _left_out(self) -> list[Omission]:
        """One line per reason; a turn that was recalled is not left out, wherever it lies."""
        rest = [self._without_recalled(one) for one in self.omissions if not self._counted_as_older(one)]
        return _merged([one for one in rest if one.turns])

    def _without_recalled(self, one: Omission) -> Omission:
        start, end = one.from_seq, one.through_seq
        if start is None or end is None:
            return one
        inside = sum(start <= place < end for place in self.recalled_places)
        return replace(one, turns=max(0, one.turns - inside)) if inside else one

    def _counted_as_older(self, one: Omission) -> bool:
        """Whether a unit that was left out lies before the window, where the older turns are counted together."""
        return one.unit and one.through_seq is not None and one.through_seq <= self.window_start


HEAD = ("memory", "summaries", "omission note", "instructions")
ORDER = ("instructions", "summaries", "omission note", "memory", "recent", "recalled", "current", "rounds")
DATE_COST = 8


def covering_summaries(summaries: Sequence[Summary], end: int) -> list[Summary]:
    """Summaries that lie before `end` and do not overlap: at each place the widest that fits."""
    cover: list[Summary] = []
    at = 0
    for summary in sorted(summaries, key=lambda s: (s.from_seq, -s.through_seq)):
        if summary.from_seq >= at and summary.through_seq <= end:
            cover.append(summary)
            at = summary.through_seq
    return cover


def _span_omission(reason: str, turns: int, start: int | None, end: int | None, summarised: bool = False) -> Omission:
    return Omission(reason=reason, turns=turns, from_seq=start, through_seq=end, summarised=summarised)


def _merged(omissions: Sequence[Omission]) -> list[Omission]:
    """One line per reason."""
    merged: dict[str, Omission] = {}
    for one in omissions:
        known = merged.get(one.reason)
        merged[one.reason] = one if known is None else _joined(known, one)
    return list(merged.values())


def _joined(a: Omission, b: Omission) -> Omission:
    starts = [n for n in (a.from_seq, b.from_seq) if n is not None]
    ends = [n for n in (a.through_seq, b.through_seq) if n is not None]
    return replace(a, turns=a.turns + b.turns, from_seq=min(starts, default=None), through_seq=max(ends, default=None))
