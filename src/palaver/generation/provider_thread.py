"""Going on from the provider's own memory of a thread, for as long as it is the same thread. Nothing here is stored."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any, Literal

from palaver.context.inputs import Context
from palaver.errors import InvalidInput
from palaver.model import Turn
from palaver.ports.models import ChatModel

Continuity = Literal["off", "auto", "with-history"]
MODES: tuple[Continuity, ...] = ("off", "auto", "with-history")
MOST = 10_000  # conversations whose last answer is remembered


def clean_continuity(value: object) -> Continuity:
    for mode in MODES:
        if value == mode:
            return mode
    raise InvalidInput("continuity", f"must be one of {', '.join(MODES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderThread:
    """The last answer that the provider gave in a thread, and what the thread looked like then."""

    response_id: str
    model: str
    project: str
    turn: str  # what the answer was stored as,
    seq: int  # its number,
    slot: str  # and its place
    revision: int
    prompt_tokens: int
    asker: str | None
    instructions: str | None


@dataclass(slots=True)
class ProviderThreads:
    """The links of one process, by tenant, conversation and agent."""

    _links: OrderedDict[tuple[str, str, str], ProviderThread] = field(default_factory=OrderedDict)

    def get(self, tenant: str, conversation: str, agent: str) -> ProviderThread | None:
        return self._links.get((tenant, conversation, agent))

    def put(self, tenant: str, conversation: str, agent: str, link: ProviderThread) -> None:
        self._links.pop((tenant, conversation, agent), None)
        self._links[tenant, conversation, agent] = link
        while len(self._links) > MOST:
            self._links.popitem(last=False)

    def drop(self, tenant: str, conversation: str) -> None:
        """The thread was reset, switched, edited or forgotten."""
        for key in [key for key in self._links if key[:2] == (tenant, conversation)]:
            del self._links[key]


def still_holds(
    link: ProviderThread, model: ChatModel, newest: Turn, context: Context, instructions: str | None, budget: int
) -> bool:
    """Whether nothing but `newest` has come to the thread since: no edit, nobody else, the same model and project.

    `newest` is the next message of the same person, or the results of the calls that the answer made.
    """
    return (
        (link.model, link.project, link.instructions) == (model.name, model.project, instructions)
        and newest.seq == link.seq + 1
        and newest.parent == link.slot
        and (newest.role == "tool" or newest.actor == link.asker)
        and link.revision == context.revision
        and link.prompt_tokens <= budget
    )


def only_new(context: Context, newest: Turn, instructions: str | None) -> tuple[dict[str, Any], ...] | None:
    """What the provider has not heard yet. It does not carry instructions over, so they go with it."""
    if newest.role == "tool":
        end = len(context.messages)
        start = end
        while start and context.messages[start - 1]["role"] == "tool":
            start -= 1
        new = context.messages[start:]
        if [message["tool_call_id"] for message in new] != [result.id for result in newest.tool_results]:
            return None  # they did not fit: only a fresh context tells what is missing
    elif not _is_about(context, newest):
        return None  # somebody spoke meanwhile, and `newest` stands further up
    else:
        new = context.messages[context.stable :]
    lead = [{"role": "system", "content": instructions}] if instructions else []
    return (*lead, *new) if new else None


def _is_about(context: Context, message: Turn) -> bool:
    return any(block.kind == "current" and block.turn_ids == (message.id,) for block in context.explanation.blocks)
