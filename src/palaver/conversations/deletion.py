"""Permanent deletion. This is the one list of what it removes; the engines' `deletion` modules implement it.

| removed                                            | `forget(turn)`            | `reset()`      | `forget()`, expiry |
|----------------------------------------------------|---------------------------|----------------|--------------------|
| content, tool calls, metadata, salt, key of a turn | that turn and the results | every turn     | every turn, with   |
|                                                    | of its calls; a stub with |                | its row            |
|                                                    | the hashes stays          | (as left)      |                    |
| its entries in the word index, marks and vectors   | yes                       | yes            | yes                |
| files: rows, extracted text and bytes              | of that turn              | all            | all                |
| pieces of its stream                               | yes                       | yes            | yes                |
| summaries                                          | text of those that cover  | all            | all                |
|                                                    | it; a job writes it again |                |                    |
| notes of working memory                            | those taken from it       | all            | all                |
| facts                                              | those taken from it       | all            | all                |
| damaged rows of memory that a repair put aside     | all of the conversation   | all            | all                |
| requests to models                                 | bodies sent after it, or  | all, and       | all, and bodies    |
|                                                    | that quote it elsewhere   | bodies quoting | quoting it         |
| a title that a model made, and the preview         | yes                       | yes            | yes                |
| jobs that wait for the conversation                | no                        | yes            | yes                |
| key, title, participants, metadata, settings       | no                        | no             | yes                |
| the provider's thread that would be continued      | yes                       | yes            | yes                |

`forget_fact` removes one fact and its vector; a fact that it had replaced is valid again. `erase_user` removes as
`forget()` does where the user owns the conversation, and elsewhere as `forget(turn)` does for each turn of the user.

The log stays, without content: one event per deletion, so that the hash chain still verifies, and a tombstone
after a whole conversation. Reading what was deleted raises `TurnGone` or `ConversationGone`.

The order is the same everywhere: check the rights; delete the rows in one transaction, which also notes the files that
have to go; drop the provider's thread; delete the bytes of the files; make sure that no old bytes are left in the
database's own log (`ScrubPending` if they still are). A large conversation takes several transactions, each so short
that other writers hardly notice: the first one hides it, so that reading and writing it raise `ConversationGone`, or
`ConversationBusy` during a `reset`. A crash in between loses nothing: the rest, and files that are noted, are deleted
by the same call again, and when a store is next opened or swept.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from palaver.conversations.arguments import turn_id
from palaver.conversations.handle import Handle
from palaver.core.validation import clean_name
from palaver.errors import ConversationBusy, ConversationGone, ScrubPending
from palaver.generation.provider_thread import ProviderThreads
from palaver.model import WRITE, Fact, Turn
from palaver.ports.blobs import Blobs
from palaver.ports.engine import DeletionStore
from palaver.ports.queries import Deletion
from palaver.telemetry import Telemetry

BLOB_BATCH = 100


class WholeConversation:
    """The default of `forget()`. It is not None, which a caller may pass by mistake."""

    def __repr__(self) -> str:
        return "the whole conversation"


EVERYTHING: Final = WholeConversation()


@dataclass(frozen=True, slots=True)
class Forgetter:
    """Deletes from one conversation."""

    handle: Handle
    blobs: Blobs
    provider_threads: ProviderThreads
    telemetry: Telemetry

    async def forget(self, turn: Turn | str | WholeConversation) -> None:
        self.handle.require(WRITE)
        if isinstance(turn, WholeConversation):
            await self._forget_conversation()
        else:
            await self._forget_turn(turn_id("turn", turn))

    async def _forget_conversation(self) -> None:
        with self.telemetry.memory("delete_memory_store", self.handle.id):
            await self._require_owner()
            await self._finish(await self.handle.engine.forget_conversation(self.handle.scope, self.handle.id))

    async def _forget_turn(self, turn: str) -> None:
        with self.telemetry.memory("delete_memory", self.handle.id):
            await self._finish(await self.handle.engine.forget_turn(self.handle.scope, self.handle.id, turn))

    async def reset(self) -> None:
        self.handle.require(WRITE)
        await self._require_owner()
        await self._finish(await self.handle.engine.reset(self.handle.scope, self.handle.id))

    async def _require_owner(self) -> None:
        """Allow the call to the owner and to admins. The engine checks it again.

        A conversation whose deletion was interrupted cannot be read: the engine continues it, or raises the same error.
        """
        with suppress(ConversationGone, ConversationBusy):
            await self.handle.require_owner()

    async def forget_fact(self, fact: Fact | str) -> bool:
        self.handle.require(WRITE)
        id = fact.id if isinstance(fact, Fact) else clean_name("fact", fact)
        existed = await self.handle.engine.drop_fact(self.handle.scope, self.handle.id, id)
        await delete_pending_blobs(self.handle.engine, self.blobs)
        check_scrubbed(self.handle.engine, await self.handle.engine.scrub())
        return existed

    async def _finish(self, deletion: Deletion) -> None:
        self.provider_threads.drop(self.handle.scope.tenant, self.handle.id)
        await delete_pending_blobs(self.handle.engine, self.blobs)
        check_scrubbed(self.handle.engine, deletion.scrubbed)


async def delete_pending_blobs(engine: DeletionStore, blobs: Blobs) -> None:
    """Delete the bytes of the files whose rows are deleted already."""
    while paths := await engine.blobs_to_delete(BLOB_BATCH):
        for path in paths:
            await blobs.delete(path)
        await engine.blobs_deleted(paths)


def check_scrubbed(engine: DeletionStore, scrubbed: bool) -> None:
    if not scrubbed:
        raise ScrubPending(engine.scrub_problem())
