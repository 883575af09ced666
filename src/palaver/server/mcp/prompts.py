"""Prompts: continue a stored conversation in another client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from palaver.context.render import message_text
from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.errors import InvalidInput, NotFound
from palaver.server.mcp import schemas
from palaver.server.mcp.tools import BUDGET, context_defaults, find_conversation

MESSAGE = ("message", "The next message; without it, the conversation as it is.")
TOKENS = ("token_budget", f"The maximum number of tokens; default: the conversation's own setting, or {BUDGET:,}.")


@dataclass(frozen=True, slots=True)
class McpPrompt:
    """One prompt and its arguments."""

    name: str
    title: str
    description: str
    required: tuple[tuple[str, str], ...] = ()
    optional: tuple[tuple[str, str], ...] = (MESSAGE, TOKENS)


PROMPTS = (
    McpPrompt(
        "continue_conversation",
        "Continue a conversation",
        "Continue a stored conversation here: its summaries, notes and latest turns, within a budget.",
        required=(("conversation", "The id or the key of the conversation."),),
    ),
    McpPrompt(
        "continue_latest",
        "Continue the latest conversation",
        "Continue the conversation that was used last.",
    ),
)


async def messages(store: Store, name: str, given: Mapping[str, str]) -> tuple[str, list[tuple[str, str]]]:
    """Return the title and the messages of a prompt, each a role and a text."""
    tool = next((one for one in PROMPTS if one.name == name), None)
    if tool is None:
        raise InvalidInput(
            "name", f"is not the name of a prompt; known prompts: {', '.join(one.name for one in PROMPTS)}"
        )
    known = {argument for argument, _ in tool.required + tool.optional}
    if unknown := given.keys() - known:
        raise InvalidInput(
            sorted(unknown)[0], f"is not an argument of {name}; known arguments: {', '.join(sorted(known))}"
        )
    talk = await _find_conversation(store, tool, given)
    options = context_defaults(store, talk, _budget(given))
    context = await talk.build_context(**options, message=given.get("message") or None)
    return schemas.headline(talk.info), [_to_prompt_message(one) for one in context.messages]


async def _find_conversation(store: Store, tool: McpPrompt, given: Mapping[str, str]) -> Conversation:
    if tool.required:
        if not given.get("conversation"):
            raise InvalidInput("conversation", "is required: an id or a key")
        return await find_conversation(store, given["conversation"])
    page = await store.conversations(limit=1)
    if not page.items:
        raise NotFound("there is no conversation yet")
    return await store.get(page.items[0].id)


def _budget(given: Mapping[str, str]) -> int | None:
    """Parse the budget. Arguments of prompts are always text."""
    text = given.get("token_budget")
    if not text:
        return None
    if not re.fullmatch("[0-9]{1,7}", text) or not 0 < int(text) <= 2_000_000:
        raise InvalidInput("token_budget", "must be a number from 1 to 2,000,000")
    return int(text)


def _to_prompt_message(message: Mapping[str, object]) -> tuple[str, str]:
    """Convert a message. Prompts have only user and assistant, so system messages and tool results go to the user's
    side; results are marked as such."""
    role, text = message["role"], message_text(message)
    if role == "tool":
        return "user", f"[Tool result: {text}]"
    return ("assistant" if role == "assistant" else "user"), text
