"""Messages of a framework as turns: found by their words, shown to models, and given back exactly as they came.

The message itself is kept as data next to its words, with the fields that Palaver does not know. A conversation that is
redacted keeps the words alone, because the data would hold the secret.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from palaver.core.turn_options import TurnInput
from palaver.model import Text, Turn, data_part, is_data

if TYPE_CHECKING:
    from palaver.conversations.conversation import Conversation


def with_original(turn: TurnInput, original: object, talk: Conversation | None) -> TurnInput:
    """Return a turn that also keeps the framework's own message."""
    if talk is not None and talk.info.settings.get("redact"):
        return turn
    content = turn.get("content", "")
    parts = ([Text(content)] if content else []) if isinstance(content, str) else list(content)
    packed = zlib.compress(json.dumps(original, default=str, separators=(",", ":")).encode(), 1)
    return {**turn, "content": [*parts, data_part(packed)]}


def original_of(turn: Turn) -> Any | None:
    """Return the framework's own message; None if the turn was stored by another program, or redacted."""
    data = turn.data
    try:
        return None if data is None else json.loads(zlib.decompress(data))
    except (zlib.error, ValueError):
        return None


def words_of(turn: Turn) -> Any:
    """Return the content of a turn without that data."""
    if isinstance(turn.content, str):
        return turn.content
    parts = [part for part in turn.content if not is_data(part)]
    return turn.text if all(isinstance(part, Text) for part in parts) else parts


def text_of(content: object) -> str:
    """Return the words of a content in any framework's form: text, or parts of which some have a `text`."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        value = content.get("text")
        return value if isinstance(value, str) else ""
    if isinstance(content, Sequence):
        return "\n".join(filter(None, map(text_of, content)))
    return ""


def storable(text: str) -> str:
    """Replace characters that a database cannot store in text. The original message keeps them."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")
