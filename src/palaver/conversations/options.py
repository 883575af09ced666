"""Fields of a conversation that callers give as keywords, as types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from palaver.memory.settings import ConversationSettings


class ConversationOptions(TypedDict, total=False):
    """Fields of a conversation that you can set.

    - `title`: the title that lists show. If there is none, `generate` writes one.
    - `workspace`: the name of a group of conversations. A scope can be limited to one workspace.
    - `agent`: the name of the agent that answers by default.
    - `model`: the name of the model that answers by default.
    - `participants`: users other than the owner who may read and write this conversation.
    - `metadata`: data of your application, as a JSON object.
    - `settings`: settings for summaries, retention, redaction, facts and more; see `ConversationSettings`.
    - `ttl`: the time to live: the number of seconds after the last change at which the conversation expires.
    """

    title: str | None
    workspace: str | None
    agent: str | None
    model: str | None
    participants: Iterable[str] | None
    metadata: Mapping[str, object] | None
    settings: ConversationSettings | None
    ttl: float | None


CONVERSATION_FIELDS = tuple(ConversationOptions.__annotations__)
