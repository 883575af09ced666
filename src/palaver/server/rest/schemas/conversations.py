"""Bodies of conversations."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from palaver import model
from palaver.core.validation import MAX_PARTICIPANTS, MAX_TITLE, MAX_TTL
from palaver.server.rest.schemas.base import EmptyBody, Json, Name, RequestBody, ResponseBody, examples, mirrors

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
    "summarized_through": 0,
    "next_seq": 2,
    "last_event": 3,
    "ttl": None,
    "expires_at": None,
    "created": "2026-11-15T09:30:00Z",
    "updated": "2026-11-15T09:31:07Z",
}


@mirrors(model.ConversationInfo)
class Conversation(ResponseBody):
    model_config = examples(CONVERSATION)
    owner: str = Field(description="Empty if the application itself is the owner.")
    key: str | None = Field(description="The application's own name for the conversation.")
    summarized_through: int = Field(description="Summaries cover the turns at positions below this; 0: none yet.")
    next_seq: int = Field(description="The value of `expected_seq` for the next append.")
    last_event: int = Field(description="Subscribe to live events with `?after=` this number to miss nothing.")


class ConversationFields(RequestBody):
    title: Annotated[str, Field(min_length=1, max_length=MAX_TITLE)] | None = Field(
        None, description="At most 1,000 bytes."
    )
    workspace: Name | None = Field(
        None,
        description="Workspace of the conversation. Callers with the visibility `workspace` see its conversations.",
    )
    agent: Name | None = Field(None, description="Name of the agent that answers in this conversation by default.")
    model: Name | None = Field(None, description="Default model of answers in this conversation.")
    participants: Annotated[list[Name], Field(max_length=MAX_PARTICIPANTS)] | None = Field(
        None, description="Users who can see the conversation, besides its owner. At most 1,000."
    )
    metadata: Json | None = Field(None, description="Metadata of the application: an object of at most 64 KB.")
    settings: Json | None = Field(
        None, description="Settings such as `compaction`, `retention` and `context`: see the reference of settings."
    )
    ttl: Annotated[float, Field(gt=0, le=MAX_TTL)] | None = Field(
        None, description="Seconds after the last change until the conversation expires."
    )


class NewConversation(ConversationFields):
    model_config = ConfigDict(**examples({"key": "support/42", "title": "Peanuts"}, {}), extra="forbid")
    key: Name | None = Field(
        None, description="Your own name for the conversation. If the key exists, its conversation is returned."
    )
    owner: Name | None = Field(
        None, description="Owner of the conversation. Default: the caller. Another owner needs the right `admin`."
    )


class ChangedConversation(ConversationFields):
    model_config = ConfigDict(**examples({"title": "Food I can eat"}), extra="forbid")


class DateGroup(ResponseBody):
    name: str
    conversations: list[str] = Field(description="Ids, in the order of `items`.")


class ConversationPage(ResponseBody):
    items: list[Conversation]
    groups: list[DateGroup] | None = Field(None, description="Present with `group=date`.")
    cursor: str | None
    next: str | None = Field(description="The path of the next page; also in the Link header.")
    empty: EmptyBody | None = Field(None, description="Why there are no items; null if there are some.")
