"""SQLite files of other frameworks, opened for reading: sessions of OpenAI Agents, checkpoints of LangGraph, mem0."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from palaver.errors import InvalidInput, MissingExtra
from palaver.interchange.exports.documents import Advance, Source
from palaver.interchange.exports.langchain_messages import message_fields
from palaver.interchange.exports.response_items import Item, Thread, read_thread
from palaver.interchange.exports.values import Entry, ExportedConversation, ExportedTurn, moment, seconds, text_of

HEADER = b"SQLite format 3\0"
BROKEN, DELETED, OLDER = "a row that is not JSON", "a memory that was deleted", "an older version of a memory"
PAGE = 1_000


def connect(path: Path) -> sqlite3.Connection:
    """Open a file for reading; it is never changed."""
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        connection.row_factory = sqlite3.Row
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as problem:
        raise InvalidInput("FILE", f"SQLite cannot read it ({problem})") from None
    return connection


def tables_of(source: Source) -> dict[str, set[str]]:
    """Return the tables of an SQLite file with their columns; none when the source is something else."""
    if not source.path.is_file() or source.head(source.names[0], 16) != HEADER:
        return {}
    with closing(connect(source.path)) as database:
        names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: _columns(database, name) for name in names}


def _columns(database: sqlite3.Connection, table: str) -> set[str]:
    return {row["name"] for row in database.execute("SELECT name FROM pragma_table_info(?)", (table,))}


class OpenAIAgents:
    """`agent_sessions` and `agent_messages`, as `SQLiteSession` writes them."""

    NAME, TITLE = "openai-agents", "SQLite sessions of OpenAI Agents"

    def matches(self, source: Source) -> bool:
        return {"session_id", "message_data"} <= tables_of(source).get("agent_messages", set())

    def read(self, source: Source, advance: Advance) -> Iterator[Entry]:
        with closing(connect(source.path)) as database:
            sessions = database.execute(
                "SELECT session_id, max(created_at) AS updated FROM agent_messages GROUP BY session_id"
            ).fetchall()
        for row in sessions:
            id = str(row["session_id"])
            yield Entry(seconds(row["updated"]), partial(self._session, source.path, id, advance))

    def _session(self, path: Path, id: str, advance: Advance) -> ExportedConversation:
        result = ExportedConversation(id=id)
        with closing(connect(path)) as database:
            rows = database.execute(
                "SELECT id, message_data, created_at FROM agent_messages WHERE session_id = ? ORDER BY id", (id,)
            )
            return read_thread(result, self._items(result, rows, advance))

    def _items(self, result: ExportedConversation, rows: sqlite3.Cursor, advance: Advance) -> Iterator[Item]:
        for row in rows:
            advance(len(row["message_data"]))
            try:
                data = json.loads(row["message_data"])
            except (ValueError, RecursionError):
                data = None
            if isinstance(data, dict):
                yield Item(str(row["id"]), data, moment(row["created_at"]))
            else:
                result.records += 1
                result.left_out[BROKEN] += 1


class LangGraph:
    """The messages in the newest checkpoint of each thread, as `SqliteSaver` writes them."""

    NAME, TITLE = "langgraph", "SQLite checkpoints of LangGraph"
    NO_MESSAGES = "a checkpoint without messages"

    def matches(self, source: Source) -> bool:
        return {"thread_id", "checkpoint_id", "checkpoint"} <= tables_of(source).get("checkpoints", set())

    def read(self, source: Source, advance: Advance) -> Iterator[Entry]:
        with closing(connect(source.path)) as database:
            threads = database.execute(
                "SELECT thread_id, max(checkpoint_id) AS newest FROM checkpoints WHERE checkpoint_ns = '' "
                "GROUP BY thread_id ORDER BY newest"
            ).fetchall()
        for number, row in enumerate(threads):
            id = str(row["thread_id"])
            yield Entry(float(number), partial(self._thread, source.path, id, advance))

    def _thread(self, path: Path, id: str, advance: Advance) -> ExportedConversation:
        try:
            from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
        except ModuleNotFoundError:
            raise MissingExtra("langgraph", "Reading checkpoints of LangGraph") from None
        with closing(connect(path)) as database:
            row = database.execute(
                "SELECT type, checkpoint FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = '' "
                "ORDER BY checkpoint_id DESC LIMIT 1",
                (id,),
            ).fetchone()
        advance(len(row["checkpoint"]))
        values = JsonPlusSerializer().loads_typed((row["type"], row["checkpoint"]))["channel_values"]
        result = ExportedConversation(id=id)
        thread = Thread(result)
        for number, message in enumerate(values.get("messages") or ()):
            result.records += 1
            thread.add(Item(str(getattr(message, "id", None) or number), message_fields(message)))
        result.turns = thread.turns
        result.current = thread.turns[-1].id if thread.turns else None
        return result


class Mem0:
    """`history.db` of mem0: the memories as they are now, and the messages that it kept."""

    NAME, TITLE = "mem0", "the history of mem0"

    def matches(self, source: Source) -> bool:
        return {"memory_id", "new_memory", "event"} <= tables_of(source).get("history", set())

    def read(self, source: Source, advance: Advance) -> Iterator[Entry]:
        yield Entry(0.0, lambda: self._memories(source.path, advance))
        if {"session_scope", "content"} <= tables_of(source).get("messages", set()):
            with closing(connect(source.path)) as database:
                scopes = database.execute("SELECT DISTINCT session_scope FROM messages").fetchall()
            for row in scopes:
                scope = str(row[0])
                yield Entry(1.0, partial(self._messages, source.path, scope, advance))

    def _memories(self, path: Path, advance: Advance) -> ExportedConversation:
        """Return every memory as a turn of one conversation, with its earlier versions in the metadata."""
        result = ExportedConversation(id="memories", title="Memories of mem0")
        versions: dict[str, list[sqlite3.Row]] = {}
        with closing(connect(path)) as database:
            # As mem0 wrote them: all versions of a memory have the time of the first, and a deletion may have none.
            for row in database.execute("SELECT * FROM history ORDER BY rowid"):
                advance(1)
                result.records += 1
                versions.setdefault(str(row["memory_id"]), []).append(row)
        for id, rows in versions.items():
            text = text_of(rows[-1]["new_memory"])
            result.left_out[OLDER] += len(rows) - 1
            if rows[-1]["event"] == "DELETE" or not text.strip():
                result.left_out[DELETED] += 1
                continue
            before = result.turns[-1].id if result.turns else None
            earlier = [text_of(row["new_memory"]) for row in rows[:-1] if row["new_memory"]]
            metadata = {"earlier": earlier} if earlier else {}
            created = moment(rows[-1]["updated_at"]) or moment(rows[-1]["created_at"])
            turn = ExportedTurn(id, before, "assistant", text, created=created, actor="mem0", metadata=metadata)
            result.turns.append(turn)
        result.left_out += type(result.left_out)()  # without zeros
        result.current = result.turns[-1].id if result.turns else None
        return result

    def _messages(self, path: Path, scope: str, advance: Advance) -> ExportedConversation:
        result = ExportedConversation(id=scope, title=f"mem0: {scope}"[:200])
        with closing(connect(path)) as database:
            rows = database.execute(
                "SELECT rowid, * FROM messages WHERE session_scope = ? ORDER BY created_at, rowid", (scope,)
            )
            return read_thread(result, self._items(rows, advance))

    def _items(self, rows: sqlite3.Cursor, advance: Advance) -> Iterator[Item]:
        for row in rows:
            advance(1)
            data: dict[str, Any] = {"role": row["role"], "content": row["content"]}
            yield Item(f"message-{row['rowid']}", data, moment(row["created_at"]))
