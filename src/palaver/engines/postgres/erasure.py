"""Erasing a person, on Postgres. Each method is one transaction of bounded size; see functions/erasure.sql."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.identity import canonical_json, from_json
from palaver.engines.postgres.rpc import EnginePart
from palaver.model import Scope
from palaver.ports.queries import ConversationNames, ErasedName, ErasedTurns, Erasure

TURN_BATCH = 100  # turns that one transaction forgets
EVENT_BATCH = 500  # events that one transaction changes
SLICE = 500  # turns and requests that one transaction deletes


class PostgresErasure(EnginePart):
    async def erasures(self, scope: Scope) -> list[Erasure]:
        """Read from the primary: a replica may not know yet who was erased."""
        return [
            Erasure(row["digest"], row["salt"], row["started"], row["at"], row["user"], row["key"],
                    tuple(from_json(row["conversations"])))
            for row in await self.write("erasures", scope)
        ]  # fmt: skip

    async def put_erasure(self, scope: Scope, erased: Erasure) -> None:
        args = {"digest": erased.digest, "salt": erased.salt, "started": erased.started, "at": erased.at}
        deleted = canonical_json(erased.conversations)
        await self.write("put_erasure", scope, **args, person=erased.user, secret=erased.key, deleted=deleted)

    async def note_erased(self, scope: Scope, digest: str, kind: str, items: Sequence[str]) -> None:
        await self.write("note_erased", scope, digest=digest, kind=kind, items=list(items))

    async def erased_items(self, scope: Scope, digest: str) -> list[tuple[str, str]]:
        return [(row["kind"], row["item"]) for row in await self.write("erased_items", scope, digest=digest)]

    async def conversation_names(self, scope: Scope, after: str, limit: int) -> list[ConversationNames]:
        rows = await self.write("conversation_names", scope, after=after, most=limit)
        return [
            ConversationNames(
                row["conversation"], row["gone"], row["owner"], row["created"], row["updated"], from_json(row["names"])
            )
            for row in rows
        ]

    async def erase_conversation(self, scope: Scope, conversation: str) -> None:
        more = True
        while more:
            more = (await self.write("forget_slice", scope, conversation=conversation, most=SLICE))[0]["forget_slice"]
        self.hub.committed(conversation)

    async def erase_turns(self, scope: Scope, conversation: str, name: ErasedName) -> ErasedTurns:
        args = _arguments(name, TURN_BATCH)
        (row,) = await self.write("erase_turns", scope, conversation=conversation, **args)
        self.hub.committed(conversation)
        full = TURN_BATCH in (len(row["turns"]), len(row["files"]))
        return ErasedTurns(tuple(row["turns"]), tuple(row["files"]), full)

    async def erase_names(self, scope: Scope, conversation: str, name: ErasedName) -> int:
        changed, after, args = 0, 0, _arguments(name, EVENT_BATCH)
        while after is not None:
            (row,) = await self.write("erase_names", scope, conversation=conversation, after=after, **args)
            changed, after = changed + row["changed"], row["last"]
        self.hub.committed(conversation)
        return changed

    async def erase_keys(self, scope: Scope, name: ErasedName) -> tuple[list[str], int]:
        (row,) = await self.write("erase_keys", scope, **_arguments(name, EVENT_BATCH))
        return list(row["keys"]), int(row["events"])


def _arguments(name: ErasedName, most: int) -> dict[str, object]:
    return {
        "person": name.user,
        "pseudonym": name.pseudonym,
        "digest": name.digest,
        "before": name.before,
        "most": most,
    }
