"""Values of the library as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from palaver.context.explain import Explanation
from palaver.context.inputs import Context
from palaver.core.turn_draft import encode_part
from palaver.model import (
    Attachment,
    Branch,
    ConversationInfo,
    ConversationMatch,
    Event,
    MemoryItem,
    RecallHit,
    Request,
    Turn,
    TurnMatch,
)
from palaver.ports.models import JsonObject
from palaver.recall.terms import spans

HIDDEN_TURN_FIELDS = ("idempotency_key", "slot")  # internal: not part of the API
_encoder = msgspec.json.Encoder(decimal_format="number")


def encode(value: object) -> bytes:
    return _encoder.encode(value)


def decode(data: bytes) -> Any:
    return msgspec.json.decode(data)


def plain(value: object) -> Any:
    """Convert a value whose fields are sent as they are: summaries, facts, notes, counts."""
    return msgspec.to_builtins(value)


def turn(value: Turn) -> JsonObject:
    data: JsonObject = msgspec.to_builtins(value)
    if not isinstance(value.content, str):
        data["content"] = [encode_part(part) for part in value.content]
    data["attachments"] = [attachment(one) for one in value.attachments]
    for name in HIDDEN_TURN_FIELDS:
        data.pop(name)
    return data


def conversation(info: ConversationInfo) -> JsonObject:
    data: JsonObject = msgspec.to_builtins(info)
    return data


def attachment(value: Attachment) -> JsonObject:
    """Convert an attachment without the path of its bytes."""
    shown = ("id", "filename", "media_type", "bytes", "sha256", "turn")
    return {name: getattr(value, name) for name in shown}


def event(value: Event) -> JsonObject:
    data: JsonObject = msgspec.to_builtins(value)
    return data


def match(value: TurnMatch) -> JsonObject:
    """Convert a match. `spans` are the places of the words in the text, for highlighting."""
    found = spans(value.turn.text, frozenset(value.terms))
    return {"turn": turn(value.turn), "terms": list(value.terms), "spans": [list(span) for span in found]}


def found(value: ConversationMatch) -> JsonObject:
    return {
        "conversation": conversation(value.conversation),
        "in_title": value.in_title,
        "matches": [match(one) for one in value.matches],
    }


def item(value: MemoryItem) -> JsonObject:
    return {**plain(value), "text": value.text}


def hit(value: RecallHit) -> JsonObject:
    return {
        "score": value.score,
        "relevance": value.relevance,
        "parts": dict(value.parts),
        "turn": None if value.turn is None else turn(value.turn),
        "fact": None if value.fact is None else plain(value.fact),
        "item": None if value.item is None else item(value.item),
        "quote": None if value.quote is None else plain(value.quote),
    }


def branch(value: Branch) -> JsonObject:
    active = value.active
    return {
        "position": value.position,
        "active": None if active is None else active.id,
        "turns": turns(value.turns),
    }


def turns(values: Iterable[Turn]) -> list[JsonObject]:
    return [turn(one) for one in values]


def request(value: Request) -> JsonObject:
    data: JsonObject = msgspec.to_builtins(value)
    del data["quoted"]
    data["previous_response_id"] = value.previous_response_id
    return data


def context(value: Context) -> JsonObject:
    return {
        "messages": value.messages,
        "tokens": value.tokens,
        "turn_ids": list(value.turn_ids),
        "explanation": value.explanation.to_dict(),
    }


def explanation_summary(explanation: Explanation | Mapping[str, Any] | None) -> JsonObject | None:
    """Summarise an explanation for the last frame of an answer: how full the prompt was, and of what."""
    if explanation is None:
        return None
    full = explanation.to_dict() if isinstance(explanation, Explanation) else explanation
    blocks = [{"kind": one["kind"], "tokens": one["tokens"], "turns": len(one["turn_ids"])} for one in full["blocks"]]
    kept = ("budget", "tokens", "unit", "policy", "turns", "recall", "identical_prefix")
    return {
        **{name: full[name] for name in kept},
        "blocks": blocks,
        "files": full.get("files", []),  # none in a record of an earlier version
        "left_out": sum(o["turns"] for o in full["left_out"]),
    }
