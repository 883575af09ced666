"""`palaver settings`: show and change the settings of a conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, cast

import typer

from palaver.cli.app import Call, Name, command
from palaver.cli.database import existing, find
from palaver.cli.output import emit, say
from palaver.memory.settings import ConversationSettings

PANEL = "Write"
NOTHING = "No settings are stored: the defaults apply."


@command("settings", PANEL)
async def settings(
    call: Call,
    conversation: Name,
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=VALUE]…", help="Settings to change. NAME= without a value removes one.", show_default=False
        ),
    ] = None,
) -> None:
    """Show or change the settings of a conversation: summaries, retention, redaction, facts and context.

    Write a nested setting with a dot: context.policy, compaction.trigger_turns.

    Examples:

      palaver settings support/42
      palaver settings support/42 context.policy=recent-chars context.char_budget=20000
      palaver settings support/42 context.policy= redact=true
    """
    async with existing(call) as store:
        talk = await find(store, conversation)
        info = talk.info
        if changes:
            wanted = cast(ConversationSettings, _change(info.settings, changes))
            info = await talk.update(expected_updated=info.updated, settings=wanted)
    if call.as_json:
        emit(dict(info.settings))
        return
    for name, value in _flat(info.settings):
        say(f"{name} = {value if isinstance(value, str) else json.dumps(value)}")
    if not info.settings:
        say(NOTHING)


def _change(stored: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """Return the settings with the changes in them."""
    made = json.loads(json.dumps(dict(stored)))
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{change!r} is not NAME=VALUE", param_hint="NAME=VALUE")
        *above, last = name.split(".")
        place = made
        for part in above:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise typer.BadParameter(f"{part} has no settings of its own", param_hint=name)
        place.pop(last, None)
        if text:
            place[last] = _value(text)
    return {name: value for name, value in made.items() if value != {}}


def _value(text: str) -> Any:
    """Return a number, true, false or an object as JSON has them, and everything else as text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _flat(settings: Mapping[str, Any]) -> list[tuple[str, object]]:
    """Return every value with its dotted name."""
    found: list[tuple[str, object]] = []
    for name, value in settings.items():
        inner = _flat(value) if isinstance(value, Mapping) else []
        found += [(f"{name}.{below}", one) for below, one in inner] or [(name, value)]
    return found
