"""Opens exchanges for clients of other protocols: finds the conversation, stores the history, starts the answer.

A request that names a conversation needs only the new message. A client that sends its whole history is recognised by
content, and its edits supersede. A request that names no conversation is passed to the model and leaves nothing behind,
unless it asks to be stored.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from palaver.context.render import original_names
from palaver.context.settings import counts_characters
from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import clock_of, components_of, generation_of, services_of
from palaver.conversations.store import Store
from palaver.core.budgets import payer_of
from palaver.core.concurrency import run_in_strides
from palaver.core.identity import new_id
from palaver.core.rights import require_right
from palaver.core.strides import size_of
from palaver.errors import Gone, InvalidInput, NotFound, TurnNotFound
from palaver.generation.answer_place import AnswerPlace, simultaneous_of
from palaver.generation.events import Answered, GenerateEvent
from palaver.model import GENERATE, READ, SYSTEM, WRITE, Turn
from palaver.models.context_windows import default_budget
from palaver.models.tokens import counter_for
from palaver.ports.models import ChatModel
from palaver.server.auth import Caller
from palaver.server.compat.client_history import FIELDS, HistoryWriter, previous_error
from palaver.server.compat.compaction import (
    COMPACTED,
    compact_if_due,
    find_compacted,
    read_compaction,
    summary_message,
)
from palaver.server.compat.context_edits import FIELD as EDITS
from palaver.server.compat.exchange import Exchange, answer_turns, exchange_metadata, is_usable
from palaver.server.compat.model_choice import choose_model, resolve_model
from palaver.server.compat.passthrough import empty_turn, plan_call, relay_events
from palaver.server.compat.references import (
    exchange_id,
    find_conversation_named,
    get_or_create_conversation,
    parse_exchange_id,
)
from palaver.server.compat.replay import INPUT
from palaver.server.compat.request import (
    EXTENSION,
    ClientMessage,
    ClientRequest,
    count_tokens,
    reasoning_by_call,
    settings_for,
)
from palaver.server.compat.sdk_retries import RETRY_SECONDS
from palaver.server.components import Services
from palaver.server.live.answers import Answer

RECENT = 50  # turns among which the first attempt of a request is searched
LATEST = 20  # conversations among which it is searched if the request named none
MESSAGE_ROOM = 2  # the least context, in tokens of the message to answer
UNNAMED_TTL = 30 * 86_400  # seconds; providers keep the answers of unnamed conversations as long


@dataclass(slots=True)
class Exchanges:
    """Opens and finds the exchanges of one caller."""

    services: Services
    store: Store
    caller: Caller

    async def open(self, ask: ClientRequest, name: str | None, mark: str, again: bool) -> Exchange:
        """Open the exchange of a request; for a retry, find the one it repeats. `mark` is the request's fingerprint."""
        scope = self.store.scope
        key = (scope.tenant, scope.user or "", self.caller.name, name or "", mark)

        async def begin() -> Exchange:
            return await self._begin(ask, name, mark, again)

        made = await self.services.retries.run_once(key, again, begin)
        exchange: Exchange = made[0]
        is_repeated = made[1]
        if not is_repeated:
            self._remember(exchange)
            return exchange
        if await exchange.was_forgotten():
            raise TurnNotFound(exchange.id)
        if exchange.failed:
            exchange.answer = await self._answer_again(exchange)
        return exchange

    def _remember(self, exchange: Exchange) -> None:
        """Keep the exchange for clients that ask for it by id."""
        recent = self.services.recent_exchanges
        recent[exchange.id] = exchange
        for one in recent.values():
            one.drop_messages()

    async def find(self, id: str) -> Exchange:
        """Find a stored exchange by id: from memory, or from the log."""
        conversation, turn = parse_exchange_id(id)
        talk = await self.store.get(conversation)
        input = await talk.turn(turn)
        noted = exchange_metadata(input)
        if not noted or input.status == "forgotten":
            raise TurnNotFound(turn)
        known: Exchange | None = self.services.recent_exchanges.get(id)
        # If it failed here, the log may know more: another process may have answered since.
        failed_for_good = known is not None and known.failed and await _never_answered(talk, input)
        if known is not None and (failed_for_good or not known.failed) and not await known.was_forgotten():
            return replace(known, talk=talk, input=input)
        ask = ClientRequest(shape=str(noted.get("shape")), model="", said=(), kept=noted)
        return self._exchange(ask, talk, input)

    async def _begin(self, ask: ClientRequest, name: str | None, mark: str, again: bool) -> Exchange:
        is_named = bool(ask.previous or ask.conversation or name)
        self._check_rights(ask, is_named)
        self._check_model(ask)
        if again and ask.store and not is_named and (found := await self._find_unnamed_attempt(mark)):
            return await self.resume(ask, *found)
        if not again:
            await self._check_budgets(ask)
        ask = await self._continue_compaction(ask, name)
        talk = await self._conversation(ask, name)
        if talk is None:
            if ask.edits.compact_at is not None:
                raise InvalidInput(EDITS, "needs a conversation to compact: send X-Conversation-Id")
            if ask.context:
                raise InvalidInput(
                    f"{EXTENSION}.context", "needs a conversation: without one, the request is passed on as it is"
                )
            return await self._pass_through(ask)
        if again and (tried := await self.find_first_attempt(talk, mark)):
            return await self.resume(ask, talk, tried)
        place = await services_of(talk).answers.reserve()
        try:
            input, plan = await HistoryWriter(self.store, self.services.history_locks).store_history(ask, talk, mark)
            return await self._answer(ask, talk, input, plan.unknown, place)
        except BaseException:
            await place.leave()
            raise

    async def _continue_compaction(self, ask: ClientRequest, name: str | None) -> ClientRequest:
        """Continue from a compaction that the client sent back: in its own conversation, elsewhere with its text."""
        if ask.compaction is None or ask.previous is not None:
            return ask
        found = await find_compacted(self.store, ask.compaction)
        wanted = ask.conversation or name
        if wanted is not None:
            named = await find_conversation_named(self.store, wanted)
            if found is not None and named is not None and named.id == found[0].id:
                return ask
        elif found is not None and ask.store:
            return replace(ask, conversation=found[0].id, after=found[1].id, whole=True)
        summary = await summary_message(FIELDS.get(ask.shape, "messages"), ask.compaction, found)
        return replace(ask, said=(summary, *ask.said))

    def _check_rights(self, ask: ClientRequest, is_named: bool) -> None:
        """Refuse before anything is stored: an answer needs the right to ask a model, a stored one also to read and to
        write."""
        require_right(self.store.scope, GENERATE)
        if ask.instructions:
            require_right(self.store.scope, SYSTEM)
        if ask.store or is_named:
            require_right(self.store.scope, READ)
            require_right(self.store.scope, WRITE)

    def _check_model(self, ask: ClientRequest) -> None:
        """Refuse an unknown model, or settings that it does not support, before anything is stored."""
        if (name := resolve_model(self.services, ask)) is not None:
            settings_for(ask, self.services.registry.chat(name).adapter)

    async def _check_budgets(self, ask: ClientRequest) -> None:
        """Refuse if the budgets allow no call now, before a conversation is made for it."""
        registry = self.services.registry
        name = resolve_model(self.services, ask) or registry.default
        budgets = components_of(self.store).budgets
        await budgets.check(payer_of(self.store.scope), registry.chat(name), registry.price(name))

    async def _conversation(self, ask: ClientRequest, name: str | None) -> Conversation | None:
        """Find the conversation of a request, or create one. None: nothing is to be stored."""
        if ask.previous is not None:
            return await self._previous_conversation(ask.previous)
        wanted = ask.conversation or name
        if wanted is not None:
            return await get_or_create_conversation(self.store, wanted)
        return await self.store.conversation(ttl=UNNAMED_TTL) if ask.store else None

    async def _previous_conversation(self, id: str) -> Conversation:
        try:
            conversation, turn = parse_exchange_id(id)
            talk = await self.store.get(conversation)
            if (await talk.turn(turn)).status == "forgotten":
                raise TurnNotFound(turn)
        except (NotFound, Gone):
            raise previous_error(404, "There is no such response") from None
        return talk

    # ---- answers

    def _exchange(self, ask: ClientRequest, talk: Conversation, input: Turn, answer: Answer | None = None) -> Exchange:
        created = int(input.created.timestamp())
        settings = self.services.generate_settings
        queued = simultaneous_of(talk.info, settings.simultaneous) == "queue"
        seconds = self.services.start_seconds + (settings.queue_timeout if queued else 0)
        return Exchange(exchange_id(talk.id, input.id), ask, created, talk, input, answer, seconds)

    async def _answer(
        self,
        ask: ClientRequest,
        talk: Conversation,
        input: Turn,
        unknown: Sequence[ClientMessage] = (),
        place: AnswerPlace | None = None,
    ) -> Exchange:
        question = input if input.role == "user" else await _find_question(talk, input)
        options = await self._options(ask, talk, question, input, unknown)
        at = ask.edits.compact_at
        compaction = None if at is None else await compact_if_due(talk, input, at)
        if compaction is not None and ask.edits.pause:
            if place is not None:
                await place.leave()
            answer = self.services.answers.relay(_paused(talk.id, clock_of(self.store).now()))
        else:
            if compaction is not None:
                # The provider's own copy of the thread is not compacted: send it the new one.
                marks = {INPUT: input.id, COMPACTED: True}
                options |= {"answer_metadata": marks, "continuity": "off"}
            answer = await self.services.answers.start(talk, None, options, place)
        return replace(self._exchange(ask, talk, input, answer), compaction=compaction)

    async def _answer_again(self, exchange: Exchange) -> Answer:
        """Answer a failed exchange again, with the message that is already stored."""
        if exchange.talk is None or exchange.input is None:
            answer = (await self._pass_through(exchange.ask)).answer
        else:
            answer = (await self._answer(exchange.ask, exchange.talk, exchange.input)).answer
        assert answer is not None
        return answer

    async def _options(
        self, ask: ClientRequest, talk: Conversation, question: Turn, input: Turn, unknown: Sequence[ClientMessage]
    ) -> dict[str, object]:
        name = resolve_model(self.services, ask)
        model = choose_model(self.services, talk, name)
        options: dict[str, object] = {
            "question": question if question.role == "user" else None,
            "model": name,
            "instructions": ask.instructions,
            "client_tools": ask.tools,
            "tool_choice": ask.tool_choice,
            "settings": settings_for(ask, model.adapter),
            "history": [{"role": one.role, "content": one.text} for one in unknown if one.role != "tool" and one.text],
            "reasoning": reasoning_by_call(ask.said),
            "all_events": True,
            "answer_metadata": {INPUT: input.id},
            "clear_tool_uses": ask.edits.clear_tools,
            "continuity": None if ask.edits.clear_tools is None else "off",
            **ask.context,
            **await self._budget(ask, talk, model),
        }
        return {key: value for key, value in options.items() if value is not None}

    async def _budget(self, ask: ClientRequest, talk: Conversation, model: ChatModel) -> dict[str, object]:
        """Limit the context to the size from which the client wants it compacted."""
        at = ask.edits.compact_at
        usual = generation_of(self.store).context_options(talk.info, ask.context)
        if not at or counts_characters(usual):
            return {}
        # A message that is longer than this must still fit.
        needed = MESSAGE_ROOM * await count_tokens(replace(ask, said=ask.said[-1:]), counter_for(model.name))
        return {"token_budget": min(max(at, needed), usual.get("token_budget") or default_budget(model.window))}

    async def _pass_through(self, ask: ClientRequest) -> Exchange:
        """Answer without memory, and without storing anything."""
        registry, now = self.services.registry, clock_of(self.store).now()
        model = registry.chat(resolve_model(self.services, ask) or registry.default)
        budgets, payer = components_of(self.store).budgets, payer_of(self.store.scope)
        price = registry.price(resolve_model(self.services, ask) or registry.default)
        call, cleared = await run_in_strides(partial(plan_call, ask, model, price), size_of(ask))
        names = original_names([tool.name for tool in ask.tools])
        events = relay_events(
            call,
            lambda _, heard: budgets.reserved(payer, call, lambda: heard),
            names,
            self.services.generate_settings.retry_policy,
            now,
        )
        answer = self.services.answers.relay(events)
        return Exchange(new_id(), ask, int(now.timestamp()), answer=answer, cleared=cleared)

    # ---- retries whose first attempt is in the log

    async def find_first_attempt(self, talk: Conversation, mark: str) -> Turn | None:
        """Find the turn that the first attempt of a request stored, in another process or before a crash."""
        since = clock_of(self.store).now() - timedelta(seconds=RETRY_SECONDS)
        recent: list[Turn] = await talk.history(RECENT, since=since, include_superseded=True)
        for turn in reversed(recent):
            if exchange_metadata(turn).get("mark") == mark and turn.status == "complete":
                return turn
        return None

    async def _find_unnamed_attempt(self, mark: str) -> tuple[Conversation, Turn] | None:
        """Find the first attempt of a request that created its own conversation, among the caller's latest ones."""
        since = clock_of(self.store).now() - timedelta(seconds=RETRY_SECONDS)
        page = await self.store.conversations(owner=self.store.scope.user or "", limit=LATEST)
        for info in page.items:
            if info.key is None and info.ttl == UNNAMED_TTL and info.created >= since:
                talk = await self.store.get(info.id)
                if tried := await self.find_first_attempt(talk, mark):
                    return talk, tried
        return None

    async def resume(self, ask: ClientRequest, talk: Conversation, input: Turn) -> Exchange:
        """Continue an exchange whose message is stored: with its answer if that is usable, otherwise with a new one."""
        turns = await answer_turns(talk, input)
        if turns and is_usable(turns[-1], clock_of(self.store).now()):
            compaction = await read_compaction(talk, input) if turns[-1].metadata.get(COMPACTED) else None
            return replace(self._exchange(ask, talk, input), compaction=compaction)
        return await self._answer(ask, talk, input)


async def _paused(conversation: str, now: datetime) -> AsyncGenerator[GenerateEvent]:
    """Yield the end of a request that returns after the compaction, without an answer."""
    yield Answered(empty_turn(conversation, now, "stop"))


async def _never_answered(talk: Conversation, input: Turn) -> bool:
    return all(turn.status == "aborted" for turn in await answer_turns(talk, input))


async def _find_question(talk: Conversation, input: Turn) -> Turn:
    """Find the user turn that tool results belong to.

    The calls name it, even if other questions followed. If they do not, it is the last user turn before them.
    """
    recent: list[Turn] = await talk.history(RECENT, before=input)
    ids = {result.id for result in input.tool_results}
    calls = next((turn for turn in recent if ids.intersection(call.id for call in turn.tool_calls)), input)
    named = calls.metadata.get("answers")
    asked = next((turn for turn in recent if turn.id == named and turn.role == "user"), None)
    if asked is not None:
        return asked
    before: list[Turn] = await talk.history(1, before=calls, roles=["user"])
    return before[0] if before else input
