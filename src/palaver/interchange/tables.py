"""Import of messages from tables of other programs. Rows that were imported before are skipped.

Each turn gets an idempotency key made from its row, so that running twice stores once, and what was forgotten here
since does not come back. A row that cannot be a turn is left out, and the report says which and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol, cast

from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import components_of
from palaver.conversations.store import Store
from palaver.core.identity import canonical_json, digest, from_json
from palaver.core.turn_options import TurnInput
from palaver.core.validation import MAX_ATTACHMENTS
from palaver.errors import AppendConflict, IdempotencyConflict, InvalidInput, TurnGone
from palaver.model import Attachment

BATCH = 500
PAGE = 1_000
NEVER = 2**52  # a seq that no conversation will reach

# The names that columns usually have, best first.
CONVERSATIONS = (("project_id", "agent"), ("session_id",), ("conversation_id",), ("thread_id",), ("chat_id",))
USUAL: Mapping[str, tuple[str, ...]] = {
    "role": ("role", "sender", "author", "type"),
    "content": ("content", "text", "body", "message"),
    "created": ("created_at", "timestamp", "inserted_at", "created", "sent_at"),
    "order": ("sequence", "seq", "position", "message_index"),
    "metadata": ("metadata",),
    "images": ("images",),
    "id": ("id", "message_id", "uuid"),
}
ROLES = {"human": "user", "ai": "assistant", "bot": "assistant", "model": "assistant"}


class Source(Protocol):
    """A table of any database."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> Mapping[str, str]: ...

    def rows(self, columns: Sequence[str], order: Sequence[str]) -> AsyncIterator[Mapping[str, Any]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The meaning of a table's columns. Several may form the conversation's key, joined with slashes."""

    conversation: tuple[str, ...]
    role: str
    content: str
    created: str | None = None
    order: str | None = None
    metadata: str | None = None
    images: str | None = None
    id: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        single = (self.role, self.content, self.created, self.order, self.metadata, self.images, self.id)
        return (*self.conversation, *(name for name in single if name))

    @property
    def sorting(self) -> tuple[str, ...]:
        return (*self.conversation, *(name for name in (self.order, self.created, self.id) if name))


def layout_of(columns: Mapping[str, str], **chosen: str | None) -> Layout:
    """Return the layout that was chosen, completed by the usual names. `conversation` may be several, with commas."""
    for name, column in chosen.items():
        for part in (column or "").split(",") if name == "conversation" else [column]:
            if part and part not in columns:
                raise InvalidInput(f"--{name}", f"there is no column {part!r}; there are {', '.join(columns)}")
    named = chosen.pop("conversation", None)
    keys = tuple(named.split(",")) if named else next((k for k in CONVERSATIONS if all(c in columns for c in k)), ())
    found = {name: chosen.get(name) or next((c for c in usual if c in columns), None) for name, usual in USUAL.items()}
    for name, value in (("conversation", keys), ("role", found["role"]), ("content", found["content"])):
        if not value:
            raise InvalidInput(f"--{name}", f"say which column it is: {', '.join(columns)}")
    return Layout(conversation=keys, **found)  # type: ignore[arg-type]


# ---- the report ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Report:
    """The result of an import. `skipped` counts rows by reason; `first` names the first row of each reason."""

    rows: int = 0
    imported: int = 0
    already: int = 0
    conversations: set[str] = field(default_factory=set)
    skipped: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def skip(self, reason: str, row: str) -> None:
        self.skipped[reason] += 1
        self.first.setdefault(reason, row)


# ---- import --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Row:
    name: str  # for the report
    turn: dict[str, Any]
    images: list[Any]


async def import_table(store: Store, source: Source, layout: Layout, advance: Callable[[int], None]) -> Report:
    """Append every row of a table to its conversation."""
    report = Report()
    importer: _Importer | None = None
    async for raw in source.rows(layout.columns, layout.sorting):
        report.rows += 1
        advance(1)
        key = _key(raw, layout)
        if importer is None or importer.key != key:
            if importer is not None:
                await importer.flush()
            importer = _Importer(store, report, key, source.name)
            await importer.open(raw, layout)
        await importer.add(raw, layout)
    if importer is not None:
        await importer.flush()
    return report


def _key(raw: Mapping[str, Any], layout: Layout) -> str | None:
    parts = [raw[name] for name in layout.conversation]
    return None if any(part is None or part == "" for part in parts) else "/".join(str(part) for part in parts)


class _Importer:
    """One conversation during the import of its rows."""

    def __init__(self, store: Store, report: Report, key: str | None, table: str) -> None:
        self.store, self.report, self.key, self.table = store, report, key, table
        self.talk: Conversation | None = None
        self.known: set[str] = set()
        self.seen: Counter[bytes] = Counter()
        self.waiting: list[_Row] = []
        self.problem = "names no conversation" if key is None else None

    async def open(self, raw: Mapping[str, Any], layout: Layout) -> None:
        if self.key is None:
            return
        agent = {"agent": raw["agent"]} if layout.conversation == ("project_id", "agent") else {}
        try:
            self.talk = await self.store.conversation(self.key, **agent)
        except InvalidInput as problem:
            self.problem = f"its conversation cannot be: {problem}"
            return
        self.report.conversations.add(self.talk.id)
        first = None
        while page := await self.talk.history(PAGE, before=first, include_superseded=True):
            self.known.update(turn.idempotency_key for turn in page if turn.idempotency_key)
            first = page[0]

    async def add(self, raw: Mapping[str, Any], layout: Layout) -> None:
        name = str(raw[layout.id]) if layout.id else f"{self.key} {self.report.rows}"
        if self.problem or self.talk is None:
            self.report.skip(self.problem or "", name)
            return
        try:
            row = self._row(name, raw, layout)
        except InvalidInput as problem:
            self.report.skip(str(problem), name)
            return
        if row.turn["idempotency_key"] in self.known:
            self.report.already += 1
        elif row.images:  # in order, and alone: its files must not be stored for a row that fails
            await self.flush()
            await self._append_with_images(self.talk, row)
        else:
            self.waiting.append(row)
            if len(self.waiting) >= BATCH:
                await self.flush()

    def _row(self, name: str, raw: Mapping[str, Any], layout: Layout) -> _Row:
        role, content = raw[layout.role], raw[layout.content]
        if content is None:
            raise InvalidInput("content", "is missing")
        said = content if isinstance(content, str) else canonical_json(content)
        turn = {"role": ROLES.get(str(role), role), "content": said}
        created = raw[layout.created] if layout.created else None
        if isinstance(created, datetime):
            turn["created"] = created
        metadata = _json(raw[layout.metadata]) if layout.metadata else None
        if isinstance(metadata, dict):
            turn["metadata"] = metadata
        turn["idempotency_key"] = self._idempotency_key(raw, layout, said)
        components_of(self.store).drafts.draft("check", turn["role"], said, actor="-", metadata=turn.get("metadata"))
        images = _json(raw[layout.images]) if layout.images else None
        return _Row(name, turn, images if isinstance(images, list) else [])

    def _idempotency_key(self, raw: Mapping[str, Any], layout: Layout, said: str) -> str:
        """Return the row's id; without one, a hash of its content, time and number of equal rows before it."""
        if layout.id and raw[layout.id] is not None:
            return f"import:{self.table}:{raw[layout.id]}"[:512]
        same = digest((str(raw[layout.role]), said, str(raw[layout.created]) if layout.created else None))
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
            self.report.imported += len(rows)

    async def _append(self, talk: Conversation, row: _Row, **more: Any) -> None:
        try:
            await talk.append(**row.turn, **more)
        except TurnGone:
            self.report.skip("was forgotten here", row.name)
        except IdempotencyConflict:
            self.report.skip("is here with other words", row.name)
        except InvalidInput as problem:
            self.report.skip(str(problem), row.name)
        else:
            self.report.imported += 1

    async def _append_with_images(self, talk: Conversation, row: _Row) -> None:
        try:  # storing a file for a forgotten turn would bring back deleted data
            await talk.append(**row.turn, expected_seq=NEVER)
        except AppendConflict:
            pass  # the row was not imported before
        except TurnGone:
            self.report.skip("was forgotten here", row.name)
            return
        files: list[Attachment] = []
        others: list[Any] = []
        for image in row.images:
            url: Any = image.get("dataUrl") if isinstance(image, dict) else image
            if len(files) == MAX_ATTACHMENTS:
                others.append(image)
                continue
            try:
                name = image.get("filename") if isinstance(image, dict) else None
                files.append(await talk.attach(url, filename=name or None))
            except InvalidInput:
                others.append(image)
        if others:
            row.turn["metadata"] = {**row.turn.get("metadata", {}), "images": others}
        await self._append(talk, row, attachments=files)


def _json(value: Any) -> Any:
    """Decode JSON, which the driver returns as text."""
    if not isinstance(value, str):
        return value
    try:
        return from_json(value)
    except ValueError:
        return None
