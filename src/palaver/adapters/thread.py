"""Reading and writing a whole thread, for frameworks that expect the log and not a window of it."""

from __future__ import annotations

from collections.abc import Sequence

from palaver import Conversation, RecallHit, Turn, TurnInput

PAGE = 500
MAX_BATCH = 1_000  # turns in one transaction


async def whole_thread(talk: Conversation) -> list[Turn]:
    """Return every turn of the active branch, oldest first."""
    pages = [await talk.history(PAGE)]
    while len(pages[-1]) == PAGE:
        pages.append(await talk.history(PAGE, before=pages[-1][0]))
    return [turn for page in reversed(pages) for turn in page]


async def append_all(talk: Conversation, turns: Sequence[TurnInput]) -> None:
    """Store turns, in one transaction unless there are more than a thousand."""
    for start in range(0, len(turns), MAX_BATCH):
        await talk.append_many(turns[start : start + MAX_BATCH])


def own_score(hit: RecallHit) -> float:
    """Return how well a hit fits by its own words and meaning, without what it gets from turns before and after it.

    For items that are stored in one conversation, but are not one.
    """
    return hit.parts.get("lexical", 0.0) + hit.parts.get("dense", 0.0)
