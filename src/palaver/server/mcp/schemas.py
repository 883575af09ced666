"""Arguments and results of tools. The descriptions are read by models."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from palaver import model
from palaver.core.quotes import is_through_mcp
from palaver.core.validation import day_in_utc
from palaver.memory.settings import CompactionSettings
from palaver.model import MEMORY_LISTS, ConversationInfo, Summary, Turn

MIN_BUDGET = 100  # tokens: enough for an empty result
MAX_BUDGET = 100_000

Name = Annotated[str, Field(min_length=1, max_length=512)]
Budget = Annotated[int, Field(ge=MIN_BUDGET, le=MAX_BUDGET, description="The maximum number of tokens of the result.")]
Existing = Annotated[Name, Field(description="The id or the key of the conversation.")]
ExistingOrNew = Annotated[Name, Field(description="The id or the key of the conversation. An unknown key creates one.")]
Moment = Annotated[datetime, BeforeValidator(day_in_utc)]
# Without standing instructions: only users may give them, not tools.
NoteList = Literal[
    "goals", "requirements", "constraints", "decisions", "assumptions", "open_questions", "glossary", "stakeholders"
]
assert set(NoteList.__args__) == set(MEMORY_LISTS) - {"instructions"}  # type: ignore[attr-defined]


Filter = Field(
    None,
    description='Only turns that meet all conditions: {"metadata": {"topic": "billing", "priority": {"gte": 3}}, '
    '"actor": "ada", "role": "user"}. Of metadata: a value, {"in": […]}, or gt, gte, lt, lte.',
)


class Arguments(BaseModel):
    """Arguments of a tool. Unknown ones are rejected, so that a typo is not ignored."""

    model_config = ConfigDict(extra="forbid")


# ---- arguments -----------------------------------------------------------------------------------------------------


class Recall(Arguments):
    query: str = Field(min_length=1, max_length=10_000, description="The search query, in plain words.")
    conversation: Existing | None = Field(
        None, description="Search only this conversation (id or key). Default: all that the caller may read."
    )
    limit: int = Field(8, ge=1, le=50, description="The maximum number of pieces; the best come first.")
    token_budget: Budget = 2_000
    since: Moment | None = Field(None, description="Only what was said at this time or later (ISO 8601).")
    until: Moment | None = Field(None, description="Only what was said before this time (ISO 8601).")
    where: dict[str, Any] | None = Filter


class Remember(Arguments):
    text: str = Field(min_length=1, max_length=100_000, description="One statement that can be understood by itself.")
    conversation: ExistingOrNew = Field(
        "memory", description="Where to store it (id or key); an unknown key creates a conversation."
    )
    note: NoteList | None = Field(
        None, description="Also note it in this list of the conversation's working memory, which every context shows."
    )


class Notes(Arguments):
    command: Literal["view", "create", "str_replace", "insert", "rename"] = Field(
        description="view a file or list a folder; create a file; str_replace a text that occurs once; insert a text "
        "after a line; rename a file or folder."
    )
    path: str = Field(max_length=512, description="A path under /memories, such as /memories/project.md.")
    text: str = Field("", max_length=1_000_000, description="For create, insert and str_replace: the new text.")
    old_text: str = Field("", max_length=1_000_000, description="For str_replace: the text to replace.")
    line: int = Field(0, ge=0, description="For insert: the line to insert after; 0 is the beginning.")
    new_path: str = Field("", max_length=512, description="Of rename.")
    project: Name | None = Field(
        None, description="The project whose notes are meant; default: the caller's own notes."
    )


class DeleteNotes(Arguments):
    path: str = Field(max_length=512, description="A file or folder under /memories.")
    project: Name | None = Field(
        None, description="The project whose notes are meant; default: the caller's own notes."
    )


class NotesResult(BaseModel):
    command: str
    path: str
    text: str


class AboutPerson(Arguments):
    person: Name | None = Field(None, description="The name of the user; default: the caller.")
    query: str | None = Field(None, max_length=10_000, description="A question, in plain words.")
    limit: int = Field(8, ge=1, le=50, description="The maximum number of items for the question.")
    token_budget: Budget = 1_000


class SearchConversations(Arguments):
    query: str = Field(min_length=1, max_length=1_000, description="Words. The last one may be a prefix.")
    limit: int = Field(10, ge=1, le=50, description="The maximum number of conversations.")
    token_budget: Budget = 2_000
    where: dict[str, Any] | None = Filter


class Append(Arguments):
    conversation: ExistingOrNew
    role: Literal["user", "assistant", "system"] = Field(
        description="The role of the speaker. system is rejected unless the operator allows it."
    )
    text: str = Field(max_length=5_000_000, description="The text of the turn, word for word.")
    actor: Name | None = Field(None, description="The name of the speaker, if not the role.")
    idempotency_key: Name | None = Field(None, description="Repeated calls with the same key store once.")
    metadata: dict[str, Any] | None = Field(None, description="Data of the application, stored with the turn.")


class History(Arguments):
    conversation: Existing
    limit: int = Field(20, ge=1, le=200, description="The maximum number of turns; the latest ones.")
    before: Name | None = Field(
        None, description="Only turns before the turn with this id. An earlier result has it as `older`."
    )
    token_budget: Budget = 4_000
    where: dict[str, Any] | None = Filter


class BuildContext(Arguments):
    conversation: Existing
    token_budget: int | None = Field(
        None, ge=1, le=2_000_000,
        description="The maximum number of tokens of the messages; default: the conversation's own setting, or 4,000.",
    )  # fmt: skip
    query: str | None = Field(
        None, max_length=100_000, description="The query for recall; default: the latest question."
    )
    message: str | None = Field(None, max_length=5_000_000, description="A new message that is not stored yet.")
    question: Name | None = Field(
        None, description="The id of a stored message to answer, instead of the latest one: nothing later is shown."
    )


class OfConversation(Arguments):
    conversation: Existing


class ThroughTurn(OfConversation):
    through: Name | None = Field(None, description="The id of the last turn to include; default: see above.")


class CompactionPolicy(Arguments):
    """When and how to summarise, for one call."""

    trigger_turns: int | None = Field(None, ge=1, le=10_000_000, description="Due with this many turns.")
    trigger_tokens: int | None = Field(None, ge=1, le=10_000_000, description="Due with this many tokens.")
    strategy: Literal["rolling", "hierarchical", "never"] | None = Field(None, description="The kind of summaries.")
    summarizer_model: Name | None = Field(None, description="The model that writes them.")

    @property
    def chosen(self) -> CompactionSettings:
        """The options that were given."""
        return cast(CompactionSettings, self.model_dump(exclude_none=True))


class Compact(OfConversation):
    keep_tokens: int | None = Field(None, ge=0, le=10_000_000, description="Leave this many tokens without a summary.")
    policy: CompactionPolicy | None = Field(
        None, description="When and how to summarise, for this call; default: the conversation's own setting."
    )


class Forget(Arguments):
    conversation: Existing
    turn: Name | None = Field(None, description="The id of the turn to delete.")
    whole_conversation: bool = Field(False, description="Delete the conversation and everything in it.")

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Forget:
        if (self.turn is None) is not self.whole_conversation:
            raise ValueError("pass either turn or whole_conversation")
        return self


# ---- results -------------------------------------------------------------------------------------------------------


class Passage(BaseModel):
    """A passage of a conversation, and its origin."""

    conversation: str
    turn: str | None = Field(description="The id of the turn; null for a fact whose turn was deleted.")
    who: str
    role: str = Field(description="user, assistant, system, tool, or fact.")
    when: datetime
    text: str
    through: Annotated[Literal["mcp"] | None, Field(description="mcp: an assistant wrote it through MCP.")] = None
    shortened: Annotated[bool, Field(description="Whether the text was shortened to fit.")] = False


class Hit(Passage):
    score: float
    relevance: Annotated[
        float, Field(description="From 0 to 1: how likely it is that this is what the question asks about.")
    ] = 0.0


class Recalled(BaseModel):
    pieces: list[Hit]
    tokens: int = Field(description="The tokens of this result; never more than the budget.")
    left_out: int = Field(description="Pieces that were found and did not fit.")
    empty: str | None = Field(None, description="Why nothing was found.")


class Remembered(BaseModel):
    conversation: str
    turn: str
    when: datetime
    noted_in: str | None


class Match(BaseModel):
    conversation: str
    key: str | None
    title: str | None
    who: str | None = Field(description="The speaker; null if the match is in the title.")
    turn: str | None
    when: datetime
    text: str = Field(description="The text around the words.")
    shortened: bool = False


class Matches(BaseModel):
    found: list[Match]
    tokens: int
    left_out: int


class Appended(BaseModel):
    conversation: str
    turn: str
    seq: int
    who: str
    when: datetime


class Turns(BaseModel):
    conversation: str
    key: str | None
    title: str | None
    turns: list[Passage]
    older: str | None = Field(description="Pass it as `before` to read on; null at the start.")
    tokens: int


class Built(BaseModel):
    messages: list[dict[str, Any]]
    tokens: int
    turns: list[str] = Field(description="The ids of the turns included word for word.")
    left_out: int = Field(description="Turns included neither word for word nor in a summary.")


class Span(BaseModel):
    id: str
    level: int
    from_seq: int
    through_seq: int
    turns: int
    text: str
    by: str = Field(description="The author: a model, or the offline summariser.")
    when: datetime

    @classmethod
    def of(cls, one: Summary) -> Span:
        return cls(
            id=one.id, level=one.level, from_seq=one.from_seq, through_seq=one.through_seq, turns=one.turns,
            text=one.text, by=one.model, when=one.created,
        )  # fmt: skip


class Summaries(BaseModel):
    conversation: str
    summaries: list[Span]


class Compacted(BaseModel):
    conversation: str
    summaries: int = Field(description="The number of summaries written.")


class Fact(BaseModel):
    id: str
    subject: str
    predicate: str
    object: str
    turn: str | None
    confidence: float
    since: datetime

    @classmethod
    def of(cls, one: model.Fact) -> Fact:
        return cls(
            id=one.id, subject=one.subject, predicate=one.predicate, object=one.object, turn=one.source_turn,
            confidence=one.confidence, since=one.valid_from,
        )  # fmt: skip


class Facts(BaseModel):
    conversation: str
    facts: list[Fact]


class Forgotten(BaseModel):
    conversation: str
    turn: str | None
    pending: bool = Field(description="Whether some bytes wait until another reader closes the file.")


def passage_of(turn: Turn, text: str) -> Passage:
    return Passage(
        conversation=turn.conversation,
        turn=turn.id,
        who=turn.actor,
        role=turn.role,
        when=turn.created,
        text=text,
        through="mcp" if is_through_mcp(turn.metadata) else None,
    )


def headline(info: ConversationInfo) -> str:
    """Return the title of a conversation, or its key, or its id."""
    return info.title or info.key or info.id


class KnownPerson(BaseModel):
    """The memory of a person, as text."""

    person: str
    profile: str
    found: list[str]
