"""Options of commands that filter turns or conversations."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import typer

OPERATORS = {"=": "eq", ">=": "gte", "<=": "lte", ">": "gt", "<": "lt"}
_CONDITION = re.compile(r"^(?P<key>[^=<>]+?)\s*(?P<operator>>=|<=|=|>|<)\s*(?P<value>.*)$", re.DOTALL)

Conditions = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="KEY=VALUE",
        help="Filter by metadata: topic=billing, priority>=3, or tag=a,b for any of several values. May be repeated; "
        "all filters must match.",
    ),
]
Actors = Annotated[
    list[str] | None, typer.Option("--actor", metavar="NAME", help="Only turns of this actor. May be repeated.")
]
Roles = Annotated[
    list[str] | None, typer.Option("--role", metavar="ROLE", help="Only turns with this role. May be repeated.")
]
Since = Annotated[str | None, typer.Option("--since", metavar="TIME", help="Only from this time on (ISO 8601).")]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only before this time (ISO 8601).")]


def build_where(
    conditions: list[str] | None,
    actors: list[str] | None = None,
    roles: list[str] | None = None,
    since: str | None = None,
    until: str | None = None,
) -> Any:
    """Return the filter that the options describe; None if there are none."""
    metadata: dict[str, dict[str, Any]] = {}
    for text in conditions or ():
        key, operator, value = _read_condition(text)
        if operator in metadata.setdefault(key, {}):
            raise typer.BadParameter(f"{key} has two conditions of the same kind", param_hint="--where")
        metadata[key][operator] = value
    given = {"metadata": metadata, "actor": actors, "role": roles, "since": since, "until": until}
    return {name: value for name, value in given.items() if value} or None


def _read_condition(text: str) -> tuple[str, str, Any]:
    match = _CONDITION.match(text)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE, KEY>=VALUE or KEY<=VALUE", param_hint="--where")
    operator, value = OPERATORS[match["operator"]], match["value"]
    if operator == "eq" and "," in value:
        return match["key"], "in", [_read_value(one.strip()) for one in value.split(",")]
    return match["key"], operator, _read_value(value)


def _read_value(text: str) -> Any:
    """Read a number, true or false; everything else is text. Quotes make text of a number: '"42"'."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str | int | float) else text
