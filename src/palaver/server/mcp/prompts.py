"""Prompts: to go on with a conversation somewhere else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palaver.context.render import message_text
from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.errors import InvalidInput, NotFound
from palaver.server.mcp import schemas
from palaver.server.mcp.tools import find_conversation

BUDGET = 4_000
MESSAGE = ("message", "What to say next; without it, the conversation as it stands.")
TOKENS = ("token_budget", f"At most so many tokens; {BUDGET:,} unless said otherwise.")


@dataclass(frozen=True, slots=True)
class McpPrompt:
    name: str
    title: str
    description: str
    required: tuple[tuple[str, str], ...] = ()
    optional: tuple[tuple[str, str], ...] = (MESSAGE, TOKENS)


PROMPTS = (
    McpPrompt(
        "continue_conversation",
        "Continue a conversation",
        "Go on with a stored conversation here: its summaries, notes and latest turns, within a budget.",
        required=(("conversation", "The conversation: its id, or the name (key) that it was given."),),
    ),
    McpPrompt(
        "continue_latest",
        "Continue the latest conversation",
        "Go on with the conversation that was used last.",
    ),
)


async def messages(store: Store, name: str, given: Mapping[str, str]) -> tuple[str, list[tuple[str, str]]]:
    """A title, and the messages of a prompt: each a role and a text."""
    tool = next((one for one in PROMPTS if one.name == name), None)
    if tool is None:
        raise InvalidInput("name", f"is not the name of a prompt; there are {', '.join(one.name for one in PROMPTS)}")
    known = {argument for argument, _ in tool.required + tool.optional}
    if unknown := given.keys() - known:
        raise InvalidInput(sorted(unknown)[0], f"is not an argument of {name}; there are {', '.join(sorted(known))}")
    talk = await _find_conversation(store, tool, given)
    context = await talk.build_context(_budget(given), message=given.get("message") or None)
    return schemas.headline(talk.info), [_to_prompt_message(one) for one in context.messages]


async def _find_conversation(store: Store, tool: McpPrompt, given: Mapping[str, str]) -> Conversation:
    if tool.required:
        if not given.get("conversation"):
            raise InvalidInput("conversation", "is needed: an id, or the name of one")
        return await find_conversation(store, given["conversation"])
    page = await store.conversations(limit=1)
    if not page.items:
        raise NotFound("there is no conversation yet")
    return await store.get(page.items[0].id)


def _budget(given: Mapping[str, str]) -> int:
    """Arguments of prompts are texts."""
    text = given.get("token_budget") or str(BUDGET)
    if not re.fullmatch("[0-9]{1,7}", text) or not 0 < int(text) <= 2_000_000:
        raise InvalidInput("token_budget", "must be a number from 1 to 2,000,000")
    return int(text)


def _to_prompt_message(message: Mapping[str, Any]) -> tuple[str, str]:
    """A prompt has only a user and an assistant. What the system says, and what tools answered, is told to the model by
    the user's side, and called what it is."""
    role, text = message["role"], message_text(message)
    if role == "tool":
        return "user", f"[A tool answered: {text}]"
    return ("assistant" if role == "assistant" else "user"), text
