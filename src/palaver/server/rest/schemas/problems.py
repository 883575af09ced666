"""Error bodies (RFC 9457) and the frames of event streams."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from palaver.server.rest.schemas.base import ResponseBody, examples


class Complaint(ResponseBody):
    field: str
    problem: str


class Problem(ResponseBody):
    """RFC 9457. `field` and `limit` are present where they apply; other fields depend on the type."""

    model_config = ConfigDict(
        **examples(
            {
                "type": "urn:palaver:problem:append-conflict",
                "title": "Conflict",
                "status": 409,
                "detail": "the conversation has changed: expected the next seq to be 4, found 6; "
                "read it again, then decide",
                "expected": 4,
                "found": 6,
            }
        ),
        extra="allow",
    )
    type: str
    title: str
    status: int
    detail: str
    error: str | None = Field(None, description="The class of the library's error, if it is one.")
    field: str | None = None
    errors: list[Complaint] | None = None


class ServerSentEvent(ResponseBody):
    """One event of a stream. `data` is JSON."""

    model_config = examples(
        {"event": "delta", "id": "41:7.120", "data": '{"turn": "01K…", "from": 112, "text": "peanuts "}'}
    )
    event: str | None = None
    id: str | None = Field(None, description="The resume position: send it as Last-Event-ID, or as `?after=`.")
    data: str | None = None
    retry: int | str | None = None


class Ticket(ResponseBody):
    ticket: str
    expires_in: float
