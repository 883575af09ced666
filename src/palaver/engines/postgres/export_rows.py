"""Whole conversations, row by row: export from one snapshot, and restore unchanged."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from palaver.audit.derived import keys_of
from palaver.core.identity import canonical_json
from palaver.engines.postgres import rows
from palaver.engines.postgres.rpc import EnginePart, RpcClient
from palaver.engines.postgres.transports import as_json
from palaver.errors import InvalidInput
from palaver.model import ConversationInfo, Scope
from palaver.ports.queries import ALL_RECORDS, Adoption, Record, RecordKind, RecordRange

PAGE = 1_000  # rows
# Columns that mean something in one database only: row numbers, and the state of its index and its summaries.
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
    }
    | {"summarized_position", "summarized_turns", "summarized_tokens"}
)
TURN_LOCAL = frozenset({"tenant", "cid", "tid", "preview"})
EVENT_LOCAL = frozenset({"tenant", "cid"})
REMEMBERED: tuple[RecordKind, ...] = ("working_memory", "fact")
DERIVED: tuple[RecordKind, ...] = ("summary", "file_text", "request", "item", "source")  # are not exported
SALTS = ("salt", "body_salt")
NUMBERS: dict[RecordKind, str] = {"event": "n", "turn": "seq"}
DERIVED_PAGE = 200  # rows; the body of a request is large


class PostgresExportRows(EnginePart):
    async def records(
        self, scope: Scope, conversation: str, derived: bool = False, part: RecordRange = ALL_RECORDS
    ) -> AsyncIterator[Sequence[Record]]:
        """Read all pages from one snapshot."""
        async with self.transport.snapshot() as snapshot:
            rpc = RpcClient(snapshot, self.clock)
            row = (await rpc.read("conversation", scope, conversation=conversation))[0]
            members = canonical_json(row["members"])
            yield [Record("conversation", {**rows.export_row(row, LOCAL), "members": members})]
            async for page in _pages(rpc, "event", scope, conversation, (part.after, part.through), EVENT_LOCAL):
                yield page
            seqs = part.from_seq - 1, part.before_seq - 1
            async for page in _pages(rpc, "turn", scope, conversation, seqs, TURN_LOCAL):
                yield page
            found = await rpc.read("attachment_records", scope, conversation=conversation)  # few enough for one page
            if found:
                yield [Record("attachment", rows.export_row(row, frozenset())) for row in found]
            for kind in (*REMEMBERED, *DERIVED) if derived else REMEMBERED:
                async for page in _derived_pages(rpc, kind, scope, conversation):
                    yield page

    async def restore(self, scope: Scope, records: Sequence[Record]) -> ConversationInfo | None:
        size, title = rows.title_words(records[0].row.get("title"))
        try:
            known = as_json([(record.kind, _restored_row(record)) for record in records])
        except (KeyError, TypeError, ValueError):
            raise InvalidInput("file", "has a row that is not in the format of an export") from None
        found = await self.write("restore", scope, records=known, words=title, size=size)
        return rows.read_info(found[0]) if found else None

    async def adopt(self, scope: Scope, adoption: Adoption) -> bool:
        size, title = rows.title_words(adoption.records[0].row.get("title"))
        keys = {key for one in adoption.records for key, _, _ in keys_of(one.kind, one.row)}
        found = await self.write(
            "adopt",
            scope,
            conversation=adoption.expected.conversation,
            expected_n=adoption.expected.n,
            expected_hash=adoption.expected.hash,
            records=as_json([(record.kind, _restored_row(record)) for record in adoption.records]),
            whole=adoption.whole,
            dropped=sorted(keys.union(adoption.dropped)),
            moved=as_json(adoption.moved),
            words=title,
            size=size,
        )
        self.hub.committed(adoption.records[0].row["id"])
        return bool(found[0]["stored"])


async def _pages(
    rpc: RpcClient, kind: RecordKind, scope: Scope, conversation: str, numbers: tuple[int, int], local: frozenset[str]
) -> AsyncIterator[list[Record]]:
    """Read events or turns after one number, up to another."""
    (after, through), key = numbers, NUMBERS[kind]
    args = {"conversation": conversation}
    while after < through:
        most = min(PAGE, through - after)
        if not (found := await rpc.read(f"{kind}_records", scope, after=after, most=most, **args)):
            return
        rows_ = [row for row in found if row[key] <= through]
        yield [Record(kind, rows.export_row(row, local)) for row in rows_]
        after = found[-1][key]


async def _derived_pages(
    rpc: RpcClient, kind: RecordKind, scope: Scope, conversation: str
) -> AsyncIterator[list[Record]]:
    after = -1
    args = {"conversation": conversation, "kind": kind, "most": DERIVED_PAGE}
    while found := await rpc.read("derived_records", scope, after=after, **args):
        yield [Record(kind, _derived_row(rows.decode_json(row["stored"]))) for row in found]
        after = found[-1]["place"]


def _derived_row(row: dict[str, object]) -> dict[str, object]:
    salts = {name: bytes.fromhex(str(row[name])) for name in SALTS if row.get(name) is not None}
    return {**row, **salts}


def _restored_row(record: Record) -> dict[str, object]:
    if record.kind == "turn":
        return rows.turn_json(record.row)
    if record.kind == "file_text":
        return rows.file_text_json(record.row)
    return rows.row_json({name: value for name, value in record.row.items() if name not in LOCAL})
