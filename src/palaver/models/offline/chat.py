"""The offline chat model: it quotes the best turns that recall found, with their dates, and says so."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime

from palaver.errors import InvalidInput
from palaver.model import RecallHit, Turn
from palaver.ports.models import Cited, Finished, JsonObject, ModelEvent, ModelRequest, Quote, Started, TextDelta
from palaver.recall.terms import spans, terms

NAME = "offline"
NOTICE = "No model is connected"
NOTHING = "so I can only quote what was said earlier, and nothing fits yet. Your message is saved."
QUOTES = 3
# A turn is quoted if its lexical or its dense score reaches these; less is enough for a statement of a speaker about
# themselves.
LEXICAL, DENSE, DENSE_OF_STATEMENT = 0.05, 0.35, 0.12
EXCERPT, LEAD = 240, 60  # characters
_SENTENCE = re.compile(r"[^.!?\n]+[.!?\n]*")
# A file in a prompt: see `palaver.context.render`.
_FILE = re.compile(r"<file note=[^>]*>\n(?P<name>[^\n]+?) \(attachment [^\n]*\):\n(?P<text>.*?)\n</file>", re.DOTALL)
_ATTACHED = re.compile(r"^\[attached: .*\]$", re.MULTILINE)


class OfflineChat:
    name = NAME
    adapter = NAME
    provider = "palaver"
    window: int | None = 128_000
    remembers = False
    project = ""
    quotes = True  # its requests contain the turns that recall found
    takes_tools = False

    def body(self, request: ModelRequest) -> JsonObject:
        if request.settings:
            raise InvalidInput(f"settings.{sorted(request.settings)[0]}", "is not supported by the offline model")
        quotes = [{name: _to_json(getattr(one, name)) for name in one.__dataclass_fields__} for one in request.quotes]
        return {"model": NAME, "messages": list(request.messages), "quotes": quotes, "stream": request.stream}

    async def stream(self, body: JsonObject) -> AsyncIterator[ModelEvent]:
        yield Started(None, NAME)
        quotes: Sequence[Mapping[str, str]] = body["quotes"]
        in_files = file_quotes(_last_text(body["messages"]))
        if in_files:
            yield TextDelta(f"{NOTICE}, so here is what the file says:\n")
        for name, text in in_files:
            yield TextDelta(f"\n- “{text}” ({name})")
        if quotes:
            start = "\n\nAnd what was said earlier:\n" if in_files else f"{NOTICE}, so here is what was said earlier:\n"
            yield TextDelta(start)
        elif not in_files:
            yield TextDelta(f"{NOTICE}, {NOTHING}")
        for one in quotes:
            when = datetime.fromisoformat(one["created"]).astimezone()
            yield TextDelta(f"\n- “{one['text']}” ({_speaker(one)}, {when:%Y-%m-%d %H:%M})")
            yield Cited({"turn": one["turn"]})
        yield Finished("stop")


def file_quotes(message: str) -> list[tuple[str, str]]:
    """Choose sentences of attached files that share words with the question, each with the name of its file.

    A file without such a sentence is quoted from its beginning.
    """
    stems = frozenset(terms(_ATTACHED.sub("", _FILE.sub("", message))))
    found: list[tuple[str, str]] = []
    for file in _FILE.finditer(message):
        sentences = [one for one in (" ".join(one.split()) for one in _SENTENCE.findall(file["text"])) if one]
        best = sorted(sentences, key=lambda one: -len(stems.intersection(terms(one))))[:1]
        fitting = [one for one in best if stems.intersection(terms(one))] or [_excerpt(file["text"], frozenset())]
        found += [(file["name"], _excerpt(one, stems)) for one in fitting]
    return found[:QUOTES]


def _last_text(messages: Sequence[Mapping[str, object]]) -> str:
    content = messages[-1].get("content") if messages else ""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def quotes_of(question: str, hits: Sequence[RecallHit]) -> tuple[Quote, ...]:
    """Choose the turns to quote from what recall found: no earlier quotations and no mere questions."""
    stems = frozenset(terms(question))
    good = [hit for hit in hits if hit.turn is not None and _is_relevant(hit) and not is_echo(hit.turn)]
    return tuple(_quote(hit.turn, hit.score, stems) for hit in good[:QUOTES] if hit.turn is not None)


def _is_relevant(hit: RecallHit) -> bool:
    lexical, dense = hit.parts.get("lexical", 0.0), hit.parts.get("dense", 0.0)
    is_statement = hit.parts.get("standing", 0.0) > 0
    return lexical >= LEXICAL or dense >= (DENSE_OF_STATEMENT if is_statement else DENSE)


def _speaker(quote: Mapping[str, str]) -> str:
    """Return who said it: "you" for the one person of a chat, and names where there are some."""
    return "you" if quote["actor"] == quote["role"] == "user" else quote["actor"]


def is_echo(turn: Turn) -> bool:
    """Return whether a turn only repeats others: an offline answer, or nothing but questions."""
    if turn.role == "assistant" and NAME in (turn.adapter, turn.actor):
        return True
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(turn.text)]
    return all(sentence.endswith("?") for sentence in sentences if sentence)


def _quote(turn: Turn, score: float, stems: frozenset[str]) -> Quote:
    return Quote(
        turn=turn.id,
        role=turn.role,
        actor=turn.actor,
        text=_excerpt(turn.text, stems),
        created=turn.created,
        score=round(score, 4),
        conversation=turn.conversation,
    )


def _excerpt(text: str, stems: frozenset[str]) -> str:
    """Return the text around the first word with one of these stems, on one line."""
    hits = spans(text, stems)
    start = max(0, hits[0][0] - LEAD) if hits and len(text) > EXCERPT else 0
    piece = " ".join(text[start : start + EXCERPT].split())
    return ("… " if start else "") + piece + (" …" if start + EXCERPT < len(text) else "")


def _to_json(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value
