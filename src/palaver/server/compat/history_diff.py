"""A client's history beside the stored thread: what is known already, what was edited, what is new. Pure.

Clients that keep the whole thread send it each time. What they send is compared by content with what they have seen of
the stored view: rounds of tools that ran here are not in it, and neighbouring pieces of an answer are one. Where the
two part, the client is right: its version takes the place of the stored one, which stays for the record.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import unquote_to_bytes

from palaver.core.identity import canonical_json
from palaver.generation.tool_calls import CLIENT_CALLS
from palaver.memory.working_memory import was_handed_in
from palaver.model import File, Image, ToolCall, ToolResult, Turn
from palaver.server.compat.request import ClientMessage, Part, result_text

Key = tuple[str, str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ClientView:
    """One message as a client sees it: what it is recognised by, and what it is made of."""

    role: str
    text: str
    files: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    first: Turn | None = None  # where it begins in the stored thread
    gap: int = 0  # how many turns before it are there no more
    said: tuple[ClientMessage, ...] = ()  # or in the client's

    @property
    def key(self) -> Key:
        return self.role, "".join(self.text.split()), self.files, self.calls, self.results

    def joined(self, other: ClientView) -> ClientView:
        return replace(
            self,
            text=self.text + other.text,
            files=self.files + other.files,
            calls=self.calls + other.calls,
            results=tuple(sorted(self.results + other.results)),
            said=self.said + other.said,
        )


@dataclass(frozen=True, slots=True)
class HistoryPlan:
    """What to do with a client's history: `new` is appended; `replaces` is where, when not at the end.

    `unknown` is a history of which nothing is known here, though there is a thread: it is not stored.
    """

    new: tuple[ClientMessage, ...]
    own: int = 1  # how many of them, at the end, are said now; the others are the client's account of what was said
    replaces: Turn | None = None
    unknown: tuple[ClientMessage, ...] = ()


def plan_history(
    stored: Sequence[Turn], said: Sequence[ClientMessage], *, whole: bool = False, forgotten: int | None = None
) -> HistoryPlan:
    """How the thread becomes what the client says it is. The last message is always new.

    One message alone is an addition, unless the client says that it is the whole of its history. `forgotten` is how
    many turns behind the last one were forgotten, at most; None: there never were any turns but these. A client may
    still have what was forgotten: it does not come back that way.
    """
    ours = view_of_turns(stored)
    theirs = view_of_messages(said, _hidden(stored))
    if not theirs:
        return HistoryPlan(())
    past, last = theirs[:-1], theirs[-1]
    if not past and not whole:
        return HistoryPlan(last.said, len(last.said))
    if not ours and forgotten is None:
        return HistoryPlan(_all(theirs), len(last.said))
    shift = _shift(ours, past)
    if shift is None or not ours:
        start = len(past) if forgotten else _after_answers(theirs)
        new = _all(theirs[start:])
        return HistoryPlan(new, len(new), unknown=_all(theirs[:start]))
    return _along(ours, theirs, shift, forgotten or 0)


def is_at_the_end(stored: Sequence[Turn], said: Sequence[ClientMessage]) -> bool:
    """Whether these last turns of a thread are what the client's history ends with: then the rest need not be read."""
    ours, theirs = view_of_turns(stored), view_of_messages(said, _hidden(stored))[:-1]
    tail = ours[-len(theirs) :] if theirs else []
    return bool(theirs) and [one.key for one in tail] == [one.key for one in theirs]


def _after_answers(theirs: Sequence[ClientView]) -> int:
    """Where what is said now begins: who sends only what is new may send results and words, or two messages."""
    return max((n for n, one in enumerate(theirs, 1) if one.role == "assistant"), default=0)


def _shift(ours: Sequence[ClientView], past: Sequence[ClientView]) -> int | None:
    """How far the client's first message is from the stored first one: where the most of them agree, and of several
    such places the one nearest to the end. None: they have nothing in common."""
    places: dict[Key, list[int]] = {}
    for index, one in enumerate(ours):
        places.setdefault(one.key, []).append(index)
    agreeing: Counter[int] = Counter()
    for index, one in enumerate(past):
        agreeing.update(place - index for place in places.get(one.key, ()))
    if not past:
        return 0
    return max(agreeing, key=lambda shift: (agreeing[shift], shift)) if agreeing else None


def _along(ours: Sequence[ClientView], theirs: Sequence[ClientView], shift: int, forgotten: int) -> HistoryPlan:
    """Walk both side by side to the first difference; from there on the client's version counts."""
    end = len(theirs) - 1
    # Before the part that is known here there may be a summary of the client's own, or a piece that is older than ours.
    index = next(i for i in range(end) if _same(ours, theirs, i, shift)) if shift else 0
    place = index + shift
    while index < end and place < len(ours) and (steps := _steps(ours[place], theirs[index:end])):
        index, place = index + steps, place + 1
    if place == len(ours):
        index = min(end, index + forgotten)
    replaced = ours[place].first if place < len(ours) else None
    return HistoryPlan(_all(theirs[index:]), len(theirs[-1].said), replaces=replaced)


def _steps(ours: ClientView, theirs: Sequence[ClientView]) -> int:
    """How many of the client's messages lead to the next one of ours: one, or more where turns were forgotten; 0: none
    does."""
    return next((n for n, one in enumerate(theirs[: ours.gap + 1], 1) if one.key == ours.key), 0)


def _same(ours: Sequence[ClientView], theirs: Sequence[ClientView], index: int, shift: int) -> bool:
    place = index + shift
    return 0 <= place < len(ours) and ours[place].key == theirs[index].key


def _all(seen: Iterable[ClientView]) -> tuple[ClientMessage, ...]:
    return tuple(said for one in seen for said in one.said)


# ---- what a client has seen ----------------------------------------------------------------------------------------


def view_of_turns(turns: Iterable[Turn]) -> list[ClientView]:
    found: list[ClientView] = []
    place: int | None = None
    for turn in turns:
        gap, place = (0 if place is None else max(0, turn.position - place - 1)), turn.position
        theirs = _client_ids(turn)
        results = [one for one in turn.tool_results if one.id in _called(found)]
        if turn.role == "system" or (turn.role == "tool" and not results):
            continue
        calls = tuple(_call(call) for call in turn.tool_calls if call.id in theirs)
        _add(found, ClientView(turn.role, turn.text, _turn_files(turn), calls, _results(results), first=turn, gap=gap))
    return found


def view_of_messages(said: Iterable[ClientMessage], hidden: frozenset[str] = frozenset()) -> list[ClientView]:
    """`hidden` are calls that ran here: a client that was shown them sends them back."""
    found: list[ClientView] = []
    for one in said:
        calls = tuple(call for call in one.calls if call.id not in hidden)
        results = tuple(result for result in one.results if result.id not in hidden)
        if one.role == "tool" and not results:
            continue
        kept = replace(one, calls=calls, results=results)
        files = tuple(_file_key(part) for part in one.files)
        _add(found, ClientView(one.role, one.text, files, tuple(map(_call, calls)), _results(results), said=(kept,)))
    return found


def _add(found: list[ClientView], one: ClientView) -> None:
    """Pieces of an answer, and results of one round, are one message; so is an empty piece of an answer nothing."""
    last = found[-1] if found else None
    goes_on = last is not None and last.role == one.role != "user" and not last.calls and not one.gap
    if last is not None and goes_on:
        found[-1] = last.joined(one)
    elif one.role != "assistant" or one.text.strip() or one.calls or one.files:
        found.append(one)


def _called(found: Sequence[ClientView]) -> frozenset[str]:
    """The ids of calls that the client was asked for, in the latest message that had any."""
    for one in reversed(found):
        if one.calls:
            return frozenset(call.partition("\n")[0] for call in one.calls)
    return frozenset()


def _client_ids(turn: Turn) -> frozenset[str]:
    if was_handed_in(turn.metadata):
        return frozenset(call.id for call in turn.tool_calls)
    return frozenset(turn.metadata.get(CLIENT_CALLS, ()))


def _hidden(turns: Iterable[Turn]) -> frozenset[str]:
    return frozenset(call.id for turn in turns for call in turn.tool_calls if call.id not in _client_ids(turn))


def _call(call: ToolCall) -> str:
    return f"{call.id}\n{call.name}\n{canonical_json(call.arguments)}"


def _results(results: Iterable[ToolResult]) -> tuple[str, ...]:
    return tuple(sorted(f"{one.id}\n{''.join(result_text(one.content).split())}" for one in results))


def _turn_files(turn: Turn) -> tuple[str, ...]:
    if isinstance(turn.content, str):
        return ()
    hashes = {one.id: one.sha256 for one in turn.attachments}
    parts = [part for part in turn.content if isinstance(part, Image | File)]
    return tuple(hashes.get(part.attachment or "", part.url or "") for part in parts)


def _file_key(part: Part) -> str:
    """A file is recognised by its bytes where they were sent, else by its address."""
    url = str(part.get("url") or "")
    data = data_of(url)
    return url if data is None else hashlib.sha256(data[1]).hexdigest()


def data_of(url: str) -> tuple[str, bytes] | None:
    """The type and the bytes of a `data:` URL; None for another, or one that cannot be read."""
    header, comma, body = url.partition(",")
    if not header.startswith("data:") or not comma:
        return None
    kind, *options = header.removeprefix("data:").split(";")
    try:
        data = b64decode(body, validate=True) if "base64" in options else unquote_to_bytes(body)
    except ValueError:
        return None
    return kind or "application/octet-stream", data


def open_calls(turns: Sequence[Turn]) -> tuple[Turn, frozenset[str]] | None:
    """The latest turn with calls for the client that have no result yet, and the ids of those calls."""
    answered: set[str] = set()
    for turn in reversed(turns):
        answered.update(result.id for result in turn.tool_results)
        waiting = _client_ids(turn) - answered
        if turn.tool_calls:
            return (turn, frozenset(waiting)) if waiting else None
    return None
