"""Bodies of the memory of a person."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from palaver import model
from palaver.memory.subjects import MAX_TEXT
from palaver.server.rest.schemas.base import NUMBER, Flag, Moment, Name, RequestBody, ResponseBody, examples, mirrors


@mirrors(model.ItemSource)
class ItemSource(ResponseBody):
    """A turn that says it, and the title of its conversation, if the caller may see that."""


@mirrors(model.MemoryItem)
class PersonItem(ResponseBody):
    """A remembered item: when it was true, when it was part of the memory, and where it was said."""

    text: str = Field(description="The item as one sentence.")


class PersonItems(ResponseBody):
    items: list[PersonItem]


class Person(ResponseBody):
    id: str
    profile: str = Field(description="Wishes, facts, preferences and open goals as a short text.")
    tokens: int
    approved: int = Field(description="Number of approved items that have not ended.")
    proposed: int = Field(description="Number of items that wait for approval.")


class NewItem(RequestBody):
    model_config = ConfigDict(**examples({"text": "I live in Rome"}), extra="forbid")
    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)] = Field(description="The text to remember.")
    kind: Name = Field(
        "fact", description="`fact`, `preference`, `instruction`, `goal`, or a field of the application."
    )
    predicate: str = Field(
        "", max_length=300, description="Predicate of a fact, such as `lives in`. `text` is then its object."
    )
    about: Name | None = Field(None, description="The subject of the fact, if it is not the person.")
    valid_from: Moment | None = Field(None, description="Time from which it holds.")
    valid_to: Moment | None = Field(None, description="Time at which it ceases to hold.")


class CorrectedItem(RequestBody):
    model_config = ConfigDict(**examples({"text": "Rome"}), extra="forbid")
    text: Annotated[str, Field(min_length=1, max_length=MAX_TEXT)] = Field(description="The corrected text.")
    valid_from: Moment | None = Field(None, description="Time from which it holds.")
    valid_to: Moment | None = Field(None, description="Time at which it ceases to hold.")


class PersonQuery(RequestBody):
    model_config = ConfigDict(**examples({"query": "what can't I eat?", "k": 5}), extra="forbid")
    query: Annotated[str, Field(max_length=100_000)] = Field(description="The question.")
    k: Annotated[int, Field(ge=0, le=1_000), NUMBER] = Field(10, description="Maximum number of hits.")


class PersonExport(ResponseBody):
    kind: str
    id: str
    items: list[PersonItem]


class Learning(ResponseBody):
    conversations: int = Field(description="Number of conversations that are read again.")


class ConsentGiven(RequestBody):
    agreed: Flag = Field(description="Whether the person agrees.")
