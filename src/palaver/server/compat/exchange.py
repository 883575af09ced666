"""One exchange with a client that speaks somebody else's protocol: find its conversation, take in its history, answer.

A request that names a conversation needs only the new message; a client that sends its whole history is recognised by
content, and its edits supersede. A request that names none is passed on to the model and leaves nothing behind, unless
it asks to be stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.core.identity import ID_LENGTH, is_id, new_id
from palaver.errors import (
    AppendConflict,
    ConversationNotFound,
    Gone,
    InvalidInput,
    ModelUnavailable,
    NotFound,
    TurnNotFound,
    TurnSuperseded,
)
from palaver.generation.events import Answered, MessageStored, Prompted, ToolsPlanned, TurnOpened
from palaver.generation.options import tool_choice_of
from palaver.generation.tool_calls import is_abandoned, server_calls
from palaver.memory.working_memory import HANDED_IN
from palaver.model import READ, SYSTEM, WRITE, Turn
from palaver.models.registry import KINDS, ModelRegistry
from palaver.ports.models import ChatModel
from palaver.server.auth import Caller
from palaver.server.compat.history_diff import Plan, is_at_the_end, planned
from palaver.server.compat.passthrough import passed_on, request_of
from palaver.server.compat.replay import INPUT, TOLD_BY, Beat, Story, failures
from palaver.server.compat.request import Ask, Said, settings_for, thoughts_of
from palaver.server.compat.sdk_retries import MOST, SECONDS
from palaver.server.compat.turns import append, check_results, draft_of, redacted, said_again
from palaver.server.components import Services
from palaver.server.errors import Refused
from palaver.server.live.answers import Answer

TRIES = 5  # to take in a history while others write
MARGIN = 16  # turns that are read beyond as many as the client sends, before all are
MAX_TURNS = 100_000
BEHIND = 200
LATE = 60.0  # seconds
RECENT = 50  # turns among which the first try of a request is looked for
LATEST = 20  # conversations among which it is, when it named none
EXCHANGE = "exchange"  # in the metadata of a message: what it came with
CONVERSATION_PREFIX = "conv_"
KEPT_SECONDS = 30 * 86_400  # for a conversation that nobody named, as the provider keeps its answers
FIELDS = {"openai-responses": "input"}  # what a body calls what is said, where not messages
KIND_OF_SHAPE = {"openai-chat": "openai", "openai-responses": "responses", "anthropic-messages": "anthropic"}


# ---- names ---------------------------------------------------------------------------------------------------------


def reference(conversation: str, turn: str) -> str:
    """The name of an exchange: its conversation and the last turn that it was asked with."""
    return conversation + turn


def referred(text: str) -> tuple[str, str]:
    """Conversation and turn of a reference; raises what is raised for one that does not exist."""
    if len(text) != 2 * ID_LENGTH:
        raise ConversationNotFound(text[:100])
    return text[:ID_LENGTH], text[ID_LENGTH:]


async def conversation_named(store: Store, name: str) -> Conversation:
    """By its id, with or without `conv_`, or by the application's own name, which makes one when it is new."""
    name = name.removeprefix(CONVERSATION_PREFIX) if is_id(name.removeprefix(CONVERSATION_PREFIX)) else name
    try:
        return await store.get(name)
    except ConversationNotFound:
        if is_id(name) or name.startswith(CONVERSATION_PREFIX):
            raise
        return await store.conversation(name)


async def conversation_known(store: Store, name: str) -> Conversation | None:
    """The same, but none is made."""
    id = name.removeprefix(CONVERSATION_PREFIX)
    try:
        return await (store.get(id) if is_id(id) else store.find(name))
    except ConversationNotFound:
        return None


def model_named(services: Services, ask: Ask) -> str | None:
    """The configured model that a client means: by our name for it, or by the provider's. None: whichever is chosen."""
    book = services.store.parts.generation.models
    if not ask.model:
        return None
    if ask.model in services.models:
        return ask.model
    for name in sorted(services.models):
        if _stands_for(book, name).partition(":")[2] == ask.model or _stands_for(book, name) == ask.model:
            return name
    if services.settings.any_model:
        known = ask.model.partition(":")[0] in KINDS
        return ask.model if known else f"{KIND_OF_SHAPE.get(ask.shape, 'openai')}:{ask.model}"
    there = ", ".join(sorted(services.models))
    raise Refused(
        404, f"The model {ask.model[:100]!r} is not configured here; there are: {there}", code="model_not_found"
    )


def _stands_for(book: ModelRegistry, name: str) -> str:
    """The provider's own name behind one of ours."""
    for _ in range(len(book.names) + 1):
        known = book.names.get(name)
        if isinstance(known, str):
            name = known
        elif isinstance(known, Mapping):
            return str(known.get("model", name))
    return name


# ---- an exchange ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Exchange:
    """A question and the answer to it, for as many connections as want it. `answer` is None when it is not made here:
    then it is followed in the log."""

    id: str
    ask: Ask
    created: int
    talk: Conversation | None = None
    input: Turn | None = None
    answer: Answer | None = None

    @property
    def ended(self) -> float | None:
        return self.answer.ended if self.answer is not None else None

    @property
    def failed(self) -> bool:
        return self.answer is not None and self.answer.problem is not None

    def lighten(self) -> None:
        """What was sent is needed again only to ask again, and may hold pictures of megabytes."""
        if self.ask.said and self.ended is not None and not self.failed:
            self.ask = replace(self.ask, said=())

    async def listen(self) -> AsyncGenerator[Beat]:
        """Everything from the first event on. Raises what the answer failed with."""
        if self.answer is None:
            assert self.talk is not None
            assert self.input is not None
            async for beat in followed(self.talk, self.input):
                yield beat
            return
        async for event in self.answer.listen():
            yield event

    async def was_forgotten(self) -> bool:
        """Whether something of it was deleted since: then it is not told from memory any more."""
        if self.talk is None or self.input is None:
            return False
        told = self.answer.told if self.answer is not None else ()
        turns = [self.input, *(one.turn for one in told if isinstance(one, ToolsPlanned | Answered))]
        try:
            return any([(await self.talk.turn(turn)).status == "forgotten" for turn in turns])
        except (NotFound, Gone):
            return True

    async def begun(self, seconds: float) -> None:
        """Wait until there is something to tell, or it failed, which is raised; not longer than so many seconds."""
        try:
            async with asyncio.timeout(seconds), aclosing(self.listen()) as beats:
                async for beat in beats:
                    if not isinstance(beat, MessageStored | Prompted | TurnOpened):
                        return
        except TimeoutError:
            pass  # it begins later; whoever listens is kept alive meanwhile

    @property
    def prompted(self) -> Prompted | None:
        told = self.answer.told if self.answer is not None else ()
        return next((one for one in told if isinstance(one, Prompted)), None)

    def headers(self) -> dict[str, str]:
        """What memory did, and where that is explained."""
        if self.talk is None or self.input is None:
            return {}
        path = f"/api/conversations/{self.talk.id}"
        found = {"X-Conversation-Id": self.talk.id, "Link": f'<{path}/requests>; rel="explanation"'}
        if self.prompted is not None:
            blocks = self.prompted.context.explanation.blocks
            recalled = sum(len(block.turn_ids) for block in blocks if block.kind == "recalled")
            found["X-Context-Tokens"] = str(self.prompted.context.tokens)
            found["X-Recalled-Turns"] = str(recalled)
        return found


async def followed(talk: Conversation, input: Turn) -> AsyncGenerator[Beat]:
    """An answer from the log, as far as it is there, and then live. Ends with it, or when it is late to begin."""
    (asked,) = await talk.audit(turn=input, kinds=("append",), limit=1)
    turns = await behind(talk, input)
    has_begun = any(turn.metadata.get(INPUT) == input.id for turn in turns)
    story = Story(input.id, failed=failures(input.id, turns))
    try:
        async with (
            asyncio.timeout(None if has_begun else seconds_left(input)) as patience,
            aclosing(talk.subscribe(after=asked.n)) as events,
        ):
            async for event in events:
                if event.turn is None or event.kind not in TOLD_BY:
                    continue
                for beat in story.take(event, await talk.turn(event.turn)):
                    patience.reschedule(None)
                    yield beat
                if story.over:
                    return
    except TimeoutError:
        raise ModelUnavailable("the model", "was never asked: whoever was about to is gone") from None


def seconds_left(input: Turn) -> float:
    """How long the answer to an input may still take to begin, if there is to be one."""
    return LATE - (datetime.now(UTC) - input.created).total_seconds()


def noted_on(input: Turn) -> Mapping[str, Any]:
    """What a face has noted on the message that began an exchange. Whoever stores turns may have written it."""
    noted = input.metadata.get(EXCHANGE)
    return noted if isinstance(noted, Mapping) else {}


# ---- making one ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Exchanges:
    """Begins exchanges for one caller."""

    services: Services
    store: Store
    caller: Caller

    async def open(self, ask: Ask, name: str | None, mark: str, again: bool) -> Exchange:
        """The exchange of a request; for a retry, the one that it repeats. `mark` is the fingerprint of the request."""
        scope = self.store.scope
        key = (scope.tenant, scope.user or "", self.caller.name, name or "", mark)

        async def begin() -> Exchange:
            return await self._begin(ask, name, mark, again)

        made = await self.services.retries.once(key, again, begin)
        exchange: Exchange = made[0]
        repeated = made[1]
        if not repeated:
            self._remember(exchange)
            return exchange
        if await exchange.was_forgotten():
            raise TurnNotFound(exchange.id)
        if exchange.failed:
            exchange.answer = await self._answered_again(exchange)
        return exchange

    def _remember(self, exchange: Exchange) -> None:
        """For those who come back to it by its name."""
        recent = self.services.recent
        recent[exchange.id] = exchange
        while len(recent) > MOST:
            recent.popitem(last=False)
        for one in recent.values():
            one.lighten()

    async def named(self, id: str) -> Exchange:
        """A stored exchange by its name: as it is told here, or from the log."""
        conversation, turn = referred(id)
        talk = await self.store.get(conversation)
        input = await talk.turn(turn)
        noted = noted_on(input)
        if not noted or input.status == "forgotten":
            raise TurnNotFound(turn)
        known: Exchange | None = self.services.recent.get(id)
        # Of one that failed the log may know more: somebody else has made it since.
        failed_for_good = known is not None and known.failed and await _never_answered(talk, input)
        if known is not None and (failed_for_good or not known.failed) and not await known.was_forgotten():
            return replace(known, talk=talk, input=input)
        ask = Ask(shape=str(noted.get("shape")), model="", said=(), kept=noted)
        return Exchange(id, ask, int(input.created.timestamp()), talk, input)

    async def _begin(self, ask: Ask, name: str | None, mark: str, again: bool) -> Exchange:
        if ask.instructions:
            self.store.require(SYSTEM)
        if ask.store or self._is_bound(ask, name):  # the answer needs both rights: refuse before a message is stored
            self.store.require(READ)
            self.store.require(WRITE)
        self._check_model(ask)
        if again and ask.store and not self._is_bound(ask, name) and (found := await self._unnamed_try(mark)):
            return await self.resumed(ask, *found)
        talk = await self._conversation(ask, name)
        if talk is None:
            return self._relayed(ask)
        if again and (tried := await self.first_try(talk, mark)):
            return await self.resumed(ask, talk, tried)
        input, plan = await self._take_in(ask, talk, mark)
        return await self._answer(ask, talk, input, plan.unknown)

    def _check_model(self, ask: Ask) -> None:
        """One that is not there, or that cannot do what is asked of it, leaves nothing behind."""
        if (name := model_named(self.services, ask)) is not None:
            settings_for(ask, self.services.store.parts.generation.models.chat(name).adapter)

    @staticmethod
    def _is_bound(ask: Ask, name: str | None) -> bool:
        return bool(ask.previous or ask.conversation or name)

    async def _conversation(self, ask: Ask, name: str | None) -> Conversation | None:
        """The one that the request names, or one of its own; None: nothing is to be stored."""
        if ask.previous is not None:
            return await self._of_previous(ask.previous)
        wanted = ask.conversation or name
        if wanted is not None:
            return await conversation_named(self.store, wanted)
        return await self.store.conversation(ttl=KEPT_SECONDS) if ask.store else None

    async def _of_previous(self, id: str) -> Conversation:
        try:
            conversation, turn = referred(id)
            talk = await self.store.get(conversation)
            if (await talk.turn(turn)).status == "forgotten":
                raise TurnNotFound(turn)
        except (NotFound, Gone):
            raise _not_previous(404, "There is no such response") from None
        return talk

    async def _answer(self, ask: Ask, talk: Conversation, input: Turn, unknown: Sequence[Said] = ()) -> Exchange:
        question = input if input.role == "user" else await _question_of(talk, input)
        answer = self.services.answers.start(talk, None, self._options(ask, talk, question, input, unknown))
        created = int(input.created.timestamp())
        return Exchange(reference(talk.id, input.id), ask, created, talk, input, answer)

    async def _answered_again(self, exchange: Exchange) -> Answer:
        """What failed is asked again, with the message that is stored already."""
        if exchange.talk is None or exchange.input is None:
            answer = self._relayed(exchange.ask).answer
        else:
            answer = (await self._answer(exchange.ask, exchange.talk, exchange.input)).answer
        assert answer is not None
        return answer

    def _options(
        self, ask: Ask, talk: Conversation, question: Turn, input: Turn, unknown: Sequence[Said]
    ) -> dict[str, Any]:
        name = model_named(self.services, ask)
        model = self._model(talk, name)
        options: dict[str, Any] = {
            "question": question if question.role == "user" else None,
            "model": name,
            "instructions": ask.instructions,
            "client_tools": ask.tools,
            "tool_choice": tool_choice_of(ask.may_call, ask.must_call),
            "settings": settings_for(ask, model.adapter),
            "history": [{"role": one.role, "content": one.text} for one in unknown if one.role != "tool" and one.text],
            "reasoning": thoughts_of(ask.said),
            "all_events": True,
            "answer_metadata": {INPUT: input.id},
        }
        return {key: value for key, value in options.items() if value is not None}

    def _model(self, talk: Conversation, name: str | None) -> ChatModel:
        book = self.services.store.parts.generation.models
        chosen = book.choose(talk.info, call=name)
        if chosen not in self.services.models and not self.services.settings.any_model:
            raise Refused(404, "The model of this conversation is not configured here", code="model_not_found")
        return book.chat(chosen)

    # ---- the history of the client

    async def _take_in(self, ask: Ask, talk: Conversation, mark: str) -> tuple[Turn, Plan]:
        """Make the thread what the client says it is, and return the last turn of it."""
        lock = self.services.taking_in.setdefault((talk.info.tenant, talk.id), asyncio.Lock())
        async with lock:
            for _ in range(TRIES):
                try:
                    return await self._take_in_once(ask, talk, mark)
                except (AppendConflict, TurnSuperseded):
                    continue  # somebody else wrote meanwhile: look again
        raise Refused(503, "This conversation is changing too fast", {"Retry-After": "1"})

    async def _take_in_once(self, ask: Ask, talk: Conversation, mark: str) -> tuple[Turn, Plan]:
        if not ask.said or ask.said[-1].role == "assistant":
            field = FIELDS.get(ask.shape, "messages")
            raise InvalidInput(field, "must end with a message of the user, or with results of tools")
        expected: int | None = None
        stored: list[Turn] = []
        if ask.previous is None and len(ask.said) == 1 and ask.said[0].role == "user" and not ask.whole:
            plan = Plan(ask.said)
        else:
            expected = (await talk.refresh()).next_seq
            stored, plan = await self._planned(ask, talk)
        check_results(stored, plan, FIELDS.get(ask.shape, "messages"))
        drafts = [*said_again(stored, plan), *[await draft_of(talk, one) for one in plan.new]]
        for draft in drafts[len(drafts) - len(plan.new) : len(drafts) - plan.own]:
            draft["metadata"] = {**draft["metadata"], "origin": HANDED_IN}
        kept = {**ask.kept, "mark": mark, "shape": ask.shape, "own": plan.own}
        drafts[-1]["metadata"] = {**drafts[-1]["metadata"], EXCHANGE: kept}
        return await append(talk, drafts, plan.replaces, expected), plan

    async def _planned(self, ask: Ask, talk: Conversation) -> tuple[list[Turn], Plan]:
        if ask.previous is not None:
            return await self._behind(ask, talk)
        stored: list[Turn] = await talk.history(len(ask.said) + MARGIN)
        if len(stored) >= len(ask.said) + MARGIN and not is_at_the_end(stored, ask.said):
            stored = await talk.history(MAX_TURNS)
        said = [redacted(talk, self.store, one) for one in ask.said]
        forgotten = await self._forgotten(talk, stored)
        return stored, planned(stored, said, whole=ask.whole, forgotten=forgotten)

    async def _forgotten(self, talk: Conversation, stored: Sequence[Turn]) -> int | None:
        """How many turns behind the last one a client may still have; None when there never were any."""
        if not talk.info.next_seq:
            return None
        missing = talk.info.next_seq - (stored[-1].seq + 1 if stored else 0)
        if not missing or not await talk.audit(kinds=("forget", "reset"), limit=1):
            return 0
        return missing

    async def _behind(self, ask: Ask, talk: Conversation) -> tuple[list[Turn], Plan]:
        """What is said goes behind an earlier answer; what followed that one is superseded."""
        assert ask.previous is not None
        _, id = referred(ask.previous)
        turns = await answer_turns(talk, await talk.turn(id))
        if not turns:
            raise _not_previous(400, "It has no answer to go on from")
        if not turns[-1].active:
            await talk.switch(turns[-1])
        following: list[Turn] = await talk.history(MARGIN, after=turns[-1])
        ours = {call.id for call in server_calls(turns[-1])}
        # Results of what ran here belong to the answer.
        own = [turn for turn in following if turn.role == "tool" and ours.issuperset(r.id for r in turn.tool_results)]
        stored: list[Turn] = [*await talk.history(RECENT, before=turns[-1]), turns[-1], *own]
        next_one = next((turn for turn in following if turn not in own), None)
        return stored, Plan(ask.said, len(ask.said), replaces=next_one)

    # ---- retries that find the first try in the log

    async def first_try(self, talk: Conversation, mark: str) -> Turn | None:
        """What the first try of a request has stored: in another process, or in this one before it was killed."""
        since = self.store.parts.clock.now() - timedelta(seconds=SECONDS)
        recent: list[Turn] = await talk.history(RECENT, since=since, include_superseded=True)
        for turn in reversed(recent):
            if noted_on(turn).get("mark") == mark and turn.status == "complete":
                return turn
        return None

    async def _unnamed_try(self, mark: str) -> tuple[Conversation, Turn] | None:
        """The same, of a request that began a conversation of its own: among the caller's latest."""
        since = self.store.parts.clock.now() - timedelta(seconds=SECONDS)
        page = await self.store.conversations(owner=self.store.scope.user or "", limit=LATEST)
        for info in page.items:
            if info.key is None and info.ttl == KEPT_SECONDS and info.created >= since:
                talk = await self.store.get(info.id)
                if tried := await self.first_try(talk, mark):
                    return talk, tried
        return None

    async def resumed(self, ask: Ask, talk: Conversation, input: Turn) -> Exchange:
        """An exchange whose message is stored: with its answer, or the one that is being made; else with a new one."""
        turns = await answer_turns(talk, input)
        if turns and _goes_on(turns[-1], self.store.parts.clock.now()):
            return Exchange(reference(talk.id, input.id), ask, int(input.created.timestamp()), talk, input)
        return await self._answer(ask, talk, input)

    # ---- without memory

    def _relayed(self, ask: Ask) -> Exchange:
        name = model_named(self.services, ask) or self.services.store.parts.generation.models.default
        model = self.services.store.parts.generation.models.chat(name)
        retries = self.services.store.parts.generation.settings.retry_policy
        now = int(self.store.parts.clock.now().timestamp())
        events = passed_on(model, model.body(request_of(ask, model)), retries, self.store.parts.clock.now())
        return Exchange(new_id(), ask, now, answer=self.services.answers.relay(events))


def _not_previous(status: int, detail: str) -> Refused:
    return Refused(status, detail, field="previous_response_id", code="previous_response_not_found")


def _goes_on(turn: Turn, now: datetime) -> bool:
    """Whether an answer that is here so far is whole, or being made by somebody who still lives."""
    is_whole = turn.status == "complete" and turn.active
    return turn.status == "pending" or (is_whole and not (server_calls(turn) and is_abandoned(turn, now)))


async def _never_answered(talk: Conversation, input: Turn) -> bool:
    return all(turn.status == "aborted" for turn in await answer_turns(talk, input))


async def answer_turns(talk: Conversation, input: Turn) -> list[Turn]:
    """The assistant's turns that answer an input, in order; of several answers the last."""
    found = await behind(talk, input)
    return [turn for turn in found if turn.role == "assistant" and turn.metadata.get(INPUT) == input.id]


async def _question_of(talk: Conversation, input: Turn) -> Turn:
    """The message that results of tools go on to answer: the one that their calls name, also when somebody asked
    something else since; for calls that name none, the last one before them."""
    recent: list[Turn] = await talk.history(RECENT, before=input)
    ids = {result.id for result in input.tool_results}
    calls = next((turn for turn in recent if ids.intersection(call.id for call in turn.tool_calls)), input)
    named = calls.metadata.get("answers")
    asked = next((turn for turn in recent if turn.id == named and turn.role == "user"), None)
    if asked is not None:
        return asked
    before: list[Turn] = await talk.history(1, before=calls, roles=["user"])
    return before[0] if before else input


async def behind(talk: Conversation, input: Turn) -> list[Turn]:
    """What was stored after an input: the turns of its answer are among them."""
    found: list[Turn] = await talk.history(BEHIND, after=input, include_superseded=True)
    return found
