"""Random programs of appends, edits, regenerations, streams, switches and forgets, against a plain model."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import palaver
from palaver import Turn

T = TypeVar("T")
E = TypeVar("E", bound=Exception)
PROFILE = settings(
    max_examples=40,  # the long forms below run many more
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

TENANTS = count()
texts = st.text("abc ", min_size=1, max_size=5)
picks = st.integers(0, 10_000)


# ---- the model: what a person would draw on paper ------------------------------------------------------------------


@dataclass(eq=False)
class Place:
    """Somewhere in the thread where something was said; `versions` are the wordings it had there."""

    before: Place | None
    depth: int
    shown: Said | None = None
    after: Place | None = None  # what followed when it was last seen


@dataclass(eq=False)
class Said:
    place: Place
    text: str
    state: str = "complete"
    replaced: bool = False
    id: str = ""
    chunks: int = 0
    key: str | None = None

    @property
    def usable(self) -> bool:
        return self.state in ("complete", "pending")


@dataclass
class Model:
    said: list[Said] = field(default_factory=list)
    view: list[Said] = field(default_factory=list)
    first: Place | None = None

    def add(self, text: str, state: str = "complete") -> Said:
        tip = self.view[-1].place if self.view else None
        return self._put(Place(tip, tip.depth + 1 if tip else 0), text, state)

    def _put(self, place: Place, text: str, state: str) -> Said:
        new = Said(place, text, state)
        place.shown = new
        self._follow(place)
        self.said.append(new)
        self.view.append(new)
        self.view.sort(key=lambda one: one.place.depth)
        return new

    def _follow(self, place: Place) -> None:
        if place.before is None:
            self.first = place
        else:
            place.before.after = place

    def can_replace(self, old: Said, *, discard: bool) -> bool:
        if old in self.view:
            return True
        if old.state != "aborted" or old.replaced or not self._leads_to(old.place):
            return False
        return discard or all(one.place.depth != old.place.depth for one in self.view)

    def _leads_to(self, place: Place) -> bool:
        while (place := place.before) is not None:  # type: ignore[assignment]
            here = [one for one in self.view if one.place.depth == place.depth]
            if here:
                return here[0].place is place
        return True

    def replace(self, old: Said, text: str, *, discard: bool, state: str = "complete") -> Said:
        """In place: another wording, what follows stays. Discarding: a new thread from here."""
        losers = [one for one in self.view if one is old or (discard and one.place.depth >= old.place.depth)]
        for loser in losers:
            self._leave(loser)
        old.replaced = True
        return self._put(Place(old.place.before, old.place.depth) if discard else old.place, text, state)

    def _leave(self, loser: Said) -> None:
        self.view.remove(loser)
        if loser.state == "pending":
            loser.state = "aborted"

    def abort(self, one: Said) -> None:
        one.state = "aborted"
        if one in self.view:
            self.view.remove(one)
        else:
            one.replaced = True  # by what was switched to: it does not come back by being cut

    def forget(self, one: Said) -> None:
        one.state = "forgotten"
        if one in self.view:
            self.view.remove(one)

    def switch(self, target: Said) -> None:
        target.place.shown = target
        place: Place | None = target.place
        while place is not None:
            self._follow(place)
            place = place.before
        self.view = [place.shown for place in self.thread() if place.shown and place.shown.usable]

    def thread(self) -> list[Place]:
        found, place = [], self.first
        while place is not None:
            found.append(place)
            place = place.after
        return found

    def straight(self, target: Said) -> bool:
        """Whether every place on the way through `target` still has something to show."""
        place: Place | None = target.place.before
        while place is not None:
            if place.shown is None or not place.shown.usable:
                return False
            place = place.before
        place = target.place.after
        while place is not None:
            if place.shown is None or not place.shown.usable:
                return False
            place = place.after
        return True


# ---- the machine: the same steps for both --------------------------------------------------------------------------


class Program(RuleBasedStateMachine):
    url = ""  # a database for all examples, each in a tenant of its own; without one, a file for each

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.mkdtemp(prefix="palaver-model-")
        self.stack = AsyncExitStack()
        self.model = Model()
        self.keys = 0
        self.talk = self.run(self.start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    async def start(self) -> palaver.Conversation:
        url = self.url or f"sqlite:///{self.folder}/m.db?synchronous=NORMAL"
        tenant = f"t{next(TENANTS)}"
        store = await self.stack.enter_async_context(palaver.open(url, tenant=tenant, user="u", worker=not self.url))
        return await store.conversation("k")

    def teardown(self) -> None:
        try:
            verified = self.run(self.talk.verify())
            assert verified.turns == len(self.model.said)
        finally:
            self.run(self.stack.aclose())
            self.runner.close()
            shutil.rmtree(self.folder)

    def pick(self, number: int, *states: str) -> Said | None:
        some = [one for one in self.model.said if one.state in states]
        return some[number % len(some)] if some else None

    # ---- appending

    @rule(text=texts)
    def append(self, text: str) -> None:
        turn = self.run(self.talk.append("user", text))
        self.model.add(text).id = turn.id

    @rule(some=st.lists(texts, min_size=1, max_size=4))
    def append_many(self, some: list[str]) -> None:
        turns = self.run(self.talk.append_many([{"role": "user", "content": text} for text in some]))
        for turn, text in zip(turns, some, strict=True):
            self.model.add(text).id = turn.id

    @rule(text=texts, off=st.sampled_from([-1, 0, 1]))
    def append_expecting(self, text: str, off: int) -> None:
        found = len(self.model.said)
        if found + off < 0:
            return
        work = self.talk.append("user", text, expected_seq=found + off)
        if off == 0:
            self.model.add(text).id = self.run(work).id
        else:
            conflict = self.fails(palaver.AppendConflict, work)
            assert (conflict.expected, conflict.found) == (found + off, found)

    @rule(text=texts, number=picks, again=st.booleans())
    def append_with_a_key(self, text: str, number: int, again: bool) -> None:
        """A new key, or one that was used before, even if its turn was forgotten."""
        used = [one for one in self.model.said if one.key is not None]
        if not again or not used:
            self.keys += 1
            turn = self.run(self.talk.append("user", text, idempotency_key=f"k{self.keys}"))
            new = self.model.add(text)
            new.id, new.key = turn.id, f"k{self.keys}"
            return
        first = used[number % len(used)]
        retry = self.talk.append("user", first.text, idempotency_key=first.key)
        if first.state == "forgotten":
            self.fails(palaver.TurnGone, retry)
        else:
            assert self.run(retry).id == first.id
            other = self.talk.append("user", first.text + "!", idempotency_key=first.key)
            self.fails(palaver.IdempotencyConflict, other)

    # ---- replacing

    @precondition(lambda self: self.model.said)
    @rule(text=texts, number=picks, discard=st.booleans(), pending=st.booleans())
    def replace(self, text: str, number: int, discard: bool, pending: bool) -> None:
        """Edit, regenerate, retry: of any turn, also where it must be refused."""
        old = self.model.said[number % len(self.model.said)]
        if pending:
            work = self.talk.append_open("user", replaces=old.id, discard_after=discard)
        else:
            work = self.talk.append("user", text, replaces=old.id, discard_after=discard)
        if old.state == "forgotten":
            self.fails(palaver.TurnGone, work)
        elif not self.model.can_replace(old, discard=discard):
            self.fails(palaver.TurnSuperseded, work)
        else:
            turn = self.run(work)
            state, said = ("pending", "") if pending else ("complete", text)
            self.model.replace(old, said, discard=discard, state=state).id = turn.id

    # ---- streaming

    @rule()
    def open_stream(self) -> None:
        turn = self.run(self.talk.append_open("assistant"))
        self.model.add("", "pending").id = turn.id

    @rule(text=texts, number=picks)
    def write(self, text: str, number: int) -> None:
        if one := self.pick(number, "pending"):
            self.run(self.talk.append_chunk(one.id, one.chunks, text))
            self.run(self.talk.append_chunk(one.id, one.chunks, text + "?"))  # a repeated number changes nothing
            one.text, one.chunks = one.text + text, one.chunks + 1

    @rule(number=picks)
    def commit(self, number: int) -> None:
        if one := self.pick(number, "pending"):
            self.run(self.talk.append_commit(one.id))
            one.state = "complete"

    @rule(number=picks)
    def abort(self, number: int) -> None:
        if one := self.pick(number, "pending"):
            self.run(self.talk.append_abort(one.id))
            self.model.abort(one)

    @rule(number=picks)
    def write_too_late(self, number: int) -> None:
        if one := self.pick(number, "complete", "aborted"):
            self.fails(palaver.StreamSealed, self.talk.append_chunk(one.id, 0, "late"))

    # ---- switching and forgetting

    @rule(number=picks)
    def switch(self, number: int) -> None:
        one = self.pick(number, "complete", "pending")
        if one is not None and self.model.straight(one):
            self.run(self.talk.switch(one.id))
            if one not in self.model.view:
                self.model.switch(one)

    @rule(number=picks)
    def forget(self, number: int) -> None:
        if one := self.pick(number, "complete", "pending", "aborted"):
            self.run(self.talk.forget(one.id))
            self.model.forget(one)

    @precondition(lambda self: len(self.model.said) > 12)
    @rule(really=st.integers(0, 4))
    def reset(self, really: int) -> None:
        if really == 0:
            self.run(self.talk.reset())
            for one in self.model.said:
                self.model.forget(one)

    # ---- what must hold after every step

    @invariant()
    def the_view_is_the_same(self) -> None:
        turns = self.run(self.talk.history(1_000))
        assert shape(turns) == [(one.id, one.text, one.state) for one in self.model.view]
        assert [turn.position for turn in turns] == sorted({turn.position for turn in turns})

    @invariant()
    def everything_is_kept_in_order(self) -> None:
        turns = self.run(self.talk.history(1_000, include_superseded=True))
        kept = [(n, one) for n, one in enumerate(self.model.said) if one.state != "forgotten"]
        assert shape(turns) == [(one.id, one.text, one.state) for _, one in kept]
        assert [turn.seq for turn in turns] == [n for n, _ in kept]

    @invariant()
    def the_counts_fit(self) -> None:
        info = self.run(self.talk.refresh())
        assert (info.turn_count, info.next_seq) == (len(self.model.view), len(self.model.said))
        assert info.token_count == sum(turn.token_count for turn in self.run(self.talk.history(1_000)))

    def fails(self, error: type[E], work: Coroutine[Any, Any, Any]) -> E:
        with pytest.raises(error) as problem:
            self.run(work)
        return problem.value


def shape(turns: list[Turn]) -> list[tuple[str, str, str]]:
    return [(turn.id, turn.text, turn.status) for turn in turns]


@pytest.mark.costly
def test_a_random_program_gives_the_history_that_the_model_gives() -> None:
    run_state_machine_as_test(Program, settings=PROFILE)


def test_a_random_program_gives_it_on_postgres_too(postgres_url: str) -> None:
    program = type("Program", (Program,), {"url": postgres_url})
    run_state_machine_as_test(program, settings=settings(PROFILE, max_examples=12))


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_many_random_programs_give_it_on_postgres_too(postgres_url: str) -> None:
    program = type("Program", (Program,), {"url": postgres_url})
    run_state_machine_as_test(program, settings=settings(PROFILE, max_examples=200))


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_many_long_random_programs_give_the_history_that_the_model_gives() -> None:
    run_state_machine_as_test(Program, settings=settings(PROFILE, max_examples=1_000, stateful_step_count=120))


# ---- places that have nothing left to show -------------------------------------------------------------------------


async def test_switching_back_through_a_forgotten_turn_does_not_mix_two_branches(database_url: str) -> None:
    async with palaver.open(database_url) as store:
        talk = await store.conversation("k")
        await talk.append("user", "0")
        one = await talk.append("user", "1a")
        two = await talk.append("user", "2a")
        await talk.append("user", "1b", replaces=one, discard_after=True)
        await talk.append("user", "2b")
        await talk.forget(one)
        await talk.switch(two)
        assert [turn.text for turn in await talk.history()] == ["0", "2a"]
        await talk.verify()


async def test_a_retry_of_a_cut_stream_is_refused_where_the_thread_took_another_branch(database_url: str) -> None:
    async with palaver.open(database_url) as store:
        talk = await store.conversation("k")
        first = await talk.append("user", "0")
        await talk.append("user", "1")
        cut = await talk.append_abort(await talk.append_open("assistant"))
        await talk.append("user", "0b", replaces=first, discard_after=True)
        for discard in (False, True):
            with pytest.raises(palaver.TurnSuperseded):
                await talk.append("assistant", "2", replaces=cut, discard_after=discard)
        await talk.switch(first)
        await talk.append("assistant", "2", replaces=cut)
        assert [turn.text for turn in await talk.history()] == ["0", "1", "2"]
        await talk.verify()
