"""Anthropic's memory tool: compared with the SDK's own file tool, and with what Palaver promises beyond it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from anthropic.lib.tools import BetaAbstractMemoryTool, ToolError
from anthropic.tools import BetaLocalFilesystemMemoryTool

import palaver
from palaver import Scope, Store
from palaver.adapters.anthropic_memory import PalaverAsyncMemoryTool, PalaverMemoryTool
from palaver.conversations.note_files import NoteFiles
from tests.support.memory import url

COMMANDS: list[dict[str, Any]] = [
    {"command": "view", "path": "/memories/none.md"},
    {"command": "create", "path": "/memories/a.md", "file_text": "one\ntwo\nthree\nfour\nfive\nsix\n"},
    {"command": "create", "path": "/memories/a.md", "file_text": "again"},
    {"command": "create", "path": "/memories/deep/er/b.txt", "file_text": "Größe 🙂\nx\nx"},
    {"command": "view", "path": "/memories/a.md"},
    {"command": "view", "path": "/memories/a.md", "view_range": [2, 4]},
    {"command": "view", "path": "/memories/a.md", "view_range": [5, -1]},
    {"command": "str_replace", "path": "/memories/a.md", "old_str": "four", "new_str": "FOUR\nand more"},
    {"command": "str_replace", "path": "/memories/a.md", "old_str": "absent", "new_str": "x"},
    {"command": "str_replace", "path": "/memories/deep/er/b.txt", "old_str": "x", "new_str": "y"},
    {"command": "str_replace", "path": "/memories/none.md", "old_str": "x", "new_str": "y"},
    {"command": "insert", "path": "/memories/a.md", "insert_line": 0, "insert_text": "zero\n"},
    {"command": "insert", "path": "/memories/a.md", "insert_line": 99, "insert_text": "far"},
    {"command": "insert", "path": "/memories/none.md", "insert_line": 0, "insert_text": "x"},
    {"command": "view", "path": "/memories/a.md"},
    {"command": "rename", "old_path": "/memories/a.md", "new_path": "/memories/deep/c.md"},
    {"command": "rename", "old_path": "/memories/none.md", "new_path": "/memories/d.md"},
    {"command": "rename", "old_path": "/memories/deep/c.md", "new_path": "/memories/deep/er/b.txt"},
    {"command": "view", "path": "/memories/deep/c.md"},
    {"command": "delete", "path": "/memories/none.md"},
    {"command": "delete", "path": "/memories/deep/er"},
    {"command": "view", "path": "/memories/deep/er/b.txt"},
    {"command": "delete", "path": "/memories"},
    {"command": "view", "path": "/etc/passwd"},
    {"command": "view", "path": "/memories/../secret"},
]  # fmt: skip


def call(tool: BetaAbstractMemoryTool, command: dict[str, Any]) -> tuple[str, str]:
    try:
        return "ok", str(tool.call(command))
    except ToolError as problem:
        return "error", str(problem)


def test_it_agrees_with_the_sdks_own_tool(tmp_path: Path) -> None:
    """Every command and every error has the same wording; sizes of folders are those of their files."""
    with palaver.sync.open(url(tmp_path)) as store:
        ours, theirs = PalaverMemoryTool(store, "person", "ada"), BetaLocalFilesystemMemoryTool(str(tmp_path / "own"))
        assert ours.to_dict() == theirs.to_dict()
        for command in COMMANDS:
            assert call(ours, command) == call(theirs, command), command
        listing = call(ours, {"command": "view", "path": "/memories"})[1].splitlines()
        expected = call(theirs, {"command": "view", "path": "/memories"})[1].splitlines()
        assert [line.partition("\t")[2] for line in listing] == [line.partition("\t")[2] for line in expected]
        ours.clear_all_memory()
        assert asyncio.run(_files(store)) == {}


async def _files(store: Any) -> dict[str, str]:
    tool = PalaverAsyncMemoryTool(store, "person", "ada")
    return await tool._bridge.run(tool.notes.files())


@pytest.mark.both_engines
async def test_notes_are_versioned_proven_found_and_erased(store: Store) -> None:
    app = store.scoped(Scope.of("default", None))
    tool = PalaverAsyncMemoryTool(app, "person", "ada")
    await tool.call({"command": "create", "path": "/memories/food.md", "file_text": "Ada is allergic to peanuts."})
    change = {"command": "str_replace", "path": "/memories/food.md", "old_str": "peanuts", "new_str": "walnuts"}
    await tool.call(change)
    await tool.call({"command": "rename", "old_path": "/memories/food.md", "new_path": "/memories/diet.md"})
    notes = NoteFiles(app, "person", "ada")
    assert await notes.files() == {"/memories/diet.md": "Ada is allergic to walnuts."}
    assert await notes.versions("/memories/diet.md") == [
        "Ada is allergic to peanuts.", "Ada is allergic to walnuts.", "Ada is allergic to walnuts.",
    ]  # fmt: skip
    await store.settle()
    hers = app.scoped(Scope("default", "ada"))
    talk = await hers.conversation("chat")
    hits = await talk.recall("which nuts?", scope="owner")
    assert [hit.turn.text for hit in hits if hit.turn] == ["Ada is allergic to walnuts."]
    await (await app.find("notes/person", owner="ada")).verify()
    assert [info.key for info in (await hers.conversations()).items] == ["chat"]
    await app.erase_user("ada")
    assert await notes.files() == {}
    assert (await app.stats()).turns == 0


@pytest.mark.both_engines
async def test_a_deleted_note_is_gone_with_its_versions(store: Store) -> None:
    notes = NoteFiles(store, "project", "apollo")
    await notes.create("/memories/plan.md", "secret one")
    await notes.str_replace("/memories/plan.md", "one", "two")
    await notes.delete("/memories/plan.md")
    assert (await store.stats()).turns == 0
    talk = await store.find("notes/project/apollo")
    assert await talk.history(include_superseded=True) == []
    await notes.create("/memories/plan.md", "again")
    assert await notes.files() == {"/memories/plan.md": "again"}


@pytest.mark.both_engines
async def test_agents_that_edit_at_once_lose_nothing(store: Store) -> None:
    notes = NoteFiles(store, "project", "apollo")
    created = await asyncio.gather(*(notes.create("/memories/log.md", "") for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(one, str) for one in created) == 1
    await asyncio.gather(*(notes.insert("/memories/log.md", 0, f"line {number}") for number in range(10)))
    lines = (await notes.files())["/memories/log.md"].split()
    assert sorted(lines[1::2], key=int) == [str(number) for number in range(10)]


@pytest.mark.both_engines
async def test_text_that_cannot_be_stored_is_refused_with_the_reason(store: Store) -> None:
    tool = PalaverAsyncMemoryTool(store, "project", "x")
    with pytest.raises(ToolError, match=r"U\+0000"):
        await tool.call({"command": "create", "path": "/memories/a", "file_text": "\x00"})
    with pytest.raises(ToolError):
        await tool.call({"command": "create", "path": "/memories/" + "x" * 600, "file_text": "a"})
