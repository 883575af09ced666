"""Opens the store, and finds the conversation, that the command line names."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import engine_of
from palaver.conversations.opener import open as open_store
from palaver.errors import ConversationNotFound, EngineError, InvalidInput, NotFound, RowUnreadable
from palaver.model import ACT_FOR, SYSTEM, ConversationInfo, Scope

if TYPE_CHECKING:
    from palaver.cli.app import Call
    from palaver.conversations.store import Store

PAGE = 1_000


class NoDatabase(EngineError):
    """A command that only reads found no database file. It does not create one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(
            f"there is no database {path}. `palaver chat`, `palaver append` and `palaver import` create one; "
            "to use another, set --db or PALAVER_URL"
        )


def database_url(text: str) -> str:
    """Return a URL unchanged, and a path such as `chat.db` as the URL of an SQLite file."""
    if "://" in text or text == "memory:":
        return text
    # Only what would mean something else in a URL is escaped.
    return "sqlite:///" + quote(str(Path(text).expanduser()), safe="/ !$&'()*+,;=:@[]\\")


def sqlite_path(url: str) -> Path | None:
    """Return the file that an SQLite URL names; None for another engine."""
    if not url.lower().startswith("sqlite:"):
        return None
    from palaver.engines.sqlite.connection import SQLiteAddress

    return SQLiteAddress.parse(url).path


@asynccontextmanager
async def creating(call: Call, *, embedder: str = "auto", worker: bool = False, **options: Any) -> AsyncIterator[Store]:
    """Open the store. An SQLite file that does not exist is created.

    A short command runs no worker, which would only delay its end: use `palaver worker`.
    """
    if call.url.startswith(("http://", "https://")):
        raise InvalidInput("db", "is a server, but this command opens a database: give the URL of its own database")
    # The token is not an argument, because other users see arguments in the process list.
    token = os.environ.get("PALAVER_TOKEN") if call.url.startswith("supabase+") else None
    settings = {**model_settings(), "files": os.environ.get("PALAVER_FILES") or None, "token": token, **options}
    settings = {"scope": _scope_of(call), **settings}
    async with open_store(call.url, embedder=embedder, worker=worker, **settings) as store:
        yield store


def _scope_of(call: Call) -> Scope:
    """Return the scope of `--tenant` and `--user`. The command line may write under any name."""
    return Scope.of(call.tenant, call.user).with_rights(SYSTEM, ACT_FOR)


def model_settings() -> dict[str, Any]:
    """The models and defaults that the environment names.

    PALAVER_MODEL answers, PALAVER_FAST_MODEL is "fast", PALAVER_GENERATE is a JSON object with defaults of answers and
    contexts, PALAVER_TELEMETRY=1 turns spans on. Keys are read by the providers' own clients.
    """
    fast = os.environ.get("PALAVER_FAST_MODEL")
    return {
        "model": os.environ.get("PALAVER_MODEL") or None,
        "models": {"fast": fast} if fast else {},
        "generate": _generate_settings(),
        "telemetry": os.environ.get("PALAVER_TELEMETRY", "") in ("1", "true", "yes"),
    }


def _generate_settings() -> dict[str, Any]:
    try:
        found = json.loads(os.environ.get("PALAVER_GENERATE") or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidInput("PALAVER_GENERATE", "must be a JSON object")
    return found


@asynccontextmanager
async def existing(call: Call, *, embedder: str = "auto", **options: Any) -> AsyncIterator[Store]:
    """Open the store if it exists: a command that only reads must not create a file."""
    path = sqlite_path(call.url)
    if path is not None and not path.exists():
        raise NoDatabase(path)
    async with creating(call, embedder=embedder, **options) as store:
        yield store


async def every_conversation(store: Store) -> AsyncIterator[ConversationInfo]:
    """Yield every conversation that the scope may see, most recently used first."""
    cursor = None
    while True:
        page = await store.conversations(kind=None, limit=PAGE, cursor=cursor)
        for info in page.items:
            yield info
        if (cursor := page.cursor) is None:
            return


async def find(store: Store, name: str) -> Conversation:
    """Return the conversation with this id or key: the caller's own before another owner's. Nothing is created."""
    try:
        return await store.get(name)
    except ConversationNotFound:
        pass  # then it may be a key
    try:
        return await store.find(name)
    except ConversationNotFound:
        pass  # or a key of another owner's
    found = [info async for info in every_conversation(store) if info.key == name]
    own = [info for info in found if info.owner == (store.scope.user or "")]
    if len(own or found) > 1:
        owners = ", ".join(f"{info.id} ({info.owner or 'no owner'})" for info in found)
        raise InvalidInput("conversation", f"the key {name!r} is used by several owners; give the id: {owners}")
    if not found:
        raise ConversationNotFound(name)
    return await store.get((own or found)[0].id)


async def find_or_create(store: Store, name: str) -> tuple[Conversation, bool]:
    """Return the conversation with this id or key, or a new one with this key, and whether it is new."""
    try:
        return await find(store, name), False
    except ConversationNotFound:
        return await store.conversation(name), True


async def chosen(store: Store, names: list[str]) -> list[Conversation]:
    """Return the named conversations; all of them if none is named."""
    if names:
        return [await find(store, name) for name in names]
    return [await store.get(info.id) async for info in every_conversation(store)]


# ---- to be verified ------------------------------------------------------------------------------------------------


async def to_verify(store: Store, names: list[str]) -> list[Conversation]:
    """Like `chosen`, but including conversations whose own row cannot be read."""
    if names:
        return [await _find_damaged(store, name) for name in names]
    try:
        return await chosen(store, [])
    except RowUnreadable:
        return [talk async for talk in _one_by_one(store)]


async def _find_damaged(store: Store, name: str) -> Conversation:
    """Like `find`, but return a damaged conversation if the database itself looked it up by its id or key."""
    for look in (store.get, store.find):
        try:
            return await _even_damaged(store, look(name))
        except ConversationNotFound:
            continue
    return await find(store, name)


async def _one_by_one(store: Store) -> AsyncIterator[Conversation]:
    """Yield all conversations by the ids in their logs, which can be read even if a row is damaged."""
    after = ""
    while tips := await engine_of(store).tips(store.scope, after, PAGE):
        for tip in tips:
            try:
                yield await _even_damaged(store, store.get(tip.conversation))
            except NotFound:
                continue  # of those that were deleted, the end of the log is still there
        after = tips[-1].conversation


async def _even_damaged(store: Store, looking: Awaitable[Conversation]) -> Conversation:
    """Await a conversation. If its row cannot be read, return it with its id alone, which is enough to verify it."""
    try:
        return await looking
    except RowUnreadable as problem:
        if problem.conversation is None:
            raise
        now = datetime.now(UTC)
        info = ConversationInfo(id=problem.conversation, tenant=store.scope.tenant, owner="", created=now, updated=now)
        from palaver.conversations.internals import conversation_of

        return conversation_of(store, info)


def hide_password(url: str) -> str:
    """Return the URL without its password, even if it or the user has characters that end the address of a URL."""
    if url.lower().startswith("sqlite:"):
        return url
    shown = re.sub(r"^(\w[\w+.-]*://[^:]*):.*@", r"\1:…@", url, flags=re.DOTALL)
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1…", shown, flags=re.IGNORECASE)
