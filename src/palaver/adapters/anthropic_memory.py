"""Anthropic's memory tool (`memory_20250818`) over note files of a subject.

    tool = PalaverMemoryTool(store, "person", "ada")            # a store of palaver.sync
    runner = client.beta.messages.tool_runner(tools=[tool], …)

Notes have versions and hashes, are searched and recalled with everything else, and are erased with the person. Needs
`pip install palaver[anthropic]`.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from anthropic.lib.tools import BetaAbstractMemoryTool, BetaAsyncAbstractMemoryTool, ToolError
from anthropic.types.beta import (
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
)

from palaver import InvalidInput, TooLarge
from palaver.adapters.bridge import AnyStore, Bridge
from palaver.conversations.note_files import NoteError, NoteFiles
from palaver.model import PERSON


class PalaverAsyncMemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool of a subject, for `AsyncAnthropic`."""

    def __init__(self, store: AnyStore, kind: str = PERSON, id: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._bridge = Bridge(store)
        self.notes = NoteFiles(self._bridge.store, kind, id)

    async def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        return await self._run(_view(self.notes, command))

    async def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        return await self._run(self.notes.create(command.path, command.file_text))

    async def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        return await self._run(self.notes.str_replace(command.path, command.old_str, command.new_str))

    async def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        return await self._run(self.notes.insert(command.path, command.insert_line, command.insert_text))

    async def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        return await self._run(self.notes.delete(command.path))

    async def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        return await self._run(self.notes.rename(command.old_path, command.new_path))

    async def clear_all_memory(self) -> str:
        """Delete every note permanently."""
        await self._bridge.run(self.notes.clear())
        return "All memory cleared"

    async def _run(self, work: Coroutine[Any, Any, str]) -> str:
        try:
            return await self._bridge.run(work)
        except (InvalidInput, TooLarge) as problem:
            raise _tool_error(problem) from problem


class PalaverMemoryTool(BetaAbstractMemoryTool):
    """The memory tool of a subject, for `Anthropic`: `store` is one of `palaver.sync.open`."""

    def __init__(self, store: AnyStore, kind: str = PERSON, id: str = "", **options: Any) -> None:
        super().__init__(**options)
        self._bridge = Bridge(store)
        self.notes = NoteFiles(self._bridge.store, kind, id)

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        return self._run(_view(self.notes, command))

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        return self._run(self.notes.create(command.path, command.file_text))

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        return self._run(self.notes.str_replace(command.path, command.old_str, command.new_str))

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        return self._run(self.notes.insert(command.path, command.insert_line, command.insert_text))

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        return self._run(self.notes.delete(command.path))

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        return self._run(self.notes.rename(command.old_path, command.new_path))

    def clear_all_memory(self) -> str:
        """Delete every note permanently."""
        self._bridge.call(self.notes.clear())
        return "All memory cleared"

    def _run(self, work: Coroutine[Any, Any, str]) -> str:
        try:
            return self._bridge.call(work)
        except (InvalidInput, TooLarge) as problem:
            raise _tool_error(problem) from problem


def _view(notes: NoteFiles, command: BetaMemoryTool20250818ViewCommand) -> Coroutine[Any, Any, str]:
    given = command.view_range
    return notes.view(command.path, (given[0], given[1]) if given and len(given) == 2 else None)


def _tool_error(problem: InvalidInput | TooLarge) -> ToolError:
    return ToolError(problem.message if isinstance(problem, NoteError) else str(problem))
