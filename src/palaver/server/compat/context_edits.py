"""Parses what a request says about the size of its context, in each protocol's own words. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from palaver.core.validation import did_you_mean
from palaver.generation.tool_clearing import Cleared, ToolClearing
from palaver.server.compat.request import (
    ClientMessage,
    CompactionItem,
    ContextEdits,
    invalid,
    require_flag,
    require_list,
    require_name,
    require_object,
    require_text,
)

FIELD = "context_management"
COMPACT, CLEAR_TOOLS, CLEAR_THINKING = "compact_20260112", "clear_tool_uses_20250919", "clear_thinking_20251015"
EDITS = (CLEAR_TOOLS, CLEAR_THINKING, COMPACT)
# Which options each edit has.
OPTIONS: Mapping[str, tuple[str, ...]] = {
    COMPACT: ("trigger", "pause_after_compaction", "instructions"),
    CLEAR_TOOLS: ("trigger", "keep", "clear_at_least", "exclude_tools", "clear_tool_inputs"),
    CLEAR_THINKING: ("keep",),
}
LEAST_THRESHOLD = 1_000  # tokens; a smaller context has no room for a summary and a question
COMPACT_AT = 150_000  # Anthropic's default
CLEAR_AT = 100_000  # the same
KEPT_TOOL_USES, KEPT_THINKING_TURNS = 3, 1  # the same
COMPACTION = "compaction"


# ---- Responses


def parse_management(given: object) -> ContextEdits:
    """Parse `context_management` of Responses: a list with one entry, of the type compaction."""
    entries = require_list(FIELD, given or [], 10)
    edits = ContextEdits()
    for one in entries:
        if one.get("type") != COMPACTION:
            raise invalid(f"{FIELD}.type", f"must be {COMPACTION}: {str(one.get('type'))[:100]!r} is not known")
        _check_options(FIELD, one, ("compact_threshold",))
        threshold = one.get("compact_threshold")
        given_at = COMPACT_AT if threshold is None else _count(f"{FIELD}.compact_threshold", threshold, LEAST_THRESHOLD)
        edits = replace(edits, compact_at=given_at)
    return edits


def split_items(entries: object, field: str = "input") -> tuple[list[Mapping[str, object]], CompactionItem | None]:
    """Return the items after the last compaction, and that compaction. It stands for everything before it."""
    items = require_list(field, entries)
    places = [n for n, item in enumerate(items) if item.get("type") == COMPACTION]
    if not places:
        return items, None
    name = f"{field}.encrypted_content"
    item = CompactionItem(reference=require_name(name, items[places[-1]].get("encrypted_content")))
    return items[places[-1] + 1 :], item


# ---- Messages


def parse_edits(body: Mapping[str, object], said: Sequence[ClientMessage], count: Callable[[str], int]) -> ContextEdits:
    """Parse `context_management.edits` and `compaction` of Messages, without those that change `said` itself."""
    if body.get(COMPACTION) is not None:
        return _parse_compaction_request(body)
    given = require_object(FIELD, body.get(FIELD))
    _check_options(FIELD, given, ("edits",), has_type=False)
    edits = ContextEdits(is_reported=body.get(FIELD) is not None)
    for one in require_list(f"{FIELD}.edits", given.get("edits") or [], 10):
        kind = one.get("type")
        if kind not in EDITS:
            hint = did_you_mean(str(kind), EDITS)
            raise invalid(
                f"{FIELD}.edits.type", f"{str(kind)[:100]!r} is unknown{hint}; the options are {', '.join(EDITS)}"
            )
        name = f"{FIELD}.edits.{kind}"
        _check_options(name, one, OPTIONS[str(kind)])
        if kind == COMPACT:
            at = _parse_trigger(name, one.get("trigger"), COMPACT_AT)[0]
            pause = require_flag(f"{name}.pause_after_compaction", one.get("pause_after_compaction"))
            edits = replace(edits, compact_at=at, pause=pause)
        elif kind == CLEAR_TOOLS:
            edits = replace(edits, clear_tools=_parse_tool_clearing(name, one))
        else:
            edits = replace(edits, applied=_report_thinking(said, _thinking_kept(name, one.get("keep")), count))
    return edits


def ignored_options(body: Mapping[str, object]) -> dict[str, object]:
    """Return options that have no effect: summaries are written by Palaver's own summarizer."""
    given = body.get(FIELD)
    edits = given.get("edits") if isinstance(given, Mapping) else None
    entries = [one for one in edits if isinstance(one, Mapping)] if isinstance(edits, list) else []
    found = {f"{FIELD}.edits.instructions": one["instructions"] for one in entries if one.get("instructions")}
    asked = body.get(COMPACTION)
    if isinstance(asked, Mapping) and asked.get("instructions"):
        found[f"{COMPACTION}.instructions"] = asked["instructions"]
    return found


def _parse_compaction_request(body: Mapping[str, object]) -> ContextEdits:
    """Parse the field `compaction`: compact now, and return the summary alone."""
    if body.get(FIELD) is not None:
        raise invalid(COMPACTION, f"cannot be combined with {FIELD}")
    given = require_object(COMPACTION, body[COMPACTION])
    if given.get("type") != "summarize":
        raise invalid(f"{COMPACTION}.type", "must be summarize")
    _check_options(COMPACTION, given, ("instructions",))
    return ContextEdits(compact_at=0, pause=True)


def _parse_tool_clearing(name: str, one: Mapping[str, object]) -> ToolClearing:
    tokens, uses = _parse_trigger(name, one.get("trigger"), CLEAR_AT, "tool_uses")
    return ToolClearing(
        tokens=tokens,
        uses=uses,
        keep=_parse_amount(f"{name}.keep", one.get("keep"), "tool_uses", KEPT_TOOL_USES),
        at_least=_parse_amount(f"{name}.clear_at_least", one.get("clear_at_least"), "input_tokens", 0),
        exclude=frozenset(_names(f"{name}.exclude_tools", one.get("exclude_tools"))),
        inputs=_parse_inputs(f"{name}.clear_tool_inputs", one.get("clear_tool_inputs")),
    )


def _parse_inputs(name: str, given: object) -> bool | frozenset[str]:
    if given is None or isinstance(given, bool):
        return bool(given)
    return frozenset(_names(name, given))


def _names(name: str, given: object) -> list[str]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise invalid(name, "must be a list of names of tools")
    return [require_text(name, one) for one in given]


def _parse_trigger(name: str, given: object, usual: int, other: str | None = None) -> tuple[int | None, int | None]:
    """Return the tokens and the uses from which an edit is made; one of them is None."""
    if given is None:
        return usual, None
    trigger = require_object(f"{name}.trigger", given)
    kinds = ("input_tokens", other) if other else ("input_tokens",)
    if trigger.get("type") not in kinds:
        raise invalid(f"{name}.trigger.type", f"must be {' or '.join(kinds)}")
    if trigger["type"] == "input_tokens":
        return _count(f"{name}.trigger.value", trigger.get("value"), LEAST_THRESHOLD), None
    return None, _count(f"{name}.trigger.value", trigger.get("value"), 1)


def _parse_amount(name: str, given: object, kind: str, usual: int) -> int:
    if given is None:
        return usual
    amount = require_object(name, given)
    if amount.get("type") != kind:
        raise invalid(f"{name}.type", f"must be {kind}")
    return _count(f"{name}.value", amount.get("value"), 0)


def _thinking_kept(name: str, given: object) -> int | None:
    """Return of how many answers the reasoning is kept; None: of all."""
    if given == "all" or (isinstance(given, Mapping) and given.get("type") == "all"):
        return None
    return _parse_amount(f"{name}.keep", given, "thinking_turns", KEPT_THINKING_TURNS)


def _check_options(name: str, given: Mapping[str, object], known: Sequence[str], *, has_type: bool = True) -> None:
    """Reject options that would otherwise be ignored silently."""
    for option in given:
        if option not in known and not (has_type and option == "type"):
            raise invalid(
                f"{name}.{option}", f"is unknown{did_you_mean(option, known)}; the options are {', '.join(known)}"
            )


def _count(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**53:
        raise invalid(name, f"must be a whole number, {least:,} or more")
    return value


# ---- reasoning


def clear_thinking(body: Mapping[str, object], said: Sequence[ClientMessage]) -> tuple[ClientMessage, ...]:
    """Remove the reasoning of older answers, if the request has that edit."""
    edits = require_object(FIELD, body.get(FIELD)).get("edits")
    wanted = [one for one in edits if one.get("type") == CLEAR_THINKING] if isinstance(edits, list) else []
    if not wanted:
        return tuple(said)
    old = _old_thinking(said, _thinking_kept(f"{FIELD}.edits.{CLEAR_THINKING}", wanted[-1].get("keep")))
    return tuple(replace(one, reasoning=()) if n in old else one for n, one in enumerate(said))


def _old_thinking(said: Sequence[ClientMessage], keep: int | None) -> list[int]:
    """Return the places of messages whose reasoning is removed."""
    places = [n for n, one in enumerate(said) if one.reasoning]
    return [] if keep is None else places[: max(0, len(places) - keep)]


def _report_thinking(
    said: Sequence[ClientMessage], keep: int | None, count: Callable[[str], int]
) -> tuple[Mapping[str, object], ...]:
    old = _old_thinking(said, keep)
    if not old:
        return ()
    texts = [str(block.get("thinking") or block.get("data") or "") for n in old for block in said[n].reasoning]
    saved = sum(count(text) for text in texts)
    return ({"type": CLEAR_THINKING, "cleared_thinking_turns": len(old), "cleared_input_tokens": saved},)


def report_cleared(cleared: Cleared) -> list[dict[str, object]]:
    """Report the tool results that were cleared, as an applied edit."""
    if not cleared.uses:
        return []
    return [{"type": CLEAR_TOOLS, "cleared_tool_uses": cleared.uses, "cleared_input_tokens": cleared.tokens}]
