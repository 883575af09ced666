"""The Engine port over Postgres. Every verb is one SQL function: one round trip, one transaction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict
from datetime import datetime
from typing import Any

from palaver.core.concurrency import run_uncancelled
from palaver.core.identity import canonical_json, micros, moment
from palaver.core.turn_draft import decode_content, preview, words
from palaver.engines.postgres import rows
from palaver.engines.postgres.append_batching import Lanes
from palaver.engines.postgres.jobs import OutboxVerbs
from palaver.engines.postgres.keys import ServingVerbs
from palaver.engines.postgres.memory import MemoryVerbs
from palaver.engines.postgres.recall import RecallVerbs
from palaver.engines.postgres.requests import RequestVerbs
from palaver.engines.postgres.rpc import Caller
from palaver.engines.postgres.transports import AsyncpgTransport, Transport, address, as_json, open_transport, unhex
from palaver.engines.postgres.watch import Hub
from palaver.errors import InvalidInput
from palaver.model import (
    Attachment,
    Branch,
    ConversationInfo,
    ConversationMatch,
    Event,
    FileQuote,
    FileText,
    Scope,
    Stats,
    Turn,
    TurnMatch,
)
from palaver.ports.clock import Clock
from palaver.ports.engine import Signal
from palaver.ports.queries import (
    AppendBatch,
    ConversationChanges,
    ConversationSpec,
    Deletion,
    EventQuery,
    HistoryQuery,
    Listing,
    Record,
    RecordKind,
    SearchQuery,
    StreamChunk,
    StreamEnd,
)
from palaver.recall.terms import terms

CANDIDATES = 500  # passages that a search looks at
MATCHES = 3  # turns shown per conversation
EXPIRE_BATCH = 100
RETIRE_BATCH = 200
LOOSE_BATCH = 100
PAGE = 1_000
IN_DATABASE = "database/"  # how the paths of files begin that SQL brought in (see compat/hal.sql)
# Numbers of one database, and how far its index and its summaries have come: meaningless in another.
LOCAL = frozenset(
    {
        "cid",
        "tid",
        "members",
        "revision",
        "marked",
        "passage_count",
        "passage_terms",
        "compact_turns",
        "compact_tokens",
        "to_embed",
        "title_made",
    }
    | {"summarized_position", "summarized_turns", "summarized_tokens"}
)
TURN_LOCAL = frozenset({"tenant", "cid", "tid", "preview"})
EVENT_LOCAL = frozenset({"tenant", "cid"})
OTHERS: tuple[RecordKind, ...] = ("attachment", "working_memory", "fact")  # few enough for one page


@asynccontextmanager
async def open_postgres(
    url: str,
    clock: Clock,
    *,
    home: str,
    migrate_url: str | None = None,
    listen_url: str | None = None,
    read_url: str | None = None,
) -> AsyncIterator[PostgresEngine]:
    transport = await open_transport(url, read_url=read_url, migrate_url=migrate_url)
    direct = address(url)[1]  # behind pgbouncer nobody can listen, unless told where
    engine = PostgresEngine(transport, clock, Hub(listen_url or (url if direct else None)), home)
    try:
        yield engine
    finally:
        await run_uncancelled(engine.close())


class PostgresEngine(MemoryVerbs, RecallVerbs, RequestVerbs, ServingVerbs, OutboxVerbs):
    def __init__(self, transport: Transport, clock: Clock, hub: Hub, home: str) -> None:
        super().__init__(transport, clock)
        self.hub, self.home = hub, home
        # Over HTTP every call is signed by one person, and nothing travels together.
        self.lanes = Lanes(self) if isinstance(transport, AsyncpgTransport) else None
        self._doomed_in = home

    async def close(self) -> None:
        if self.lanes is not None:
            await self.lanes.close()
        await self.hub.close()
        await self.transport.close()

    # ---- conversations

    async def open_conversation(self, scope: Scope, spec: ConversationSpec) -> ConversationInfo:
        size, title = rows.title_words(spec.title)
        values = {**_details(spec), "id": spec.id, "owner": spec.owner, "key": spec.key}
        found = await self.write("open_conversation", scope, spec=as_json(values), words=title, size=size)
        self.hub.committed(found[0]["id"])
        return rows.info(found[0])

    async def conversation(self, scope: Scope, id: str) -> ConversationInfo:
        return rows.info((await self.read("conversation", scope, conversation=id))[0])

    async def find_conversation(self, scope: Scope, owner: str, key: str) -> ConversationInfo:
        return rows.info((await self.read("find_conversation", scope, owner=owner, key=key))[0])

    async def conversations(self, scope: Scope, listing: Listing) -> list[ConversationInfo]:
        updated, id = listing.before or (None, None)
        found = await self.read(
            "conversations",
            scope,
            most=listing.limit,
            owner=listing.owner,
            workspace=listing.workspace,
            agent=listing.agent,
            before_updated=updated,
            before_id=id,
        )
        return [rows.info(row) for row in found]

    async def search(self, scope: Scope, search: SearchQuery) -> list[ConversationMatch]:
        query = _query(search, " & ")
        limits = {"candidates": CANDIDATES, "shown": MATCHES, "most": search.limit}
        return [_found(row, search) for row in await self.read("search", scope, query=query, **limits)]

    async def matches(self, scope: Scope, search: SearchQuery) -> list[TurnMatch]:
        id = search.conversation
        assert id is not None
        query = _query(search, " | ")
        found = await self.read("matches", scope, conversation=id, query=query, candidates=CANDIDATES)
        matches = [_match(rows.turn(row, id), search) for row in found]
        matches.sort(key=lambda match: (len(match.terms), match.turn.seq), reverse=True)
        return matches[: search.limit]

    async def update(self, scope: Scope, id: str, changes: ConversationChanges) -> ConversationInfo:
        size, title = rows.title_words(changes.title)
        found = await self.write(
            "update_conversation",
            scope,
            conversation=id,
            fields=sorted(changes.fields),
            changes=as_json(
                {
                    **_details(changes),
                    "if_untitled": changes.if_untitled,
                    "expected_updated": changes.expected_updated,
                }
            ),
            words=title,
            size=size,
        )
        self.hub.committed(id)
        return rows.info(found[0])

    # ---- turns

    async def append(self, scope: Scope, conversation: str, batch: AppendBatch) -> list[Turn]:
        self._last_append = time.monotonic()
        drafts = as_json([rows.draft_json(draft) for draft in batch.drafts])
        if batch.replaces is None and self.lanes is not None:
            found = await self.lanes.append(scope, conversation, drafts, len(batch.drafts), batch.expected_seq)
        else:
            found = await self.write("append", scope, conversation=conversation, drafts=drafts, **_place(batch))
        self.hub.committed(conversation)
        return [rows.appended(row, draft, conversation) for row, draft in zip(found, batch.drafts, strict=True)]

    async def history(self, scope: Scope, conversation: str, query: HistoryQuery) -> list[Turn]:
        found = await self.read(
            "history",
            scope,
            conversation=conversation,
            most=query.limit,
            before=query.before,
            after=query.after,
            since=query.since,
            until=query.until,
            whole=query.include_superseded,
            actors=_list(query.participants),
            roles=_list(query.roles),
        )
        return [rows.turn(row, conversation) for row in found]

    async def turn(self, scope: Scope, conversation: str, id: str) -> Turn:
        return rows.turn((await self.read("turn", scope, conversation=conversation, turn=id))[0], conversation)

    async def branches(self, scope: Scope, conversation: str, turn: str | None) -> list[Branch]:
        places: dict[tuple[int, str | None], list[Turn]] = {}
        for row in await self.read("branches", scope, conversation=conversation, turn=turn):
            places.setdefault((row["position"], row["parent"]), []).append(rows.turn(row, conversation))
        return [Branch(position, tuple(turns)) for (position, _), turns in places.items()]

    async def switch(self, scope: Scope, conversation: str, turn: str) -> None:
        await self.write("switch", scope, conversation=conversation, turn=turn)
        self.hub.committed(conversation)

    # ---- streams

    async def stream_open(self, scope: Scope, conversation: str, batch: AppendBatch, lease: int) -> Turn:
        draft = as_json(rows.draft_json(batch.drafts[0]))
        found = await self.write(
            "stream_open", scope, conversation=conversation, draft=draft, lease=lease, **_place(batch)
        )
        self.hub.committed(conversation)
        return rows.turn(found[0], conversation)

    async def stream_chunk(self, scope: Scope, conversation: str, turn: str, chunk: StreamChunk, lease: int) -> int:
        self._last_append = time.monotonic()
        found = await self.write(
            "stream_chunk", scope, conversation=conversation, turn=turn, n=chunk.n, piece=chunk.text, lease=lease
        )
        self.hub.committed(conversation)
        return int(found[0]["stream_chunk"])

    async def stream_renew(self, scope: Scope, conversation: str, turn: str, lease: int) -> None:
        await self.write("stream_renew", scope, conversation=conversation, turn=turn, lease=lease)

    async def stream_commit(self, scope: Scope, conversation: str, turn: str, seal: StreamEnd) -> Turn:
        text = words(decode_content(seal.content, False))
        values = {name: value for name, value in asdict(seal).items() if name != "tail"}
        found = await self.write(
            "stream_commit",
            scope,
            conversation=conversation,
            turn=turn,
            seal=as_json({**values, "preview": preview(text)}),
            words=as_json(rows.index_words(text)),
            **_tail(seal.tail),
        )
        self.hub.committed(conversation)
        return rows.turn(found[0], conversation)

    async def stream_abort(self, scope: Scope, conversation: str, turn: str, tail: StreamChunk | None) -> Turn:
        found = await self.write("stream_abort", scope, conversation=conversation, turn=turn, **_tail(tail))
        self.hub.committed(conversation)
        return rows.turn(found[0], conversation)

    async def abort_expired_streams(self) -> int:
        sealed = 0
        now = micros(self.clock.now())
        for row in await self._looked_after():
            if row["lease_end"] is not None and row["lease_end"] <= now:
                for one in await self.write("seal_expired", _everything(row["tenant"])):
                    self.hub.committed(one["seal_expired"])
                    sealed += 1
        return sealed

    async def next_lease_end(self) -> datetime | None:
        ends = [row["lease_end"] for row in await self._looked_after() if row["lease_end"] is not None]
        return moment(min(ends)) if ends else None

    async def _looked_after(self) -> Sequence[Mapping[str, Any]]:
        """The tenants in which a stream or a file waits for somebody to look after it; or only the own one."""
        if not self.may_work:
            return []
        found = await self.as_worker("waiting")
        return await self.write("waiting_here", _everything(self.home)) if found is None else found

    # ---- forgetting

    async def forget_turn(self, scope: Scope, conversation: str, turn: str) -> Deletion:
        found = await self.write("forget_turn", scope, conversation=conversation, turn=turn)
        self.hub.committed(conversation)
        return Deletion(turns=tuple(row["forget_turn"] for row in found))

    async def reset(self, scope: Scope, conversation: str) -> Deletion:
        found = await self.write("reset", scope, conversation=conversation)
        self.hub.committed(conversation)
        return Deletion(turns=tuple(row["reset"] for row in found))

    async def forget_conversation(self, scope: Scope, conversation: str) -> Deletion:
        await self.write("forget_conversation", scope, conversation=conversation)
        self.hub.committed(conversation)
        return Deletion(conversations=(conversation,))

    async def retire(self, scope: Scope, conversation: str, position: int, keep_salt: bool) -> Deletion:
        found = await self.write(
            "retire", scope, conversation=conversation, place=position, keep_salt=keep_salt, most=RETIRE_BATCH
        )
        self.hub.committed(conversation)
        return Deletion(turns=tuple(row["retire"] for row in found))

    async def forget_older(self, scope: Scope, before: int) -> Deletion:
        found = await self.write("forget_older", scope, before=before, most=RETIRE_BATCH)
        for conversation in {row["conversation"] for row in found}:
            self.hub.committed(conversation)
        return Deletion(turns=tuple(row["turn"] for row in found))

    async def expire(self, scope: Scope) -> Deletion:
        gone = tuple(row["expire"] for row in await self.write("expire", scope, most=EXPIRE_BATCH))
        for conversation in gone:
            self.hub.committed(conversation)
        return Deletion(conversations=gone)

    async def scrub(self) -> bool:
        """Old bytes go with VACUUM, and with the WAL."""
        return True

    async def blobs_to_delete(self, limit: int) -> list[str]:
        for row in await self._looked_after():
            if row["files"]:
                scope = _everything(row["tenant"])
                found = [one["doomed_blobs"] for one in await self.write("doomed_blobs", scope, most=limit)]
                self._doomed_in = row["tenant"]
                return found
        return []

    async def blobs_deleted(self, paths: Sequence[str]) -> None:
        await self.write("blobs_deleted", _everything(self._doomed_in), paths=list(paths))

    # ---- attachments

    async def attach(self, scope: Scope, conversation: str, attachment: Attachment) -> Attachment:
        found = await self.write("attach", scope, conversation=conversation, attachment=as_json(asdict(attachment)))
        if not found[0]["attach"]:
            return await self.attachment(scope, conversation, attachment.id)
        self.hub.committed(conversation)
        return attachment

    async def attachment(self, scope: Scope, conversation: str, id: str) -> Attachment:
        """Not from a replica: a turn may take what was attached just now."""
        row = (await self.write("attachment", scope, conversation=conversation, id=id))[0]
        return Attachment(id=id, **row)

    async def attachments(self, scope: Scope, conversation: str, before: str | None, limit: int) -> list[Attachment]:
        found = await self.read("attachments", scope, conversation=conversation, before=before, most=limit)
        return [Attachment(**row) for row in found]

    async def drop_loose_files(self, scope: Scope, before: int) -> int:
        return int((await self.write("drop_loose_files", scope, before=before, most=LOOSE_BATCH))[0]["dropped"])

    async def orphans(self, scope: Scope, paths: Sequence[str]) -> list[str]:
        return [row["path"] for row in await self.write("orphans", scope, paths=list(paths))]

    async def unread_files(self, scope: Scope, conversation: str, limit: int) -> list[Attachment]:
        found = await self.write("unread_files", scope, conversation=conversation, most=limit)
        return [Attachment(**row) for row in found]

    async def put_file_text(self, scope: Scope, conversation: str, text: FileText) -> bool:
        pieces = await asyncio.to_thread(lambda: as_json(rows.file_words(text.text)))
        args = {"file": text.attachment, "length": len(text.text), "trouble": text.problem, "pieces": pieces}
        return bool((await self.write("put_file_text", scope, conversation=conversation, **args))[0]["stored"])

    async def file_text(self, scope: Scope, conversation: str, id: str) -> FileText | None:
        row = (await self.read("file_text", scope, conversation=conversation, file=id))[0]
        return None if row["length"] is None else FileText(id, row["words"] or "", row["trouble"])

    async def file_quotes(self, scope: Scope, tids: Sequence[int], stems: Sequence[str]) -> dict[int, FileQuote]:
        found = await self.read("file_quotes", scope, tids=list(tids), stems=list(stems))
        return {row["tid"]: FileQuote(row["attachment"], row["filename"], row["quote"]) for row in found}

    async def file_in_database(self, scope: Scope, path: str) -> bytes | None:
        if not path.startswith(IN_DATABASE):
            return None
        found = await self.read("kept_file", scope, path=path)
        return unhex(found[0]["data"]) if found else None

    # ---- the log

    async def events(self, scope: Scope, conversation: str, audit: EventQuery) -> list[Event]:
        found = await self.read(
            "events",
            scope,
            conversation=conversation,
            after=audit.after,
            most=audit.limit,
            kinds=_list(audit.kinds),
            actors=_list(audit.actors),
            turn=audit.turn,
            since=audit.since,
            until=audit.until,
        )
        return [rows.event_of(row, conversation) for row in found]

    def watch(self, conversation: str) -> AbstractAsyncContextManager[Signal]:
        return self.hub.watch(conversation)

    # ---- whole conversations

    async def records(self, scope: Scope, conversation: str) -> AsyncIterator[Sequence[Record]]:
        """All pages come from one snapshot."""
        async with self.transport.snapshot() as snapshot:
            then = Caller(snapshot, self.clock)
            row = (await then.read("conversation", scope, conversation=conversation))[0]
            members = canonical_json(row["members"])
            yield [Record("conversation", {**rows.portable(row, LOCAL), "members": members})]
            async for page in _pages(then, "event", scope, conversation, 0, "n", EVENT_LOCAL):
                yield page
            async for page in _pages(then, "turn", scope, conversation, -1, "seq", TURN_LOCAL):
                yield page
            for kind in OTHERS:
                found = await then.read(f"{kind}_records", scope, conversation=conversation)
                if found:
                    yield [Record(kind, rows.portable(row, frozenset())) for row in found]

    async def restore(self, scope: Scope, records: Sequence[Record]) -> ConversationInfo | None:
        size, title = rows.title_words(records[0].row.get("title"))
        try:
            known = as_json([(one.kind, _carried(one)) for one in records])
        except (KeyError, TypeError, ValueError):
            raise InvalidInput("file", "a row is not as an export writes it") from None
        found = await self.write("restore", scope, records=known, words=title, size=size)
        return rows.info(found[0]) if found else None

    async def stats(self, scope: Scope) -> Stats:
        row = (await self.read("stats", scope))[0]
        outbox = row["outbox"]
        storage = {
            "engine": "postgres",
            "postgres": row["server"],
            "bytes": row["bytes"],
            "open_streams": row["open_streams"],
            "files_to_delete": row["files_to_delete"],
            "scrub_pending": False,
            "outbox": [{**one, "dead": bool(one["dead"])} for one in rows.decoded(outbox)],
        }
        return Stats(
            conversations=row["conversations"],
            turns=row["turns"],
            tokens=row["tokens"],
            events=row["events"],
            attachments=row["attachments"],
            attachment_bytes=row["attachment_bytes"],
            storage=storage,
        )


def _everything(tenant: str) -> Scope:
    """The application itself, inside one tenant."""
    return Scope.of(tenant, None)


def _details(given: ConversationSpec | ConversationChanges) -> dict[str, Any]:
    return {
        "title": given.title,
        "workspace": given.workspace,
        "agent": given.agent,
        "model": given.model,
        "participants": canonical_json(given.participants),
        "metadata": given.metadata,
        "settings": given.settings,
        "ttl": given.ttl,
        "salt": rows.hexed(given.salt),
    }


def _place(batch: AppendBatch) -> dict[str, Any]:
    return {"expected_seq": batch.expected_seq, "replaces": batch.replaces, "discard_after": batch.discard_after}


def _tail(tail: StreamChunk | None) -> dict[str, Any]:
    return {} if tail is None else {"tail_n": tail.n, "tail": tail.text}


def _list(names: Sequence[str] | None) -> list[str] | None:
    return None if names is None else list(names)


# ---- searching -----------------------------------------------------------------------------------------------------


def _query(search: SearchQuery, joiner: str) -> str:
    """In the notation of `tsquery`; a stem has no quote in it."""
    stems = [f"'{stem}'" for stem in search.stems]
    if search.prefix:
        stems[-1] = f"({stems[-1]} | '{search.prefix}':*)"
    return joiner.join(stems)


def _found(row: Mapping[str, Any], search: SearchQuery) -> ConversationMatch:
    info = rows.info(rows.decoded(row["conversation"]))
    turns = [rows.turn(one, info.id) for one in rows.decoded(row["turns"]) or ()]
    return ConversationMatch(info, tuple(_match(turn, search) for turn in turns), in_title=row["in_title"])


def _match(turn: Turn, search: SearchQuery) -> TurnMatch:
    held = set(terms(turn.text))
    wanted = [stem for stem in search.stems if stem in held]
    if search.prefix:
        wanted += sorted({term for term in held if term.startswith(search.prefix)} - set(wanted))
    return TurnMatch(turn, tuple(wanted))


# ---- carrying ------------------------------------------------------------------------------------------------------


async def _pages(
    then: Caller, kind: RecordKind, scope: Scope, conversation: str, after: int, key: str, local: frozenset[str]
) -> AsyncIterator[list[Record]]:
    while found := await then.read(f"{kind}_records", scope, conversation=conversation, after=after, most=PAGE):
        yield [Record(kind, rows.portable(row, local)) for row in found]
        after = found[-1][key]


def _carried(record: Record) -> dict[str, Any]:
    if record.kind == "turn":
        return rows.turn_json(record.row)
    return rows.row_json({name: value for name, value in record.row.items() if name not in LOCAL})


__all__ = ["AsyncpgTransport", "PostgresEngine", "open_postgres"]
