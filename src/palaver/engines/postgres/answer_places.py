"""The order of answers in conversations whose questions are queued or refused, on Postgres."""

from __future__ import annotations

from palaver.engines.postgres.rpc import EnginePart
from palaver.model import Scope
from palaver.ports.answer_places import PlaceRequest, queue_name


class PostgresAnswerPlaces(EnginePart):
    async def take_answer_place(self, scope: Scope, conversation: str, wanted: PlaceRequest, lease: int) -> int:
        args = {"place": wanted.id, "lease": lease, "question": wanted.question, "alone": wanted.alone}
        (row,) = await self.write("take_answer_place", scope, conversation=conversation, **args)
        if row["changed"]:  # others may have waited to learn where this question stands
            self.hub.committed(queue_name(conversation))
        return int(row["ahead"])

    async def leave_answer_place(self, scope: Scope, conversation: str, place: str) -> None:
        await self.write("leave_answer_place", scope, conversation=conversation, place=place)
        self.hub.committed(queue_name(conversation))
