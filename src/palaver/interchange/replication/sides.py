"""One of the two stores of a replication: reading copies from it, and writing them to it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import clock_of, components_of, engine_of, eraser_of
from palaver.conversations.store import Store
from palaver.core.identity import canonical_json, from_json, micros, new_salt
from palaver.core.turn_draft import decode_content, encode_content
from palaver.errors import AttachmentNotFound, ConversationGone, ConversationNotFound, ScrubPending
from palaver.files.storage import blob_path
from palaver.interchange.replication.copies import Copy, Row, origins, read_copy
from palaver.model import ConversationInfo, Event, Scope, Tip
from palaver.ports.engine import Engine
from palaver.ports.queries import ALL_RECORDS, Adoption, ConversationChanges, EventQuery, Record, RecordRange
from palaver.redaction.apply import redact_content, redact_json

UPDATED = ("title", "workspace", "agent", "model", "participants", "metadata", "settings", "ttl")
REDACTED_JSON = ("tool_calls", "tool_results", "sources", "metadata")


class Moved(Exception):
    """The conversation has changed since it was read: read it again."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of a conversation in a store: stored, deleted (only the log is left), or unknown."""

    info: ConversationInfo | None = None
    is_gone: bool = False


@dataclass(slots=True)
class Side:
    """A store that takes part in a replication."""

    name: Literal["left", "right"]
    store: Store

    @property
    def engine(self) -> Engine:
        return engine_of(self.store)

    @property
    def scope(self) -> Scope:
        return self.store.scope

    @property
    def now(self) -> int:
        return micros(clock_of(self.store).now())

    # ---- reading

    async def state(self, id: str) -> State:
        try:
            return State(await self.engine.conversation(self.scope, id))
        except ConversationGone:
            return State(is_gone=True)
        except ConversationNotFound:
            return State()

    async def event(self, id: str, n: int) -> Event | None:
        """Return an event of a log; None when it was archived, or there is none yet."""
        found = await self.engine.events(self.scope, id, EventQuery(after=n - 1, limit=1))
        return found[0] if found and found[0].n == n else None

    async def events(self, id: str, after: int, limit: int) -> list[Event]:
        return await self.engine.events(self.scope, id, EventQuery(after=after, limit=limit))

    async def copy(self, id: str, *, derived: bool = True, part: RecordRange = ALL_RECORDS) -> Copy:
        return await read_copy(self.engine.records(self.scope, id, derived, part))

    async def with_key(self, info: ConversationInfo) -> ConversationInfo | None:
        """Return another conversation that has the owner and the key of this one."""
        if info.key is None:
            return None
        with suppress(ConversationNotFound):
            found = await self.engine.find_conversation(self.scope, info.owner, info.key)
            return found if found.id != info.id else None
        return None

    # ---- writing

    async def restore(self, copy: Copy, source: Side) -> None:
        """Store a conversation that this store does not have."""
        records = await self._with_files(copy.records(), source)
        async with eraser_of(self.store).importing(records):
            await self.engine.restore(self.scope, records)
        await self._copy_seals(copy.tip.conversation, source)

    async def adopt(self, adoption: Adoption, source: Side) -> None:
        """Store a copy in place of a conversation that this store has. Raises `Moved` if that has changed since."""
        records = await self._with_files(adoption.records, source, adoption.expected.conversation)
        async with eraser_of(self.store).importing(records):
            stored = await self.engine.adopt(
                self.scope,
                Adoption(
                    expected=adoption.expected,
                    records=records,
                    whole=adoption.whole,
                    dropped=adoption.dropped,
                    moved=adoption.moved,
                ),
            )
        if not stored:
            raise Moved
        components_of(self.store).generation.provider_threads.drop(self.scope.tenant, adoption.expected.conversation)
        await self._copy_seals(records[0].row["id"], source)

    async def _with_files(self, records: Sequence[Record], source: Side, here: str | None = None) -> list[Record]:
        """Copy the bytes of files that this store does not have, and return the records with the paths they have here.

        One file at a time. If the rows are never stored, a sweep deletes the bytes.
        """
        id = records[0].row["id"]
        return [
            Record(one.kind, {**one.row, "path": await self._place(one.row, source, id, here or id)})
            if one.kind == "attachment"
            else one
            for one in records
        ]

    async def _place(self, row: Row, source: Side, id: str, here: str) -> str:
        with suppress(AttachmentNotFound, ConversationNotFound):
            return (await self.engine.attachment(self.scope, here, row["id"])).path
        path = blob_path(row["owner"], id, row["filename"])
        data = await (await source.talk(source.place_of(row, id))).read_attachment(row["id"])
        await components_of(self.store).blobs.put(path, data)
        return path

    def place_of(self, row: Row, id: str) -> str:
        """Return the conversation in which this store has a file: it may have another id here."""
        return str(row.get("conversation", id))

    async def talk(self, id: str) -> Conversation:
        return await self.store.get(id)

    async def _copy_seals(self, id: str, source: Side) -> None:
        """Copy the signatures of the log. They are valid for the tenant that they were made in."""
        seals = await source.engine.seals(source.scope, id) if source.scope.tenant == self.scope.tenant else []
        known = [seal for seal in seals if await self._has_event(seal.tip)]
        if known:
            await self.engine.put_seals(self.scope.tenant, known)

    async def _has_event(self, tip: Tip) -> bool:
        event = await self.event(tip.conversation, tip.n)
        return event is not None and event.hash == tip.hash

    # ---- deletions and details of the other side

    async def forget(self, id: str) -> None:
        """Delete a conversation that was deleted in the other store."""
        with suppress(ScrubPending, ConversationGone):
            await (await self.talk(id)).forget()

    async def apply_deletions(self, mine: Copy, theirs: Copy, common: int) -> bool:
        """Delete the turns that the other store deleted since event `common`. Returns whether there were any."""
        names = origins(mine.events_after(common))  # a turn that was merged here has another id
        gone = {names.get(turn, turn): kind for turn, kind in _deleted_since(theirs, common).items()}
        left = {turn["id"]: turn for turn in mine.turns if turn["status"] != "forgotten"}
        id = mine.conversation["id"]
        retired = [turn for turn, kind in gone.items() if kind == "retire" and turn in left]
        if retired:
            place = max(left[turn]["position"] for turn in retired) + 1
            while (await self.engine.retire(self.scope, id, place, False)).turns:
                pass
            left = {turn["id"]: turn for turn in (await self.copy(id)).turns if turn["status"] != "forgotten"}
        for turn in [one for one in gone if one in left]:
            with suppress(ScrubPending):
                await (await self.talk(id)).forget(turn)
        return any(turn in left for turn in gone) or bool(retired)

    async def apply_details(self, mine: Copy, theirs: Copy, common: int) -> bool:
        """Take over the other store's title, settings and other details, if it changed them last."""
        changes = _changed_details(mine, theirs, common)
        if not changes:
            return False
        if "participants" in changes:
            changes["participants"] = tuple(from_json(changes["participants"]))
        id = mine.conversation["id"]
        await self.engine.update(
            self.scope, id, ConversationChanges(fields=frozenset(changes), salt=new_salt(), **changes)
        )
        return True

    def redact(self, turn: Row) -> Row:
        """Return the fields of a turn without secrets."""
        redact = components_of(self.store).redactor.redact
        row = dict(turn)
        if row["content"]:
            content = redact_content(decode_content(row["content"], bool(row["is_parts"])), redact)
            row["content"] = encode_content(content)[0]
        for name in REDACTED_JSON:
            if row[name]:
                row[name] = canonical_json(redact_json(from_json(row[name]), redact))
        return row


def is_redacted(copy: Copy) -> bool:
    return bool(_settings(copy).get("redact"))


def _settings(copy: Copy) -> dict[str, Any]:
    return from_json(copy.conversation["settings"]) if copy.conversation["settings"] else {}


def _deleted_since(copy: Copy, common: int) -> dict[str, str]:
    """Return the turns that were deleted after an event, and how."""
    events = copy.events_after(common)
    kinds = {event["turn"]: event["kind"] for event in events if event["kind"] in ("forget", "retire")}
    if any(event["kind"] == "reset" for event in events):
        kinds |= {turn["id"]: "reset" for turn in copy.turns if turn["status"] == "forgotten"}
    return kinds


def _changed_details(mine: Copy, theirs: Copy, common: int) -> dict[str, Any]:
    """Return the details that the other copy has, if it changed them last. Redaction stays on if either has it on."""
    ours, others = (_last_update(one, common) for one in (mine, theirs))
    wanted = {name: theirs.conversation[name] for name in UPDATED} if others > ours else {}
    settings = from_json(wanted["settings"]) if wanted.get("settings") else _settings(mine) if not wanted else {}
    redact = _settings(mine).get("redact") or _settings(theirs).get("redact")
    if redact and not settings.get("redact"):
        wanted["settings"] = canonical_json({**settings, "redact": redact})
    return {name: value for name, value in wanted.items() if value != mine.conversation[name]}


def _last_update(copy: Copy, common: int) -> int:
    return max((event["at"] for event in copy.events_after(common) if event["kind"] == "update"), default=0)
