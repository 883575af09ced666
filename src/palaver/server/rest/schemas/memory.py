"""Bodies of recall, contexts, summaries, facts and working memory."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from palaver import model
from palaver.context.explain import ContextFile as ContextFileValue
from palaver.context.options import PolicyName, RecallRange
from palaver.memory.facts_over_time import MAX_OBJECT
from palaver.server.rest.schemas.base import (
    BIG,
    NUMBER,
    Content,
    Count,
    EmptyBody,
    Flag,
    Json,
    Moment,
    Name,
    Positive,
    RequestBody,
    ResponseBody,
    Where,
    examples,
    mirrors,
)
from palaver.server.rest.schemas.files import Quote
from palaver.server.rest.schemas.people import PersonItem
from palaver.server.rest.schemas.turns import Turn


class RecallQuery(RequestBody):
    model_config = ConfigDict(**examples({"query": "what can't I eat?", "k": 5}), extra="forbid")
    query: Annotated[str, Field(max_length=100_000, description="The question.")]
    k: Annotated[int, Field(ge=0, le=1_000), NUMBER] = Field(10, description="Maximum number of hits.")
    scope: RecallRange = Field(
        "conversation", description="Search this conversation, all of its owner, or the whole tenant."
    )
    threshold: Annotated[float, Field(ge=-BIG, le=BIG)] | None = Field(
        None, description="Minimum relevance of a hit, from 0 to 1."
    )
    since: Moment | None = Field(None, description="Only turns from this time on.")
    until: Moment | None = Field(None, description="Only turns before this time.")
    include_facts: Flag = Field(True, description="Also find facts.")
    where: Where | None = Field(None, description="Only turns that meet all of these conditions.")


@mirrors(model.Fact)
class Fact(ResponseBody):
    pass


class Facts(ResponseBody):
    items: list[Fact]
    empty: EmptyBody | None = Field(None, description="Why there are no items; null if there are some.")


class CorrectedFact(RequestBody):
    model_config = ConfigDict(**examples({"text": "Rome"}), extra="forbid")
    text: Annotated[str, Field(min_length=1, max_length=MAX_OBJECT, description="The object of the fact.")]
    by: Name | None = Field(None, description="Name of the person who corrects it. Default: the caller.")
    valid_from: Moment | None = Field(None, description="Time from which the fact holds.")
    valid_to: Moment | None = Field(None, description="Time at which it ceases to hold.")


class Hit(ResponseBody):
    score: float = Field(description="Ranks the hits of one question.")
    relevance: float = Field(description="From 0 to 1; comparable between questions.")
    parts: dict[str, float]
    turn: Turn | None
    fact: Fact | None
    item: PersonItem | None = Field(
        description="An item that is remembered about the person. Only in results of /people."
    )
    quote: Quote | None = Field(description="The matching passage from one of the turn's files.")


class Hits(ResponseBody):
    items: list[Hit]
    empty: EmptyBody | None = Field(None, description="Why there are no items; null if there are some.")


class ContextOptions(RequestBody):
    char_budget: Positive | None = Field(None, description="Budget in characters, instead of tokens.")
    recent_turns: Count | None = Field(None, description="Maximum number of latest turns.")
    semantic_recall: Json | bool | None = Field(
        None,
        description="`false` turns recall off. An object limits it: `k` (number of "
        "turns) and `threshold` (relevance from 0 to 1).",
    )
    recall_scope: RecallRange | None = Field(
        None, description="Recall from this conversation, from all of its owner, or from the whole tenant."
    )
    include_facts: Flag | None = Field(None, description="`false` leaves out the facts.")
    include_working_memory: Flag | None = Field(None, description="`false` leaves out the working memory.")
    include_person: Flag | None = Field(None, description="`false` leaves out what is remembered about the person.")
    note_omissions: Flag | None = Field(None, description="State in the context that older turns were left out.")
    shorten: Flag | None = Field(None, description="Shorten long turns and tool results, instead of leaving them out.")
    policy: PolicyName | None = Field(None, description="How the budget is shared between recent and recalled turns.")
    token_budget: Positive | None = Field(None, description="Budget in tokens.")
    instructions: str | None = Field(None, description="System prompt. Needs the right `system`.")
    model: Name | None = Field(None, description="Name of the model. Default: the conversation's, else the server's.")


class ContextQuery(ContextOptions):
    model_config = ConfigDict(**examples({"token_budget": 4000, "query": "What can I eat?"}), extra="forbid")
    query: str | None = Field(None, description="Text that recall searches for. Default: the message.")
    message: Content | None = Field(None, description="A new message, which is not stored. The context ends with it.")
    question: Name | None = Field(
        None, description="The id of a stored message to answer. The context contains nothing later."
    )
    viewer: Name | None = Field(None, description="Agent for whom the context is built: its turns are the assistant's.")
    filter_participants: list[Name] | None = Field(None, description="Only turns of these actors.")
    preview: Flag = Field(
        False, description="Only look: do not schedule compaction, and do not count as the previous context."
    )
    format: Literal["neutral", "openai", "responses", "anthropic"] = Field(
        "neutral", description="Format of the returned messages."
    )


@mirrors(ContextFileValue)
class ContextFile(ResponseBody):
    """A file of the message to answer: whether the model gets it, and why or why not."""

    state: Literal["in full", "in part", "not sent"]


class Explanation(ResponseBody):
    """Why each block is in the prompt, which files of the message were sent, and which turns were left out."""

    model_config = ConfigDict(extra="allow")
    budget: int
    tokens: int
    unit: Literal["tokens", "characters"]
    counter: str
    policy: str
    turns: Json
    coverage: Json
    blocks: list[Json]
    left_out: list[Json]
    files: list[ContextFile]
    recall: str
    empty: EmptyBody | None = Field(description="Why no turn was recalled; null if some were.")
    identical_prefix: float | None
    notes: list[str]


class Context(ResponseBody):
    messages: list[Json] | Json
    tokens: int
    turn_ids: list[str]
    explanation: Explanation


@mirrors(model.Summary)
class Summary(ResponseBody):
    pass


class Summaries(ResponseBody):
    items: list[Summary]
    empty: EmptyBody | None = Field(None, description="Why there are no items; null if there are some.")


class Through(RequestBody):
    through: Name | None = Field(None, description="The id of the last turn to include.")


class Compact(RequestBody):
    keep_tokens: Count | None = Field(
        None, description="Summarise until the turns without a summary have at most this many tokens."
    )
    policy: Json | None = Field(
        None, description="Settings for this call: `trigger_turns`, `trigger_tokens`, `strategy`, `summarizer_model`."
    )


class Compacted(ResponseBody):
    summaries: int


@mirrors(model.Note)
class Note(ResponseBody):
    pass


@mirrors(model.WorkingMemory)
class WorkingMemory(ResponseBody):
    empty: EmptyBody | None = Field(None, description="Why there are no notes and no summary; null if there are some.")


class NewNote(RequestBody):
    model_config = ConfigDict(**examples({"text": "Ship before May"}), extra="forbid")
    text: Annotated[str, Field(min_length=1)] = Field(description="Text of the note.")
    by: Name | None = Field(None, description="Name of the author. Default: the caller.")
