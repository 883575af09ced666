"""The columns of a turn, which several places list in the same order, and what forgetting leaves of them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

from palaver import Conversation, Store, Turn
from palaver.core.identity import from_json
from palaver.core.turn_draft import FORGOTTEN_FIELDS, STUB_FIELDS
from palaver.engines.postgres.memory import read_turn_json
from palaver.engines.rows import TurnRow
from tests.support.memory import ELSEWHERE

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

# Columns that say where a turn is, and that forgetting does not clear.
PLACE = {"tenant", "cid", "tid", "seq", "position", "parent", "slot", "active", "superseded_by", "status"}
COPIES = {"preview", "terms"}  # of Postgres: made from the content, and cleared with it
CALL = {"id": "call", "name": "look", "arguments": {"q": "weather"}}
GIVEN: dict[str, Any] = {
    "actor": "an actor",
    "sources": [{"title": "a source"}],
    "tokens": {"prompt": 11, "completion": 12},
    "model": "a model",
    "adapter": "an adapter",
    "finish_reason": "a reason",
    "metadata": {"some": "metadata"},
    "created": datetime(2026, 1, 2, tzinfo=UTC),
}


async def append_with_every_field(talk: Conversation) -> list[Turn]:
    """Append two turns which together have a value in every field; no role allows both calls and results."""
    turns = []
    for role, tools in (("assistant", {"tool_calls": [CALL]}), ("tool", {"tool_results": [{"id": "call"}]})):
        file = await talk.attach(b"bytes", filename=f"{role}.txt")
        parts = [{"type": "text", "text": f"the words of {role}"}]
        turns.append(
            await talk.append(role, parts, **tools, **GIVEN, attachments=[file], idempotency_key=f"key of {role}")  # type: ignore[arg-type]
        )
    return turns


async def stored_row(folder: Path, id: str, columns: str = "*") -> dict[str, Any]:
    """Read the row of a turn without Palaver."""
    if folder in ELSEWHERE:
        connection = await asyncpg.connect(ELSEWHERE[folder])
        row = await connection.fetchrow(f"SELECT {columns} FROM palaver.turns t WHERE id = $1", id)
        await connection.close()
        return dict(row or {})
    db = apsw.Connection(f"{folder}/chat.db")
    cursor = db.execute(f"SELECT {columns} FROM turns WHERE id = ?", (id,))
    row = next(iter(cursor))
    return dict(zip([name for name, *_ in cursor.getdescription()], row, strict=True))


async def test_every_column_is_read_into_its_own_field(store: Store, tmp_path: Path) -> None:
    talk = await store.conversation("k")
    for turn in await append_with_every_field(talk):
        row = await stored_row(tmp_path, turn.id)
        by_name = TurnRow(**{name: row[name] for name in TurnRow.__struct_fields__})
        assert by_name.turn(talk.id) == turn == await talk.turn(turn.id)
        given = {**GIVEN, "sources": tuple(GIVEN["sources"])}
        tokens = given.pop("tokens")
        assert turn.tokens is not None
        assert (turn.tokens.prompt, turn.tokens.completion) == (tokens["prompt"], tokens["completion"])
        assert {name: getattr(turn, name) for name in given} == given
        assert turn.idempotency_key == f"key of {turn.role}"
        if tmp_path in ELSEWHERE:
            array = await stored_row(tmp_path, turn.id, "palaver.turn_json(t) AS whole")
            assert read_turn_json(from_json(array["whole"]), talk.id) == turn


async def test_forgetting_clears_every_column_but_those_of_the_stub(store: Store, tmp_path: Path) -> None:
    talk = await store.conversation("k")
    turns = await append_with_every_field(talk)
    before = [await stored_row(tmp_path, turn.id) for turn in turns]
    columns = before[0].keys()
    assert columns - PLACE - COPIES - set(STUB_FIELDS) == FORGOTTEN_FIELDS.keys(), "is a new column cleared, or kept?"
    filled = {name for row in before for name in columns if row[name] != FORGOTTEN_FIELDS.get(name)}
    assert filled >= FORGOTTEN_FIELDS.keys(), "give the new field a value here, so that clearing it can be seen"
    await talk.forget(turns[0])  # and with it the turn that has the results of its calls
    for turn in turns:
        after = await stored_row(tmp_path, turn.id)
        assert {name: after[name] for name in FORGOTTEN_FIELDS} == FORGOTTEN_FIELDS
        assert all(not after[name] for name in COPIES & columns)
