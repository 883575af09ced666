"""Quotations that prove a model's proposals: words of a turn, copied exactly. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

MIN_WORDS = 3
MAX_QUOTE = 500  # characters


def with_quotes(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema in which every object of a list must also have a quotation."""
    properties = {name: _quoted(value) for name, value in schema["properties"].items()}
    return {**schema, "properties": properties}


def _quoted(value: Mapping[str, Any]) -> Mapping[str, Any]:
    items = value.get("items")
    if not isinstance(items, Mapping) or items.get("type") != "object":
        return value
    quote = {"type": "string", "maxLength": MAX_QUOTE}
    known = {**items, "properties": {**items["properties"], "quote": quote}, "required": [*items["required"], "quote"]}
    return {**value, "items": known}


def is_quoted(item: Any, texts: Iterable[str]) -> bool:
    """Return whether an item has a quotation of three words or more that one of the texts contains."""
    quote = item.get("quote") if isinstance(item, Mapping) else None
    if not isinstance(quote, str) or len(quote) > MAX_QUOTE:
        return False
    words = quote.casefold().split()
    return len(words) >= MIN_WORDS and any(_holds(text.casefold().split(), words) for text in texts)


def _holds(text: list[str], words: list[str]) -> bool:
    """Return whether the words are in a text, one after the other; the last one may have a mark behind it there."""
    *first, last = words
    last, size = last.rstrip(".,;:!?"), len(first)
    starts = range(len(text) - size)
    return any(text[at : at + size] == first and text[at + size].startswith(last) for at in starts)
