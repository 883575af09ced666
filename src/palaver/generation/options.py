"""The options of `generate`, checked."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from palaver.context.builder import parse_options
from palaver.core.validation import clean_name
from palaver.errors import InvalidInput
from palaver.generation.provider_thread import Continuity, clean_continuity
from palaver.model import Turn
from palaver.ports.models import ToolSpec

CONTEXT_OPTIONS = frozenset(inspect.signature(parse_options).parameters)
DECIDED = frozenset({"viewer", "query", "filter_participants", "message", "preview"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateOptions:
    """The keywords of one call of `generate`, checked."""

    message: Any = None
    question: Turn | None = None  # the message, where it is stored already
    model: str | None = None
    agent: str | None = None
    actor: str | None = None  # who says the message
    tools: Sequence[Any] | None = None
    client_tools: Sequence[ToolSpec] = ()  # run by whoever asks: a call of one ends the answer
    may_call: bool = True
    must_call: bool | str = False  # some tool, or that one; in the first round
    instructions: str | None = None
    history: Sequence[Mapping[str, Any]] | None = None
    attachments: Sequence[Any] = ()
    metadata: Mapping[str, Any] | None = None
    idempotency_key: str | None = None
    token_budget: int | None = None
    continuity: Continuity | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = True
    thoughts: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)  # before calls that are stored
    tell_all: bool = False  # also what the model is given, which turn its words go to, and its thoughts when finished
    marks: Mapping[str, Any] = field(default_factory=dict)  # in the metadata of the turns of the answer
    replaces: Turn | str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)


OWN_OPTIONS = tuple(one.name for one in fields(GenerateOptions) if one.name not in ("message", "context"))


def parse_generate_options(message: Any, keywords: Mapping[str, Any]) -> GenerateOptions:
    """What belongs to `build_context` is passed on to it, and checked there."""
    own = {name: value for name, value in keywords.items() if name in OWN_OPTIONS}
    if own.get("continuity") is not None:
        clean_continuity(own["continuity"])
    if own.get("agent") is not None:
        clean_name("agent", own["agent"])
    with_message = ("attachments", "idempotency_key", *(() if own.get("question") else ("history",)))
    if message is None and any(own.get(name) for name in with_message):
        raise InvalidInput("message", "is needed with history, attachments or an idempotency_key")
    if message is not None and own.get("question") is not None:
        raise InvalidInput("question", "is a message that is stored already: give that or a new message")
    rest = {name: value for name, value in keywords.items() if name not in own}
    for name in sorted(rest):
        if name in DECIDED:
            raise InvalidInput(name, "is decided by generate and its agents")
        if name not in CONTEXT_OPTIONS:
            known = ", ".join([*OWN_OPTIONS, *sorted(CONTEXT_OPTIONS - DECIDED - set(OWN_OPTIONS))])
            raise InvalidInput(
                name, f"is no option of generate; those are {known}. What the model's own API takes goes into settings="
            )
    parse_options(token_budget=own.get("token_budget"), **rest)  # refused before anything is stored
    return GenerateOptions(message=message, context=rest, **own)
