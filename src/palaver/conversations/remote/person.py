"""The memory of a person on a Palaver server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn
from urllib.parse import quote

from palaver.conversations.remote import values
from palaver.conversations.remote.conversation import MISSING
from palaver.conversations.remote.transport import Transport
from palaver.conversations.subjects import Subject
from palaver.core.turn_options import Moment
from palaver.core.validation import clean_name
from palaver.errors import InvalidInput
from palaver.model import Event, ItemStatus, MemoryItem, RecallHit, Verified


class RemotePerson(Subject):
    """The memory of a person, with the methods of `Subject`."""

    def __init__(self, transport: Transport, id: str) -> None:
        self.kind, self.id = "person", clean_name("id", id)
        self._transport = transport

    def __repr__(self) -> str:
        return f"<Subject person {self.id!r}>"

    @property
    def _path(self) -> str:
        return f"/people/{quote(self.id, safe='')}"

    async def facts(
        self,
        *,
        kind: str | None = None,
        as_of: Moment | None = None,
        include_ended: bool = False,
        status: ItemStatus | None = "approved",
        limit: int = 1_000,
    ) -> list[MemoryItem]:
        params = values.fields_json({"kind": kind, "as_of": as_of, "limit": limit})
        found = await self._transport.get(
            f"{self._path}/facts", **params, include_ended=include_ended, status=status or "all"
        )
        return _items(found)

    async def fact_history(self, item: MemoryItem | str | None = None) -> list[MemoryItem]:
        if item is None:
            return (await self.facts(include_ended=True, status=None))[::-1]
        return _items(await self._transport.get(f"{self._path}/facts/{_id(item)}/history"))

    async def profile(self, *, token_budget: int | None = None, as_of: Moment | None = None) -> str:
        if token_budget is not None or as_of is not None:
            raise InvalidInput("token_budget" if as_of is None else "as_of", MISSING)
        return str((await self._transport.get(self._path))["profile"])

    async def recall(self, query: str, *, k: int = 10) -> list[RecallHit]:
        found = await self._transport.post(f"{self._path}/recall", {"query": query, "k": k}, repeatable=True)
        return [values.hit(one) for one in found["items"]]

    async def remember(self, text: str, **options: Any) -> MemoryItem:
        body = values.fields_json({"text": text, **options})
        return values.value(await self._transport.post(f"{self._path}/facts", body), MemoryItem)

    async def correct(self, item: MemoryItem | str, text: str, **options: Any) -> MemoryItem:
        body = values.fields_json({"text": text, **options})
        return values.value(await self._transport.request("PUT", self._item(item), json=body), MemoryItem)

    async def approve(self, item: MemoryItem | str) -> MemoryItem:
        return values.value(await self._transport.post(f"{self._item(item)}/approve", repeatable=True), MemoryItem)

    async def drop(self, item: MemoryItem | str) -> None:
        await self._transport.request("DELETE", self._item(item))

    def _item(self, item: MemoryItem | str) -> str:
        return f"{self._path}/facts/{_id(item)}"

    async def forget(self) -> None:
        await self._transport.request("DELETE", self._path)

    async def learn(self) -> int:
        return int((await self._transport.post(f"{self._path}/learn", repeatable=True))["conversations"])

    async def share(self, *, readers: Iterable[str] = (), writers: Iterable[str] = ()) -> NoReturn:
        raise InvalidInput("share", MISSING)

    async def consent(self, agreed: bool) -> None:
        await self._transport.request("PUT", f"{self._path}/consent", json={"agreed": agreed})

    async def export(self) -> dict[str, Any]:
        return dict(await self._transport.get(f"{self._path}/export"))

    async def verify(self) -> Verified | None:
        found = await self._transport.post(f"{self._path}/verify", repeatable=True)
        return values.value(found, Verified) if found["conversation"] else None

    async def audit(self, *, after: int = 0, limit: int = 1_000) -> list[Event]:
        found = (await self._transport.get(f"{self._path}/audit", after=after))["items"]
        return [values.value(one, Event) for one in found[:limit]]


def _items(data: Any) -> list[MemoryItem]:
    return [values.value(one, MemoryItem) for one in data["items"]]


def _id(item: MemoryItem | str) -> str:
    return item.id if isinstance(item, MemoryItem) else clean_name("item", item)
