"""The shapes of requests and answers, for the OpenAPI document. Pydantic is used at this edge and nowhere else."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from palaver.core.validation import (
    MAX_ATTACHMENTS,
    MAX_BATCH,
    MAX_NAME,
    MAX_PARTICIPANTS,
    MAX_TITLE,
    MAX_TOOL_FILES,
    MAX_TTL,
)

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Json = dict[str, Any]
Content = str | list[Json | str]
Role = Literal["user", "assistant", "system", "tool"]
BIG = 2**53 - 1


class Given(BaseModel):
    """What a client sends: an unknown field is a mistake, and is named."""

    model_config = ConfigDict(extra="forbid")


class Shown(BaseModel):
    """What the server answers. Clients must not mind new fields."""


# ---- problems ------------------------------------------------------------------------------------------------------


class Complaint(Shown):
    field: str
    problem: str


class Problem(Shown):
    """RFC 9457. `field` and `limit` are there where they apply; more fields depend on the type."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "type": "urn:palaver:problem:append-conflict",
                    "title": "Somebody was faster",
                    "status": 409,
                    "detail": "the thread moved on: expected the next seq to be 4, found 6; read it again, then decide",
                    "expected": 4,
                    "found": 6,
                }
            ]
        },
    )
    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    errors: list[Complaint] | None = None


# ---- conversations -------------------------------------------------------------------------------------------------

CONVERSATION: Json = {
    "id": "01KA2V4YFM3Q2D7N9V1C6T0000",
    "tenant": "acme",
    "owner": "ada",
    "key": "support/42",
    "workspace": None,
    "agent": None,
    "model": None,
    "title": "Peanuts",
    "preview": "I'm allergic to peanuts.",
    "participants": [],
    "metadata": {},
    "settings": {},
    "turn_count": 2,
    "token_count": 41,
    "next_seq": 2,
    "last_event": 3,
    "ttl": None,
    "expires_at": None,
    "created": "2026-11-15T09:30:00Z",
    "updated": "2026-11-15T09:31:07Z",
}


class Conversation(Shown):
    model_config = ConfigDict(json_schema_extra={"examples": [CONVERSATION]})
    id: str
    tenant: str
    owner: str = Field(description="Empty when the application itself is the owner.")
    key: str | None = Field(description="The application's own name for it.")
    workspace: str | None
    agent: str | None
    model: str | None
    title: str | None
    preview: str | None
    participants: list[str]
    metadata: Json
    settings: Json
    turn_count: int
    token_count: int
    next_seq: int = Field(description="What `expected_seq` must be for the next append.")
    last_event: int = Field(description="Follow the live events with `?after=` this number and nothing is missed.")
    ttl: float | None
    expires_at: datetime | None
    created: datetime
    updated: datetime


class ConversationFields(Given):
    title: Annotated[str, Field(min_length=1, max_length=MAX_TITLE)] | None = None
    workspace: Name | None = None
    agent: Name | None = None
    model: Name | None = None
    participants: Annotated[list[Name], Field(max_length=MAX_PARTICIPANTS)] | None = None
    metadata: Json | None = Field(None, description="At most 64 KB.")
    settings: Json | None = Field(None, description="compaction, retention, redact, facts: see the docs.")
    ttl: Annotated[float, Field(gt=0, le=MAX_TTL)] | None = Field(None, description="Seconds after the last change.")


class NewConversation(ConversationFields):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"key": "support/42", "title": "Peanuts"}, {}]}
    )
    key: Name | None = Field(None, description="With a key that exists, that conversation is answered.")
    owner: Name | None = Field(None, description="Acting for another owner needs the right `admin`.")


class ChangedConversation(ConversationFields):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"title": "What I can eat"}]})


class DateGroup(Shown):
    name: str
    conversations: list[str] = Field(description="Ids, in the order of `items`.")


class ConversationPage(Shown):
    items: list[Conversation]
    groups: list[DateGroup] | None = Field(None, description="With `group=date`.")
    cursor: str | None
    next: str | None = Field(description="The next page, as a path; also in the Link header.")


# ---- turns ---------------------------------------------------------------------------------------------------------


class ToolCall(Shown):
    id: str
    name: str
    arguments: Any


class ToolResult(Shown):
    id: str
    content: Any
    is_error: bool


class Tokens(Shown):
    prompt: int | None
    completion: int | None


class Attachment(Shown):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "01KA2V6M3T9Q4X7C5N1R8F2B6D",
                    "filename": "contract.pdf",
                    "media_type": "application/pdf",
                    "bytes": 48_213,
                    "sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                    "turn": None,
                }
            ]
        }
    )
    id: str
    filename: str
    media_type: str = Field(description="What the bytes are.")
    bytes: int
    sha256: str
    turn: str | None = Field(description="The turn that has taken it.")


class Attachments(Shown):
    items: list[Attachment]
    next: str | None


class FileText(Shown):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "attachment": "01KA2V…",
                    "problem": None,
                    "start": 0,
                    "text": "The contract ends …",
                    "characters": 8_120,
                }
            ]
        }
    )
    attachment: str
    problem: str | None = Field(description="Why there are no words, such as `needs a password`.")
    start: int
    text: str
    characters: int = Field(description="Of the whole text.")


Seconds = Annotated[int, Field(ge=1, le=86_400)]


class NewUpload(Given):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"filename": "contract.pdf", "media_type": "application/pdf"}]}
    )
    filename: Annotated[str, Field(min_length=1, max_length=255)]
    media_type: Name | None = None
    seconds: Seconds | None = Field(None, description="How long the address is good.")


class Upload(Shown):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "id": "01KA2V6M3T9Q4X7C5N1R8F2B6D",
                    "method": "PUT",
                    "url": "https://bucket.example/…?X-Amz-Signature=…",
                    "token": "eyJ…",
                    "expires_at": "2026-11-15T09:40:02Z",
                }
            ]
        }
    )
    id: str
    method: Literal["PUT"]
    url: str = Field(description="Takes the bytes, with no other header. A path is one of this server.")
    token: str = Field(description="For `complete_upload`.")
    expires_at: datetime


class UploadToken(Given):
    token: Annotated[str, Field(min_length=1, max_length=4_096)]


class NewLink(Given):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"seconds": 300}]})
    seconds: Seconds | None = None


class Link(Shown):
    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "url": "/api/conversations/01KA…/attachments/01KA…/content?ticket=eyJ…",
                    "expires_at": "2026-11-15T09:40:02Z",
                }
            ]
        }
    )
    url: str
    expires_at: datetime


class Quote(Shown):
    attachment: str
    filename: str
    text: str


TURN: Json = {
    "id": "01KA2V4ZB8H6W3R5J2M8P00000",
    "conversation": CONVERSATION["id"],
    "seq": 0,
    "position": 0,
    "role": "user",
    "actor": "ada",
    "content": "I'm allergic to peanuts.",
    "created": "2026-11-15T09:30:02Z",
    "status": "complete",
    "tool_calls": [],
    "tool_results": [],
    "attachments": [],
    "sources": [],
    "tokens": None,
    "token_count": 7,
    "model": None,
    "adapter": None,
    "finish_reason": None,
    "metadata": {},
    "parent": None,
    "active": True,
    "superseded_by": None,
    "content_hash": "5f0c…",
}


class Turn(Shown):
    model_config = ConfigDict(json_schema_extra={"examples": [TURN]})
    id: str
    conversation: str
    seq: int = Field(description="Order of arrival: 0, 1, 2, … without gaps.")
    position: int = Field(description="Order in the active view.")
    role: Role
    actor: str
    content: str | list[Json] = Field(description="Text, or a list of parts (text, image, file, reasoning).")
    created: datetime
    status: Literal["pending", "complete", "aborted", "forgotten"]
    tool_calls: list[ToolCall]
    tool_results: list[ToolResult]
    attachments: list[Attachment]
    sources: list[Json]
    tokens: Tokens | None
    token_count: int
    model: str | None
    adapter: str | None
    finish_reason: str | None
    metadata: Json
    parent: str | None
    active: bool
    superseded_by: str | None
    content_hash: str | None


class TurnFields(Given):
    content: Content = Field("", description="Text or parts; at most 5 MB with the tool fields.")
    actor: Name | None = None
    created: datetime | None = None
    metadata: Json | None = None
    tool_calls: list[Json] | None = Field(None, description='`{"id", "name", "arguments"}`; assistant turns only.')
    tool_results: list[Json] | None = Field(None, description='`{"id", "content", "is_error"}`; tool turns only.')
    attachments: Annotated[list[Name], Field(max_length=MAX_TOOL_FILES)] | None = Field(
        None, description="Ids of uploads; at most 10, but for tool turns."
    )
    sources: list[Json] | None = None
    tokens: Json | None = Field(None, description='`{"prompt": 812, "completion": 64}`')
    model: Name | None = None
    adapter: Name | None = None
    finish_reason: Name | None = None


class NewTurn(TurnFields):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"role": "user", "content": "I'm allergic to peanuts."},
                {"role": "tool", "tool_results": [{"id": "c1", "content": "12 °C"}]},
            ]
        },
    )
    role: Role = Field(description="`system` needs the right `system`.")
    idempotency_key: Name | None = Field(None, description="Or the header Idempotency-Key.")
    expected_seq: Annotated[int, Field(ge=0, le=BIG)] | None = Field(None, description="Or the header If-Match.")
    replaces: Name | None = Field(None, description="The turn whose place it takes.")
    discard_after: bool = Field(False, description="With `replaces`: also instead of everything that followed.")


class BatchTurn(TurnFields):
    role: Role
    idempotency_key: Name | None = None


class NewTurns(Given):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"turns": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!"}]}]
        },
    )
    turns: Annotated[list[BatchTurn], Field(max_length=MAX_BATCH)]
    expected_seq: Annotated[int, Field(ge=0, le=BIG)] | None = None


class EditedTurn(TurnFields):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"content": "I'm allergic to nuts."}]})
    discard_after: bool = Field(True, description="False keeps what followed.")


class Turns(Shown):
    items: list[Turn]


class TurnPage(Shown):
    items: list[Turn | Json] = Field(description="Oldest first; with include_summaries also summaries.")
    older: str | None = Field(description="The page before, as a path; also in the Link header.")
    newer: str | None
    last_event: int = Field(description="Follow the live events after this number.")


class Match(Shown):
    turn: Turn
    terms: list[str]
    spans: list[tuple[int, int]] = Field(description="Where in the text the words stand.")


class Matches(Shown):
    items: list[Match]


class Found(Shown):
    conversation: Conversation
    in_title: bool
    matches: list[Match]


class FoundList(Shown):
    items: list[Found]


class Branch(Shown):
    position: int
    active: str | None
    turns: list[Turn]


class Branches(Shown):
    items: list[Branch]


# ---- streams -------------------------------------------------------------------------------------------------------


class NewStream(Given):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"role": "assistant", "actor": "bot"}]})
    role: Literal["user", "assistant", "system"] = "assistant"
    actor: Name | None = None
    metadata: Json | None = None
    model: Name | None = None
    adapter: Name | None = None
    idempotency_key: Name | None = None
    expected_seq: Annotated[int, Field(ge=0, le=BIG)] | None = None
    replaces: Name | None = None
    discard_after: bool = False


class Chunk(Given):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"n": 0, "text": "You can "}]})
    n: Annotated[int, Field(ge=0, le=BIG)] = Field(description="0, 1, 2, …; repeating a number changes nothing.")
    text: str


class NextChunk(Shown):
    next: int


class StreamEnd(Given):
    tokens: Json | None = None
    model: Name | None = None
    adapter: Name | None = None
    finish_reason: Name | None = None
    tool_calls: list[Json] | None = None
    sources: list[Json] | None = None
    metadata: Json | None = None


# ---- memory --------------------------------------------------------------------------------------------------------


class RecallQuery(Given):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"query": "what can't I eat?", "k": 5}]})
    query: Annotated[str, Field(max_length=100_000)]
    k: Annotated[int, Field(ge=0, le=1_000)] = 10
    scope: Literal["conversation", "owner", "tenant"] = "conversation"
    threshold: float | None = None
    since: datetime | None = None
    until: datetime | None = None
    include_facts: bool = True


class Fact(Shown):
    id: str
    subject: str
    predicate: str
    object: str
    source_turn: str | None
    confidence: float
    valid_from: datetime
    invalidated_at: datetime | None
    invalidated_by: str | None
    by: str
    created: datetime | None


class Facts(Shown):
    items: list[Fact]


class Hit(Shown):
    score: float
    parts: dict[str, float]
    turn: Turn | None
    fact: Fact | None
    quote: Quote | None = Field(description="What one of the turn's files says to it.")


class Hits(Shown):
    items: list[Hit]


class ContextOptions(Given):
    char_budget: Annotated[int, Field(ge=1, le=BIG)] | None = None
    recent_turns: Annotated[int, Field(ge=0, le=BIG)] | None = None
    semantic_recall: Json | bool | None = None
    recall_scope: Literal["conversation", "owner", "tenant"] | None = None
    include_facts: bool | None = None
    include_working_memory: bool | None = None
    note_omissions: bool | None = None
    shorten: bool | None = None
    policy: Name | None = None
    token_budget: Annotated[int, Field(ge=1, le=BIG)] | None = None
    instructions: str | None = Field(None, description="A system prompt. Needs the right `system`.")
    model: Name | None = None


class ContextQuery(ContextOptions):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"token_budget": 4000, "query": "What can I eat?"}]},
    )
    query: str | None = None
    message: Content | None = None
    viewer: Name | None = None
    filter_participants: list[Name] | None = None
    preview: bool = Field(False, description="Only to look at: no compaction is asked for, whatever the budget.")
    format: Literal["neutral", "openai", "responses", "anthropic"] = "neutral"


class Context(Shown):
    messages: list[Json] | Json
    tokens: int
    turn_ids: list[str]
    explanation: Json


class Summary(Shown):
    id: str
    level: int
    from_seq: int
    through_seq: int
    text: str
    model: str
    token_count: int
    turns: int
    created: datetime


class Summaries(Shown):
    items: list[Summary]


class Compact(Given):
    keep_tokens: Annotated[int, Field(ge=0, le=BIG)] | None = None


class Compacted(Shown):
    summaries: int


class Note(Shown):
    text: str
    turn: str | None
    by: str


class WorkingMemory(Shown):
    summary: str
    goals: list[Note]
    requirements: list[Note]
    constraints: list[Note]
    decisions: list[Note]
    assumptions: list[Note]
    open_questions: list[Note]
    glossary: list[Note]
    stakeholders: list[Note]
    instructions: list[Note]
    through_seq: int
    extractor_failure: str | None = None


class NewNote(Given):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"text": "Ship before May"}]})
    text: Annotated[str, Field(min_length=1)]
    by: Name | None = None


# ---- answers -------------------------------------------------------------------------------------------------------


class ModelSettings(Given):
    """What goes to the model as it is."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=BIG)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=BIG)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1, le=BIG)] | None = None
    stop: str | list[str] | None = None
    seed: Annotated[int, Field(ge=-BIG, le=BIG)] | None = None
    reasoning_effort: Name | None = None
    reasoning: Json | None = None


class AnswerOptions(ContextOptions):
    agent: Name | None = None
    tools: list[Name] | None = Field(None, description="Names of built-in tools. None: those of the agent or server.")
    continuity: Literal["auto", "off", "with-history"] | None = None
    settings: ModelSettings | None = None
    stream: bool = Field(False, description="Server-sent events; so does `Accept: text/event-stream`.")


class Question(AnswerOptions):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"message": "What can I eat?", "stream": True}]}
    )
    message: Content | None = Field(None, description="Without one, the thread is answered as it stands.")
    actor: Name | None = None
    history: list[Json] | None = Field(None, description="What a client without memory here still knows.")
    attachments: Annotated[list[Name], Field(max_length=MAX_ATTACHMENTS)] | None = Field(
        None, description="Ids of uploads. With `replaces`, files of that turn may be named too: they are copied."
    )
    metadata: Json | None = None
    idempotency_key: Name | None = None
    replaces: Name | None = Field(None, description="The question that this one takes the place of.")


class Regenerate(AnswerOptions):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"stream": True}]})


class Answer(Shown):
    turn: Turn
    usage: Json | None
    explanation: Json | None = Field(
        description="A summary: how full the prompt was, and of what. null for a caller who is not the owner."
    )
    request: str | None = Field(
        description="The id of the record of the last call. null for a caller who is not the owner."
    )


class Stopping(Shown):
    event: int = Field(description="The event in the log that the answering process obeys.")


# ---- the log and the rest ------------------------------------------------------------------------------------------


class Request(Shown):
    id: str
    conversation: str
    at: datetime
    model: str
    adapter: str
    turn: str | None
    purpose: str
    body: Json | None
    explanation: Json | None
    response: Json | None
    previous_response_id: str | None


class Requests(Shown):
    items: list[Request]


class UsageLine(Shown):
    day: str
    user: str
    model: str
    calls: int
    prompt: int
    completion: int


class Usage(Shown):
    items: list[UsageLine]


class Event(Shown):
    n: int
    conversation: str
    kind: str
    actor: str
    at: datetime
    turn: str | None
    payload: Json
    content_hash: str | None
    hash: str


class Events(Shown):
    items: list[Event]
    next: str | None


class Verified(Shown):
    ok: bool
    conversation: str
    events: int | None = None
    turns: int | None = None
    attachments: int | None = None
    tip: str | None = None
    seals: int | None = Field(None, description="How many seals were checked, where the server has the key.")
    row: str | None = Field(None, description="The first bad row, when it is not ok.")
    problem: str | None = None


class Stats(Shown):
    conversations: int
    turns: int
    tokens: int
    events: int
    attachments: int
    attachment_bytes: int


class Sweep(Given):
    retention_minutes: Annotated[float, Field(gt=0, le=50_000_000)] | None = None


class Swept(Shown):
    conversations: list[str]
    turns: int
    streams: int
    files: int = Field(description="Uploads that came to nothing.")


class Settings(Shown):
    version: str
    caller: Json
    auth: Json
    limits: Json
    models: Json
    policies: list[str]
    agents: list[str]


class ServerSentEvent(Shown):
    """One event of a stream. `data` is JSON."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"event": "delta", "id": "41:7.120", "data": '{"turn": "01K…", "from": 112, "text": "peanuts "}'}
            ]
        }
    )
    event: str | None = None
    id: str | None = Field(None, description="Where to go on: send it as Last-Event-ID, or as `?after=`.")
    data: str | None = None
    retry: int | str | None = None


class Ticket(Shown):
    ticket: str
    expires_in: float
