"""Commands that export and import conversations."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, cast

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import chosen, creating, existing, find, find_or_create
from palaver.cli.output import complain, console, counted, emit, note, say, table
from palaver.conversations.internals import components_of
from palaver.errors import AlreadyImported, ConversationGone, InvalidInput, MissingExtra, NotFound
from palaver.model import ADMIN

if TYPE_CHECKING:
    from palaver.conversations.conversation import Conversation
    from palaver.conversations.store import Store
    from palaver.core.turn_options import TurnInput
    from palaver.interchange.exports.formats import Export
    from palaver.interchange.exports.importer import ImportReport
    from palaver.interchange.tables import Report

PANEL = "Export and backup"
BATCH = 1_000
TURN_LINE = '{"kind":"turn"'
BOM = b"\xef\xbb\xbf"
SQLITE = b"SQLite format 3\0"  # how such a file begins

Advance = Callable[[int], None]


@contextmanager
def progress(title: str, total: float | None) -> Iterator[Advance]:
    """Show a progress bar on stderr, if that is a terminal. It disappears at the end."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    screen = console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)


# ---- export --------------------------------------------------------------------------------------------------------


@command("export", PANEL)
async def export(
    call: Call,
    conversations: Annotated[
        list[str] | None, typer.Argument(metavar="CONVERSATION", help="Ids or keys of conversations. Default: all.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="File to write. Default: stdout.")
    ] = None,
    format: Annotated[
        str, typer.Option("--format", metavar="NAME", help="Format: jsonl, markdown, html or openai.")
    ] = "jsonl",
) -> None:
    """Export conversations as lines of JSON: turns, log, files, notes and facts, exactly as they are stored.

    The export leaves out summaries, which can be written again, the requests to models, and the memory of persons and
    other subjects. `palaver backup` copies everything. The other formats contain only the active branch: markdown;
    html, a page without external files, for one conversation; and openai, one line of messages per conversation.

    The file gets its name only when it is complete.

    Examples:

      palaver export -o backup.jsonl
      palaver export support/42 | gzip > support-42.jsonl.gz
      palaver export support/42 --format html -o support-42.html
    """
    if format != "jsonl":
        await _export_readable(call, conversations or [], out, format)
        return
    async with existing(call) as store:
        talks = await chosen(store, conversations or [])
        with progress("Exporting", sum(talk.info.next_seq for talk in talks)) as advance, _target(out) as file:
            lines = sum([await _write(talk, file, advance) for talk in talks])
            if not conversations:
                lines += await _write_erasures(store, file)
    if out is None or not call.as_json:
        note(f"Exported {counted(len(talks), 'conversation')} in {counted(lines, 'line')}.")
    else:
        emit({"file": str(out), "conversations": [talk.id for talk in talks], "lines": lines})


async def _export_readable(call: Call, names: list[str], out: Path | None, format: str) -> None:
    from palaver.interchange.readable import FORMATS

    if format not in FORMATS:
        raise InvalidInput("--format", f"must be jsonl, {', '.join(FORMATS)}")
    if format == "html" and len(names) != 1:
        raise InvalidInput("CONVERSATION", "a page of HTML contains one conversation: name it")
    async with existing(call) as store:
        talks = await chosen(store, names)
        with progress("Exporting", len(talks)) as advance, _target(out) as file:
            for talk in talks:
                async for line in FORMATS[format](talk):
                    file.write(line + "\n")
                advance(1)
    if out is not None and call.as_json:
        emit({"file": str(out), "conversations": [talk.id for talk in talks], "format": format})
    else:
        note(f"Exported {counted(len(talks), 'conversation')} as {format}.")


async def _write(talk: Conversation, file: IO[str], advance: Advance) -> int:
    from palaver.interchange.jsonl import export_lines

    lines = 0
    async for line in export_lines(talk):
        file.write(line + "\n")
        lines += 1
        if line.startswith(TURN_LINE):
            advance(1)
    return lines


async def _write_erasures(store: Store, file: IO[str]) -> int:
    """Write who was erased, so that the next database does not take these persons in again."""
    from palaver.interchange.erasures import erasure_lines

    lines = await erasure_lines(store) if ADMIN in store.scope.rights else []
    for line in lines:
        file.write(line + "\n")
    return len(lines)


@contextmanager
def _target(out: Path | None) -> Iterator[IO[str]]:
    """Open the output. Write a plain file under a temporary name and rename it when it is complete."""
    if out is None:
        if isinstance(sys.stdout, io.TextIOWrapper):  # whatever the locale says
            sys.stdout.reconfigure(encoding="utf-8", newline="\n")
        yield sys.stdout
    elif out.exists() and not out.is_file():  # a device or a pipe cannot be replaced
        with out.open("w", encoding="utf-8", newline="\n") as file:
            yield file
    else:
        part = out.with_name(out.name + ".part")
        try:
            with part.open("w", encoding="utf-8", newline="\n") as file:
                yield file
            part.replace(out)
        finally:
            part.unlink(missing_ok=True)


# ---- import --------------------------------------------------------------------------------------------------------


def _from_table(what: str, *names: str, metavar: str = "COLUMN") -> Any:
    """An option of an import from a table."""
    return typer.Option(*names, metavar=metavar, help=f"With --from: {what}.")


_File = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="File or folder to import; - is stdin.", show_default=False)
]
_Into = Annotated[
    str | None,
    typer.Option(
        metavar="CONVERSATION", help="Append plain messages to this conversation. It is created if it does not exist."
    ),
]
_Format = Annotated[
    str | None, typer.Option("--format", metavar="NAME", help="Product that wrote FILE, if it is not recognised.")
]
_Owner = Annotated[
    str | None,
    typer.Option(
        metavar="USER", help="Owner of the conversations from another product. Default: the user of the command."
    ),
]
_Source = Annotated[str | None, typer.Option("--from", metavar="URL", help="Postgres database to copy a table from.")]
_Conversation = Annotated[
    str | None, _from_table("column with the name of the conversation; several are joined", metavar="COLUMN[,COLUMN]")
]
_Column = Annotated[
    list[str] | None,
    _from_table(
        "another field and its column, such as owner=uid or sources=refs. May be repeated", metavar="FIELD=COLUMN"
    ),
]
_Conversations = Annotated[
    str | None, _from_table("table with one row per conversation: owner, model, title and so on", metavar="NAME")
]


@command("import", PANEL)
async def import_(
    call: Call,
    file: _File = None,
    into: _Into = None,
    format: _Format = None,
    owner: _Owner = None,
    source: _Source = None,
    name: Annotated[str | None, _from_table("table of messages", "--table", metavar="NAME")] = None,
    conversation: _Conversation = None,
    role: Annotated[str | None, _from_table("column with the role")] = None,
    content: Annotated[str | None, _from_table("column with the text")] = None,
    created: Annotated[str | None, _from_table("column with the time")] = None,
    order: Annotated[str | None, _from_table("column that orders the rows of a conversation")] = None,
    metadata: Annotated[str | None, _from_table("column with JSON metadata")] = None,
    row_id: Annotated[str | None, _from_table("column with the id of the row", "--id")] = None,
    column: _Column = None,
    keep: Annotated[list[str] | None, _from_table("column to keep in the metadata. May be repeated")] = None,
    conversations: _Conversations = None,
    restore_forgotten: Annotated[
        bool, typer.Option("--restore-forgotten", help="Import conversations again even if they were deleted here.")
    ] = False,
) -> None:
    """Import conversations from `palaver export`, from another product, or from a table in Postgres.

    From `palaver export`: conversations are imported exactly as they were, and each is verified first. A conversation
    that exists already is not changed. If it has a different history here, or was deleted here, it is reported, the
    others are imported, and the exit status is 1.

    With --into, the lines of FILE are plain messages such as {"role": "user", "content": "Hello"}. All lines are
    checked before the first is stored.

    From another product: FILE is an export or a session file, or a folder or zip archive of them. Palaver reads
    ChatGPT, Claude, Claude Code, Codex, Open WebUI, LibreChat, Letta, OpenAI Agents, LangGraph and mem0. Branches,
    files and tool calls are imported, too. The report counts every message. You can run the import again: it continues
    where it was interrupted. A conversation that was imported earlier and deleted here is reported, and not imported
    again, unless you add --restore-forgotten.

    With --from, each row of a table becomes a turn. Columns with common names are recognised; name the others with
    options. You can run the import again: rows that were imported already are skipped. The report lists every column
    that was not imported.

    Examples:

      palaver import backup.jsonl --db new.db
      palaver import messages.jsonl --into support/42
      palaver import chatgpt-export.zip
      palaver import ~/.claude/projects --format claude-code
      palaver import --from postgresql://host/old --table messages --conversation chat --order number
      palaver import --from postgresql://host/old --table messages --conversations conversations --keep rating
    """
    columns = {"conversation": conversation, "role": role, "content": content, "created": created, "order": order}
    columns |= {"metadata": metadata, "id": row_id, **_fields(column or ())}
    tables = _Tables(name, conversations, tuple(keep or ()))
    if source is not None or name is not None:
        if source is None or name is None or file is not None or into is not None:
            raise InvalidInput("--from", "needs --table, and cannot be combined with a file or --into")
        await _copy_table(call, source, tables, columns, restore_forgotten)
    elif file is None or any(columns.values()) or tables != _Tables():
        raise InvalidInput("FILE", "is missing: name a file, or use --from with --table")
    elif into is None and (export := _foreign(file, format)) is not None:
        await _import_export(call, export, owner, restore_forgotten)
    elif into is not None and (format is not None or owner is not None):
        raise InvalidInput("--format" if format else "--owner", "cannot be combined with --into")
    elif format is not None:
        raise InvalidInput("--format", "works only with a file: exports of other products cannot be read from a pipe")
    elif owner is not None:
        raise InvalidInput("--owner", "works only with an export of another product, and FILE is not recognised as one")
    else:
        await _import_file(call, file, into)


def _foreign(file: Path, format: str | None) -> Export | None:
    """Return an export of another product; None for Palaver's own and for plain messages."""
    from palaver.interchange.exports.formats import NAMES, open_export

    if str(file) == "-":
        return None
    if format is None and file.is_file():
        with file.open("rb") as raw:
            if raw.read(12).removeprefix(BOM).startswith(b'{"kind":'):
                return None
    export = open_export(file, format)
    if export is None and (not file.is_file() or _is_sqlite(file)):
        raise InvalidInput("FILE", f"has none of these formats: {', '.join(NAMES)}. Name the format with --format")
    return export


def _is_sqlite(file: Path) -> bool:
    with file.open("rb") as raw:
        return raw.read(len(SQLITE)) == SQLITE


async def _import_export(call: Call, export: Export, owner: str | None, restore_forgotten: bool) -> None:
    from palaver.interchange.exports.importer import import_export

    with progress("Importing", _size(export.source.path)) as advance:
        async with creating(call) as store:
            report = await import_export(store, export, advance, owner, restore_forgotten=restore_forgotten)
    _tell_import(call, export.format.TITLE, report)
    if not report.imported and not report.already:
        raise typer.Exit(1)


def _tell_import(call: Call, title: str, report: ImportReport) -> None:
    """Print what happened to every message."""
    if call.as_json:
        emit(report.to_json())
        return
    if not report.imported and not report.already:
        say(f"Nothing was imported from {title}: no usable message in {counted(report.conversations, 'conversation')}.")
    else:
        say(
            f"{title}: {counted(report.conversations, 'conversation')}, {counted(report.records, 'message')}. "
            f"Imported {counted(report.imported, 'turn')} and {counted(report.files, 'file')}. "
            f"Messages imported earlier: {report.already:,}. Messages merged into others: {report.merged:,}."
        )
    rows = [(f"{n:,}", "conversation", why, "") for why, n in report.unreadable.most_common()]
    rows += [(f"{n:,}", "message", why, report.first.get(why, "")) for why, n in report.left_out.most_common()]
    rows += [(f"{n:,}", "file", why, report.first.get(why, "")) for why, n in report.files_left_out.most_common()]
    if rows:
        table(("left out", "what", "why", "the first"), rows)


async def _import_file(call: Call, file: Path, into: str | None) -> None:
    # The file first: when it cannot be read, no database is made.
    with _source(file) as raw, progress("Importing", _size(file)) as advance:
        async with creating(call) as store:
            if into is None:
                await _restore(call, store, _expect("conversation", _lines(raw, advance)))
            else:
                await _append(call, store, into, _expect("message", _lines(raw, advance)))


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables to copy, of messages and of conversations, and the columns to keep in the metadata."""

    messages: str | None = None
    conversations: str | None = None
    keep: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        return [name for name in (self.messages, self.conversations) if name is not None]


def _fields(given: Iterable[str]) -> dict[str, str | None]:
    """Read FIELD=COLUMN options."""
    pairs = [one.partition("=") for one in given]
    for field, equals, column in pairs:
        if not (field and equals and column):
            raise InvalidInput("--column", "must be FIELD=COLUMN, such as owner=uid")
    return {field: column for field, _, column in pairs}


async def _copy_table(
    call: Call, url: str, tables: _Tables, columns: dict[str, str | None], restore_forgotten: bool
) -> None:
    try:
        from palaver.engines.postgres.foreign_table import open_tables
    except ModuleNotFoundError as problem:
        raise MissingExtra("postgres", "Reading a Postgres table") from problem
    from palaver.interchange.langchain_table import LangChainTable, is_langchain_table
    from palaver.interchange.tables import Source, details_of, import_table, layout_of

    async with open_tables(url, *tables.names) as (table, *others):
        found: Source = LangChainTable(table) if is_langchain_table(table.columns) else table
        layout = layout_of(found.columns, keep=tables.keep, **columns)
        details = details_of(others[0]) if others else None
        with progress("Copying", await table.count()) as advance:
            async with creating(call) as store:
                report = await import_table(store, found, layout, advance, details, restore_forgotten=restore_forgotten)
    _tell(call, tables.names[0], report)


def _tell(call: Call, name: str, report: Report) -> None:
    skipped = [{"reason": why, "rows": n, "first": report.first[why]} for why, n in report.skipped.most_common()]
    if call.as_json:
        fields = {"table": name, "rows": report.rows, "conversations": len(report.conversations)}
        fields |= {"imported": report.imported, "already": report.already}
        emit({**fields, "skipped": skipped, "in_metadata": dict(report.in_metadata), "dropped": dict(report.dropped)})
        return
    into = f"{counted(report.imported, 'turn')} into {counted(len(report.conversations), 'conversation')}"
    say(f"{name}: {counted(report.rows, 'row')}. Imported {into}. Rows imported earlier: {report.already:,}.")
    if skipped:
        found = [(f"{n:,}", why, report.first[why]) for why, n in report.skipped.most_common()]
        table(("left out", "why", "the first"), found)
    columns = [(column, f"{n:,}", "kept in the metadata") for column, n in report.in_metadata.most_common()]
    columns += [(column, f"{n:,}", "not imported") for column, n in report.dropped.most_common()]
    if columns:
        table(("column", "rows", "result"), columns)


@contextmanager
def _source(file: Path) -> Iterator[IO[bytes]]:
    if str(file) == "-":
        yield sys.stdin.buffer
    else:
        with file.open("rb") as raw:
            yield raw


def _size(file: Path) -> float | None:
    return file.stat().st_size if file.is_file() else None


def _lines(raw: Iterable[bytes], advance: Advance) -> Iterator[str]:
    for number, line in enumerate(raw, 1):
        advance(len(line))
        try:
            yield (line.removeprefix(BOM) if number == 1 else line).decode()
        except UnicodeDecodeError:
            raise InvalidInput(f"line {number}", "is not UTF-8 text") from None


async def _restore(call: Call, store: Store, lines: Iterable[str]) -> None:
    from palaver.interchange.erasures import ERASURE_LINE, import_erasures
    from palaver.interchange.jsonl import import_dump, read_dumps

    count = refused = 0
    erasures: list[str] = []
    for dump in read_dumps(_set_apart(lines, ERASURE_LINE, erasures)):
        count += 1
        try:
            talk = await import_dump(store, dump)
        except (AlreadyImported, ConversationGone) as problem:  # of this one; the others are still imported
            complain(problem, as_json=call.as_json)
            refused += 1
            continue
        row = dump.records[0].row
        _restored(call, row["id"], row.get("key"), None if talk is None else talk.info.turn_count)
    if erasures:
        await import_erasures(store, erasures)
    if not count and not call.as_json:
        say("The file contains no conversation.")
    if refused:
        raise typer.Exit(1)


def _expect(what: str, lines: Iterable[str]) -> Iterator[str]:
    """Pass lines on, unless the first is of the other kind: then say how to import that."""
    for number, line in enumerate(lines, 1):
        exported = line.startswith('{"kind":')
        if number == 1 and what == "message" and exported:
            raise InvalidInput("line 1", "is from an export, which is imported without --into")
        if number == 1 and line.startswith('{"conversation":'):
            raise InvalidInput("line 1", "is from Export in the web app, which is for reading; use palaver export")
        if number == 1 and what == "conversation" and not exported and '"role"' in line:
            raise InvalidInput("line 1", "is a plain message, not an export: name its conversation with --into")
        yield line


def _set_apart(lines: Iterable[str], start: str, apart: list[str]) -> Iterator[str]:
    """Pass lines on, except those with this start, which are collected."""
    for line in lines:
        if line.startswith(start):
            apart.append(line)
            line = "\n"  # an empty line is skipped, and the numbers of the others stay right
        yield line


def _restored(call: Call, id: str, key: str | None, turns: int | None) -> None:
    if call.as_json:
        emit({"conversation": id, "key": key, "imported": turns is not None, "turns": turns})
    elif turns is None:
        say(f"{key or id} exists already.")
    else:
        say(f"Imported {key or id} with {counted(turns, 'turn')}.")


async def _append(call: Call, store: Store, into: str, lines: Iterable[str]) -> None:
    from palaver.interchange.jsonl import read_messages

    messages = list(read_messages(lines))
    for number, message in enumerate(messages, 1):
        _check(store, number, message)
        await _check_files(store, into, number, message.get("content", ""))
    talk, _ = await find_or_create(store, into)
    for start in range(0, len(messages), BATCH):
        await talk.append_many(cast("list[TurnInput]", messages[start : start + BATCH]))
    if call.as_json:
        emit({"conversation": talk.id, "key": talk.key, "imported": True, "turns": len(messages)})
    else:
        say(f"Appended {counted(len(messages), 'turn')} to {into}.")


def _check(store: Store, number: int, message: dict[str, Any]) -> None:
    """Refuse a message before anything is stored, and name it: a file is imported whole or not at all."""
    from palaver.core.turn_options import TURN_FIELDS
    from palaver.core.validation import did_you_mean

    known = ("role", "content", *TURN_FIELDS)
    unknown = sorted(message.keys() - set(known))
    if unknown:
        hint = did_you_mean(unknown[0], known)
        names = ", ".join(known)
        raise InvalidInput(f"message {number}", f"{unknown[0]!r} is not a field of a turn{hint}; known names: {names}")
    fields = {name: value for name, value in message.items() if name not in ("role", "content", "actor")}
    actor = "-" if message.get("actor") is None else message["actor"]
    try:
        components_of(store).drafts.draft("check", message["role"], message.get("content", ""), actor=actor, **fields)
    except InvalidInput as problem:
        raise InvalidInput(f"message {number}", str(problem)) from None


async def _check_files(store: Store, into: str, number: int, content: Any) -> None:
    """Refuse a message that names a file which is not stored here."""
    from palaver.core.turn_draft import decode_content, encode_content, referenced_attachments

    if isinstance(content, str):
        return
    for id in referenced_attachments(decode_content(*encode_content(content))):
        try:
            await (await find(store, into)).attachment(id)
        except (NotFound, InvalidInput):
            raise InvalidInput(f"message {number}", f"names {id!r}, which is not an attachment in {into}") from None
