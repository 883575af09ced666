"""Appending turns: drafts are made from what the caller gives, and stored in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import structs

from palaver.conversations.arguments import check_keywords, optional_turn_id, turn_id
from palaver.conversations.file_copies import FileCopies
from palaver.conversations.handle import Handle
from palaver.conversations.redaction import TurnRedaction
from palaver.conversations.storage_room import StorageRoom
from palaver.core.concurrency import run_in_strides
from palaver.core.rights import may_act_for
from palaver.core.strides import size_of
from palaver.core.turn_draft import (
    DraftBuilder,
    TurnDraft,
    check_file_count,
    decode_attachments,
    decode_content,
    encode_attachments,
    referenced_attachments,
)
from palaver.core.turn_options import TURN_FIELDS
from palaver.core.validation import MAX_BATCH, ROLE_FIRST, clean_count, clean_name, clean_role
from palaver.errors import AttachmentNotFound, InvalidInput, PalaverError, PermissionDenied, TooLarge
from palaver.model import ACT_FOR, SYSTEM, WRITE, Reasoning, Text, Turn, data_part
from palaver.ports.clock import Ids
from palaver.ports.queries import AppendBatch
from palaver.telemetry import Meter


@dataclass(frozen=True, slots=True)
class TurnAppender:
    """Stores turns in one conversation. `order` keeps them in the order of the calls while a large one is prepared."""

    handle: Handle
    drafts: DraftBuilder
    ids: Ids
    redaction: TurnRedaction
    copies: FileCopies
    meter: Meter
    room: StorageRoom
    order: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def append(
        self,
        role: str,
        content: Any = "",
        *,
        expected_seq: int | None = None,
        replaces: Turn | str | None = None,
        discard_after: bool = False,
        **fields: Any,
    ) -> Turn:
        self.handle.require(WRITE)
        role = clean_role(role, ROLE_FIRST)
        if replaces is not None and role == "user":
            content, fields = await self._keep_files(content, replaces, fields)
        (draft,) = await self.make_drafts([{"role": role, "content": content, **fields}])
        draft = await self._with_referenced_files(draft)
        batch = batch_of((draft,), expected_seq, replaces, discard_after)
        return (await self._store(batch))[0]

    async def _keep_files(
        self, content: Any, replaces: Turn | str, fields: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Copy the files of the message that is replaced, unless the caller names others."""
        old = replaces
        if not isinstance(old, Turn):
            old = await self.handle.engine.turn(self.handle.scope, self.handle.id, turn_id("replaces", replaces))
        if old.role != "user" or not old.attachments:
            return content, dict(fields)
        content, files = await self.copies.for_edit(old, content, fields.get("attachments"))
        return content, {**fields, "attachments": files}

    async def append_many(self, turns: Iterable[Mapping[str, Any]], expected_seq: int | None) -> list[Turn]:
        items = list(turns) if isinstance(turns, Iterable) else [turns]
        if len(items) > MAX_BATCH:
            raise TooLarge("turns", size=len(items), limit=MAX_BATCH, unit="turns")
        if not all(isinstance(item, Mapping) for item in items):
            raise InvalidInput("turns", "must be a list of objects, each with a role and a content")
        self.handle.require(WRITE)
        drafts = await self.make_drafts(items)
        batch = batch_of(tuple([await self._with_referenced_files(draft) for draft in drafts]), expected_seq)
        return await self._store(batch) if items else []

    async def _store(self, batch: AppendBatch) -> list[Turn]:
        await self.room.take_for(batch.drafts)
        try:
            turns = await self.handle.engine.append(self.handle.scope, self.handle.id, batch)
        except AttachmentNotFound as problem:
            raise await self._describe_taken(problem) from None
        self.meter.stored(len(turns))
        return turns

    async def _describe_taken(self, problem: AttachmentNotFound) -> AttachmentNotFound:
        """Return the error that names the turn that has the file, if there is one in this conversation."""
        try:
            file = await self.handle.engine.attachment(self.handle.scope, self.handle.id, problem.attachment)
        except PalaverError:
            return problem
        return AttachmentNotFound(file.id, file.turn)

    async def make_drafts(self, items: Sequence[Mapping[str, Any]]) -> list[TurnDraft]:
        """Check turns and make their drafts, in strides if the texts are large."""
        async with self.order:
            return await run_in_strides(lambda: [self._draft(**item) for item in items], size_of(items))

    def _draft(self, role: str = "", content: Any = "", actor: str | None = None, **fields: Any) -> TurnDraft:
        """Check one turn and make the draft that the engine stores."""
        if fields:
            check_keywords(fields, TURN_FIELDS, "a field of a turn")
        role = clean_role(role)
        if role == "system":
            self.handle.require(SYSTEM)
        if self.handle.is_state:
            content = as_data(content)
        content, fields = self.redaction.redact_turn(content, fields)
        actor = self.handle.default_actor(role) if actor is None else actor
        self.redaction.check_identity("actor", actor)
        if role == "user" and not may_act_for(self.handle.scope, actor):
            raise PermissionDenied(ACT_FOR)
        return self.drafts.draft(self.ids(), role, content, actor=actor, **fields)

    async def _with_referenced_files(self, draft: TurnDraft) -> TurnDraft:
        """Add the files that the content refers to; they belong to the turn like those in `attachments`."""
        if not draft.is_parts:
            return draft
        given = decode_attachments(draft.attachments, "")
        known = {one.id for one in given}
        named = [id for id in referenced_attachments(decode_content(draft.content, True)) if id not in known]
        if not named:
            return draft
        check_file_count(len(given) + len(named), draft.role)
        ids = [clean_name("content.attachment", id) for id in named]
        found = [await self.handle.engine.attachment(self.handle.scope, self.handle.id, id) for id in ids]
        return structs.replace(draft, attachments=encode_attachments([*given, *found], draft.role))


def as_data(content: Any) -> Any:
    """Return the content of a turn of state. Text becomes data, so that it has no words."""
    if isinstance(content, str):
        return [data_part(content)] if content else []
    kinds = [part.get("type") for part in content if isinstance(part, Mapping)] if isinstance(content, Sequence) else []
    parts = content if isinstance(content, Sequence) else ()
    if any(kind in ("text", "reasoning") for kind in kinds) or any(
        isinstance(p, str | Text | Reasoning) for p in parts
    ):
        raise InvalidInput("content", "in a conversation of kind 'state' must be text or data parts: data_part(bytes)")
    return content


def batch_of(
    drafts: tuple[TurnDraft, ...],
    expected_seq: int | None = None,
    replaces: Turn | str | None = None,
    discard_after: bool = False,
) -> AppendBatch:
    if discard_after and replaces is None:
        raise InvalidInput("discard_after", "needs replaces=, the turn whose successors are discarded")
    if len(drafts) > 1:
        _check_distinct_keys(drafts)
    return AppendBatch(
        drafts=drafts,
        expected_seq=clean_count("expected_seq", expected_seq),
        replaces=optional_turn_id("replaces", replaces),
        discard_after=discard_after,
    )


def _check_distinct_keys(drafts: Sequence[TurnDraft]) -> None:
    keys = [draft.idempotency_key for draft in drafts if draft.idempotency_key is not None]
    if len(set(keys)) < len(keys):
        raise InvalidInput("idempotency_key", "must be different for each turn of a batch")
