"""Units of turns that must not or cannot be sent to a model."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.context.explain import Omission
from palaver.context.options import Options
from palaver.context.pack.ledger import unit_omission
from palaver.context.tool_rounds import Unit


def split_usable(options: Options, found: Sequence[Unit]) -> tuple[list[Unit], list[Omission]]:
    """Return the units that may be sent, and an omission with its reason for each of the others."""
    usable: list[Unit] = []
    unusable: list[Omission] = []
    for unit in found:
        reason = _reason_against(options, unit)
        if reason is None:
            usable.append(unit)
        else:
            unusable.append(unit_omission(reason, unit))
    return usable, unusable


def _reason_against(options: Options, unit: Unit) -> str | None:
    if not unit.whole:
        return "a tool call without its result, or a result without its call"
    wanted = options.filter_participants
    if wanted is not None and unit.first.actor not in wanted:
        return "said by a participant who was filtered out"
    if options.viewer is not None and unit.is_tool_round and unit.first.actor != options.viewer:
        return "another agent's tool round"
    return None
