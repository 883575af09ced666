"""Turns that a client writes piece by piece: open, chunk, renew, commit, abort."""

from __future__ import annotations

from starlette.responses import Response

from palaver.errors import AppendConflict
from palaver.server.rest import schemas, wire
from palaver.server.rest.dependencies import IdempotencyKey, IfMatch, Reply, Talk, TurnId, expected_by, given, moved_on


async def open_stream(
    talk: Talk, body: schemas.NewStream, idempotency_key: IdempotencyKey = None, if_match: IfMatch = None
) -> Response:
    """Open a pending turn. Somebody must write to it, or renew it, within 30 seconds, or it is sealed as aborted."""
    fields = {name: value for name, value in given(body, "expected_seq").items() if value is not None}
    if idempotency_key is not None:
        fields["idempotency_key"] = idempotency_key
    try:
        turn = await talk.append_open(
            fields.pop("role", "assistant"), expected_seq=expected_by(if_match, body.expected_seq), **fields
        )
    except AppendConflict as conflict:
        raise moved_on(if_match, conflict) from None
    return Reply(wire.turn(turn), 201, {"Location": f"/api/conversations/{talk.id}/turns/{turn.id}"})


async def write_chunk(talk: Talk, turn: TurnId, body: schemas.Chunk) -> Response:
    """Store piece number `n`. It is on disk when the answer comes, which has the number of the next."""
    return Reply({"next": await talk.append_chunk(turn, body.n, body.text)})


async def renew_stream(talk: Talk, turn: TurnId) -> Response:
    """A sign of life from the writer."""
    await talk.append_renew(turn)
    return Response(status_code=204)


async def commit_stream(talk: Talk, turn: TurnId, body: schemas.StreamEnd) -> Response:
    """Seal the turn as complete."""
    final = {name: value for name, value in given(body).items() if value is not None}
    return Reply(wire.turn(await talk.append_commit(turn, **final)))


async def abort_stream(talk: Talk, turn: TurnId) -> Response:
    """Seal the turn as aborted: out of the active view, its text kept for the record."""
    return Reply(wire.turn(await talk.append_abort(turn)))
