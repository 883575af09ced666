"""Agent files of Letta (`.af`): agents with their messages and blocks of core memory, in the new and the old form.

Letta's agents speak by calling `send_message`; such a call is the answer itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from palaver.interchange.exports.documents import Advance, Source, decode
from palaver.interchange.exports.response_items import Item, Thread, message_text, nested_call
from palaver.interchange.exports.values import Entry, ExportedConversation, mapping, moment, objects, seconds, text_of

NAME, TITLE = "letta", "agent files of Letta"
SPOKEN, SYSTEM = "confirmation of a spoken message", "the agent's system prompt"
MAX_SIZE = 512_000_000
SPEAK = "send_message"


def matches(source: Source) -> bool:
    if source.matching("*.af"):
        return True
    heads = [source.head(name) for name in source.matching("*.json")[:3]]
    return any((b'"agents"' in head and b'"blocks"' in head) or b'"core_memory"' in head for head in heads)


def read(source: Source, advance: Advance) -> Iterator[Entry]:
    for name in source.matching("*.af", "*.json"):
        with source.open_file(name) as file:
            raw = decode(file.read(MAX_SIZE), name)
        advance(1)
        blocks = {str(block.get("id")): block for block in objects(raw.get("blocks"))}
        for agent in objects(raw.get("agents")) or [raw]:
            yield Entry(_updated(agent), partial(conversation, agent, blocks))


def _updated(agent: dict[str, Any]) -> float:
    return max((seconds(one.get("created_at")) for one in objects(agent.get("messages"))), default=0.0)


def conversation(agent: dict[str, Any], blocks: dict[str, dict[str, Any]]) -> ExportedConversation:
    """Return the messages of an agent as one conversation; its core memory goes to the metadata."""
    named = [blocks[str(id)] for id in agent.get("block_ids") or () if str(id) in blocks]
    memory = {
        text_of(one.get("label")): text_of(one.get("value")) for one in named or objects(agent.get("core_memory"))
    }
    result = ExportedConversation(
        id=str(agent.get("id") or agent.get("name") or "agent"),
        title=text_of(agent.get("name")) or None,
        model=text_of(mapping(agent.get("llm_config")).get("model")) or None,
        metadata={"core_memory": memory} if memory else {},
    )
    thread, spoken = Thread(result), set[str]()
    for number, message in enumerate(objects(agent.get("messages"))):
        result.records += 1
        _add(thread, str(message.get("id") or number), message, spoken)
    result.turns = thread.turns
    result.current = thread.turns[-1].id if thread.turns else None
    return result


def _add(thread: Thread, id: str, message: dict[str, Any], spoken: set[str]) -> None:
    role, created, model = message.get("role"), moment(message.get("created_at")), text_of(message.get("model")) or None
    text = _said(message_text(message.get("content") or message.get("text")))
    calls = [nested_call(one) for one in objects(message.get("tool_calls"))]
    spoken |= {call["id"] for call in calls if call["name"] == SPEAK}
    said = [text_of(mapping(call["arguments"]).get("message")) for call in calls if call["name"] == SPEAK]
    others = [call for call in calls if call["name"] != SPEAK]
    if role == "system":
        thread.result.left_out[SYSTEM] += 1
    elif role == "tool" and str(message.get("tool_call_id")) in spoken:
        thread.result.left_out[SPOKEN] += 1
    else:
        # Text next to a spoken message is the inner monologue of the model.
        content = "\n\n".join(said) if said else "" if others else text
        data = {"role": role, "content": content, "tool_calls": others, "tool_call_id": message.get("tool_call_id")}
        thread.add(Item(id, data, created, model))


def _said(text: str) -> str:
    """Return the words of a user: Letta packs them into JSON with a type and a time."""
    if not text.startswith("{"):
        return text
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return text
    message = mapping(found).get("message")
    return text_of(message) if isinstance(message, str) else text
