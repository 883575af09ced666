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
    query: Annotated[str, Field(max_length=100_000)]
    k: Annotated[int, Field(ge=0, le=1_000), NUMBER] = 10
    scope: RecallRange = "conversation"
    threshold: Annotated[float, Field(ge=-BIG, le=BIG)] | None = Field(
        None, description="The least relevance of a hit, from 0 to 1."
    )
    since: Moment | None = None
    until: Moment | None = None
    include_facts: Flag = True
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
    by: Name | None = Field(None, description="The person who corrects it; by default the caller.")
    valid_from: Moment | None = None
    valid_to: Moment | None = None


class Hit(ResponseBody):
    score: float = Field(description="Ranks the hits of one question.")
    relevance: float = Field(description="From 0 to 1; comparable between questions.")
    parts: dict[str, float]
    turn: Turn | None
    fact: Fact | None
    item: PersonItem | None = Field(description="Something that is remembered of the person; only of /people.")
    quote: Quote | None = Field(description="The matching passage from one of the turn's files.")


class Hits(ResponseBody):
    items: list[Hit]
    empty: EmptyBody | None = Field(None, description="Why there are no items; null if there are some.")


class ContextOptions(RequestBody):
    char_budget: Positive | None = None
    recent_turns: Count | None = None
    semantic_recall: Json | bool | None = None
    recall_scope: RecallRange | None = None
    include_facts: Flag | None = None
    include_working_memory: Flag | None = None
    include_person: Flag | None = None
    note_omissions: Flag | None = None
    shorten: Flag | None = None
    policy: PolicyName | None = None
    token_budget: Positive | None = None
    instructions: str | None = Field(None, description="A system prompt. Needs the right `system`.")
    model: Name | None = None


class ContextQuery(ContextOptions):
    model_config = ConfigDict(**examples({"token_budget": 4000, "query": "What can I eat?"}), extra="forbid")
    query: str | None = None
    message: Content | None = None
    question: Name | None = Field(None, description="The id of a stored message to answer; nothing later is shown.")
    viewer: Name | None = None
    filter_participants: list[Name] | None = None
    preview: Flag = Field(False, description="Read only: do not schedule compaction, whatever the budget.")
    format: Literal["neutral", "openai", "responses", "anthropic"] = "neutral"


@mirrors(ContextFileValue)
class ContextFile(ResponseBody):
    """A file of the message to answer: whether the model gets it, and why or why not."""

    state: Literal["in full", "in part", "not sent"]


class Explanation(ResponseBody):
    """Why each block is in the prompt, what became of the files of the message, and which turns were left out."""

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
    through: Name | None = Field(None, description="The id of the last turn, which is included.")


class Compact(RequestBody):
    keep_tokens: Count | None = None
    policy: Json | None = Field(
        None, description="trigger_turns, trigger_tokens, strategy, summarizer_model: for this call."
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
    text: Annotated[str, Field(min_length=1)]
    by: Name | None = None
