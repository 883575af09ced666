"""The offline chat model: it quotes the best turns that recall found, with their dates, and says so."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from palaver.core.concurrency import run_in_strides
from palaver.core.strides import between_strides
from palaver.errors import InvalidInput
from palaver.model import RecallHit, Turn
from palaver.ports.models import Cited, Finished, JsonObject, ModelEvent, ModelRequest, Quote, Started, TextDelta
from palaver.recall.terms import excerpt, terms

NAME = "offline"
NOTICE = "No model is connected"
NOTHING = "so I can only quote what was said earlier, and nothing fits yet. Your message is saved."
QUOTES = 3
# A turn is quoted if its lexical or its dense score reaches these; less is enough for a statement of a speaker about
# themselves.
LEXICAL, DENSE, DENSE_OF_STATEMENT = 0.05, 0.35, 0.12
MAX_QUESTION = 16_384  # characters at the end of a message that are compared with sentences
_SENTENCE = re.compile(r"[^.!?\n]{1,2000}[.!?\n]*")  # a longer one is read in parts, so that each step is short
# A file in a prompt: see `palaver.context.render`.
_OPENING, _OPENING_END, _CLOSING = "<file note=", ">\n", "\n</file>"
_MAX_HEAD = 1_000  # characters of a file's note, and of the line with its name
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
        message = _last_text(body["messages"])
        in_files = await run_in_strides(partial(file_quotes, message), len(message))
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
    files = list(_files_in(message))
    if not files:
        return []
    stems = frozenset(terms(_ATTACHED.sub("", _around(message, files)[-MAX_QUESTION:])))
    return [(file.name, _best_sentence(file.text, stems)) for file in files[:QUOTES]]


class _File(NamedTuple):
    """A file in a message: its name and text, and where it begins and ends there."""

    name: str
    text: str
    start: int
    end: int


def _files_in(message: str) -> Iterator[_File]:
    """Find the files in a message. Every step moves on in it, so the time is linear in its length."""
    start = message.find(_OPENING)
    while start >= 0:
        between_strides()
        at = start + len(_OPENING)
        head = message.find(_OPENING_END, at, at + _MAX_HEAD)
        if head >= 0:
            end = message.find(_CLOSING, head)
            if end < 0:
                return
            line = message.find("\n", head + len(_OPENING_END), min(end, head + _MAX_HEAD))
            name, mark, _ = message[head + len(_OPENING_END) : max(line, 0)].partition(" (attachment ")
            at = end + len(_CLOSING)
            if name and mark:
                yield _File(name, message[line + 1 : end], start, at)
        start = message.find(_OPENING, at)


def _around(message: str, files: Sequence[_File]) -> str:
    """Return the message without its files."""
    starts, ends = [0, *(file.end for file in files)], [*(file.start for file in files), len(message)]
    return "".join(message[start:end] for start, end in zip(starts, ends, strict=True))


def _best_sentence(text: str, stems: frozenset[str]) -> str:
    """Return the sentence with the most of these stems (the first of several), or the beginning if none has one."""
    best, most = "", 0
    for sentence in _sentences(text):
        found = len(stems.intersection(terms(sentence)))
        if found > most:
            best, most = sentence, found
    return excerpt(" ".join(best.split()), stems) if best else excerpt(text, frozenset())


def _sentences(text: str) -> Iterator[str]:
    for sentence in _SENTENCE.finditer(text):
        between_strides()
        yield sentence.group()


def _last_text(messages: Sequence[Mapping[str, object]]) -> str:
    content = messages[-1].get("content") if messages else ""
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content or "")


def quotes_of(question: str, hits: Sequence[RecallHit]) -> tuple[Quote, ...]:
    """Choose the turns to quote from what recall found: no earlier quotations and no mere questions."""
    stems = frozenset(terms(question[-MAX_QUESTION:]))
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
    sentences = (sentence.strip() for sentence in _sentences(turn.text))
    return all(sentence.endswith("?") for sentence in sentences if sentence)


def _quote(turn: Turn, score: float, stems: frozenset[str]) -> Quote:
    return Quote(
        turn=turn.id,
        role=turn.role,
        actor=turn.actor,
        text=excerpt(turn.text, stems),
        created=turn.created,
        score=round(score, 4),
        conversation=turn.conversation,
    )


def _to_json(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value
