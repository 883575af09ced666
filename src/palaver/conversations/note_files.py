"""Note files of a subject: texts under /memories that an agent writes and edits by itself.

They are the turns of a conversation of the kind `items`: an edit is a new version in the place of the old one, which
stays on record and verifies. Deleting a file forgets every version permanently. The notes of a person belong to that
person, and are erased with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.core.validation import clean_name
from palaver.errors import (
    AppendConflict,
    ConversationNotFound,
    InvalidInput,
    PalaverError,
    TurnGone,
    TurnNotFound,
    TurnSuperseded,
)
from palaver.memory.settings import ConversationSettings
from palaver.model import PERSON, Turn

ROOT = "/memories"
PAGE = 500
MAX_LINES = 999_999
WIDTH = 6  # of a line number
LEVELS = 2  # of folders that a listing shows
AGENT = "notes"
Edit = Callable[[str], str]


class NoteError(InvalidInput):
    """A command cannot be carried out. The message is for the agent that gave it."""

    def __init__(self, message: str) -> None:
        super().__init__("path", message)
        self.message = message


@dataclass(frozen=True, slots=True)
class NoteFiles:
    """The note files of one subject: `NoteFiles(store, "person", "ada")`.

    Messages are those that Anthropic's memory tool expects. `metadata` is stored with every version.
    """

    store: Store
    kind: str = PERSON
    id: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    # ---- commands

    async def view(self, path: str, view_range: tuple[int, int] | None = None) -> str:
        """Return a file with line numbers, or list a folder two levels deep."""
        path, files = clean_path(path), await self._files()
        if path in files:
            return _numbered(path, files[path].text, view_range)
        inside = {name: turn for name, turn in files.items() if name.startswith(f"{path}/")}
        if path != ROOT and not inside:
            raise NoteError(f"The path {path} does not exist. Please provide a valid path.")
        return _listing(path, inside)

    async def create(self, path: str, text: str) -> str:
        """Create a file. One that exists is not overwritten."""
        path = clean_path(path)
        if path == ROOT:
            raise NoteError(f"Cannot write to the {ROOT} directory itself")
        talk = await self._open()
        while True:
            await talk.refresh()
            if path in await self._files():
                raise NoteError(f"File {path} already exists")
            try:
                metadata = {**self.metadata, "path": path}
                await talk.append("assistant", text, metadata=metadata, expected_seq=talk.info.next_seq)
            except AppendConflict:
                continue  # another agent wrote at the same time
            return f"File created successfully at: {path}"

    async def str_replace(self, path: str, old: str, new: str) -> str:
        """Replace a text that occurs exactly once."""
        path = clean_path(path)
        text = await self._edit(path, lambda before: _replaced(path, before, old, new))
        line = text[: text.find(new)].count("\n") if new else 0
        lines = text.split("\n")
        shown = range(max(0, line - 2), min(len(lines), line + 3))
        snippet = [f"{number + 1:>{WIDTH}}\t{lines[number]}" for number in shown]
        head = "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
        return head + "\n".join(snippet)

    async def insert(self, path: str, line: int, text: str) -> str:
        """Insert a text after a line; 0 is the beginning."""
        path = clean_path(path)
        await self._edit(path, lambda before: _inserted(before, line, text))
        return f"The file {path} has been edited."

    async def delete(self, path: str) -> str:
        """Delete a file, or a folder with everything in it, permanently: every version."""
        path = clean_path(path)
        if path == ROOT:
            raise NoteError(f"Cannot delete the {ROOT} directory itself")
        found = [turn for name, turn in (await self._files()).items() if name == path or name.startswith(f"{path}/")]
        if not found:
            raise NoteError(f"The path {path} does not exist")
        await self._forget(found)
        return f"Successfully deleted {path}"

    async def rename(self, old: str, new: str) -> str:
        """Move a file or a folder. Nothing is overwritten."""
        old, new = clean_path(old), clean_path(new)
        if ROOT in (old, new):
            raise NoteError(f"Cannot rename the {ROOT} directory itself")
        files = await self._files()
        moved = {name: turn for name, turn in files.items() if name == old or name.startswith(f"{old}/")}
        if not moved:
            raise NoteError(f"The path {old} does not exist")
        if any(name == new or name.startswith(f"{new}/") for name in files):
            raise NoteError(f"The destination {new} already exists")
        talk = await self._open()
        for name, turn in moved.items():
            metadata = {**self.metadata, "path": new + name.removeprefix(old)}
            await talk.append("assistant", turn.text, metadata=metadata, replaces=turn)
        return f"Successfully renamed {old} to {new}"

    async def clear(self) -> None:
        """Delete every file permanently."""
        talk = await self._find()
        if talk is not None:
            await talk.reset()

    # ---- for the application

    async def files(self) -> dict[str, str]:
        """Return every file with its text."""
        return {path: turn.text for path, turn in sorted((await self._files()).items())}

    async def versions(self, path: str) -> list[str]:
        """Return the versions of a file, oldest first."""
        talk, turn = await self._find(), (await self._files()).get(clean_path(path))
        if talk is None or turn is None:
            raise NoteError(f"The path {path} does not exist")
        return [one.text for one in await self._versions(talk, turn)]

    # ---- storage

    async def _edit(self, path: str, edit: Edit) -> str:
        """Store a new version. If another agent was faster, apply the edit to the newest one."""
        while True:
            talk, turn = await self._find(), (await self._files()).get(path)
            if talk is None or turn is None:
                raise NoteError(f"The path {path} does not exist. Please provide a valid path.")
            text = edit(turn.text)
            try:
                await talk.append("assistant", text, metadata={**self.metadata, "path": path}, replaces=turn)
            except (TurnGone, TurnNotFound, TurnSuperseded):
                continue
            return text

    async def _files(self) -> dict[str, Turn]:
        talk = await self._find()
        pages = [await talk.history(PAGE)] if talk else []
        while pages and talk and len(pages[-1]) == PAGE:
            pages.append(await talk.history(PAGE, before=pages[-1][0]))
        turns = [turn for page in reversed(pages) for turn in page]
        return {str(turn.metadata["path"]): turn for turn in turns if "path" in turn.metadata}

    async def _versions(self, talk: Conversation, turn: Turn) -> list[Turn]:
        places = await talk.branches(turn)
        versions = [one for place in places for one in place.turns] or [turn]
        return sorted(versions, key=lambda one: one.seq)

    async def _forget(self, turns: list[Turn]) -> None:
        talk = await self._find()
        for turn in turns if talk else ():
            for version in await self._versions(talk, turn):  # type: ignore[arg-type]
                await talk.forget(version)  # type: ignore[union-attr]

    def _place(self) -> tuple[str, str]:
        """Return the key and the owner of the conversation."""
        kind, own = clean_name("kind", self.kind), self.store.scope.user or ""
        if kind == PERSON:
            return "notes/person", self.id or own
        return f"notes/{kind}/{clean_name('id', self.id)}", own

    async def _find(self) -> Conversation | None:
        key, owner = self._place()
        try:
            return await self.store.find(key, owner=owner)
        except ConversationNotFound:
            return None

    async def _open(self) -> Conversation:
        key, owner = self._place()
        settings: ConversationSettings = {"kind": "items"}
        return await self.store.conversation(key, owner=owner or None, agent=AGENT, settings=settings)


def clean_path(path: object) -> str:
    """Return a path under /memories, without a slash at its end. Raises `NoteError`."""
    if not isinstance(path, str) or not (path == ROOT or path.startswith(f"{ROOT}/")):
        raise NoteError(f"Path must start with {ROOT}, got: {path}")
    names = [name for name in path.split("/") if name]
    if any(name in (".", "..") or "\\" in name or "%2e" in name.lower() for name in names):
        raise NoteError(f"Path {path} would escape {ROOT} directory")
    found = "/" + "/".join(names)
    try:
        return clean_name("path", found)
    except PalaverError as problem:
        raise NoteError(str(problem)) from None


def _numbered(path: str, text: str, view_range: tuple[int, int] | None) -> str:
    lines = text.split("\n")
    if len(lines) > MAX_LINES:
        raise NoteError(f"File {path} exceeds maximum line limit of 999,999 lines.")
    start, end = view_range or (1, -1)
    first = max(1, start) - 1
    shown = lines[first : len(lines) if end == -1 else end]
    numbered = [f"{first + number:>{WIDTH}}\t{line}" for number, line in enumerate(shown, 1)]
    return f"Here's the content of {path} with line numbers:\n" + "\n".join(numbered)


def _listing(path: str, files: Mapping[str, Turn]) -> str:
    sizes: dict[str, int] = {}
    for name, turn in files.items():
        parts = name.removeprefix(f"{path}/").split("/")
        if any(part.startswith(".") for part in parts):
            continue
        for depth in range(1, min(len(parts), LEVELS) + 1):
            shown = "/".join(parts[:depth]) + ("/" if depth < len(parts) else "")
            sizes[shown] = sizes.get(shown, 0) + len(turn.text.encode())
    lines = [f"{_size(sum(len(turn.text.encode()) for turn in files.values()))}\t{path}"]
    lines += [f"{_size(size)}\t{path}/{name}" for name, size in sorted(sizes.items())]
    head = f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:\n"
    return head + "\n".join(lines)


def _size(count: int) -> str:
    size, unit = float(count), "B"
    for larger in ("K", "M", "G"):
        if size < 1_024:
            break
        size, unit = size / 1_024, larger
    return f"{int(size)}{unit}" if size == int(size) else f"{size:.1f}{unit}"


def _replaced(path: str, text: str, old: str, new: str) -> str:
    count = text.count(old) if old else 0
    if not count:
        raise NoteError(f"No replacement was performed, old_str `{old}` did not appear verbatim in {path}.")
    if count > 1:
        lines = sorted({text[:at].count("\n") + 1 for at in range(len(text)) if text.startswith(old, at)})
        raise NoteError(
            f"No replacement was performed. Multiple occurrences of old_str `{old}` in lines: "
            f"{', '.join(map(str, lines))}. Please ensure it is unique"
        )
    return text.replace(old, new)


def _inserted(text: str, line: int, new: str) -> str:
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    if not 0 <= line <= len(lines):
        raise NoteError(f"Invalid `insert_line` parameter: {line}. It should be within the range [0, {len(lines)}].")
    return "\n".join([*lines[:line], new.rstrip("\n"), *lines[line:]]) + "\n"
