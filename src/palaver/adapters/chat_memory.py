"""A chat's messages by session, over supabase-py: for programs that keep them in a table `conversation_messages`.

`palaver migrate --compat librarian` gives that table to Palaver's own data. The caller passes the
client, one per process. No messages is an empty list; a failure is logged and raised, and never quotes a message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from palaver.errors import EngineError, EngineUnavailable, InvalidInput

if TYPE_CHECKING:
    from supabase import AsyncClient

TABLE = "conversation_messages"
COLUMNS = "session_id, role, content, metadata, created_at"
PAGE = 1_000  # PostgREST returns no more rows at once by default
TIMEOUT = 10.0  # seconds
RETENTION_MINUTES = 60
EXACT = "exact"
REFUSED = "42501"
WHICH_KEY = (
    "this key may not use the table: sign a user in whose token names a tenant, or bind the server key with `palaver "
    "migrate --compat librarian --service-tenant NAME`, or the public key with --anon-tenant NAME"
)
_log = logging.getLogger("palaver.chat_memory")


class Message(Protocol):
    """A message as it is returned: LangChain's, or one of the same shape."""

    @property
    def type(self) -> str: ...

    @property
    def content(self) -> Any: ...


@dataclass(frozen=True, slots=True)
class PlainMessage:
    """Stands in for a LangChain message where langchain-core is not installed."""

    type: str  # "human", "ai", or the role as it is stored
    content: str
    additional_kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ChatMemory:
    """The messages of chat sessions in one table, read and written with an asynchronous Supabase client."""

    client: AsyncClient
    table: str = TABLE
    timeout: float = TIMEOUT

    def __post_init__(self) -> None:
        if isinstance(self.client, str) or _is_synchronous(self.client):
            raise InvalidInput("client", "must be an asynchronous one: ChatMemory(await acreate_client(url, key))")

    async def get_messages(self, session_id: UUID | str) -> list[Message]:
        """Every message of a session, oldest first."""
        return await self._read(session_id, None)

    async def get_messages_since(self, session_id: UUID | str, cutoff: datetime) -> list[Message]:
        """The messages of a session from `cutoff` on, oldest first."""
        return await self._read(session_id, _moment("cutoff", cutoff))

    async def load_context(self, session_id: UUID | str, max_messages: int = 12) -> list[Message]:
        """The newest messages, oldest first."""
        if max_messages < 1:
            raise InvalidInput("max_messages", "must be at least 1")
        query = self._rows(session_id).order("created_at", desc=True).limit(max_messages)
        rows = (await self._ask("load_context", session_id, query)).data or []
        return [_message(row) for row in reversed(rows)]

    async def add_user_message(
        self, session_id: UUID | str, content: str, metadata: Mapping[str, Any] | None = None
    ) -> None:
        await self._add("add_user_message", session_id, "user", content, metadata)

    async def add_ai_message(
        self, session_id: UUID | str, content: str, metadata: Mapping[str, Any] | None = None
    ) -> None:
        await self._add("add_ai_message", session_id, "assistant", content, metadata)

    async def delete_session(self, session_id: UUID | str) -> int:
        """Delete a session's messages and return how many there were."""
        query = self._deletion().eq("session_id", _session(session_id))
        return _count(await self._ask("delete_session", session_id, query))

    async def reset(self, session_id: UUID | str) -> int:
        """Do the same as `delete_session`. The session can be used again."""
        return await self.delete_session(session_id)

    async def delete_expired_sessions(self, retention_minutes: int = RETENTION_MINUTES) -> int:
        """Delete messages older than `retention_minutes` in every session, and return how many there were."""
        if retention_minutes < 1:
            raise InvalidInput("retention_minutes", "must be at least 1")
        cutoff = datetime.now(UTC) - timedelta(minutes=retention_minutes)
        query = self._deletion().lt("created_at", cutoff.isoformat())
        return _count(await self._ask("delete_expired_sessions", None, query))

    # ---- one request each

    async def _read(self, session_id: UUID | str, since: str | None) -> list[Message]:
        found: list[Message] = []
        while True:
            query = self._rows(session_id, count=EXACT)
            if since is not None:
                query = query.gte("created_at", since)
            query = query.order("created_at").range(len(found), len(found) + PAGE - 1)
            page = await self._ask("get_messages", session_id, query)
            rows = page.data or []
            found += [_message(row) for row in rows]
            if not rows or len(found) >= (page.count or 0):
                return found

    async def _add(
        self, operation: str, session_id: UUID | str, role: str, content: str, metadata: Mapping[str, Any] | None
    ) -> None:
        row = {"session_id": _session(session_id), "role": role, "content": content, "metadata": dict(metadata or {})}
        query = self.client.table(self.table).insert(row, returning="minimal")  # type: ignore[arg-type]
        await self._ask(operation, session_id, query)

    def _deletion(self) -> Any:
        return self.client.table(self.table).delete(count=EXACT, returning="minimal")  # type: ignore[arg-type]

    def _rows(self, session_id: UUID | str, **options: Any) -> Any:
        return self.client.table(self.table).select(COLUMNS, **options).eq("session_id", _session(session_id))

    async def _ask(self, operation: str, session_id: UUID | str | None, query: Any) -> Any:
        """Send the query. An error message of the service may quote a row, so only its code is passed on."""
        from httpx import HTTPError
        from postgrest import APIError

        try:
            async with asyncio.timeout(self.timeout):
                return await query.execute()
        except TimeoutError:
            error: EngineError = EngineUnavailable(f"{self.table}: no answer within {self.timeout:g} seconds")
        except HTTPError as problem:
            error = EngineUnavailable(f"{self.table}: unreachable ({type(problem).__name__})")
        except APIError as problem:
            cure = f": {WHICH_KEY}" if problem.code == REFUSED else ""
            error = EngineError(f"{self.table}: refused with code {problem.code}{cure}")
        _log.error("%s of session %s failed: %s", operation, session_id or "(all)", error)
        raise error


def _is_synchronous(client: object) -> bool:
    try:
        from supabase import Client
    except ImportError:
        return False
    return isinstance(client, Client)


def _count(response: Any) -> int:
    return int(response.count or 0)


def _session(session_id: UUID | str) -> str:
    try:
        return str(session_id if isinstance(session_id, UUID) else UUID(session_id))
    except ValueError:
        raise InvalidInput("session_id", "must be a UUID") from None


def _moment(name: str, moment: datetime) -> str:
    if moment.tzinfo is None:
        raise InvalidInput(name, "must have a time zone")
    return moment.isoformat()


def _message(row: Mapping[str, Any]) -> Message:
    role, content, extra = row["role"], row["content"], dict(row.get("metadata") or {})
    try:
        from langchain_core import messages
    except ImportError:
        return PlainMessage({"user": "human", "assistant": "ai"}.get(role, role), content, extra)
    if role in ("user", "human"):
        return messages.HumanMessage(content=content, additional_kwargs=extra)
    if role in ("assistant", "ai"):
        return messages.AIMessage(content=content, additional_kwargs=extra)
    if role == "system":
        return messages.SystemMessage(content=content, additional_kwargs=extra)
    return messages.ChatMessage(role=role, content=content, additional_kwargs=extra)
