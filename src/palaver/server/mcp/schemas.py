"""What tools take and answer. The descriptions are read by models."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from palaver import model
from palaver.model import MEMORY_LISTS, ConversationInfo, Summary, Turn

LEAST_BUDGET = 100  # tokens: an answer that found nothing fits
MOST_BUDGET = 100_000

Name = Annotated[str, Field(min_length=1, max_length=512)]
Budget = Annotated[int, Field(ge=LEAST_BUDGET, le=MOST_BUDGET, description="The answer has at most so many tokens.")]
Existing = Annotated[Name, Field(description="The conversation: its id, or the name (key) that it was given.")]
ExistingOrNew = Annotated[
    Name, Field(description="The conversation: its id, or a name of your own (key). A name that is new begins one.")
]
# Standing instructions are not among them: they come from what people say themselves, never from a tool.
NoteList = Literal[
    "goals", "requirements", "constraints", "decisions", "assumptions", "open_questions", "glossary", "stakeholders"
]
assert set(NoteList.__args__) == set(MEMORY_LISTS) - {"instructions"}  # type: ignore[attr-defined]


class Arguments(BaseModel):
    """Arguments. One that is not known is refused: a misspelt one would be passed over in silence."""

    model_config = ConfigDict(extra="forbid")


# ---- what tools take -----------------------------------------------------------------------------------------------


class Recall(Arguments):
    query: str = Field(min_length=1, max_length=10_000, description="What to look for, in plain words.")
    conversation: Existing | None = Field(
        None, description="Only in this conversation (id or key). Without it: everywhere that the caller may look."
    )
    limit: int = Field(8, ge=1, le=50, description="How many pieces at most; the best come first.")
    token_budget: Budget = 2_000
    since: datetime | None = Field(None, description="Only what was said at this time or later (ISO 8601).")
    until: datetime | None = Field(None, description="Only what was said before this time (ISO 8601).")


class Remember(Arguments):
    text: str = Field(
        min_length=1, max_length=100_000, description="What to keep: one statement that stands by itself."
    )
    conversation: ExistingOrNew = Field("memory", description="Where to keep it (id or key); a new key begins one.")
    note: NoteList | None = Field(
        None, description="Also note it in this list of the conversation's working memory, which every context shows."
    )


class SearchConversations(Arguments):
    query: str = Field(min_length=1, max_length=1_000, description="Words. The last may be the beginning of one.")
    limit: int = Field(10, ge=1, le=50, description="How many conversations at most.")
    token_budget: Budget = 2_000


class Append(Arguments):
    conversation: ExistingOrNew
    role: Literal["user", "assistant", "system"] = Field(
        description="Who speaks. system is refused unless the operator allows it."
    )
    text: str = Field(max_length=5_000_000, description="What was said, word for word.")
    actor: Name | None = Field(None, description="The speaker's name, where the role does not say it.")
    idempotency_key: Name | None = Field(None, description="The same key stores once, however often it is sent.")
    metadata: dict[str, Any] | None = Field(None, description="Anything the application wants to keep with it.")


class History(Arguments):
    conversation: Existing
    limit: int = Field(20, ge=1, le=200, description="How many turns at most; the latest ones.")
    before: Name | None = Field(None, description="Only turns before the one with this id: `older` of a last answer.")
    token_budget: Budget = 4_000


class BuildContext(Arguments):
    conversation: Existing
    token_budget: int = Field(4_000, ge=1, le=2_000_000, description="The messages have at most so many tokens.")
    query: str | None = Field(None, max_length=100_000, description="What to recall for; else the latest question.")
    message: str | None = Field(None, max_length=5_000_000, description="A new message that is not stored yet.")


class OfConversation(Arguments):
    conversation: Existing


class Compact(OfConversation):
    keep_tokens: int | None = Field(None, ge=0, le=10_000_000, description="Leave so many tokens unsummarised.")


class Forget(Arguments):
    conversation: Existing
    turn: Name | None = Field(None, description="The id of the turn to delete.")
    whole_conversation: bool = Field(False, description="Delete the conversation and everything in it.")

    @model_validator(mode="after")
    def _check_exactly_one(self) -> Forget:
        if (self.turn is None) is not self.whole_conversation:
            raise ValueError("name a turn, or say whole_conversation: one of them")
        return self


# ---- what tools answer ---------------------------------------------------------------------------------------------


class Passage(BaseModel):
    """A piece of a conversation, and where it comes from."""

    conversation: str
    turn: str | None = Field(description="The turn's id; none for a fact whose turn is gone.")
    who: str
    role: str = Field(description="user, assistant, system or tool; fact for what was concluded from a turn.")
    when: datetime
    text: str
    shortened: Annotated[bool, Field(description="Whether something of the text was left out, to fit.")] = False


class Hit(Passage):
    score: float


class Recalled(BaseModel):
    pieces: list[Hit]
    tokens: int = Field(description="What this answer counts; never more than was asked for.")
    left_out: int = Field(description="Pieces that were found and had no room.")


class Remembered(BaseModel):
    conversation: str
    turn: str
    when: datetime
    noted_in: str | None


class Match(BaseModel):
    conversation: str
    key: str | None
    title: str | None
    who: str | None = Field(description="Who said what was found; none when it is in the title.")
    turn: str | None
    when: datetime
    text: str = Field(description="What was said around the words.")
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
    older: str | None = Field(description="Give it as `before` to read on; none at the beginning.")
    tokens: int


class Built(BaseModel):
    messages: list[dict[str, Any]]
    tokens: int
    turns: list[str] = Field(description="The ids of the turns that are in it word for word.")
    left_out: int = Field(description="Turns that are in it neither word for word nor in a summary.")


class Span(BaseModel):
    id: str
    level: int
    from_seq: int
    through_seq: int
    turns: int
    text: str
    by: str = Field(description="Who wrote it: a model, or the offline summariser.")
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
    summaries: int = Field(description="How many were written.")


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
    pending: bool = Field(description="Whether last bytes still wait for another reader of the file to let go.")


def passage_of(turn: Turn, text: str) -> Passage:
    return Passage(
        conversation=turn.conversation, turn=turn.id, who=turn.actor, role=turn.role, when=turn.created, text=text
    )


def headline(info: ConversationInfo) -> str:
    """How a conversation is called."""
    return info.title or info.key or info.id
