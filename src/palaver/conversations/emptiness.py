"""Finds out why a result is empty, logs the reason, and counts it. Reasons contain counts, never content."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

from palaver.memory.compaction import Compaction
from palaver.memory.settings import kind_of
from palaver.model import ConversationInfo, Empty, Results, Scope
from palaver.ports.engine import ConversationStore
from palaver.ports.queries import Listing
from palaver.telemetry import Meter

log = logging.getLogger("palaver.recall")

T = TypeVar("T")


NO_TURNS = Empty("nothing stored", "this conversation has no turns")
NOT_FOR_STATE = Empty("switched off", "conversations of the kind state have no memory")


def why_no_summaries(info: ConversationInfo) -> Empty:
    """Return why a conversation has no summary."""
    if kind_of(info.settings) == "state":
        return NOT_FOR_STATE
    if not info.turn_count:
        return NO_TURNS
    rules = Compaction.of(info.settings)
    if rules.strategy == "never":
        return Empty("switched off", "compaction has the strategy 'never' in this conversation")
    due = f"after {rules.trigger_turns:,} turns or {rules.trigger_tokens:,} tokens"
    return Empty("not ready", f"{info.turn_count:,} turns; summaries are written {due}, or by summarize()")


def why_no_facts(info: ConversationInfo, through: int) -> Empty:
    """Return why a conversation has no facts. `through` is the position of the last turn that was read for notes."""
    if kind_of(info.settings) == "state":
        return NOT_FOR_STATE
    if not info.turn_count:
        return NO_TURNS
    if not info.settings.get("facts"):
        return Empty("switched off", "facts are not extracted here: settings={'facts': True}, or extract_facts()")
    if through < 0:
        return Empty("not ready", "facts are extracted when turns are summarised, or by extract_facts()")
    return Empty("nothing relevant", f"{through + 1:,} turns were read, and none states a fact for the extractor")


def why_no_notes(info: ConversationInfo, through: int) -> Empty:
    """Return why a conversation has no notes. `through` is the position of the last turn that was read for notes."""
    if kind_of(info.settings) == "state":
        return NOT_FOR_STATE
    if not info.turn_count:
        return NO_TURNS
    if through < 0:
        return Empty("not ready", "notes are taken when turns are summarised; remember() adds one at once")
    return Empty("nothing relevant", f"{through + 1:,} turns were read, and none contains anything to note")


def why_no_files(before: str | None, *, has_place: bool) -> Empty:
    """Return why no file is listed; `before` is the one at which the list begins."""
    if not has_place:
        return Empty("switched off", "no location for files is set: files= or PALAVER_FILES")
    if before is None:
        return Empty("nothing stored", "this conversation has no files")
    return Empty("nothing stored", "there are no older files in this conversation")


@dataclass(frozen=True, slots=True)
class EmptyResults:
    """Logs and counts empty results, and looks for something that was not searched."""

    engine: ConversationStore
    meter: Meter

    def report(self, what: str, items: Iterable[T], empty: Empty | None) -> Results[T]:
        """Return the items as results. If there are none, log and count the reason."""
        found = Results.of(items, empty)
        if found.empty is not None:
            self.note(what, found.empty)
        return found

    def note(self, what: str, empty: Empty) -> None:
        # A context without recalled turns is usual in a short conversation, and so is one without files, which every
        # answer looks for; an index that is not ready never is.
        is_usual = what in ("context", "files") and empty.reason != "not ready"
        level = logging.DEBUG if is_usual else logging.INFO
        log.log(level, "%s is empty: %s (%s)", what, empty.reason, empty.detail)
        self.meter.empty(what, empty.reason)

    async def in_conversation(self, scope: Scope, info: ConversationInfo, otherwise: Empty) -> Empty:
        """Return why nothing was found in one conversation; `otherwise` if it has turns that were searched."""
        if kind_of(info.settings) == "state":
            return Empty("switched off", "conversations of the kind state are not searched")
        if otherwise.reason != "nothing stored":
            return otherwise
        others = await self.engine.conversations(scope, Listing(limit=2, owner=info.owner))
        if any(one.id != info.id and one.turn_count for one in others):
            detail = "this conversation has no turns; others of its owner were not searched (scope='owner' does)"
            return Empty("other scope", detail)
        return otherwise

    async def in_scope(self, scope: Scope, *, filtered: bool, searched: bool = False) -> Empty:
        """Return why no conversation was found."""
        seen = await self.engine.conversations(scope, Listing(limit=1))
        if not seen:
            return Empty("nothing stored", "this caller can see no conversation")
        if searched:
            return Empty("nothing relevant", "no title and no turn that this caller can see contains these words")
        if filtered:
            return Empty("other scope", "there are conversations, but none matches these filters")
        return Empty("nothing stored", "there are no more conversations")
