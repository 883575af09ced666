"""Compactions of a thread, made from Palaver's own summaries, and found again when a client sends one back.

A compaction stands for a conversation up to one turn. Clients get a reference to it, which names both. It holds no
content, and is resolved with the rights of the caller who sends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.errors import Gone, NotFound
from palaver.model import Summary, Turn
from palaver.server.compat.references import exchange_id, parse_exchange_id
from palaver.server.compat.request import ClientMessage, CompactionItem, invalid

COMPACTED = "compacted"  # metadata key on an answer's turns: the thread was compacted before it
PREFIX = "cmp_"
PAGE = 200  # turns that are read at once to count the tokens of a thread
SUMMARY = "Summary of the conversation so far:\n\n"


@dataclass(frozen=True, slots=True)
class Compaction:
    """A conversation up to one turn, and the summary of it."""

    conversation: str
    turn: str
    text: str

    @property
    def reference(self) -> str:
        return exchange_id(self.conversation, self.turn)


def compaction_item(conversation: str, turn: str) -> dict[str, object]:
    """Build the item of OpenAI's Responses for a compaction."""
    reference = exchange_id(conversation, turn)
    return {"id": f"{PREFIX}{reference}", "type": "compaction", "encrypted_content": reference}


async def compact_if_due(talk: Conversation, through: Turn, tokens: int) -> Compaction | None:
    """Compact a thread that has at least `tokens` since its last compaction; None if it has fewer, or no summary."""
    return await compact(talk, through) if await _has_tokens(talk, through, tokens) else None


async def compact(talk: Conversation, through: Turn) -> Compaction | None:
    """Summarise a thread up to and including a turn."""
    await talk.summarize(through=through)
    return await read_compaction(talk, through)


async def read_compaction(talk: Conversation, through: Turn) -> Compaction | None:
    """Read the summary of a thread up to and including a turn. None if there is none."""
    chosen = cover(await talk.summaries(), through.position + 1)
    text = "\n\n".join(one.text for one in chosen)
    return Compaction(talk.id, through.id, text) if text.strip() else None


def cover(summaries: Sequence[Summary], end: int) -> list[Summary]:
    """Choose the summaries that together cover most of the positions before `end`, with as few as possible."""
    found: list[Summary] = []
    place = 0
    while fitting := [one for one in summaries if one.from_seq >= place and one.through_seq <= end]:
        first = min(one.from_seq for one in fitting)
        found.append(max((one for one in fitting if one.from_seq == first), key=lambda one: one.through_seq))
        place = found[-1].through_seq
    return found


async def _has_tokens(talk: Conversation, through: Turn, tokens: int) -> bool:
    """Count back from a turn to the last compaction, as far as needed."""
    total, before = through.token_count, through
    while total < tokens:
        turns: list[Turn] = await talk.history(PAGE, before=before)
        for turn in reversed(turns):
            total += turn.token_count
            if turn.metadata.get(COMPACTED):
                return total >= tokens
        if not turns:
            return False
        before = turns[0]
    return True


# ---- sent back by a client


async def find_compacted(store: Store, item: CompactionItem) -> tuple[Conversation, Turn] | None:
    """Find the conversation and the turn of a compaction. None if the caller may see no such conversation."""
    if item.reference is None:
        return None
    try:
        conversation, id = parse_exchange_id(item.reference)
        talk = await store.get(conversation)
        turn = await talk.turn(id)
    except (NotFound, Gone):
        return None
    return None if turn.status == "forgotten" else (talk, turn)


async def summary_message(field: str, item: CompactionItem, found: tuple[Conversation, Turn] | None) -> ClientMessage:
    """Write out a compaction as a message, for a thread that is not its own."""
    text = item.text
    if text is None and found is not None:
        made = await read_compaction(*found)
        text = made.text if made is not None else None
    if text is None:
        raise invalid(field, "has a compaction that is not known here, or whose conversation was deleted")
    return ClientMessage(role="user", content=SUMMARY + text)
