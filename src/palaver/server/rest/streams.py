"""Routes of turns that a client streams: open, chunk, renew, commit, abort."""

from __future__ import annotations

from starlette.responses import Response

from palaver.errors import AppendConflict
from palaver.server import wire
from palaver.server.dependencies import (
    ConversationDep,
    IdempotencyKey,
    IfMatch,
    Reply,
    TurnId,
    conflict_error,
    resolve_expected_seq,
    sent_fields,
)
from palaver.server.rest import schemas


async def open_stream(
    talk: ConversationDep, body: schemas.NewStream, idempotency_key: IdempotencyKey = None, if_match: IfMatch = None
) -> Response:
    """Open a pending turn. If no chunk and no renewal arrives for 30 seconds, it is sealed as aborted."""
    fields = {name: value for name, value in sent_fields(body, "expected_seq").items() if value is not None}
    if idempotency_key is not None:
        fields["idempotency_key"] = idempotency_key
    try:
        turn = await talk.append_open(
            fields.pop("role", "assistant"), expected_seq=resolve_expected_seq(if_match, body.expected_seq), **fields
        )
    except AppendConflict as conflict:
        raise conflict_error(if_match, conflict) from None
    return Reply(wire.turn(turn), 201, {"Location": f"/api/conversations/{talk.id}/turns/{turn.id}"})


async def write_chunk(talk: ConversationDep, turn: TurnId, body: schemas.Chunk) -> Response:
    """Store chunk number `n`, and return the number of the next. It is on disk when the response arrives."""
    return Reply({"next": await talk.append_chunk(turn, body.n, body.text)})


async def renew_stream(talk: ConversationDep, turn: TurnId) -> Response:
    """Renew the lease of a pending turn."""
    await talk.append_renew(turn)
    return Response(status_code=204)


async def commit_stream(talk: ConversationDep, turn: TurnId, body: schemas.StreamEnd) -> Response:
    """Seal the turn as complete."""
    final = {name: value for name, value in sent_fields(body).items() if value is not None}
    return Reply(wire.turn(await talk.append_commit(turn, **final)))


async def abort_stream(talk: ConversationDep, turn: TurnId) -> Response:
    """Seal the turn as aborted. It leaves the active branch, but its text is kept."""
    return Reply(wire.turn(await talk.append_abort(turn)))
