"""Every format of another product, read and stored: branches, files, tool calls, times, models, and a full account."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palaver
from palaver.errors import InvalidInput
from palaver.interchange.exports import chatgpt
from palaver.interchange.exports.documents import open_source, split_elements
from palaver.interchange.exports.formats import NAMES, open_export
from palaver.interchange.exports.importer import ImportReport, import_export
from palaver.interchange.exports.values import ExportedConversation
from tests.interchange.exports import samples

SESSION = "rollout-2026.jsonl"


def write(path: Path, data: Any) -> Path:
    path.write_text(json.dumps(data))
    return path


@pytest.fixture
def exports(tmp_path: Path) -> dict[str, Path]:
    """One export of each format."""
    return {
        "chatgpt": samples.chatgpt_zip(tmp_path / "chatgpt.zip"),
        "claude": write(tmp_path / "conversations.json", [samples.claude_conversation()]),
        "claude-code": samples.write_lines(tmp_path / "session.jsonl", samples.claude_code_lines()),
        "codex": samples.write_lines(tmp_path / SESSION, samples.codex_lines()),
        "open-webui": write(tmp_path / "chats.json", [samples.open_webui_chat()]),
        "librechat": write(tmp_path / "libre.json", samples.librechat_conversation(nested=False)),
        "letta": write(tmp_path / "helper.af", samples.letta_agent()),
        "openai-agents": samples.openai_agents_file(tmp_path / "agents.db"),
        "mem0": samples.mem0_file(tmp_path / "history.db"),
    }


def read(path: Path, name: str | None = None) -> Iterator[ExportedConversation]:
    export = open_export(path, name)
    assert export is not None
    for entry in export.format.read(export.source, lambda _: None):
        yield entry.load()


def test_each_format_is_recognised(exports: dict[str, Path]) -> None:
    for name, path in exports.items():
        export = open_export(path)
        assert export is not None, name
        assert name == export.format.NAME
    assert {*exports, "langgraph"} == set(NAMES)


def test_every_message_is_accounted_for(exports: dict[str, Path]) -> None:
    for name, path in exports.items():
        for found in read(path):
            assert found.records > 0, name
            assert found.is_accounted_for, (name, found)


async def store_of(path: Path, database: Path) -> tuple[ImportReport, palaver.Store]:
    store = await palaver.open(f"sqlite:///{database}")
    export = open_export(path)
    assert export is not None
    return await import_export(store, export), store


async def test_importing_twice_adds_nothing(exports: dict[str, Path], tmp_path: Path) -> None:
    async with palaver.open(f"sqlite:///{tmp_path}/all.db") as store:
        for name, path in exports.items():
            export = open_export(path)
            assert export is not None
            first = await import_export(store, export)
            assert first.imported > 0, name
            assert first.records + first.split == (
                first.imported + first.already + first.merged + first.left_out.total()
            ), name
            again = await import_export(store, export)
            assert (again.imported, again.already) == (0, first.imported), name
        for info in (await store.conversations()).items:
            await (await store.get(info.id)).verify()


async def test_a_conversation_that_was_forgotten_is_not_imported_again(
    exports: dict[str, Path], tmp_path: Path
) -> None:
    export = open_export(exports["claude"])
    assert export is not None
    async with palaver.open(f"sqlite:///{tmp_path}/all.db") as store:
        first = await import_export(store, export)
        [info] = (await store.conversations()).items
        await (await store.get(info.id)).forget()
        for _ in range(2):
            again = await import_export(store, export)
            assert (again.imported, again.already) == (0, 0)
            [reason] = [why for why in again.left_out if "forgotten" in why]
            assert again.left_out[reason] == first.imported
        assert not (await store.conversations()).items
        restored = await import_export(store, export, restore_forgotten=True)
        assert restored.imported == first.imported
        assert (await import_export(store, export)).already == first.imported, "and it is known again"


async def test_a_chatgpt_tree_becomes_branches(exports: dict[str, Path], tmp_path: Path) -> None:
    report, store = await store_of(exports["chatgpt"], tmp_path / "p.db")
    async with store:
        talk = await store.find("chatgpt/c-0")
        turns = await talk.history()
        assert [(turn.role, turn.content) for turn in turns] == [
            ("user", "What is a palaver, in one word?"),
            ("assistant", "Conversation."),
            ("user", "Compute 6*7"),
            ("assistant", ""),
            ("tool", ""),
            ("assistant", "It is 42."),
        ]
        assert [call.name for call in turns[3].tool_calls] == ["python"]
        assert turns[4].tool_results[0].id == turns[3].tool_calls[0].id
        assert turns[4].tool_results[0].content == "42\n\ndone"
        assert turns[1].model == "gpt-9-mini"
        assert turns[1].created == datetime.fromtimestamp(1_700_002_005, UTC)
        assert await talk.read_attachment(turns[2].attachments[0]) == samples.PNG
        everything = await talk.history(include_superseded=True)
        assert {"What is a palaver?", "A long talk.", "Chatter."} <= {turn.content for turn in everything}
        await talk.switch(next(turn for turn in everything if turn.content == "A long talk."))
        assert [turn.content for turn in await talk.history()] == ["What is a palaver?", "A long talk."]
        assert talk.info.title == "About words"
        assert [info.key for info in (await store.conversations()).items] == ["chatgpt/c-0", "chatgpt/c-1"]
    assert report.files == 2
    assert report.left_out == {"hidden system message": 2, "the model's reasoning": 2}


async def test_the_form_with_several_files(tmp_path: Path) -> None:
    path = samples.chatgpt_zip(tmp_path / "parts.zip", parts=3, conversations=5)
    assert sorted(one.id for one in read(path)) == [f"c-{n}" for n in range(5)]
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "folder")
    assert sorted(one.id for one in read(tmp_path / "folder")) == [f"c-{n}" for n in range(5)]


async def test_claude_keeps_tool_rounds_and_the_words_of_documents(exports: dict[str, Path], tmp_path: Path) -> None:
    report, store = await store_of(exports["claude"], tmp_path / "p.db")
    async with store:
        talk = await store.find("claude/k-1")
        turns = await talk.history()
        assert [turn.role for turn in turns] == ["user", "assistant", "tool", "assistant"]
        assert turns[1].tool_calls[0].arguments == {"q": "palaver"}
        assert turns[2].tool_results[0].content == "a long parley"
        assert turns[0].attachments[0].filename == "notes.pdf.txt"
        assert await talk.read_attachment(turns[0].attachments[0]) == b"words of the file"
    assert report.files_left_out == {"its bytes are not in the export": 1}
    assert report.left_out == {"empty message": 1, "unknown role": 1}


def test_claude_code_joins_lines_of_one_answer_and_keeps_branches(exports: dict[str, Path]) -> None:
    (found,) = read(exports["claude-code"])
    calls = next(turn for turn in found.turns if turn.tool_calls)
    results = next(turn for turn in found.turns if turn.tool_results)
    assert (calls.content, [call["id"] for call in calls.tool_calls]) == ("Reading.", ["tA", "tB"])
    assert [result["content"] for result in results.tool_results] == ["content tA", "content tB"]
    thanks = [turn for turn in found.turns if turn.content.startswith("Thank")]
    assert len({turn.parent for turn in thanks}) == 1
    assert found.current == thanks[-1].id
    assert (found.title, found.metadata["cwd"]) == ("Two files", "/app")


def test_codex_leaves_out_what_the_program_added(exports: dict[str, Path]) -> None:
    (found,) = read(exports["codex"])
    assert [turn.role for turn in found.turns] == ["user", "assistant", "tool", "assistant"]
    assert [call["name"] for call in found.turns[1].tool_calls] == ["shell", "apply_patch"]
    assert found.turns[1].model == "gpt-9-codex"
    assert found.left_out["context that the program added"] == 2


def test_open_webui_keeps_the_chosen_answer_active(exports: dict[str, Path]) -> None:
    (found,) = read(exports["open-webui"])
    assert found.current == "3"
    assert found.turns[0].files[0].read is not None
    assert found.turns[0].files[0].read() == samples.PNG


@pytest.mark.parametrize("nested", [False, True])
def test_both_forms_of_librechat(tmp_path: Path, nested: bool) -> None:
    (found,) = read(write(tmp_path / "l.json", samples.librechat_conversation(nested=nested)))
    assert [(turn.role, turn.content) for turn in found.turns] == [
        ("user", "Weather in Lisbon?"),
        ("assistant", ""),
        ("tool", ""),
        ("assistant", "It is sunny."),
        ("assistant", "No idea."),
    ]
    assert found.current == "2"
    assert found.is_accounted_for


def test_letta_speaks_by_calling_a_tool(exports: dict[str, Path]) -> None:
    (found,) = read(exports["letta"])
    assert [(turn.role, turn.content) for turn in found.turns] == [
        ("user", "I am Ada."),
        ("assistant", "Hello Ada."),
        ("user", "Who am I?"),
        ("assistant", ""),
        ("tool", ""),
    ]
    assert found.metadata == {"core_memory": {"human": "Name: Ada"}}


def test_mem0_memories_are_as_they_are_now(exports: dict[str, Path]) -> None:
    memories, messages = read(exports["mem0"])
    assert [turn.content for turn in memories.turns] == ["Lives in Berlin"]
    assert memories.turns[0].metadata == {"earlier": ["Lives in Bonn"]}
    assert memories.left_out == {"an older version of a memory": 2, "a memory that was deleted": 1}
    assert [turn.content for turn in messages.turns] == ["I moved to Berlin"]


def test_a_memory_that_mem0_deleted_without_a_time_stays_deleted(exports: dict[str, Path]) -> None:
    with closing(sqlite3.connect(exports["mem0"])) as database:
        database.execute("UPDATE history SET created_at = NULL, updated_at = NULL WHERE event = 'DELETE'")
        database.commit()
    memories = next(read(exports["mem0"]))
    assert [turn.content for turn in memories.turns] == ["Lives in Berlin"]


# ---- odd and hostile files


def test_an_unknown_file_is_no_export(tmp_path: Path) -> None:
    assert open_export(write(tmp_path / "x.json", {"hello": 1})) is None
    assert open_export(write(tmp_path / "empty.json", [])) is None
    with pytest.raises(InvalidInput, match="must be one of chatgpt"):
        open_export(tmp_path / "x.json", "whatsapp")
    with pytest.raises(InvalidInput, match="there is no file"):
        open_export(tmp_path / "missing.zip")


def test_a_file_that_was_cut_short_says_so(tmp_path: Path) -> None:
    text = json.dumps([samples.chatgpt_conversation()])
    (tmp_path / "conversations.json").write_text(text[:-40])
    with pytest.raises(InvalidInput, match="cut short"):
        list(read(tmp_path / "conversations.json"))


@pytest.mark.costly
def test_a_bomb_and_a_locked_archive_are_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("conversations.json", b"[" + b" " * 50_000_000 + b"]")
    with pytest.raises(InvalidInput, match="times its size"):
        open_source(bomb)


def test_names_in_an_archive_lead_nowhere(tmp_path: Path) -> None:
    """Members are read by the archive, never written under their name."""
    talk = samples.chatgpt_conversation()
    talk["mapping"]["u2"]["message"]["content"]["parts"][0]["asset_pointer"] = "file-service://../../secret"
    with zipfile.ZipFile(tmp_path / "e.zip", "w") as archive:
        archive.writestr("../../evil.png", samples.PNG)
        archive.writestr("conversations.json", json.dumps([talk]))
    (found,) = read(tmp_path / "e.zip")
    assert [file.read for turn in found.turns for file in turn.files] == [None]
    assert not (tmp_path.parent / "evil.png").exists()


def test_cycles_and_lost_parents_end(tmp_path: Path) -> None:
    talk = samples.chatgpt_conversation()
    talk["mapping"]["a3"]["children"] = ["u2"]
    talk["mapping"]["lonely"] = samples.node("lonely", "lonely2", [], samples.said("user", "lost", 1.0))
    talk["mapping"]["lonely2"] = samples.node("lonely2", "lonely", ["lonely"], samples.said("user", "lost", 2.0))
    found = chatgpt.conversation(talk, open_source(tmp_path), {})
    assert found.is_accounted_for
    assert found.left_out["its place in the thread cannot be found"] == 2


FIELDS = "mapping message content parts author children parent id chat_messages text messages history metadata role"
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS.split()), inner, max_size=5),
    max_leaves=25,
)


@given(ANYTHING)
def test_any_json_is_read_or_counted(raw: Any) -> None:
    from palaver.interchange.exports import claude, librechat, open_webui

    data = raw if isinstance(raw, dict) else {"mapping": raw, "chat_messages": raw, "messages": raw}
    source = open_source(Path(__file__))
    for found in (
        chatgpt.conversation(data, source, {}),
        claude.conversation(data),
        open_webui.conversation(data),
        librechat.conversation(data),
    ):
        assert found.is_accounted_for


@given(
    st.lists(st.dictionaries(st.text(max_size=4), st.text(max_size=6) | st.lists(st.integers())), max_size=5),
    st.integers(1, 9),
)
def test_elements_are_split_at_any_place(items: list[dict[str, Any]], size: int) -> None:
    """The reader gets pieces of any length, also inside strings and escapes."""

    class Pieces(BytesIO):
        def read(self, _: int | None = -1) -> bytes:
            return super().read(size)

    for text in (json.dumps(items), json.dumps(items, ensure_ascii=False, indent=1)):
        found = [json.loads(one) for one in split_elements(Pieces(text.encode()), "x")]
        assert found == items
