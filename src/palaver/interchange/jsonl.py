"""Conversations as lines of JSON: every row as it is stored, so that export and import lose nothing.

One line per row, `{"kind": "conversation" | "event" | "turn" | "attachment" | "file" | "working_memory" | "fact" |
"end", "row": {…}}`. Bytes are base64. A conversation ends with an `end` line, so that a file that was cut short is
noticed. The hash chain is included: an imported conversation verifies, and one that was changed after the export is
rejected. Working memory and facts are in the chain as well, unless an earlier version wrote the file; the `end` line
has their hash.

Left out are summaries, the index, vectors and the text of files, which are rebuilt, and the requests to models.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from palaver.audit.verifier import Verifier
from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.core.derived_rows import ROWS
from palaver.core.identity import canonical_json, digest, event_hash, file_hash, from_json
from palaver.core.validation import clean_json
from palaver.errors import InvalidInput
from palaver.files.storage import blob_path
from palaver.memory import working_memory
from palaver.model import MEMORY_LISTS
from palaver.ports.queries import REMEMBERED_KINDS, Record

FORMAT = "palaver/1"
BINARY = frozenset({"salt", "content_hash", "hash", "tip_hash", "data"})
# Rebuilt at import from the rows.
DERIVED = frozenset({"tenant", "path", "members"})
KINDS = ("conversation", "event", "turn", "attachment", "working_memory", "fact")
INT64 = msgspec.Meta(ge=-(2**63), le=2**63 - 1)


class _Proved(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The salt of a row's hash, and the number of the event with the hash; not in files of earlier versions."""

    salt: bytes | None = None
    proof: int | None = None


class _Memory(_Proved):
    memory: str
    through_seq: int | None = None


class _Fact(_Proved):
    id: str
    subject: str
    predicate: str
    object: str
    source_turn: str | None
    confidence: float
    valid_from: Annotated[int, INT64]
    invalidated_at: Annotated[int, INT64] | None
    invalidated_by: str | None
    by: str
    created: Annotated[int, INT64]
    valid_to: Annotated[int, INT64] | None = None  # not in files of earlier versions
    learnt: Annotated[int, INT64] | None = None


# ---- export --------------------------------------------------------------------------------------------------------


async def export_lines(talk: Conversation) -> AsyncIterator[str]:
    """Yield the lines of one conversation."""
    rows = 0
    remembered: list[Record] = []
    async for page in talk.records():
        for record in page:
            rows += 1
            if record.kind in REMEMBERED_KINDS:
                remembered.append(record)
            yield _line(record.kind, {name: _out(name, v) for name, v in record.row.items() if name not in DERIVED})
            if record.kind == "attachment":
                data = await talk.read_attachment(record.row["id"])
                yield _line("file", {"id": record.row["id"], "data": _out("data", data)})
    hash = _hash(remembered)
    yield _line("end", {"format": FORMAT, "rows": rows, **({"remembered": hash} if hash else {})})


def _hash(records: Iterable[Record]) -> str | None:
    """Return the hash of working memory and facts; None without any, as in files of earlier versions."""
    texts = [text for one in records if one.kind in REMEMBERED_KINDS for text in (one.kind, canonical_json(one.row))]
    return digest(texts).hex() if texts else None


def _line(kind: str, row: Mapping[str, Any]) -> str:
    return json.dumps({"kind": kind, "row": row}, ensure_ascii=False, separators=(",", ":"))


def _out(name: str, value: Any) -> Any:
    return b64encode(value).decode() if name in BINARY and value is not None else value


# ---- import --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Dump:
    """One conversation as read from a file, not yet verified."""

    records: list[Record] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)


def read_dumps(lines: Iterable[str]) -> Iterator[Dump]:
    """Yield the conversations in a file."""
    dump: Dump | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        kind, row = _parse_row(number, line)
        if kind == "conversation":
            _expect(number, dump is None, "the conversation before it has no end line")
            dump = Dump()
        if dump is None:
            raise InvalidInput(f"line {number}", "a conversation line should come first")
        if kind == "end":
            _expect(number, row.get("rows") == len(dump.records), "rows are missing before it")
            _expect(number, row.get("remembered") == _hash(dump.records), "notes or facts before it were changed")
            yield dump
            dump = None
        elif kind == "file":
            _expect(number, {"id", "data"} <= row.keys(), "a file needs its id and its data")
            _expect(number, row["id"] not in dump.files, "this file appears twice")
            dump.files[row["id"]] = row["data"]
        elif kind in KINDS:
            last = dump.records[-1].kind if dump.records else kind
            _expect(
                number, kind in REMEMBERED_KINDS or last not in REMEMBERED_KINDS, "notes and facts should come last"
            )
            dump.records.append(Record(kind, row))
        else:
            raise InvalidInput(f"line {number}", f"this version does not know the kind {kind!r}")
    if dump is not None:
        raise InvalidInput("file", "it was cut short: the last conversation has no end line")


def _parse_row(number: int, line: str) -> tuple[Any, dict[str, Any]]:
    try:
        data = _parse(number, line)
        kind, row = data["kind"], data["row"]
        return kind, {name: _in(name, value) for name, value in row.items()}
    except (KeyError, ValueError, TypeError, AttributeError) as problem:
        if isinstance(problem, InvalidInput):
            raise
        raise InvalidInput(f"line {number}", "is not a row in the format of an export") from None


def _in(name: str, value: Any) -> Any:
    return b64decode(value, validate=True) if name in BINARY and value is not None else value


def _parse(number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        raise InvalidInput(f"line {number}", "is not JSON") from None
    _expect(number, isinstance(row, dict), "is not a JSON object")
    return dict(row)


def _expect(number: int, fits: bool, problem: str) -> None:
    if not fits:
        raise InvalidInput(f"line {number}", problem)


async def import_dump(store: Store, dump: Dump) -> Conversation | None:
    """Verify a conversation, then store it. None when it is stored already."""
    try:
        _check_remembered(dump.records)
        verifier = Verifier(is_export=True)
        verifier.feed(dump.records)
        verifier.finish()
        records = [_rebuilt(record) for record in dump.records]
        records = log_missing_rows(records, verifier.log.derived.missing())
    except (KeyError, TypeError, AttributeError) as problem:
        raise InvalidInput("file", f"a row lacks a field, or has it in another form ({problem})") from None
    for record in records:
        if record.kind == "attachment":
            _check_file(record.row, dump.files)
    return await store.restore(records, dump.files)


def log_missing_rows(records: list[Record], missing: Sequence[str]) -> list[Record]:
    """Add an event which says that rows are gone that an export does not have: summaries and requests.

    It depends on nothing but the records, so that a second import finds the same last event.
    """
    if not missing:
        return records
    row, events = records[0].row, [at for at, one in enumerate(records) if one.kind == "event"]
    payload = canonical_json({ROWS: dict.fromkeys(missing)})
    event = {"n": row["next_n"], "kind": "prove", "turn": None, "actor": "", "at": row["updated"], "payload": payload}
    hash = event_hash(row["tip_hash"], row["next_n"], "prove", None, "", row["updated"], payload, None)
    logged = Record("event", {**event, "content_hash": None, "hash": hash})
    head = Record("conversation", {**row, "next_n": row["next_n"] + 1, "tip_hash": hash})
    after = events[-1] + 1
    return [head, *records[1:after], logged, *records[after:]]


def _check_file(row: dict[str, Any], files: Mapping[str, bytes]) -> None:
    data = files.get(row["id"])
    if data is None or file_hash(data) != row["sha256"]:
        raise InvalidInput("file", f"the bytes of attachment {row['id']} are missing or were changed")


def _check_remembered(records: Iterable[Record]) -> None:
    """Check that working memory and facts are well-formed and refer to turns of the conversation."""
    by_kind: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for record in records:
        by_kind[record.kind].append(record.row)
    try:
        memories = [msgspec.convert(row, _Memory) for row in by_kind["working_memory"]]
        facts = [msgspec.convert(from_json(clean_json("file", row)), _Fact) for row in by_kind["fact"]]
    except msgspec.ValidationError as problem:
        raise InvalidInput("file", f"a note or a fact is not in the format of an export ({problem})") from None
    if len(memories) > 1 or len({fact.id for fact in facts}) < len(facts):
        raise InvalidInput("file", "a note or a fact appears twice")
    sources = {fact.source_turn for fact in facts}
    for one in memories:
        memory = working_memory.from_json(one.memory)
        clean_json("file", memory)
        sources |= {note.turn for name in MEMORY_LISTS for note in getattr(memory, name)}
    if unknown := sources - {None, *(row["id"] for row in by_kind["turn"])}:
        raise InvalidInput("file", f"a note or a fact belongs to the turn {unknown.pop()}, which is not in the file")


def _rebuilt(record: Record) -> Record:
    """Return the row with the columns that an export leaves out: a new path for a file."""
    row = dict(record.row)
    if record.kind == "attachment":
        row["path"] = blob_path(row["owner"], "imported", row["filename"])
    return Record(record.kind, row)


# ---- plain messages ------------------------------------------------------------------------------------------------


def read_messages(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Read lines of `{"role": …, "content": …}`, with any other field of a turn."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            row = _parse(number, line)
            _expect(number, "role" in row, 'has no "role"')
            yield row
