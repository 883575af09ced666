"""Threads that a provider keeps: the last response of each, and whether it can be continued. Kept in memory only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from palaver.context.inputs import Context
from palaver.context.render import Message
from palaver.core.bounded_dict import BoundedDict
from palaver.errors import InvalidInput
from palaver.model import Turn
from palaver.ports.models import ChatModel

Continuity = Literal["off", "auto", "with-history"]
MODES: tuple[Continuity, ...] = get_args(Continuity)
MAX_THREADS = 10_000  # remembered in one process


def clean_continuity(value: object) -> Continuity:
    for mode in MODES:
        if value == mode:
            return mode
    raise InvalidInput("continuity", f"must be one of {', '.join(MODES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderThread:
    """The provider's last response in a conversation, and the state of the conversation at that time."""

    response_id: str
    model: str
    project: str
    turn: str  # id, number and place of the turn that the response was stored as
    seq: int
    slot: str
    revision: int
    prompt_tokens: int
    asker: str | None
    instructions: str | None

    def matches(self, model: ChatModel, newest: Turn, context: Context, instructions: str | None, budget: int) -> bool:
        """Return whether only `newest` was added since: no edit, no other turn, the same model and project.

        `newest` is the next message of the same person, or the results of the calls that the response made.
        """
        return (
            (self.model, self.project, self.instructions) == (model.name, model.project, instructions)
            and newest.seq == self.seq + 1
            and newest.parent == self.slot
            and (newest.role == "tool" or newest.actor == self.asker)
            and self.revision == context.revision
            and self.prompt_tokens <= budget
        )


def _new_threads() -> BoundedDict[tuple[str, str, str], ProviderThread]:
    return BoundedDict(MAX_THREADS)


@dataclass(slots=True)
class ProviderThreads:
    """The provider threads of one process, by tenant, conversation and agent."""

    _threads: BoundedDict[tuple[str, str, str], ProviderThread] = field(default_factory=_new_threads)

    def get(self, tenant: str, conversation: str, agent: str) -> ProviderThread | None:
        return self._threads.get((tenant, conversation, agent))

    def put(self, tenant: str, conversation: str, agent: str, thread: ProviderThread) -> None:
        self._threads[tenant, conversation, agent] = thread

    def drop(self, tenant: str, conversation: str) -> None:
        """Drop the threads of a conversation that was reset, switched, edited or forgotten."""
        for key in [key for key in self._threads if key[:2] == (tenant, conversation)]:
            del self._threads[key]


def new_messages(context: Context, newest: Turn, instructions: str | None) -> tuple[Message, ...] | None:
    """Return the messages that the provider has not seen. None if they cannot be told apart from the others.

    The instructions are sent again, because providers do not carry them over.
    """
    if newest.role == "tool":
        start = len(context.messages)
        while start and context.messages[start - 1]["role"] == "tool":
            start -= 1
        new = context.messages[start:]
        if [message["tool_call_id"] for message in new] != [result.id for result in newest.tool_results]:
            return None  # some results did not fit: only a whole context says which
    elif not _is_current(context, newest):
        return None  # another turn was stored after `newest`
    else:
        new = context.messages[context.stable :]
    lead = [{"role": "system", "content": instructions}] if instructions else []
    return (*lead, *new) if new else None


def _is_current(context: Context, message: Turn) -> bool:
    return any(block.kind == "current" and block.turn_ids == (message.id,) for block in context.explanation.blocks)
