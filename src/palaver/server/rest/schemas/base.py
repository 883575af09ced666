"""Base classes and common types of request and response bodies."""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict

from palaver.core.validation import MAX_NAME, day_in_utc
from palaver.model import EmptyReason

Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Json = dict[str, Any]
Content = str | list[Json | str]
Role = Literal["user", "assistant", "system", "tool"]
BIG = 2**53 - 1  # the largest integer that JavaScript represents exactly


def _refuse_text(value: object) -> object:
    """Refuse "5" and true for a number, which pydantic would convert. A float without a fraction is an integer."""
    if isinstance(value, str | bool):
        raise ValueError("must be a number")
    return value


NUMBER = BeforeValidator(_refuse_text)  # after the bounds, or the document would not have them
Count = Annotated[int, Field(ge=0, le=BIG), NUMBER]
Positive = Annotated[int, Field(ge=1, le=BIG), NUMBER]
Flag = Annotated[bool, Strict()]


def _read_moment(value: object) -> object:
    """Read a date alone as the library does, and refuse seconds since 1970, which pydantic would take for a time."""
    if isinstance(value, int | float) or (isinstance(value, str) and re.fullmatch(r"\s*[-+]?[\d.]+\s*", value)):
        raise ValueError("must be a time such as 2026-11-15T09:30:00Z")
    return day_in_utc(value)


Moment = Annotated[datetime, BeforeValidator(_read_moment)]


Where = Annotated[
    Json,
    Field(
        max_length=10,
        json_schema_extra={"examples": [{"metadata": {"topic": "billing", "priority": {"gte": 3}}, "role": "user"}]},
    ),
]
WhereText = Annotated[
    str | None,
    Query(
        max_length=4_000,  # percent-encoded, it must fit into the first line of a request
        description='A filter as JSON, such as `{"metadata": {"topic": "billing", "priority": {"gte": 3}}, "role": '
        '"user"}`. Its fields are `metadata`, `actor`, `role`, `since` and `until`. A metadata condition is a value, '
        '`{"in": […]}`, or a range with `gt`, `gte`, `lt` and `lte`.',
    ),
]


class RequestBody(BaseModel):
    """A body that a client sends. An unknown field is rejected by name, so that a typo is not ignored."""

    model_config = ConfigDict(extra="forbid")


class ResponseBody(BaseModel):
    """A body that the server sends. Clients must accept new fields."""


class EmptyBody(ResponseBody):
    """Why a result is empty. `detail` is a sentence for people, without content."""

    reason: EmptyReason
    detail: str


def examples(*values: Json) -> ConfigDict:
    """Configure a body with examples for the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": list(values)})


# ---- bodies with the fields of a value of the library --------------------------------------------------------------

B = TypeVar("B", bound=ResponseBody)
_bodies: dict[object, type[ResponseBody]] = {}


def mirrors(source: type, *, omit: tuple[str, ...] = ()) -> Callable[[type[B]], type[B]]:
    """Give a response body the fields of `source`, so that a new field of the model is described without a second list.

    The fields keep the order of `source`; one that the body declares itself keeps its own type and description.
    """

    def build(body: type[B]) -> type[B]:
        declared: dict[str, tuple[Any, Any]] = {
            name: (field.annotation, field) for name, field in body.model_fields.items()
        }
        hints = {name: hint for name, hint in get_type_hints(source).items() if name not in omit}
        fields = {name: declared.pop(name, (_json_type(hint), ...)) for name, hint in hints.items()}
        fields |= declared
        namespace = {
            "__module__": body.__module__,
            "__qualname__": body.__qualname__,
            "__doc__": body.__doc__,
            "__annotations__": {name: annotation for name, (annotation, _) in fields.items()},
            "model_config": body.model_config,
            **{name: field for name, (_, field) in fields.items()},
        }
        made = types.new_class(body.__name__, (ResponseBody,), exec_body=lambda empty: empty.update(namespace))
        _bodies[source] = made
        return cast(type[B], made)

    return build


def _json_type(hint: Any) -> Any:
    """Return the type of a field as JSON has it: objects for mappings, lists for tuples, bodies for values."""
    if hint in _bodies:
        return _bodies[hint]
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Mapping:
        return Json
    if origin is tuple:
        return list[_json_type(arguments[0])]  # type: ignore[misc]
    if origin in (Union, types.UnionType):
        return Union[tuple(_json_type(one) for one in arguments)]  # noqa: UP007
    return hint
