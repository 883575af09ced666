"""One exchange: a client's request and the answer to it, followed live or from the log."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from palaver.conversations.conversation import Conversation
from palaver.errors import ModelUnavailable, NotFound
from palaver.generation.events import Answered, MessageStored, Prompted, ToolsPlanned, TurnOpened
from palaver.generation.tool_calls import is_abandoned, server_calls
from palaver.generation.tool_clearing import NOTHING, Cleared
from palaver.model import Turn
from palaver.server.compat.compaction import Compaction
from palaver.server.compat.replay import INPUT, REPLAYED, AnswerEvent, AnswerReplay, failed_turns
from palaver.server.compat.request import MAX_MESSAGES, ClientRequest
from palaver.server.live.answers import Answer

ANSWER_TURNS = 200  # turns after an input among which the turns of its answer are searched
START_SECONDS = 60.0  # an answer that has no first event after this time is considered lost
MAX_IGNORED = 20  # ignored fields that a header names
MAX_FIELD = 40  # characters of the name of an ignored field in a header
EXCHANGE = "exchange"  # metadata key on the last turn of a request


@dataclass(slots=True)
class Exchange:
    """A request and its answer, for any number of connections.

    Without `answer` this process does not generate it: its events come from the log.
    """

    id: str
    ask: ClientRequest
    created: int
    talk: Conversation | None = None
    input: Turn | None = None
    answer: Answer | None = None
    start_seconds: float = START_SECONDS
    compaction: Compaction | None = None  # of the thread, made before the answer
    cleared: Cleared = NOTHING  # tool results that were left out of a request that is not stored

    @property
    def ended(self) -> float | None:
        return self.answer.ended if self.answer is not None else None

    @property
    def failed(self) -> bool:
        return self.answer is not None and self.answer.problem is not None

    @property
    def never_started(self) -> bool:
        """True if the log should show an answer by now and no process is making one."""
        return self.answer is None and self.input is not None and seconds_left(self.input, self.start_seconds) <= 0

    def drop_messages(self) -> None:
        """Free the messages of a finished exchange: only a retry needs them, and images take megabytes."""
        if self.ask.said and self.ended is not None and not self.failed:
            self.ask = replace(self.ask, said=())

    async def listen(self) -> AsyncGenerator[AnswerEvent]:
        """Yield every event from the first on. Raises the error that the answer failed with."""
        if self.answer is None:
            async for event in follow_log(*self.stored(), self.start_seconds):
                yield event
            return
        async for event in self.answer.listen():
            yield event

    def stored(self) -> tuple[Conversation, Turn]:
        """Return the conversation and the input turn of an exchange that is stored."""
        assert self.talk is not None
        assert self.input is not None
        return self.talk, self.input

    async def was_forgotten(self) -> bool:
        """True if a turn of it was deleted since. Then it must not be replayed from memory."""
        if self.talk is None or self.input is None:
            return False
        events = self.answer.events if self.answer is not None else ()
        turns = [self.input, *(one.turn for one in events if isinstance(one, ToolsPlanned | Answered))]
        try:
            return any([(await self.talk.turn(turn)).status == "forgotten" for turn in turns])
        except NotFound:
            return True

    async def wait_for_output(self, seconds: float) -> None:
        """Wait, at most `seconds`, for the first output. An answer that failed before raises its error."""
        try:
            async with asyncio.timeout(seconds), aclosing(self.listen()) as events:
                async for event in events:
                    if not isinstance(event, MessageStored | Prompted | TurnOpened):
                        return
        except TimeoutError:
            pass  # it starts later; keep-alives bridge the time

    @property
    def prompted(self) -> Prompted | None:
        events = self.answer.events if self.answer is not None else ()
        return next((one for one in events if isinstance(one, Prompted)), None)

    def headers(self) -> dict[str, str]:
        """Describe the prompt: its conversation, its size, where its explanation is, and which fields it left out."""
        names = sorted(map(_header_text, self.ask.ignored))[:MAX_IGNORED]
        ignored = {"X-Ignored-Fields": ", ".join(names)} if names else {}
        if self.talk is None or self.input is None:
            return ignored
        path = f"/api/conversations/{self.talk.id}"
        found = {**ignored, "X-Conversation-Id": self.talk.id, "Link": f'<{path}/requests>; rel="explanation"'}
        if self.prompted is not None:
            blocks = self.prompted.context.explanation.blocks
            recalled = sum(len(block.turn_ids) for block in blocks if block.kind == "recalled")
            found["X-Context-Tokens"] = str(self.prompted.context.tokens)
            found["X-Recalled-Turns"] = str(recalled)
        return found


def _header_text(name: str) -> str:
    """Make the name of a field fit for a header: a client may send any text."""
    return re.sub(r"[^\w.-]", "?", name, flags=re.ASCII)[:MAX_FIELD]


# ---- from the log --------------------------------------------------------------------------------------------------


async def follow_log(
    talk: Conversation, input: Turn, start_seconds: float = START_SECONDS
) -> AsyncGenerator[AnswerEvent]:
    """Yield the events of an answer from the log, then live. Raises ModelUnavailable if it does not start in time."""
    (asked,) = await talk.audit(turn=input, kinds=("append",), limit=1)
    turns = await turns_after(talk, input)
    has_begun = any(turn.metadata.get(INPUT) == input.id for turn in turns)
    replay = AnswerReplay(input.id, failed=failed_turns(input.id, turns))
    try:
        async with (
            asyncio.timeout(None if has_begun else seconds_left(input, start_seconds)) as patience,
            aclosing(talk.subscribe(after=asked.n)) as logged,
        ):
            async for entry in logged:
                if entry.turn is None or entry.kind not in REPLAYED:
                    continue
                for event in replay.replay_event(entry, await talk.turn(entry.turn)):
                    patience.reschedule(None)
                    yield event
                if replay.is_over:
                    return
    except TimeoutError:
        raise ModelUnavailable(
            "the model", "was never called: the process that was about to call it has ended"
        ) from None


def seconds_left(input: Turn, start_seconds: float = START_SECONDS) -> float:
    """Return the seconds that the answer to an input still has to start."""
    return start_seconds - (datetime.now(UTC) - input.created).total_seconds()


def exchange_metadata(input: Turn) -> Mapping[str, object]:
    """Return the metadata of an exchange from its input turn. Any client may have written it: check each value."""
    noted = input.metadata.get(EXCHANGE)
    return noted if isinstance(noted, Mapping) else {}


async def turns_after(talk: Conversation, input: Turn) -> list[Turn]:
    """Return the turns stored after an input. The turns of its answer are among them."""
    found: list[Turn] = await talk.history(ANSWER_TURNS, after=input, include_superseded=True)
    return found


async def answer_turns(talk: Conversation, input: Turn) -> list[Turn]:
    """Return the assistant turns that answer an input, in order, the latest attempt last."""
    found = await turns_after(talk, input)
    return [turn for turn in found if turn.role == "assistant" and turn.metadata.get(INPUT) == input.id]


def is_usable(turn: Turn, now: datetime) -> bool:
    """True if an answer is complete, or a live process is still writing it."""
    is_complete = turn.status == "complete" and turn.active
    return turn.status == "pending" or (is_complete and not (server_calls(turn) and is_abandoned(turn, now)))


async def input_turns(exchange: Exchange) -> list[Turn]:
    """Return the turns of a request."""
    talk, input = exchange.stored()
    own = exchange_metadata(input).get("own")
    if not isinstance(own, int) or not 1 < own <= MAX_MESSAGES:
        return [input]
    # They were stored right before it, perhaps in a branch that is no longer active.
    before: list[Turn] = await talk.history(own - 1, before=input, include_superseded=True)
    return [*(turn for turn in before if turn.seq > input.seq - own), input]
