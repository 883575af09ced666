"""A conversation on a Palaver server."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Unpack

from msgspec import structs

from palaver.context.inputs import Context
from palaver.context.options import ContextOptions, RecallRange
from palaver.conversations.arguments import check_keywords, clean_names, optional_turn_id, turn_id
from palaver.conversations.attachments import UPLOAD_SECONDS, split_data_url
from palaver.conversations.conversation import Conversation
from palaver.conversations.deletion import EVERYTHING, WholeConversation
from palaver.conversations.details import clean_changes
from palaver.conversations.live_buffer import Unflushed
from palaver.conversations.options import ConversationOptions
from palaver.conversations.recall import Recall
from palaver.conversations.remote import values
from palaver.conversations.remote.failures import error_of
from palaver.conversations.remote.transport import ServerEvent, Transport
from palaver.conversations.turn_writer import TurnWriter
from palaver.core.filters import Where, clean_where, where_json
from palaver.core.turn_draft import DraftBuilder
from palaver.core.turn_options import TURN_FIELDS, Moment, SealOptions, StreamOptions, TurnInput, TurnOptions
from palaver.core.validation import (
    MAX_BATCH,
    ROLE_FIRST,
    clean_moment,
    clean_name,
    clean_role,
    clean_text,
    optional_name,
)
from palaver.errors import (
    Conflict,
    ConversationGone,
    EngineUnavailable,
    InvalidInput,
    NotFound,
    PermissionDenied,
    TooLarge,
    UpdateConflict,
    VerificationFailed,
)
from palaver.generation.events import Answered, GenerateEvent, MessageStored, ToolDone, ToolsPlanned
from palaver.generation.options import GenerateOptions
from palaver.memory.settings import CompactionSettings
from palaver.model import (
    READ,
    Attachment,
    Branch,
    ContentInput,
    ConversationInfo,
    Event,
    Fact,
    FileText,
    RecallHit,
    Request,
    Results,
    Role,
    Summary,
    ToolCall,
    Turn,
    TurnMatch,
    Upload,
    Verified,
    WorkingMemory,
)
from palaver.ports.models import ReasoningDelta, TextDelta
from palaver.ports.queries import Record, StreamChunk

RECONNECT = 0.5  # seconds until a stream that the server has ended is opened again
MISSING = "cannot be used with a store on a server"


class RemoteConversation(Conversation):
    """A conversation on a server, with the methods of `Conversation`."""

    def __init__(self, transport: Transport, info: ConversationInfo) -> None:
        self._transport, self._info = transport, info

    @property
    def id(self) -> str:
        return self._info.id

    @property
    def info(self) -> ConversationInfo:
        return self._info

    @property
    def _path(self) -> str:
        return f"/conversations/{self.id}"

    async def refresh(self) -> ConversationInfo:
        return self._read(await self._transport.get(self._path))

    def _read(self, data: Any) -> ConversationInfo:
        self._info = values.value(data, ConversationInfo)
        return self._info

    # ---- append

    async def append(
        self,
        role: Role,
        content: ContentInput = "",
        *,
        expected_seq: int | None = None,
        replaces: Turn | str | None = None,
        discard_after: bool = False,
        **fields: Unpack[TurnOptions],
    ) -> Turn:
        _check_turn({"role": clean_role(role, ROLE_FIRST), "content": content, **fields})
        place = {"expected_seq": expected_seq, "replaces": optional_turn_id("replaces", replaces)}
        body = values.fields_json({"role": role, "content": content, **place, **fields})
        body |= {"discard_after": True} if discard_after else {}
        key = fields.get("idempotency_key")
        stored = values.turn(await self._transport.post(f"{self._path}/turns", body, repeatable=key is not None))
        return structs.replace(stored, idempotency_key=key)

    async def append_many(self, turns: Iterable[TurnInput], *, expected_seq: int | None = None) -> list[Turn]:
        items = list(turns) if isinstance(turns, Iterable) else [turns]
        if not all(isinstance(item, Mapping) for item in items):
            raise InvalidInput("turns", "must be a list of objects, each with a role and a content")
        if len(items) > MAX_BATCH:
            raise TooLarge("turns", size=len(items), limit=MAX_BATCH, unit="turns")
        for item in items:
            _check_turn(item)
        body = {"turns": [values.fields_json(item) for item in items]} | values.fields_json(
            {"expected_seq": expected_seq}
        )
        return _turns(await self._transport.post(f"{self._path}/turns/batch", body))

    # ---- streams

    def stream(
        self,
        role: Role = "assistant",
        *,
        flush: float | Literal["end"] | None = None,
        **fields: Unpack[StreamOptions],
    ) -> TurnWriter:
        return TurnWriter(
            _Streams(self), self, Unflushed(), role, flush=FLUSH if flush is None else flush, options=fields
        )

    async def append_open(
        self,
        role: Role = "assistant",
        *,
        expected_seq: int | None = None,
        replaces: Turn | str | None = None,
        discard_after: bool = False,
        **fields: Unpack[TurnOptions],
    ) -> Turn:
        if role == "tool":
            raise InvalidInput("role", "of a stream must be user, assistant or system")
        _check_turn({"role": role, **fields})
        given = {
            "role": role,
            "expected_seq": expected_seq,
            "replaces": optional_turn_id("replaces", replaces),
            **fields,
        }
        body = values.fields_json(given) | ({"discard_after": True} if discard_after else {})
        return values.turn(await self._transport.post(f"{self._path}/streams", body))

    async def append_chunk(self, turn: Turn | str, n: int, text: str) -> int:
        body = {"n": n, "text": clean_text("text", text)}
        found = await self._transport.post(
            f"{self._path}/streams/{turn_id('turn', turn)}/chunks", body, repeatable=True
        )
        return int(found["next"])

    async def append_commit(self, turn: Turn | str, **final: Unpack[SealOptions]) -> Turn:
        body = values.fields_json(final)
        return values.turn(await self._transport.post(f"{self._path}/streams/{turn_id('turn', turn)}/commit", body))

    async def append_abort(self, turn: Turn | str) -> Turn:
        return values.turn(await self._transport.post(f"{self._path}/streams/{turn_id('turn', turn)}/abort"))

    async def append_renew(self, turn: Turn | str) -> None:
        await self._transport.post(f"{self._path}/streams/{turn_id('turn', turn)}/renew", repeatable=True)

    # ---- reading

    async def history(  # type: ignore[override]
        self,
        limit: int = 50,
        *,
        before: Turn | str | None = None,
        after: Turn | str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        include_superseded: bool = False,
        participants: Iterable[str] | None = None,
        roles: Iterable[Role] | None = None,
        where: Where | None = None,
        include_summaries: bool = False,
    ) -> Sequence[Turn | Summary]:
        chosen = {"participants": participants, "roles": roles}
        lists = {name[:-1]: list(clean_names(name, one)) for name, one in chosen.items() if one is not None}
        for role in lists.get("role", ()):
            clean_role(role)
        if not all(lists.values()):
            return []  # an empty list of participants or roles matches nothing
        data = await self._transport.get(
            f"{self._path}/turns",
            limit=limit,
            before=optional_turn_id("before", before),
            after=optional_turn_id("after", after),
            since=_moment(since),
            until=_moment(until),
            include_superseded=include_superseded,
            include_summaries=include_summaries,
            where=values.where_text(where),
            **lists,
        )
        return [values.turn_or_summary(one) for one in data["items"]]

    async def turn(self, turn: Turn | str) -> Turn:
        return values.turn(await self._transport.get(f"{self._path}/turns/{turn_id('turn', turn)}"))

    async def search(self, text: str, limit: int = 10, *, where: Where | None = None) -> Results[TurnMatch]:
        params = {"q": clean_text("text", text), "limit": limit, "where": values.where_text(where)}
        found = await self._transport.get(f"{self._path}/search", **params)
        return values.results(found, values.match)

    async def branches(self, turn: Turn | str | None = None) -> list[Branch]:
        return [values.branch(one) for one in await self._items("branches", turn=optional_turn_id("turn", turn))]

    async def switch(self, turn: Turn | str) -> None:
        self._read(await self._transport.post(f"{self._path}/turns/{turn_id('turn', turn)}/switch"))

    async def _items(self, name: str, **params: Any) -> list[Any]:
        return list((await self._transport.get(f"{self._path}/{name}", **params))["items"])

    # ---- details and deletion

    async def update(
        self, *, expected_updated: Moment | None = None, **fields: Unpack[ConversationOptions]
    ) -> ConversationInfo:
        headers = {}
        if expected_updated is not None:
            expected = clean_moment("expected_updated", expected_updated)
            headers["If-Match"] = f'"{expected}.{self._info.next_seq}"'
        clean_changes(fields, self._info)
        body = {name: values.fields_json({name: one}).get(name) for name, one in fields.items()}
        try:
            return self._read(await self._transport.request("PATCH", self._path, json=body, headers=headers))
        except Conflict as problem:
            seen = {name: getattr(problem, name, 0) for name in ("expected", "found")}
            raise UpdateConflict(**seen) from None

    async def rename(self, title: str | None) -> ConversationInfo:
        return await self.update(title=title)

    async def forget(self, turn: Turn | str | WholeConversation = EVERYTHING) -> None:
        path = self._path if isinstance(turn, WholeConversation) else f"{self._path}/turns/{turn_id('turn', turn)}"
        await self._transport.request("DELETE", path)

    async def reset(self) -> None:
        self._read(await self._transport.post(f"{self._path}/reset"))

    # ---- attachments

    async def attach(
        self, data: bytes | Path | str, *, filename: str | None = None, media_type: str | None = None
    ) -> Attachment:
        if isinstance(data, str):
            media_type, data = split_data_url(data, media_type)
        elif isinstance(data, Path):
            filename, data = filename or data.name, data.read_bytes()
        elif not isinstance(data, bytes):
            hint = ": pass what its read() returns" if hasattr(data, "read") else ""
            raise InvalidInput("data", f"must be bytes, a path or a data: URL, not {type(data).__name__}{hint}")
        headers = {"Content-Type": media_type or "application/octet-stream"}
        params = {"filename": optional_name("filename", filename)}
        path = f"{self._path}/attachments"
        found = await self._transport.request("POST", path, content=data, params=params, headers=headers)
        return values.value(found, Attachment)

    async def open_upload(
        self, filename: str, *, media_type: str | None = None, seconds: int = UPLOAD_SECONDS
    ) -> Upload:
        names = {"filename": clean_name("filename", filename), "media_type": optional_name("media_type", media_type)}
        body = values.fields_json({**names, "seconds": seconds})
        found = await self._transport.post(f"{self._path}/uploads", body)
        # `path` holds the token: it proves to the server which upload this is.
        return Upload(
            id=found["id"],
            path=found["token"],
            filename=filename,
            media_type=media_type,
            expires_at=values.value(found["expires_at"], datetime),
            url=found["url"] if "://" in found["url"] else None,
        )

    async def put_upload(self, upload: Upload, data: bytes) -> None:
        path = f"{self._path}/uploads/{upload.id}"
        headers = {"Content-Type": "application/octet-stream"}
        await self._transport.request("PUT", path, content=data, params={"ticket": upload.path}, headers=headers)

    async def complete_upload(self, upload: Upload) -> Attachment:
        path = f"{self._path}/uploads/{upload.id}/complete"
        return values.value(await self._transport.post(path, {"token": upload.path}, repeatable=True), Attachment)

    async def attachments(self, limit: int = 50, *, before: Attachment | str | None = None) -> Results[Attachment]:
        found = await self._transport.get(f"{self._path}/attachments", limit=limit, before=_id(before))
        return values.results(found, lambda one: values.value(one, Attachment))

    async def attachment(self, attachment: Attachment | str) -> Attachment:
        return values.value(await self._transport.get(f"{self._path}/attachments/{_id(attachment)}"), Attachment)

    async def read_attachment(self, attachment: Attachment | str) -> bytes:
        return await self._bytes(attachment, {})

    async def read_attachment_range(self, attachment: Attachment | str, start: int, end: int) -> bytes:
        if end <= start:
            return b""
        return await self._bytes(attachment, {"Range": f"bytes={start}-{end - 1}"})

    async def _bytes(self, attachment: Attachment | str, headers: Mapping[str, str]) -> bytes:
        path = f"{self._path}/attachments/{_id(attachment)}/content"
        return await self._transport.request("GET", path, headers=headers, raw=True) or b""

    async def attachment_text(self, attachment: Attachment | str) -> FileText:
        path = f"{self._path}/attachments/{_id(attachment)}/text"
        texts: list[str] = []
        while True:
            found = await self._transport.get(path, start=sum(map(len, texts)), length=1_000_000)
            texts.append(found["text"])
            if not found["text"] or sum(map(len, texts)) >= found["characters"]:
                return FileText(found["attachment"], "".join(texts), found["problem"])

    async def data_url(self, attachment: Attachment | str) -> str:
        known = attachment if isinstance(attachment, Attachment) else await self.attachment(attachment)
        return f"data:{known.media_type};base64,{b64encode(await self.read_attachment(known)).decode()}"

    # ---- answers

    async def generate(self, message: ContentInput | None = None, **options: Unpack[GenerateOptions]) -> Turn:
        async with aclosing(self.generate_stream(message, **options)) as events:
            async for event in events:
                if isinstance(event, Answered):
                    return event.turn
        raise EngineUnavailable("the server ended the stream before the answer was complete")

    async def generate_stream(
        self, message: ContentInput | None = None, **options: Unpack[GenerateOptions]
    ) -> AsyncGenerator[GenerateEvent]:
        for name in ("client_tools", "tool_choice", "question", "all_events", "clear_tool_uses"):
            if options.get(name):
                raise InvalidInput(name, MISSING)
        if any(not isinstance(one, str) for one in options.get("tools") or ()):
            raise InvalidInput("tools", f"that are functions {MISSING}; name tools that the server has")
        body = values.fields_json({"message": message, **options}) | {"stream": True}
        calls: dict[str, ToolCall] = {}
        events = self._transport.events("POST", f"{self._path}/generate", body=body)
        async with aclosing(events):
            async for event in events:
                if event.kind == "error":
                    raise error_of(event.data.get("status", 500), event.data)
                if (made := await self._event(event, calls)) is not None:
                    yield made

    async def _event(self, event: ServerEvent, calls: dict[str, ToolCall]) -> GenerateEvent | None:
        data = event.data
        if event.kind == "message":
            return MessageStored(values.turn(data["turn"]))
        if event.kind == "delta":
            return TextDelta(data["text"])
        if event.kind == "reasoning":
            return ReasoningDelta(data["text"])
        if event.kind == "tool_calls":
            made = tuple(values.value(one, ToolCall) for one in data["calls"])
            calls |= {call.id: call for call in made}
            return ToolsPlanned(await self.turn(data["turn"]), made)
        if event.kind == "tool_result":
            call = calls.get(data["id"], ToolCall(data["id"], data["name"]))
            return ToolDone(call, data["content"], data["is_error"])
        return Answered(values.turn(data["turn"])) if event.kind == "done" else None

    async def stop(self) -> int:
        """Ask the server to stop the answers of this conversation. Returns 1: it does not say how many there are."""
        await self.ask_to_stop()
        return 1

    async def ask_to_stop(self, turn: Turn | str | None = None) -> int:
        return int((await self._transport.post(f"{self._path}/stop"))["event"])

    async def requests(
        self, limit: int = 20, *, turn: Turn | str | None = None, before: Request | str | None = None
    ) -> list[Request]:
        found = await self._items("requests", limit=limit, turn=optional_turn_id("turn", turn), before=_id(before))
        return [values.value(one, Request) for one in found]

    # ---- memory

    async def build_context(
        self,
        token_budget: int | None = None,
        *,
        question: Turn | str | None = None,
        **options: Unpack[ContextOptions],
    ) -> Context:
        body = values.fields_json({"token_budget": token_budget, "question": question, **options})
        return values.context(await self._transport.post(f"{self._path}/context", body, repeatable=True))

    def recall(
        self,
        query: str,
        k: int = 10,
        *,
        scope: RecallRange = "conversation",
        threshold: float | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        include_facts: bool = True,
        where: Where | None = None,
    ) -> Recall:
        clean_where(where)
        body = {
            "query": clean_text("query", query),
            "k": k,
            "scope": scope,
            "threshold": threshold,
            "include_facts": include_facts,
        }
        body |= {"since": _moment(since), "until": _moment(until)}
        body |= {} if where is None else {"where": where_json(where)}

        async def search() -> Results[RecallHit]:
            path = f"{self._path}/recall"
            found = await self._transport.post(path, values.fields_json(body), repeatable=True)
            return values.results(found, values.hit)

        return Recall(search)

    async def summaries(self) -> Results[Summary]:
        found = await self._transport.get(f"{self._path}/summaries")
        return values.results(found, lambda one: values.value(one, Summary))

    async def compact(self, *, keep_tokens: int | None = None, policy: CompactionSettings | None = None) -> int:
        body = values.fields_json({"keep_tokens": keep_tokens, "policy": policy})
        return int((await self._transport.post(f"{self._path}/compact", body))["summaries"])

    async def summarize(self, *, through: Turn | str | None = None) -> list[Summary]:
        found = await self._transport.post(f"{self._path}/summarize", values.fields_json({"through": _id(through)}))
        return [values.value(one, Summary) for one in found["items"]]

    async def working_memory(self) -> WorkingMemory:
        return values.value(await self._transport.get(f"{self._path}/memory"), WorkingMemory)

    async def remember(self, list_name: str, text: str, *, by: str | None = None) -> WorkingMemory:
        body = values.fields_json({"text": clean_text("text", text), "by": by})
        return values.value(await self._transport.post(f"{self._path}/memory/{list_name}", body), WorkingMemory)

    async def correct(self, list_name: str, index: int, text: str, *, by: str | None = None) -> WorkingMemory:
        path, body = (
            f"{self._path}/memory/{list_name}/{index}",
            values.fields_json({"text": clean_text("text", text), "by": by}),
        )
        return values.value(await self._transport.request("PUT", path, json=body), WorkingMemory)

    async def drop_note(self, list_name: str, index: int) -> WorkingMemory:
        path = f"{self._path}/memory/{list_name}/{index}"
        return values.value(await self._transport.request("DELETE", path, repeatable=False), WorkingMemory)

    async def facts(self, *, include_invalidated: bool = False, as_of: Moment | None = None) -> Results[Fact]:
        params = {"include_invalidated": include_invalidated, **values.fields_json({"as_of": as_of})}
        found = await self._transport.get(f"{self._path}/facts", **params)
        return values.results(found, lambda one: values.value(one, Fact))

    async def extract_facts(self, *, through: Turn | str | None = None) -> list[Fact]:
        body = values.fields_json({"through": _id(through)})
        found = await self._transport.post(f"{self._path}/facts/extract", body)
        return [values.value(one, Fact) for one in found["items"]]

    async def correct_fact(
        self,
        fact: Fact | str,
        text: str,
        *,
        by: str | None = None,
        valid_from: Moment | None = None,
        valid_to: Moment | None = None,
    ) -> Fact:
        body = {"text": text, **values.fields_json({"by": by, "valid_from": valid_from, "valid_to": valid_to})}
        path = f"{self._path}/facts/{_id(fact)}"
        return values.value(await self._transport.request("PUT", path, json=body), Fact)

    async def forget_fact(self, fact: Fact | str) -> bool:
        try:
            await self._transport.request("DELETE", f"{self._path}/facts/{_id(fact)}")
        except NotFound as problem:
            if isinstance(problem, ConversationGone) or type(problem) is not NotFound:
                raise
            return False
        return True

    # ---- the log

    async def subscribe(self, after: int = 0) -> AsyncGenerator[Event]:
        await self.refresh()  # raises if it is gone
        position = after
        while True:
            for event in await self._events_after(position):
                position = event.n
                yield event
                if event.turn is None and event.kind in ("forget", "expire"):
                    return
            if (ended := await self._wait_for_event(position)) == "denied":
                raise PermissionDenied(READ)
            if ended == "closing":
                await asyncio.sleep(RECONNECT)

    async def _wait_for_event(self, position: int) -> str:
        """Wait until something is logged after this position, and return the kind of the frame that says so."""
        try:
            frames = self._transport.events("GET", f"{self._path}/events", after=str(position))
            async with aclosing(frames):
                async for frame in frames:
                    return frame.kind
        except ConversationGone:  # the log says how it ended
            return "gone"
        return "closing"

    async def _events_after(self, after: int) -> list[Event]:
        found = await self._items("audit", after=after, limit=1_000)
        return [values.value(one, Event) for one in found]

    async def audit(
        self,
        *,
        after: int = 0,
        limit: int = 1_000,
        kinds: Iterable[str] | None = None,
        actors: Iterable[str] | None = None,
        turn: Turn | str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> list[Event]:
        return await read_log(
            self._transport,
            self.id,
            after=after,
            limit=limit,
            kinds=kinds,
            actors=actors,
            turn=turn,
            since=since,
            until=until,
        )

    async def verify(self, *, archive: Iterable[str] = ()) -> Verified:
        if list(archive):
            raise InvalidInput("archive", f"{MISSING}: use `palaver verify` next to the database")
        found = await self._transport.post(f"{self._path}/verify", repeatable=True)
        if not found["ok"]:
            raise VerificationFailed(self.id, found["row"], found["problem"])
        return values.value(found, Verified)

    def records(self) -> AsyncIterator[Sequence[Record]]:
        raise InvalidInput("records", f"{MISSING}: use `palaver export` next to the database")


FLUSH = 0.25  # seconds
LEASE = 30.0  # seconds, of a server with its default settings


@dataclass(frozen=True, slots=True)
class _Streams:
    """The streams of a conversation on a server, for a `TurnWriter`."""

    talk: RemoteConversation
    lease: float = LEASE

    @property
    def conversation(self) -> str:
        return self.talk.id

    async def open(self, role: Any, **fields: Any) -> Turn:
        return await self.talk.append_open(role, **fields)

    async def send(self, turn: str, chunk: StreamChunk) -> int:
        return await self.talk.append_chunk(turn, chunk.n, chunk.text)

    async def renew(self, turn: Turn | str) -> None:
        await self.talk.append_renew(turn)

    async def commit(self, turn: Turn, text: str, tail: StreamChunk | None, final: Mapping[str, Any]) -> Turn:
        if tail is not None and tail.text:
            await self.send(turn.id, tail)
        return await self.talk.append_commit(turn, **final)

    async def abort(self, turn: str, tail: StreamChunk | None) -> Turn:
        if tail is not None and tail.text:
            await self.send(turn, tail)
        return await self.talk.append_abort(turn)


async def read_log(transport: Transport, conversation: str, **query: Any) -> list[Event]:
    """Return events of the log of a conversation, which may be deleted."""
    params = {
        "after": query["after"],
        "limit": query["limit"],
        "kind": None if query["kinds"] is None else list(clean_names("kinds", query["kinds"])),
        "actor": None if query["actors"] is None else list(clean_names("actors", query["actors"])),
        "turn": optional_turn_id("turn", query["turn"]),
        "since": _moment(query["since"]),
        "until": _moment(query["until"]),
    }
    found = await transport.get(f"/conversations/{conversation}/audit", **params)
    return [values.value(one, Event) for one in found["items"]]


DRAFTS = DraftBuilder(len)  # tokens are counted by the server; here a draft is made to check its fields


def _check_turn(fields: Mapping[str, Any]) -> None:
    """Check a turn as the library does, so that a mistake is named in the same way and nothing is sent."""
    check_keywords(fields, ("role", "content", *TURN_FIELDS), "a field of a turn")
    actor = "-" if fields.get("actor") is None else fields["actor"]
    rest = {name: one for name, one in fields.items() if name not in ("role", "content", "actor")}
    DRAFTS.draft("check", fields.get("role", ""), fields.get("content", ""), actor=actor, **rest)


def _turns(data: Any) -> list[Turn]:
    return [values.turn(one) for one in data["items"]]


def _id(value: Any) -> Any:
    return getattr(value, "id", value)


def _moment(value: Moment | None) -> str | None:
    return value.isoformat() if isinstance(value, datetime) else value
