"""Import of messages from tables of other programs. Rows that were imported before are skipped.

Each turn gets an idempotency key made from its row, so that running twice stores once, and what was forgotten here
since does not come back. A row that cannot be a turn is left out, and the report says which and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PureWindowsPath
from typing import Any, Protocol, cast

from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import components_of
from palaver.conversations.store import Store
from palaver.core.identity import digest
from palaver.core.turn_options import TurnInput
from palaver.core.validation import MAX_ATTACHMENTS
from palaver.errors import AppendConflict, FileRefused, IdempotencyConflict, InvalidInput, PermissionDenied, TurnGone
from palaver.files.kinds import ending_of
from palaver.interchange.ledger import FORGOTTEN_WHOLE, ImportLedger
from palaver.interchange.table_rows import (
    USUAL_DETAILS,
    Layout,
    TableRow,
    decode_json,
    layout_of,
    read_row,
    usual_columns,
)
from palaver.model import Attachment

BATCH = 500
PAGE = 1_000
NEVER = 2**52  # a seq that no conversation will reach
CONVERSATION_NAMES = ("owner", "workspace", "agent", "model", "title")
DATA_URLS, FILE_NAMES = ("dataUrl", "data_url", "data", "url"), ("filename", "file_name", "name")
__all__ = ["Details", "Layout", "Report", "Source", "details_of", "import_table", "layout_of"]


class Source(Protocol):
    """A table of any database."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> Mapping[str, str]: ...

    def rows(self, columns: Sequence[str], order: Sequence[str]) -> AsyncIterator[Mapping[str, Any]]: ...

    async def row(self, columns: Sequence[str], id: str, value: str) -> Mapping[str, Any] | None:
        """Return the row whose column `id` has this value, written as text."""
        ...

    async def filled(self, columns: Sequence[str]) -> Mapping[str, int]:
        """Return how many rows have a value in each of these columns."""
        ...


@dataclass(frozen=True, slots=True)
class Details:
    """A table of conversations, to be read along with their messages."""

    table: Source
    fields: Mapping[str, str]  # what `USUAL_DETAILS` names, and its column

    async def of(self, key: str) -> Mapping[str, Any]:
        """Return what the table says about a conversation."""
        found = await self.table.row(tuple(self.fields.values()), self.fields["id"], key)
        return {} if found is None else {name: found[column] for name, column in self.fields.items()}


def details_of(table: Source) -> Details:
    fields = usual_columns(USUAL_DETAILS, table.columns)
    if "id" not in fields:
        raise InvalidInput("--conversations", f"has no column with an id: {', '.join(table.columns)}")
    return Details(table, fields)


# ---- the report ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Report:
    """The result of an import.

    `skipped` counts rows by reason; `first` names the first row of each reason. `in_metadata` counts, by column, the
    values of imported rows that have no field of a turn and were kept in its metadata. `dropped` counts the rows with a
    value in a column that was not read.
    """

    rows: int = 0
    imported: int = 0
    already: int = 0
    conversations: set[str] = field(default_factory=set)
    skipped: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    in_metadata: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    def skip(self, reason: str, row: str) -> None:
        self.skipped[reason] += 1
        self.first.setdefault(reason, row)


# ---- import --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    name: str  # for the report
    read: TableRow

    @property
    def turn(self) -> dict[str, Any]:
        return self.read.turn


async def import_table(
    store: Store,
    source: Source,
    layout: Layout,
    advance: Callable[[int], None],
    details: Details | None = None,
    *,
    restore_forgotten: bool = False,
) -> Report:
    """Append every row of a table to its conversation.

    A conversation that an earlier import stored and that was forgotten since is left out, unless `restore_forgotten`.
    """
    report, ledger = Report(), ImportLedger(store, restore_forgotten=restore_forgotten)
    await _count_dropped(report, source, set(layout.columns))
    if details is not None:
        await _count_dropped(report, details.table, set(details.fields.values()), f"{details.table.name}.")
    importer: _Importer | None = None
    async for raw in source.rows(layout.columns, layout.sorting):
        report.rows += 1
        advance(1)
        key = _key(raw, layout)
        if importer is None or importer.key != key:
            if importer is not None:
                await importer.flush()
            importer = _Importer(store, report, key, source.name, ledger)
            await importer.open(raw, layout, details)
        await importer.add(raw, layout)
    if importer is not None:
        await importer.flush()
    return report


async def _count_dropped(report: Report, source: Source, read: set[str], prefix: str = "") -> None:
    unread = [column for column in source.columns if column not in read]
    filled = await source.filled(unread) if unread else {}
    report.dropped.update({prefix + column: count for column, count in filled.items() if count})


def _key(raw: Mapping[str, Any], layout: Layout) -> str | None:
    parts = [raw[name] for name in layout.conversation]
    return None if any(part is None or part == "" for part in parts) else "/".join(str(part) for part in parts)


class _Importer:
    """One conversation during the import of its rows."""

    def __init__(self, store: Store, report: Report, key: str | None, table: str, ledger: ImportLedger) -> None:
        self.store, self.report, self.key, self.table, self.ledger = store, report, key, table, ledger
        self.talk: Conversation | None = None
        self.known: set[str] = set()
        self.seen: Counter[bytes] = Counter()
        self.waiting: list[_Row] = []
        self.problem = "names no conversation" if key is None else None

    async def open(self, raw: Mapping[str, Any], layout: Layout, details: Details | None) -> None:
        if self.key is None:
            return
        told = {name: layout.value(raw, name) for name in ("owner", "workspace", "agent")}
        if details is not None:
            told |= {name: value for name, value in (await details.of(self.key)).items() if value is not None}
        try:
            fields = _conversation_fields(told)
            if await self.ledger.is_forgotten(self.table, self.key, fields.get("owner")):
                self.problem = FORGOTTEN_WHOLE
                return
            self.talk = await self.store.conversation(self.key, **fields)
            await self.ledger.note(self.table, self.key, fields.get("owner"), self.talk.id)
        except (InvalidInput, PermissionDenied) as problem:
            self.problem = f"its conversation cannot be stored: {problem}"
            return
        self.report.conversations.add(self.talk.id)
        first = None
        while page := await self.talk.history(PAGE, before=first, include_superseded=True):
            self.known.update(turn.idempotency_key for turn in page if turn.idempotency_key)
            first = page[0]

    async def add(self, raw: Mapping[str, Any], layout: Layout) -> None:
        id = layout.value(raw, "id")
        name = str(id) if "id" in layout.fields else f"{self.key} {self.report.rows}"
        if self.problem or self.talk is None:
            self.report.skip(self.problem or "", name)
            return
        try:
            row = _Row(name, self._checked(raw, layout, self.talk.info.owner))
        except InvalidInput as problem:
            self.report.skip(str(problem), name)
            return
        if row.turn["idempotency_key"] in self.known:
            self.report.already += 1
        elif row.read.files:  # in order, and alone: its files must not be stored for a row that fails
            await self.flush()
            await self._append_with_files(self.talk, row)
        else:
            self.waiting.append(row)
            if len(self.waiting) >= BATCH:
                await self.flush()

    def _checked(self, raw: Mapping[str, Any], layout: Layout, owner: str) -> TableRow:
        row = read_row(raw, layout, owner)
        row.turn["idempotency_key"] = self._idempotency_key(raw, layout, row.said)
        components_of(self.store).drafts.draft("check", **{"actor": "-", **row.turn})
        return row

    def _idempotency_key(self, raw: Mapping[str, Any], layout: Layout, said: str) -> str:
        """Return the row's id; without one, a hash of its content, time and number of equal rows before it."""
        id, created = layout.value(raw, "id"), layout.value(raw, "created")
        if id is not None:
            return f"import:{self.table}:{id}"[:512]
        role = str(layout.value(raw, "role"))
        same = digest((role, said, str(created) if "created" in layout.fields else None))
        self.seen[same] += 1
        return f"import:{self.table}:{same.hex()}:{self.seen[same]}"[:512]

    async def flush(self) -> None:
        """Store the waiting rows together, or one by one when one of them cannot be stored."""
        rows, self.waiting = self.waiting, []
        if not rows or self.talk is None:
            return
        try:
            await self.talk.append_many(cast("list[TurnInput]", [row.turn for row in rows]))
        except (TurnGone, IdempotencyConflict, InvalidInput):
            for row in rows:
                await self._append(self.talk, row)
        else:
            for row in rows:
                self._count(row)

    def _count(self, row: _Row) -> None:
        self.report.imported += 1
        self.report.in_metadata.update(row.read.in_metadata)

    async def _append(self, talk: Conversation, row: _Row, not_stored: Iterable[str] = (), **more: Any) -> None:
        """Append a row. `not_stored` are its columns whose files were refused and are in the metadata instead."""
        try:
            await talk.append(**row.turn, **more)
        except TurnGone:
            self.report.skip("was forgotten here", row.name)
        except IdempotencyConflict:
            self.report.skip("is already stored, with a different text", row.name)
        except InvalidInput as problem:
            columns = ", ".join(not_stored) if problem.field == "metadata" else ""
            why = f"{columns}: not accepted as files, and too large for the metadata" if columns else str(problem)
            self.report.skip(why, row.name)
        else:
            self._count(row)

    async def _append_with_files(self, talk: Conversation, row: _Row) -> None:
        """Append a row with its files: data URLs become attachments, anything else stays in the metadata."""
        try:  # storing a file for a forgotten turn would bring back deleted data
            await talk.append(**row.turn, expected_seq=NEVER)
        except AppendConflict:
            pass  # the row was not imported before
        except TurnGone:
            self.report.skip("was forgotten here", row.name)
            return
        files: list[Attachment] = []
        others: dict[str, list[Any]] = {}
        for column, one in row.read.files:
            stored = await _stored_file(talk, one) if len(files) < MAX_ATTACHMENTS else None
            if stored is None:
                others.setdefault(column, []).append(one)
            else:
                files.append(stored)
        for column, left in others.items():
            row.read.keep(column, left)
        await self._append(talk, row, others, attachments=files)


async def _stored_file(talk: Conversation, file: Any) -> Attachment | None:
    """Store a data URL, which stands alone or in an object with a name. None when it is something else.

    An image gets the type of its bytes, and a name that ends accordingly.
    """
    found = file if isinstance(file, dict) else {"url": file}
    url = next((found[name] for name in DATA_URLS if str(found.get(name)).startswith("data:")), None)
    named = next((str(found[name]) for name in FILE_NAMES if found.get(name)), "")
    name = PureWindowsPath(named).name or None  # without a path, which may have slashes of both kinds
    if url is None:
        return None
    try:
        return await talk.attach(url, filename=name)
    except FileRefused as problem:
        kind = problem.media_type or ""
    except InvalidInput:
        return None
    if not kind.startswith("image/"):
        return None
    # The row names another type than the image has. In the metadata, a large image would exceed the limit, and the
    # whole row would be left out.
    try:
        return await talk.attach(url, filename=name and PureWindowsPath(name).stem + ending_of(kind), media_type=kind)
    except InvalidInput:
        return None


def _conversation_fields(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a new conversation from what the tables say about it."""
    fields = {name: str(told[name]) for name in CONVERSATION_NAMES if told.get(name) not in (None, "")}
    metadata = decode_json(told.get("metadata"))
    return {**fields, "metadata": metadata} if isinstance(metadata, dict) and metadata else fields
