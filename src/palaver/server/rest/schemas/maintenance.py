"""Bodies of the log, request records, usage, statistics and settings."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from palaver import model
from palaver.server.rest.schemas.base import Json, RequestBody, ResponseBody, mirrors


@mirrors(model.Request, omit=("quoted",))
class Request(ResponseBody):
    previous_response_id: str | None


class Requests(ResponseBody):
    items: list[Request]


@mirrors(model.UsageLine)
class UsageLine(ResponseBody):
    pass


class Usage(ResponseBody):
    items: list[UsageLine]


@mirrors(model.Event)
class Event(ResponseBody):
    pass


class Events(ResponseBody):
    items: list[Event]
    next: str | None


class Verified(ResponseBody):
    ok: bool
    conversation: str
    events: int | None = None
    turns: int | None = None
    attachments: int | None = None
    tip: str | None = None
    archived: int | None = Field(None, description="Number of events that are in an archive and were not checked.")
    derived: int | None = Field(
        None, description="Number of summaries, notes, facts, file texts and requests that match the log."
    )
    unproven: int | None = Field(
        None, description="Number of such rows that are older than their log. A job adds them to it."
    )
    seals: int | None = Field(None, description="Number of seals that were checked, if the server has the key.")
    row: str | None = Field(None, description="The first bad row, if `ok` is false.")
    problem: str | None = None


@mirrors(model.Stats, omit=("storage",))
class Stats(ResponseBody):
    pass


class Sweep(RequestBody):
    retention_minutes: Annotated[float, Field(gt=0, le=50_000_000)] | None = Field(
        None, description="Also delete every turn that is older than this. By default, turns are kept at any age."
    )


@mirrors(model.Swept)
class Swept(ResponseBody):
    files: int = Field(description="Uploads that were never completed.")


class EraseUser(RequestBody):
    user: Annotated[str, Field(min_length=1, max_length=512, description="The id of the user to erase.")]


class ErasedPerson(ResponseBody):
    salt: str
    digest: str = Field(description="Hash of the user's id and the salt. The receipt contains no name.")


class ErasureReceipt(ResponseBody):
    format: str
    tenant: str
    person: ErasedPerson
    started: datetime
    finished: datetime
    counts: dict[str, int]
    erased: dict[str, list[str]] = Field(description="Ids by kind: conversations, turns, files, keys and so on.")
    scrubbed: bool = Field(description="False while another reader keeps old bytes in the database's own log.")
    signature: str | None = Field(description="Made with the server's audit key, if it has one.")


class CheckErasure(RequestBody):
    receipt: Json = Field(description="A receipt, as `POST /api/erasures` returned it.")


class ErasureChecked(ResponseBody):
    ok: bool
    problem: str | None = None


class ImportReport(ResponseBody):
    title: str = Field(description="The product whose export it is.")
    conversations: int
    imported: int = Field(description="Number of imported messages.")
    already: int = Field(description="Number of messages that had been imported before.")
    left_out: dict[str, int] = Field(description="Number of messages that were left out, by reason.")


class ServerModelName(RequestBody):
    name: Annotated[str, Field(min_length=1, max_length=100)] = Field(
        description="Name that callers use for the model."
    )


class ServerModel(ServerModelName):
    model: Annotated[
        str,
        Field(
            min_length=3, max_length=200, description="Provider and model, such as `openai:MODEL` or `responses:MODEL`."
        ),
    ]
    base_url: Annotated[str, Field(min_length=8, max_length=500)] | None = Field(
        None, description="URL of the provider's API, if it is not the default one."
    )
    api_key: Annotated[str, Field(min_length=1, max_length=1_000)] | None = Field(
        None, description="API key of the provider. It is stored, but never returned."
    )


class KnownServerModel(ResponseBody):
    name: str
    model: str | None
    base_url: str | None
    has_key: bool
    managed: bool = Field(description="Whether it was added here, and not in the server's configuration.")
    is_default: bool


class ServerModels(ResponseBody):
    items: list[KnownServerModel]
    default: str
    hosts: list[str] = Field(description="The hosts that a base URL may name.")


class ServerModelTest(ResponseBody):
    ok: bool
    problem: str | None
    seconds: float


class Settings(ResponseBody):
    version: str
    caller: Json
    auth: Json
    limits: Json
    models: Json
    person: str = Field(description="Memory of people across conversations: off, read or read-write.")
    policies: list[str]
    agents: list[str]
