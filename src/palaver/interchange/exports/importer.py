"""Storing what another product exported: branches as branches, files as attachments, each message once.

Every turn has an idempotency key made from the format and its id there, so that an import that was interrupted, or is
run again, adds what is missing and nothing else. Turns and conversations that were forgotten here since do not come
back.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, cast

from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import components_of
from palaver.conversations.store import Store
from palaver.core.turn_options import TurnInput
from palaver.core.validation import MAX_ATTACHMENTS, MAX_NAME, MAX_TITLE
from palaver.errors import ConversationGone, IdempotencyConflict, InvalidInput, PalaverError, TurnGone
from palaver.interchange.exports.formats import Export
from palaver.interchange.exports.values import Entry, ExportedConversation, ExportedFile, ExportedTurn
from palaver.interchange.ledger import FORGOTTEN_WHOLE, ImportLedger
from palaver.model import Attachment

BATCH = 500
PAGE = 1_000
FORGOTTEN, NOT_HERE = "was forgotten here", "its bytes are not in the export"
TOO_MANY = f"more than {MAX_ATTACHMENTS} files of one message"

Advance = Callable[[int], None]


@dataclass(slots=True)
class ImportReport:
    """The result of an import, with every message of the export accounted for.

    `records` messages were read. They are `imported` turns, `already` here, `merged` with others, or `left_out` by
    reason; `split` counts the further turns of messages that became several.
    """

    format: str
    conversations: int = 0
    unreadable: Counter[str] = field(default_factory=Counter)
    records: int = 0
    split: int = 0
    merged: int = 0
    imported: int = 0
    already: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    files: int = 0
    files_left_out: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def leave_out(self, reason: str, name: str) -> None:
        self.left_out[reason] += 1
        self.first.setdefault(reason, name)

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON. `dataclasses.asdict` would make pairs the keys of the counters."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in found.items()}


async def import_export(
    store: Store,
    export: Export,
    advance: Advance = lambda _: None,
    owner: str | None = None,
    *,
    restore_forgotten: bool = False,
) -> ImportReport:
    """Store every conversation of an export, those that were changed last at the end, so that they are listed first.

    A conversation that an earlier import stored and that was forgotten since is left out, unless `restore_forgotten`.
    """
    ledger = ImportLedger(store, restore_forgotten=restore_forgotten)
    report = ImportReport(export.format.NAME)
    # In a thread: a large export takes seconds to read, and a server has other callers.
    entries = await asyncio.to_thread(lambda: sorted(export.format.read(export.source, advance), key=_updated))
    for entry in entries:
        await _import_entry(store, entry, report, owner, ledger)
    return report


def _updated(entry: Entry) -> Any:
    return entry.updated


async def _import_entry(
    store: Store, entry: Entry, report: ImportReport, owner: str | None, ledger: ImportLedger
) -> None:
    report.conversations += 1
    try:
        found = entry.load()
        if not found.id:
            raise InvalidInput("conversation", "has no id")
    except InvalidInput as problem:
        report.unreadable[str(problem)] += 1
        return
    report.records += found.records
    report.split += found.split
    report.merged += found.merged
    for reason, count in found.left_out.items():
        report.left_out[reason] += count
        report.first.setdefault(reason, found.id)
    if not found.turns:
        return
    if await ledger.is_forgotten(report.format, found.id, owner):
        for turn in found.turns:
            report.leave_out(FORGOTTEN_WHOLE, f"{found.id} {turn.id}")
        return
    try:
        talk = await store.conversation(
            f"{report.format}/{found.id}"[:MAX_NAME], owner=owner, **_details(report, found)
        )
    except (InvalidInput, ConversationGone) as problem:
        for turn in found.turns:
            report.leave_out(f"its conversation cannot be stored: {problem}", f"{found.id} {turn.id}")
        return
    await ledger.note(report.format, found.id, owner, talk.id)
    await _ConversationImport(store, talk, found, report).run()


def _details(report: ImportReport, found: ExportedConversation) -> dict[str, Any]:
    details: dict[str, Any] = {"metadata": {**found.metadata, "imported_from": report.format}}
    if found.title:
        details["title"] = " ".join(found.title.split())[:MAX_TITLE]
    return {**details, "model": found.model} if found.model else details


class _ConversationImport:
    """One conversation while it is stored. Turns that follow each other are stored in batches."""

    def __init__(self, store: Store, talk: Conversation, found: ExportedConversation, report: ImportReport) -> None:
        self.store, self.talk, self.found, self.report = store, talk, found, report
        self.known: dict[str, str] = {}  # idempotency keys of turns that are here, and their ids
        self.stored: dict[str, str | None] = {}  # of each message, its turn, or the turn that it follows
        self.first_child: dict[str | None, str] = {}  # of each turn, the first that was stored after it
        self.waiting: list[ExportedTurn] = []
        self.tip: str | None = None  # the last turn of the active branch

    async def run(self) -> None:
        await self._read_known()
        before = self.report.imported
        for turn in self.found.turns:
            await self._place(turn)
        await self._flush()
        last = self.stored.get(self.found.current) if self.found.current else None
        if last is not None and self.report.imported > before and last != self.tip:
            await self.talk.switch(last)

    async def _read_known(self) -> None:
        first = None
        while page := await self.talk.history(PAGE, before=first, include_superseded=True):
            self.known.update({turn.idempotency_key: turn.id for turn in page if turn.idempotency_key})
            first = page[0]
        newest = await self.talk.history(1)
        self.tip = newest[-1].id if newest else None

    async def _place(self, turn: ExportedTurn) -> None:
        """Store a turn after its parent, as another version if the parent has a child already."""
        if self.waiting and turn.parent == self.waiting[-1].id and not turn.files and self._key(turn) not in self.known:
            await self._wait(turn)
            return
        await self._flush()
        parent = self.stored.get(turn.parent) if turn.parent is not None else None
        here = self.known.get(self._key(turn))
        sibling = self.first_child.get(parent)
        if here is not None:
            self.report.already += 1
            self._note(turn, parent, here)
        elif sibling is not None:
            if sibling != self.tip:
                await self.talk.switch(sibling)
            await self._append(turn, parent, replaces=sibling, discard_after=True)
        else:
            if parent is not None and parent != self.tip:
                await self.talk.switch(parent)
                self.tip = parent
            if turn.files:
                await self._append(turn, parent)
            else:
                await self._wait(turn)

    def _note(self, turn: ExportedTurn, parent: str | None, id: str) -> None:
        self.stored[turn.id] = id
        self.first_child.setdefault(parent, id)

    def _key(self, turn: ExportedTurn) -> str:
        return f"import:{self.report.format}:{self.found.id}:{turn.id}"[:MAX_NAME]

    async def _wait(self, turn: ExportedTurn) -> None:
        self.waiting.append(turn)
        if len(self.waiting) >= BATCH:
            await self._flush()

    async def _flush(self) -> None:
        """Store the waiting turns together, or one by one when one of them cannot be stored."""
        turns, self.waiting = self.waiting, []
        if not turns:
            return
        try:
            done = await self.talk.append_many(cast("list[TurnInput]", [self._fields(turn) for turn in turns]))
        except (TurnGone, IdempotencyConflict, InvalidInput):
            for turn in turns:
                await self._append(turn, self.stored.get(turn.parent) if turn.parent is not None else None)
            return
        for turn, stored in zip(turns, done, strict=True):
            parent = self.stored.get(turn.parent) if turn.parent is not None else None
            self._note(turn, parent, stored.id)
        self.report.imported += len(turns)
        self.tip = done[-1].id

    async def _append(self, turn: ExportedTurn, parent: str | None, **place: Any) -> None:
        """Store one turn with its files, or count why it is left out; its children then follow its parent."""
        self.stored[turn.id] = parent
        name = f"{self.found.id} {turn.id}"
        try:
            components_of(self.store).drafts.draft("check", **{"actor": "-", **self._fields(turn)})
            files = [file for one in turn.files if (file := await self._file(one, name)) is not None]
            kept = files[:MAX_ATTACHMENTS]
            if len(files) > len(kept):
                self.report.files_left_out[TOO_MANY] += len(files) - len(kept)
            stored = await self.talk.append(**self._fields(turn), attachments=kept, **place)
        except TurnGone:
            self.report.leave_out(FORGOTTEN, name)
        except (IdempotencyConflict, InvalidInput) as problem:
            self.report.leave_out(str(problem), name)
        else:
            self.report.imported += 1
            self.report.files += len(kept)
            self._note(turn, parent, stored.id)
            self.tip = stored.id

    async def _file(self, file: ExportedFile, name: str) -> Attachment | None:
        if file.read is None:
            self.report.files_left_out[NOT_HERE] += 1
            self.report.first.setdefault(NOT_HERE, f"{name} {file.name}")
            return None
        try:
            return await self.talk.attach(file.read(), filename=file.name[:200], media_type=file.media_type)
        except (PalaverError, ValueError) as problem:
            reason = str(problem) if isinstance(problem, PalaverError) else "its bytes are damaged"
            self.report.files_left_out[reason] += 1
            self.report.first.setdefault(reason, f"{name} {file.name}")
            return None

    def _fields(self, turn: ExportedTurn) -> dict[str, Any]:
        """Return the fields of a turn that is stored."""
        fields: dict[str, Any] = {"role": turn.role, "content": turn.content, "idempotency_key": self._key(turn)}
        optional = {
            "created": turn.created,
            "actor": turn.actor,
            "model": turn.model,
            "tool_calls": list(turn.tool_calls),
            "tool_results": list(turn.tool_results),
            "metadata": dict(turn.metadata),
        }
        return fields | {name: value for name, value in optional.items() if value}
