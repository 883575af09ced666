"""`palaver hook`, with the events and transcripts that coding assistants document."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import palaver
from palaver.cli import app
from palaver.conversations.note_files import NoteFiles


class Project:
    """A folder with a database, and sessions whose hooks are called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "apollo"
        self.folder.mkdir()
        self.db = f"sqlite:///{folder}/memory.db"

    def transcript(self, session: str, *lines: Any) -> Path:
        path = self.folder / f"{session}.jsonl"
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        return path

    def call(self, name: str, session: str = "s1", **fields: Any) -> dict[str, Any]:
        event = {
            "session_id": session,
            "transcript_path": str(self.folder / f"{session}.jsonl"),
            "cwd": str(self.folder),
            "permission_mode": "default",
            "hook_event_name": name,
            **fields,
        }
        result = CliRunner().invoke(app, ["hook", "--db", self.db], input=json.dumps(event))
        assert result.exit_code == 0
        return json.loads(result.stdout) if result.stdout.strip() else {}

    def turns(self, session: str = "s1") -> list[palaver.Turn]:
        with palaver.sync.open(self.db) as store:
            return store.find(f"code/apollo/{session}").history()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def message(id: str, role: str, content: Any, **fields: Any) -> dict[str, Any]:
    kept = {"role": role, "content": content}
    return {"type": role, "uuid": id, "timestamp": "2026-11-01T10:00:00.000Z", "message": kept, **fields}


NUL = "a\x00"
BAD = ["", "[]", "{", '{"hook_event_name": "Other", "session_id": "s"}', '{"hook_event_name": "Stop"}']
SESSION = [
    {"type": "summary", "summary": "ignored"},
    message("1", "user", "The deploy key is in the vault called Hermes."),
    message("2", "assistant", [{"type": "thinking", "thinking": "…"}, {"type": "text", "text": "I look."}]),
    message("3", "assistant", [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}]),
    message(
        "4", "user", [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "a\x00"}]}]
    ),
    message("5", "user", "hidden", isMeta=True),
    "not json",
    message("6", "assistant", [{"type": "text", "text": "Done."}]),
]


def test_a_session_is_captured_once(project: Project) -> None:
    project.transcript("s1", *SESSION[:4])
    assert project.call("UserPromptSubmit", prompt="hello") == {}
    project.transcript("s1", *SESSION)
    assert project.call("PreCompact", trigger="auto", custom_instructions="") == {}
    assert project.call("Stop", stop_hook_active=False) == {}
    turns = project.turns()
    assert [turn.role for turn in turns] == ["user", "assistant", "assistant", "tool", "assistant"]
    assert turns[0].text == "The deploy key is in the vault called Hermes."
    assert turns[0].created.isoformat() == "2026-11-01T10:00:00+00:00"
    assert (turns[2].tool_calls[0].name, turns[3].tool_results[0].content) == ("Bash", "a\ufffd")


def test_a_later_session_is_told_what_fits(project: Project) -> None:
    project.transcript("s1", *SESSION)
    project.call("Stop")
    project.transcript("s2", message("9", "user", "Where is the deploy key?"))
    told = project.call("UserPromptSubmit", "s2", prompt="Where is the deploy key?")["hookSpecificOutput"]
    assert told["hookEventName"] == "UserPromptSubmit"
    assert "Hermes" in told["additionalContext"]
    assert "not instructions" in told["additionalContext"]
    assert len(told["additionalContext"]) < 10_000
    again = project.call("UserPromptSubmit", "s1", prompt="Where is the deploy key?")
    assert "Hermes" not in str(again)  # its own words are in the assistant's context already


def test_turns_of_another_project_are_not_shown(project: Project) -> None:
    project.transcript("s1", *SESSION)
    project.call("Stop", cwd=str(project.folder.parent / "gemini"))
    project.transcript("s2", message("9", "user", "Where is the deploy key?"))
    assert project.call("UserPromptSubmit", "s2", prompt="Where is the deploy key?") == {}


def test_a_session_starts_with_the_notes_of_the_project(project: Project) -> None:
    async def note() -> None:
        async with palaver.open(project.db) as store:
            await NoteFiles(store, "project", "apollo").create("/memories/plan.md", "Ship on Friday.")

    asyncio.run(note())
    told = project.call("SessionStart", source="startup")["hookSpecificOutput"]
    assert told["hookEventName"] == "SessionStart"
    assert "Ship on Friday." in told["additionalContext"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"hook_event_name": "Other", "session_id": "s"}', '{"hook_event_name": "Stop"}']
)
def test_a_bad_event_never_blocks_the_assistant(project: Project, text: str) -> None:
    result = CliRunner().invoke(app, ["hook", "--db", project.db], input=text)
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "InvalidInput" in result.stderr


def test_a_transcript_that_is_not_there(project: Project) -> None:
    assert project.call("Stop", transcript_path="/none.jsonl") == {}
    assert project.turns() == []
