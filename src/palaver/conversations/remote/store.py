"""A store on a Palaver server. The server's key decides whose data it sees."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, NoReturn, Unpack

from palaver.audit.erasure import read_receipt, receipt_fields
from palaver.conversations.conversation import Conversation
from palaver.conversations.details import clean_changes
from palaver.conversations.options import ConversationOptions
from palaver.conversations.remote import values
from palaver.conversations.remote.conversation import MISSING, RemoteConversation, read_log
from palaver.conversations.remote.person import RemotePerson
from palaver.conversations.remote.transport import Transport
from palaver.conversations.store import Store
from palaver.conversations.subjects import Subject
from palaver.core.budgets import BudgetLimits
from palaver.core.filters import ConversationWhere, Where, clean_conversation_where
from palaver.core.identity import is_id
from palaver.core.turn_options import Moment
from palaver.core.validation import clean_name, clean_text, optional_name
from palaver.errors import ConversationNotFound, InvalidInput, VerificationFailed
from palaver.generation.events import GenerateEvent
from palaver.generation.options import GenerateOptions
from palaver.memory.settings import Kind
from palaver.model import (
    BudgetKind,
    BudgetLine,
    ContentInput,
    ConversationInfo,
    ConversationMatch,
    ErasureReceipt,
    Event,
    Page,
    Request,
    Results,
    Scope,
    Stats,
    Swept,
    Turn,
    UsageLine,
)
from palaver.ports.engine import Token
from palaver.ports.queries import Record


class RemoteStore(Store):
    """A database behind a server, with the methods of `Store`. `palaver.open("https://…", key=…)` makes one."""

    def __init__(self, transport: Transport, scope: Scope) -> None:
        self.scope, self._transport = scope, transport

    @classmethod
    async def connect(cls, transport: Transport) -> RemoteStore:
        """Ask the server who the caller is. An address or a key that is wrong is noticed here."""
        caller = (await transport.get("/settings"))["caller"]
        rights = frozenset(caller["rights"])
        return cls(
            transport, Scope(caller["tenant"], caller["user"], rights, caller["visibility"], caller["workspace"])
        )

    def __repr__(self) -> str:
        return f"<Store {self._transport.url} tenant={self.scope.tenant!r} user={self.scope.user!r}>"

    async def aclose(self) -> None:
        """Close the connections to the server."""
        await self._transport.aclose()

    def scoped(self, scope: Scope) -> NoReturn:
        raise InvalidInput(
            "scope", f"{MISSING}: the key decides who the caller is; open another store with another key"
        )

    async def signed_in(self, token: Token) -> NoReturn:
        raise InvalidInput("token", f"{MISSING}: palaver.open(url, token=…) takes the user's token")

    # ---- conversations

    async def conversation(
        self, key: str | None = None, *, owner: str | None = None, **fields: Unpack[ConversationOptions]
    ) -> Conversation:
        clean_changes(fields)
        names = {"key": optional_name("key", key), "owner": optional_name("owner", owner)}
        body = values.fields_json({**names, **fields})
        return self._remote(await self._transport.post("/conversations", body, repeatable=key is not None))

    async def find(self, key: str, *, owner: str | None = None) -> Conversation:
        names = {"key": clean_name("key", key), "owner": optional_name("owner", owner)}
        found = await self._transport.get("/conversations/find", **names)
        return self._remote(found)

    async def get(self, id: str) -> Conversation:
        if not is_id(clean_name("id", id)):
            raise ConversationNotFound(id, "get takes an id, use find(key)")
        return self._remote(await self._transport.get(f"/conversations/{id}"))

    def _remote(self, data: Mapping[str, Any]) -> RemoteConversation:
        return RemoteConversation(self._transport, values.value(data, ConversationInfo))

    def _open(self, info: ConversationInfo) -> Conversation:
        return RemoteConversation(self._transport, info)

    async def conversations(
        self,
        *,
        owner: str | None = None,
        workspace: str | None = None,
        agent: str | None = None,
        kind: Kind | None = "talk",
        limit: int = 50,
        cursor: str | None = None,
        where: ConversationWhere | None = None,
    ) -> Page:
        clean_conversation_where(where)
        names = {"owner": owner, "workspace": workspace, "agent": agent}
        clean = {name: optional_name(name, one) for name, one in names.items()}
        page = {"kind": kind or "all", "limit": limit, "cursor": cursor, "where": values.where_text(where)}
        found = await self._transport.get("/conversations", **clean, **page)
        return values.page(found)

    async def search(self, text: str, *, limit: int = 20, where: Where | None = None) -> Results[ConversationMatch]:
        params = {"q": clean_text("text", text), "limit": limit, "where": values.where_text(where)}
        found = await self._transport.get("/search", **params)
        return values.results(found, values.found)

    # ---- subjects

    def person(self, id: str) -> Subject:
        return RemotePerson(self._transport, id)

    def subject(self, kind: str, id: str) -> Subject:
        if kind == "person":
            return self.person(id)
        raise InvalidInput("kind", f"must be person, because the memory of other subjects {MISSING}")

    # ---- answers

    async def generate(
        self,
        conversation: Conversation | str,
        message: ContentInput | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Turn:
        return await (await self._get_or_create(conversation)).generate(message, **options)

    async def generate_stream(
        self,
        conversation: Conversation | str,
        message: ContentInput | None = None,
        **options: Unpack[GenerateOptions],
    ) -> AsyncGenerator[GenerateEvent]:
        talk = await self._get_or_create(conversation)
        async with aclosing(talk.generate_stream(message, **options)) as events:
            async for event in events:
                yield event

    async def requests(
        self,
        conversation: Conversation | str,
        limit: int = 20,
        *,
        turn: Turn | str | None = None,
        before: Request | str | None = None,
    ) -> list[Request]:
        if isinstance(conversation, str):
            conversation = await (self.get(conversation) if is_id(conversation) else self.find(conversation))
        return await conversation.requests(limit, turn=turn, before=before)

    # ---- the log

    async def audit(
        self,
        conversation: str,
        *,
        after: int = 0,
        limit: int = 1_000,
        kinds: Iterable[str] | None = None,
        actors: Iterable[str] | None = None,
        turn: Turn | str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> list[Event]:
        query = {"after": after, "limit": limit, "kinds": kinds, "actors": actors}
        return await read_log(self._transport, conversation, **query, turn=turn, since=since, until=until)

    async def usage(
        self, *, since: Moment | None = None, until: Moment | None = None, limit: int = 10_000
    ) -> list[UsageLine]:
        params = values.fields_json({"since": since, "until": until, "limit": limit})
        return [values.value(one, UsageLine) for one in (await self._transport.get("/usage", **params))["items"]]

    async def budgets(self, *, user: str | None = None, key: str | None = None) -> list[BudgetLine]:
        return [
            values.value(one, BudgetLine)
            for one in (await self._transport.get("/budgets", user=user, key=key))["items"]
        ]

    async def set_budget(self, kind: BudgetKind, name: str | None = None, **limits: Unpack[BudgetLimits]) -> None:
        body = {"kind": kind, "limits": dict(limits)} | ({} if name is None else {"name": name})
        await self._transport.request("PUT", "/budgets", json=body)

    # ---- maintenance

    async def expire(self) -> list[str]:
        return list((await self.sweep()).conversations)

    async def sweep(self, *, retention_minutes: float | None = None) -> Swept:
        body = values.fields_json({"retention_minutes": retention_minutes})
        return values.value(await self._transport.post("/sweep", body, repeatable=True), Swept)

    async def erase_user(self, user: str, *, audit_key: bytes | None = None) -> ErasureReceipt:
        if audit_key is not None:
            raise InvalidInput("audit_key", f"{MISSING}: the server signs with its own key")
        return read_receipt(await self._transport.post("/erasures", {"user": user}, repeatable=True))

    async def check_erasure(self, receipt: ErasureReceipt, *, audit_key: bytes | None = None) -> None:
        body = {"receipt": receipt_fields(receipt)}
        found = await self._transport.post("/erasures/verify", values.fields_json(body), repeatable=True)
        if not found["ok"]:
            raise VerificationFailed("", "receipt", found["problem"])

    async def settle(self) -> NoReturn:
        raise InvalidInput("settle", f"{MISSING}, whose jobs belong to all tenants")

    async def stats(self) -> Stats:
        return values.value(await self._transport.get("/stats"), Stats)

    async def restore(self, records: Sequence[Record], files: Mapping[str, bytes]) -> NoReturn:
        raise InvalidInput("restore", f"{MISSING}: use `palaver import` next to the database")
