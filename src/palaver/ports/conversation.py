"""The view of a conversation that `generation` works with.

`conversations` implements these protocols and hands the objects in, so that an answer can store its turns without
importing the package that started it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Protocol, Self, Unpack

from palaver.context.inputs import Bound, Context
from palaver.context.options import Options
from palaver.core.turn_options import StreamOptions, TurnInput, TurnOptions
from palaver.model import (
    Attachment,
    ContentInput,
    ConversationInfo,
    ConversationMatch,
    FileText,
    RecallHit,
    Role,
    TokenUsage,
    ToolCall,
    Turn,
)


class TurnStream(Protocol):
    """One turn that is stored while it is written.

    Entering opens the turn. Leaving commits it; leaving by an exception or a cancellation seals it as aborted.
    """

    @property
    def turn(self) -> Turn | None:
        """The stored turn; None until the stream is open."""
        ...

    async def write(self, text: str) -> None: ...

    def finish(
        self,
        *,
        tokens: TokenUsage | None = None,
        model: str | None = None,
        adapter: str | None = None,
        finish_reason: str | None = None,
        tool_calls: Sequence[ToolCall] | None = None,
        sources: Sequence[Mapping[str, Any]] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Set the fields that are stored with the commit."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class TurnSink(Protocol):
    """Stores the turns and files of one conversation."""

    async def append(
        self,
        role: Role,
        content: ContentInput = "",
        *,
        expected_seq: int | None = None,
        replaces: Turn | str | None = None,
        discard_after: bool = False,
        **fields: Unpack[TurnOptions],
    ) -> Turn: ...

    async def append_many(self, turns: Iterable[TurnInput]) -> list[Turn]: ...

    def stream(
        self,
        role: Role = "assistant",
        *,
        flush: float | Literal["end"] | None = None,
        **fields: Unpack[StreamOptions],
    ) -> TurnStream: ...

    async def attach(
        self, data: bytes, *, filename: str | None = None, media_type: str | None = None
    ) -> Attachment: ...


class TurnSource(Protocol):
    """Reads the turns and files of one conversation."""

    async def history(self, limit: int = 50, *, after: Turn | str | None = None) -> list[Turn]: ...

    async def turn(self, turn: Turn | str) -> Turn: ...

    def recall(self, query: str, k: int = 10, *, include_facts: bool = True) -> Awaitable[list[RecallHit]]: ...

    async def attachment(self, attachment: Attachment | str) -> Attachment: ...

    async def attachments(self, limit: int = 50) -> list[Attachment]: ...

    async def attachment_text(self, attachment: Attachment | str) -> FileText: ...

    async def data_url(self, attachment: Attachment | str) -> str: ...


class Thread(TurnSink, TurnSource, Protocol):
    """One conversation, as an answer reads and writes it."""

    @property
    def id(self) -> str: ...

    @property
    def info(self) -> ConversationInfo: ...


class FileTexts(Protocol):
    """Reads the text of files for a context."""

    async def texts(self, files: Sequence[Attachment]) -> list[FileText | None]:
        """Return the text of each file, redacted as the conversation asks. None for a file that takes too long."""
        ...


class ContextSource(Protocol):
    """Builds the contexts of one conversation from options that are already checked."""

    async def build(self, options: Options, bound: Bound | None = None) -> Context: ...

    async def bound_to(self, question: Turn, *, with_earlier: bool = False) -> Bound:
        """Return the bound of contexts for `question`, with the steps of its answer so far.

        With `with_earlier`, the answers to earlier questions that were stored after it come before it.
        """
        ...


class ConversationSearch(Protocol):
    """Finds conversations by their words, within what the scope may see."""

    async def __call__(self, text: str, *, limit: int = 20) -> list[ConversationMatch]: ...
