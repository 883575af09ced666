"""Palaver: conversations that never end, in prompts that always fit.

    import palaver

    async with palaver.open("sqlite:///chat.db", tenant="acme", user="ada") as store:
        talk = await store.conversation("support/42")
        await talk.append("user", "I'm allergic to peanuts.")
        ctx = await talk.build_context(token_budget=4000, query="What can I eat?")

Names are loaded where they are first used, so that `import palaver` costs next to nothing.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING

from palaver import errors as errors
from palaver.errors import *  # noqa: F403

if TYPE_CHECKING:
    from palaver import sync as sync
    from palaver.context.explain import Block as Block
    from palaver.context.explain import ContextFile as ContextFile
    from palaver.context.explain import Explanation as Explanation
    from palaver.context.explain import Omission as Omission
    from palaver.context.inputs import Context as Context
    from palaver.context.options import ContextOptions as ContextOptions
    from palaver.context.options import Policy as Policy
    from palaver.context.options import PolicyName as PolicyName
    from palaver.context.options import RecallOptions as RecallOptions
    from palaver.context.options import RecallRange as RecallRange
    from palaver.context.settings import ContextSettings as ContextSettings
    from palaver.conversations.conversation import Conversation as Conversation
    from palaver.conversations.open_options import BackgroundOptions as BackgroundOptions
    from palaver.conversations.open_options import DatabaseOptions as DatabaseOptions
    from palaver.conversations.open_options import FileOptions as FileOptions
    from palaver.conversations.open_options import FlatOptions as FlatOptions
    from palaver.conversations.open_options import MemoryOptions as MemoryOptions
    from palaver.conversations.open_options import StreamTimes as StreamTimes
    from palaver.conversations.open_options import TelemetryOptions as TelemetryOptions
    from palaver.conversations.open_options import TestingOptions as TestingOptions
    from palaver.conversations.opener import Opening as Opening
    from palaver.conversations.opener import open as open
    from palaver.conversations.options import ConversationOptions as ConversationOptions
    from palaver.conversations.store import Store as Store
    from palaver.conversations.subjects import Subject as Subject
    from palaver.conversations.turn_writer import TurnWriter as TurnWriter
    from palaver.core.budgets import BudgetLimits as BudgetLimits
    from palaver.core.budgets import BudgetOptions as BudgetOptions
    from palaver.core.filters import ConversationWhere as ConversationWhere
    from palaver.core.filters import MetadataCondition as MetadataCondition
    from palaver.core.filters import Where as Where
    from palaver.core.pagination import group_by_date as group_by_date
    from palaver.core.turn_options import Moment as Moment
    from palaver.core.turn_options import SealOptions as SealOptions
    from palaver.core.turn_options import StreamOptions as StreamOptions
    from palaver.core.turn_options import TurnInput as TurnInput
    from palaver.core.turn_options import TurnOptions as TurnOptions
    from palaver.generation.events import Answered as Answered
    from palaver.generation.events import MessageStored as MessageStored
    from palaver.generation.events import Prompted as Prompted
    from palaver.generation.events import ToolDone as ToolDone
    from palaver.generation.events import ToolsPlanned as ToolsPlanned
    from palaver.generation.events import TurnOpened as TurnOpened
    from palaver.generation.mcp_tools import MCPTools as MCPTools
    from palaver.generation.options import GenerateOptions as GenerateOptions
    from palaver.generation.settings import Agent as Agent
    from palaver.generation.settings import GenerateSettings as GenerateSettings
    from palaver.generation.settings import Workspace as Workspace
    from palaver.generation.tool_clearing import ToolClearing as ToolClearing
    from palaver.generation.tools import Tool as Tool
    from palaver.generation.tools import ToolOutput as ToolOutput
    from palaver.generation.tools import tool as tool
    from palaver.interchange.messages import from_anthropic as from_anthropic
    from palaver.interchange.messages import from_langchain as from_langchain
    from palaver.interchange.messages import from_openai as from_openai
    from palaver.interchange.messages import to_langchain as to_langchain
    from palaver.interchange.replication.report import ReplicatedConversation as ReplicatedConversation
    from palaver.interchange.replication.report import ReplicationReport as ReplicationReport
    from palaver.interchange.replication.run import replicate as replicate
    from palaver.memory.person_settings import PersonMode as PersonMode
    from palaver.memory.person_settings import PersonOptions as PersonOptions
    from palaver.memory.settings import CompactionSettings as CompactionSettings
    from palaver.memory.settings import ConversationSettings as ConversationSettings
    from palaver.memory.settings import Kind as Kind
    from palaver.model import Attachment as Attachment
    from palaver.model import Branch as Branch
    from palaver.model import BudgetLine as BudgetLine
    from palaver.model import ContentInput as ContentInput
    from palaver.model import ConversationInfo as ConversationInfo
    from palaver.model import ConversationMatch as ConversationMatch
    from palaver.model import Empty as Empty
    from palaver.model import EmptyReason as EmptyReason
    from palaver.model import ErasureReceipt as ErasureReceipt
    from palaver.model import Event as Event
    from palaver.model import Fact as Fact
    from palaver.model import File as File
    from palaver.model import FileQuote as FileQuote
    from palaver.model import FileText as FileText
    from palaver.model import Image as Image
    from palaver.model import ItemSource as ItemSource
    from palaver.model import MemoryItem as MemoryItem
    from palaver.model import Note as Note
    from palaver.model import Page as Page
    from palaver.model import Reasoning as Reasoning
    from palaver.model import RecallHit as RecallHit
    from palaver.model import Request as Request
    from palaver.model import Results as Results
    from palaver.model import Right as Right
    from palaver.model import Role as Role
    from palaver.model import Scope as Scope
    from palaver.model import Stats as Stats
    from palaver.model import Summary as Summary
    from palaver.model import Text as Text
    from palaver.model import TokenUsage as TokenUsage
    from palaver.model import ToolCall as ToolCall
    from palaver.model import ToolResult as ToolResult
    from palaver.model import Turn as Turn
    from palaver.model import TurnMatch as TurnMatch
    from palaver.model import Upload as Upload
    from palaver.model import Verified as Verified
    from palaver.model import Visibility as Visibility
    from palaver.model import WorkingMemory as WorkingMemory
    from palaver.model import data_part as data_part
    from palaver.ports.models import ReasoningDelta as ReasoningDelta
    from palaver.ports.models import TextDelta as TextDelta
    from palaver.ports.models import ToolChoice as ToolChoice

    # Old names, for one more release.
    Found, Match, Hit = ConversationMatch, TurnMatch, RecallHit

__version__ = "0.2.0"

_HOMES = {
    "palaver.context.options": ("ContextOptions", "Policy", "PolicyName", "RecallOptions", "RecallRange",),
    "palaver.context.settings": ("ContextSettings",),
    "palaver.conversations.open_options": (
        "BackgroundOptions", "DatabaseOptions", "FileOptions", "FlatOptions", "MemoryOptions",
        "StreamTimes", "TelemetryOptions", "TestingOptions",
    ),
    "palaver.conversations.options": ("ConversationOptions",),
    "palaver.core.filters": ("ConversationWhere", "MetadataCondition", "Where",),
    "palaver.core.turn_options": ("Moment", "SealOptions", "StreamOptions", "TurnInput", "TurnOptions",),
    "palaver.generation.options": ("GenerateOptions",),
    "palaver.memory.settings": ("CompactionSettings", "ConversationSettings", "Kind",),
    "palaver.context.explain": ("Block", "ContextFile", "Explanation", "Omission"),
    "palaver.context.inputs": ("Context",),
    "palaver.conversations.conversation": ("Conversation",),
    "palaver.core.budgets": ("BudgetLimits", "BudgetOptions"),
    "palaver.core.pagination": ("group_by_date",),
    "palaver.generation.mcp_tools": ("MCPTools",),
    "palaver.model": (
        "ContentInput", "Empty", "EmptyReason", "Results", "Right", "Role", "Visibility",
        "Attachment", "Branch", "BudgetLine", "ConversationInfo", "ConversationMatch", "ErasureReceipt", "Event",
        "Fact", "File", "FileQuote", "FileText", "Image", "ItemSource", "MemoryItem", "Note", "Page", "Reasoning",
        "RecallHit", "Request", "Scope", "Stats", "Summary", "Text", "TokenUsage", "ToolCall", "ToolResult", "Turn",
        "TurnMatch", "Upload", "Verified", "WorkingMemory", "data_part",
    ),
    "palaver.generation.events": ("Answered", "MessageStored", "Prompted", "ToolDone", "ToolsPlanned", "TurnOpened"),
    "palaver.ports.models": ("ReasoningDelta", "TextDelta", "ToolChoice"),
    "palaver.conversations.opener": ("Opening", "open"),
    "palaver.conversations.store": ("Store",),
    "palaver.conversations.subjects": ("Subject",),
    "palaver.conversations.turn_writer": ("TurnWriter",),
    "palaver.memory.person_settings": ("PersonMode", "PersonOptions"),
    "palaver.generation.settings": ("Agent", "GenerateSettings", "Workspace"),
    "palaver.generation.tool_clearing": ("ToolClearing",),
    "palaver.generation.tools": ("Tool", "ToolOutput", "tool"),
    "palaver.interchange.messages": ("from_anthropic", "from_langchain", "from_openai", "to_langchain"),
    "palaver.interchange.replication.report": ("ReplicatedConversation", "ReplicationReport"),
    "palaver.interchange.replication.run": ("replicate",),
}  # fmt: skip
_RENAMED = {"Found": "ConversationMatch", "Match": "TurnMatch", "Hit": "RecallHit"}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
_ERRORS = [name for name, value in vars(errors).items() if isinstance(value, type)]

__all__ = [*_HOME_OF, *_ERRORS]


if not TYPE_CHECKING:  # a type checker must not assume that every name exists

    def __getattr__(name: str) -> object:
        if name == "sync":
            return import_module("palaver.sync")
        if name in _RENAMED:
            message = f"palaver.{name} is deprecated: use palaver.{_RENAMED[name]}"
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return __getattr__(_RENAMED[name])
        if name not in _HOME_OF:
            raise AttributeError(f"module 'palaver' has no attribute {name!r}")
        value = getattr(import_module(_HOME_OF[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*globals(), *_HOME_OF, "sync"]
