"""Permanent deletion on Postgres. Each method is one transaction, or several where it says so.

conversations/deletion.py lists what a forget removes; functions/deletion.sql lists the steps in the database, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from palaver.engines.postgres.rpc import EnginePart, application_scope
from palaver.engines.postgres.transports import Row
from palaver.errors import ConversationGone
from palaver.model import Scope
from palaver.ports.queries import Deletion

EXPIRE_BATCH = 100  # conversations per call


@dataclass(frozen=True, slots=True)
class Slices:
    """How many turns and requests one transaction deletes, with all that belongs to them."""

    first: int = 50  # the most of the first transaction; it only hides a conversation that has more
    later: int = 500
    retired: int = 20  # nobody writes to the conversation while they are retired


class PostgresDeletion(EnginePart):
    slices: Slices = Slices()
    _deleting_in: str | None = None  # the tenant of the blobs that were listed last

    async def forget_turn(self, scope: Scope, conversation: str, turn: str) -> Deletion:
        found = await self.write("forget_turn", scope, conversation=conversation, turn=turn)
        self.hub.committed(conversation)
        return Deletion(turns=tuple(row["forget_turn"] for row in found))

    async def reset(self, scope: Scope, conversation: str) -> Deletion:
        """Forget every turn. A large conversation takes several transactions, the first of which hides it."""
        after, most = -1, self.slices.first
        while after is not None:
            found = await self.write("reset_slice", scope, conversation=conversation, after=after, most=most)
            after, most = found[0]["reset_slice"], self.slices.later
        self.hub.committed(conversation)
        return Deletion()

    async def forget_conversation(self, scope: Scope, conversation: str) -> Deletion:
        """Delete a conversation. A large one takes several transactions, the first of which hides it."""
        if await self._forget_slice(scope, conversation, self.slices.first):
            with suppress(ConversationGone):  # a sweep continues it too, and may delete the last of it
                while await self._forget_slice(scope, conversation, self.slices.later):
                    pass
        self.hub.committed(conversation)
        return Deletion(conversations=(conversation,))

    async def _forget_slice(self, scope: Scope, conversation: str, most: int) -> bool:
        """Delete a part of a conversation. True if there is more."""
        found = await self.write("forget_slice", scope, conversation=conversation, most=most)
        return bool(found[0]["forget_slice"])

    async def retire(self, scope: Scope, conversation: str, position: int, keep_salt: bool) -> Deletion:
        args = {"place": position, "keep_salt": keep_salt, "most": self.slices.retired}
        found = await self.write("retire", scope, conversation=conversation, **args)
        self.hub.committed(conversation)
        return Deletion(turns=tuple(row["retire"] for row in found))

    async def forget_older(self, scope: Scope, before: int) -> Deletion:
        found = await self.write("forget_older", scope, before=before, most=self.slices.retired)
        for conversation in {row["conversation"] for row in found}:
            self.hub.committed(conversation)
        return Deletion(turns=tuple(row["turn"] for row in found))

    async def expire(self, scope: Scope) -> Deletion:
        """Delete expired conversations, until at least one is deleted as a whole."""
        ids: tuple[str, ...] = ()
        found: Sequence[Row] = ()
        while not ids:
            found = await self.write("expire_slice", scope, most=EXPIRE_BATCH, most_rows=self.slices.later)
            ids = tuple(row["conversation"] for row in found if row["done"])
            if not found:
                break
        for conversation in ids:
            self.hub.committed(conversation)
        return Deletion(conversations=ids)

    async def finish_deletions(self, scope: Scope) -> None:
        """Continue deletions of conversations that were interrupted."""
        while await self.write("finish_slice", scope, most=EXPIRE_BATCH, most_rows=self.slices.later):
            pass

    async def scrub(self) -> bool:
        """Do nothing: old bytes are removed by VACUUM and when the WAL is recycled."""
        return True

    def scrub_problem(self) -> str | None:
        return None

    async def blobs_to_delete(self, limit: int) -> list[str]:
        for row in await self.tenants_with_maintenance():
            if row["files"]:
                found = await self.write("doomed_blobs", application_scope(row["tenant"]), most=limit)
                self._deleting_in = row["tenant"]
                return [one["doomed_blobs"] for one in found]
        return []

    async def blobs_deleted(self, paths: Sequence[str]) -> None:
        await self.write("blobs_deleted", self.home_scope(self._deleting_in), paths=list(paths))
