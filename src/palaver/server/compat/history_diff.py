"""Compares a client's history with the stored thread: what is known, what was edited, what is new. Pure.

Clients that keep the whole thread send it each time. It is compared by content with what the client has seen of the
stored thread: rounds of tools that ran on the server are not in it, and neighbouring pieces of an answer are one
message. Where the two differ, the client's version wins and supersedes the stored one, which stays on record.
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
from palaver.model import File, Image, ToolCall, ToolResult, Turn, is_data
from palaver.server.compat.request import ClientMessage, Part, result_text

Key = tuple[str, str, tuple[str, ...], tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ClientView:
    """One message as a client sees it: what identifies it, and the turn or messages behind it."""

    role: str
    text: str
    files: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    first: Turn | None = None  # its first turn in the stored thread
    gap: int = 0  # how many turns before it were deleted
    said: tuple[ClientMessage, ...] = ()  # its messages in the client's history

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
    """The plan for a client's history: append `new`, in place of `replaces` if that is set.

    `unknown` is a history that has nothing in common with the stored thread. It is not stored.
    """

    new: tuple[ClientMessage, ...]
    own: int = 1  # how many of `new`, at the end, belong to this request; the others are earlier messages
    replaces: Turn | None = None
    unknown: tuple[ClientMessage, ...] = ()


def plan_history(
    stored: Sequence[Turn], said: Sequence[ClientMessage], *, whole: bool = False, forgotten: int | None = None
) -> HistoryPlan:
    """Plan how to make the thread what the client says it is. The last message is always new.

    A single message is an addition, unless it is the client's `whole` history. `forgotten` is the maximum number of
    turns after the last stored one that were forgotten; None: no turn was ever stored but these. A client may still
    have forgotten messages: they are not stored again.
    """
    ours = view_of_turns(stored)
    theirs = view_of_messages(said, _server_call_ids(stored))
    if not theirs:
        return HistoryPlan(())
    past, last = theirs[:-1], theirs[-1]
    if not past and not whole:
        return HistoryPlan(last.said, len(last.said))
    if not ours and forgotten is None:
        return HistoryPlan(_messages_of(theirs), len(last.said))
    shift = _find_offset(ours, past)
    if shift is None or not ours:
        start = len(past) if forgotten else _start_of_new(theirs)
        new = _messages_of(theirs[start:])
        return HistoryPlan(new, len(new), unknown=_messages_of(theirs[:start]))
    return _plan_from_offset(ours, theirs, shift, forgotten or 0)


def is_at_the_end(stored: Sequence[Turn], said: Sequence[ClientMessage]) -> bool:
    """True if the client's history ends with these last turns of a thread. Then no more need be read."""
    ours, theirs = view_of_turns(stored), view_of_messages(said, _server_call_ids(stored))[:-1]
    tail = ours[-len(theirs) :] if theirs else []
    return bool(theirs) and [one.key for one in tail] == [one.key for one in theirs]


def _start_of_new(theirs: Sequence[ClientView]) -> int:
    """Return where the new messages start, after the last answer. There may be several, such as results and text."""
    return max((n for n, one in enumerate(theirs, 1) if one.role == "assistant"), default=0)


def _find_offset(ours: Sequence[ClientView], past: Sequence[ClientView]) -> int | None:
    """Return the offset at which the two histories agree most; of several, the one nearest to the end.

    None if they have nothing in common.
    """
    places: dict[Key, list[int]] = {}
    for index, one in enumerate(ours):
        places.setdefault(one.key, []).append(index)
    agreeing: Counter[int] = Counter()
    for index, one in enumerate(past):
        agreeing.update(place - index for place in places.get(one.key, ()))
    if not past:
        return 0
    return max(agreeing, key=lambda shift: (agreeing[shift], shift)) if agreeing else None


def _plan_from_offset(
    ours: Sequence[ClientView], theirs: Sequence[ClientView], shift: int, forgotten: int
) -> HistoryPlan:
    """Compare both from the offset on. From the first difference, the client's version wins."""
    end = len(theirs) - 1
    # The client may have a summary of its own, or older messages, before the part that is stored.
    index = next(i for i in range(end) if _is_same(ours, theirs, i, shift)) if shift else 0
    place = index + shift
    while index < end and place < len(ours) and (steps := _count_steps(ours[place], theirs[index:end])):
        index, place = index + steps, place + 1
    if place == len(ours):
        index = min(end, index + forgotten)
    replaced = ours[place].first if place < len(ours) else None
    return HistoryPlan(_messages_of(theirs[index:]), len(theirs[-1].said), replaces=replaced)


def _count_steps(ours: ClientView, theirs: Sequence[ClientView]) -> int:
    """Return how many of the client's messages lead to the next stored one.

    One, or more where turns were forgotten; 0 if none does.
    """
    return next((n for n, one in enumerate(theirs[: ours.gap + 1], 1) if one.key == ours.key), 0)


def _is_same(ours: Sequence[ClientView], theirs: Sequence[ClientView], index: int, shift: int) -> bool:
    place = index + shift
    return 0 <= place < len(ours) and ours[place].key == theirs[index].key


def _messages_of(seen: Iterable[ClientView]) -> tuple[ClientMessage, ...]:
    return tuple(said for one in seen for said in one.said)


# ---- views ---------------------------------------------------------------------------------------------------------


def view_of_turns(turns: Iterable[Turn]) -> list[ClientView]:
    found: list[ClientView] = []
    place: int | None = None
    for turn in turns:
        gap, place = (0 if place is None else max(0, turn.position - place - 1)), turn.position
        theirs = _client_ids(turn)
        results = [one for one in turn.tool_results if one.id in _open_call_ids(found)]
        if turn.role == "system" or (turn.role == "tool" and not results):
            continue
        calls = tuple(_call_key(call) for call in turn.tool_calls if call.id in theirs)
        _add(
            found, ClientView(turn.role, turn.text, _file_keys(turn), calls, _result_keys(results), first=turn, gap=gap)
        )
    return found


def view_of_messages(said: Iterable[ClientMessage], hidden: frozenset[str] = frozenset()) -> list[ClientView]:
    """Build the view of messages. `hidden` are calls that ran on the server, which some clients send back."""
    found: list[ClientView] = []
    for one in said:
        calls = tuple(call for call in one.calls if call.id not in hidden)
        results = tuple(result for result in one.results if result.id not in hidden)
        if one.role == "tool" and not results:
            continue
        kept = replace(one, calls=calls, results=results)
        files = tuple(_file_key(part) for part in one.files)
        _add(
            found,
            ClientView(one.role, one.text, files, tuple(map(_call_key, calls)), _result_keys(results), said=(kept,)),
        )
    return found


def _add(found: list[ClientView], one: ClientView) -> None:
    """Add a message. Pieces of an answer, and results of one round, are joined; an empty piece adds nothing."""
    last = found[-1] if found else None
    goes_on = last is not None and last.role == one.role != "user" and not last.calls and not one.gap
    if last is not None and goes_on:
        found[-1] = last.joined(one)
    elif one.role != "assistant" or one.text.strip() or one.calls or one.files:
        found.append(one)


def _open_call_ids(found: Sequence[ClientView]) -> frozenset[str]:
    """Return the ids of the client's calls in the latest message that has any."""
    for one in reversed(found):
        if one.calls:
            return frozenset(call.partition("\n")[0] for call in one.calls)
    return frozenset()


def _client_ids(turn: Turn) -> frozenset[str]:
    if was_handed_in(turn.metadata):
        return frozenset(call.id for call in turn.tool_calls)
    return frozenset(turn.metadata.get(CLIENT_CALLS, ()))


def _server_call_ids(turns: Iterable[Turn]) -> frozenset[str]:
    return frozenset(call.id for turn in turns for call in turn.tool_calls if call.id not in _client_ids(turn))


def _call_key(call: ToolCall) -> str:
    return f"{call.id}\n{call.name}\n{canonical_json(call.arguments)}"


def _result_keys(results: Iterable[ToolResult]) -> tuple[str, ...]:
    return tuple(sorted(f"{one.id}\n{''.join(result_text(one.content).split())}" for one in results))


def _file_keys(turn: Turn) -> tuple[str, ...]:
    if isinstance(turn.content, str):
        return ()
    hashes = {one.id: one.sha256 for one in turn.attachments}
    parts = [part for part in turn.content if isinstance(part, Image | File) and not is_data(part)]
    return tuple(hashes.get(part.attachment or "", part.url or "") for part in parts)


def _file_key(part: Part) -> str:
    """Identify a file by its bytes if they were sent, otherwise by its URL."""
    url = str(part.get("url") or "")
    data = decode_data_url(url)
    return url if data is None else hashlib.sha256(data[1]).hexdigest()


def decode_data_url(url: str) -> tuple[str, bytes] | None:
    """Return the type and the bytes of a `data:` URL. None for other URLs, and for malformed ones."""
    header, comma, body = url.partition(",")
    if not header.startswith("data:") or not comma:
        return None
    kind, *options = header.removeprefix("data:").split(";")
    try:
        data = b64decode(body, validate=True) if "base64" in options else unquote_to_bytes(body)
    except ValueError:
        return None
    return kind or "application/octet-stream", data


def find_open_calls(turns: Sequence[Turn]) -> tuple[Turn, frozenset[str]] | None:
    """Return the latest turn with client calls that have no result yet, and the ids of those calls."""
    answered: set[str] = set()
    for turn in reversed(turns):
        answered.update(result.id for result in turn.tool_results)
        waiting = _client_ids(turn) - answered
        if turn.tool_calls:
            return (turn, frozenset(waiting)) if waiting else None
    return None
