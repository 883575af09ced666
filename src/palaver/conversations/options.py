"""Fields of a conversation that callers give as keywords, as types."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypedDict

from palaver.memory.settings import ConversationSettings


class ConversationOptions(TypedDict, total=False):
    """Fields of a conversation that can be set.

    - `title`: shown in lists; `generate` writes one when there is none.
    - `workspace`: a group of conversations that scopes can be limited to.
    - `agent`, `model`: who answers here by default, and with which model.
    - `participants`: users other than the owner who may read and write here.
    - `metadata`: data of the application.
    - `settings`: summaries, retention, redaction and facts; see `ConversationSettings`.
    - `ttl`: seconds after the last change until the conversation is deleted.
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
