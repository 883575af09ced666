"""Palaver: conversations that never end, in prompts that always fit.

import palaver

async with palaver.open("sqlite:///chat.db", tenant="acme", user="ada") as store:
    talk = await store.conversation("support/42")
    await talk.append("user", "I'm allergic to peanuts.")
    turns = await talk.history(limit=20)
"""

from palaver import errors as _errors
from palaver.conversation import Conversation
from palaver.errors import *  # noqa: F403
from palaver.listing import group_by_date
from palaver.model import (
    Attachment,
    Branch,
    ConversationInfo,
    Event,
    File,
    Found,
    Image,
    Match,
    Page,
    Reasoning,
    Scope,
    Stats,
    Text,
    TokenUsage,
    ToolCall,
    ToolResult,
    Turn,
    Verified,
)
from palaver.store import Store, open
from palaver.streaming import TurnWriter

__version__ = "0.1.0"

__all__ = [
    "Attachment",
    "Branch",
    "Conversation",
    "ConversationInfo",
    "Event",
    "File",
    "Found",
    "Image",
    "Match",
    "Page",
    "Reasoning",
    "Scope",
    "Stats",
    "Store",
    "Text",
    "TokenUsage",
    "ToolCall",
    "ToolResult",
    "Turn",
    "TurnWriter",
    "Verified",
    "group_by_date",
    "open",
    *[name for name in vars(_errors) if isinstance(vars(_errors)[name], type)],
]
