"""Small exports of other products, in their own formats, written for these tests."""

from __future__ import annotations

import base64
import json
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


# ---- ChatGPT


def node(id: str, parent: str | None, children: list[str], message: dict[str, Any] | None) -> dict[str, Any]:
    return {"id": id, "parent": parent, "children": children, "message": message}


def said(role: str, text: str, at: float, **more: Any) -> dict[str, Any]:
    content = more.pop("content", {"content_type": "text", "parts": [text]})
    return {
        "id": f"m{at}",
        "author": {"role": role, "name": more.pop("name", None), "metadata": {}},
        "create_time": at,
        "content": content,
        "recipient": more.pop("recipient", "all"),
        "metadata": more.pop("metadata", {}),
        **more,
    }


def chatgpt_conversation(id: str = "c-1", at: float = 1_700_000_000.0) -> dict[str, Any]:
    """An edited question, a regenerated answer, a tool call with its output, a picture, a hidden system message."""
    picture = {
        "content_type": "image_asset_pointer",
        "asset_pointer": "sediment://file_0000aa",
        "mime_type": "image/png",
    }
    code = {"content_type": "code", "language": "python", "text": "print(6*7)"}
    nodes = [
        node("root", None, ["sys"], None),
        node(
            "sys",
            "root",
            ["u1", "u1b"],
            said("system", "", at, metadata={"is_visually_hidden_from_conversation": True}),
        ),
        node("u1", "sys", ["a1"], said("user", "What is a palaver?", at + 1)),
        node("a1", "u1", [], said("assistant", "A long talk.", at + 2, metadata={"model_slug": "gpt-9"})),
        node("u1b", "sys", ["a2", "a2b"], said("user", "What is a palaver, in one word?", at + 3)),
        node("a2", "u1b", [], said("assistant", "Chatter.", at + 4, metadata={"model_slug": "gpt-9"})),
        node("a2b", "u1b", ["u2"], said("assistant", "Conversation.", at + 5, metadata={"model_slug": "gpt-9-mini"})),
        node(
            "u2",
            "a2b",
            ["t1"],
            said("user", "", at + 6, content={"content_type": "multimodal_text", "parts": [picture, "Compute 6*7"]}),
        ),
        node("t1", "u2", ["r1"], said("assistant", "", at + 7, content=code, recipient="python")),
        node("r1", "t1", ["r2"], said("tool", "42", at + 8, name="python")),
        node("r2", "r1", ["th"], said("tool", "done", at + 9, name="python")),
        node("th", "r2", ["a3"], said("assistant", "", at + 10, content={"content_type": "thoughts", "thoughts": []})),
        node("a3", "th", [], said("assistant", "It is 42.", at + 11, metadata={"model_slug": "gpt-9"})),
    ]
    return {
        "conversation_id": id,
        "title": "About words",
        "create_time": at,
        "update_time": at + 11,
        "default_model_slug": "gpt-9",
        "mapping": {one["id"]: one for one in nodes},
        "current_node": "a3",
    }


def chatgpt_zip(path: Path, *, parts: int = 1, conversations: int = 2) -> Path:
    """The archive, with one file of conversations or several."""
    talks = [
        chatgpt_conversation(f"c-{n}", 1_700_000_000.0 + 1_000 * (conversations - n)) for n in range(conversations)
    ]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        if parts == 1:
            archive.writestr("conversations.json", json.dumps(talks))
        for number in range(parts if parts > 1 else 0):
            archive.writestr(f"conversations-{number:03}.json", json.dumps(talks[number::parts]))
        archive.writestr("file_0000aa-sanitized.png", PNG)
        archive.writestr("chat.html", "<html></html>")
        archive.writestr("user.json", "{}")
    return path


# ---- Claude


def claude_conversation() -> dict[str, Any]:
    at = "2025-11-01T10:00:0{}.000000Z"
    answer = [
        {"type": "thinking", "thinking": "Let me look."},
        {"type": "text", "text": "I will look it up."},
        {"type": "tool_use", "id": "tu1", "name": "search", "input": {"q": "palaver"}},
        {"type": "tool_result", "tool_use_id": "tu1", "content": [{"type": "text", "text": "a long parley"}]},
        {"type": "text", "text": "It is a long parley."},
    ]
    attached = {"file_name": "notes.pdf", "file_type": "pdf", "file_size": 3, "extracted_content": "words of the file"}
    return {
        "uuid": "k-1",
        "name": "Parley",
        "created_at": at.format(0),
        "updated_at": at.format(9),
        "chat_messages": [
            {
                "uuid": "m1",
                "sender": "human",
                "text": "Hi",
                "content": [{"type": "text", "text": "Hi"}],
                "created_at": at.format(1),
                "attachments": [attached],
                "files": [{"file_name": "photo.png"}],
            },
            {"uuid": "m2", "sender": "assistant", "text": "…", "content": answer, "created_at": at.format(2)},
            {"uuid": "m3", "sender": "human", "text": "", "content": [], "created_at": at.format(3)},
            {"uuid": "m4", "sender": "robot", "text": "?", "created_at": at.format(4)},
        ],
    }


# ---- Claude Code and Codex


def claude_code_lines() -> list[dict[str, Any]]:
    def line(uuid: str, parent: str | None, kind: str, message: dict[str, Any], **more: Any) -> dict[str, Any]:
        at = f"2026-01-02T03:04:{len(uuid):02}Z"
        fields = {"uuid": uuid, "parentUuid": parent, "type": kind, "message": message, "timestamp": at}
        return {**fields, "sessionId": "s-1", "cwd": "/app", "version": "2.1", "isSidechain": False, **more}

    call = {"type": "tool_use", "id": "tA", "name": "Read", "input": {"file": "a"}}
    other = {"type": "tool_use", "id": "tB", "name": "Read", "input": {"file": "b"}}
    asst = {"role": "assistant", "id": "msg1", "model": "claude-x"}
    results = [{"type": "tool_result", "tool_use_id": id, "content": f"content {id}"} for id in ("tA", "tB")]
    return [
        {"type": "file-history-snapshot", "messageId": "x"},
        line("u1", None, "user", {"role": "user", "content": "Read both files."}),
        line("a1", "u1", "assistant", {**asst, "content": [{"type": "text", "text": "Reading."}]}),
        line("a2", "a1", "assistant", {**asst, "content": [call]}),
        line("a3", "a2", "assistant", {**asst, "content": [other]}),
        line("r1", "a2", "user", {"role": "user", "content": [results[0]]}),
        line("r2", "a3", "user", {"role": "user", "content": [results[1]]}),
        line("a4", "r2", "assistant", {**asst, "id": "msg2", "content": [{"type": "text", "text": "Both read."}]}),
        line("m1", "a4", "user", {"role": "user", "content": "<command>"}, isMeta=True),
        line("u2", "m1", "user", {"role": "user", "content": "Thanks."}),
        line("u2b", "m1", "user", {"role": "user", "content": "Thank you!"}),
        line("s1", "a4", "assistant", {**asst, "id": "side", "content": []}, isSidechain=True),
        {"type": "summary", "summary": "Two files", "leafUuid": "u2b"},
    ]


def codex_lines() -> list[dict[str, Any]]:
    def item(**payload: Any) -> dict[str, Any]:
        return {"timestamp": "2026-02-03T04:05:06Z", "type": "response_item", "payload": payload}

    return [
        {"timestamp": "2026-02-03T04:05:00Z", "type": "session_meta", "payload": {"id": "x-1", "cwd": "/app"}},
        item(type="message", role="developer", content=[{"type": "input_text", "text": "Be good."}]),
        item(type="message", role="user", content=[{"type": "input_text", "text": "<environment_context>…"}]),
        {"timestamp": "2026-02-03T04:05:01Z", "type": "turn_context", "payload": {"model": "gpt-9-codex"}},
        item(type="message", role="user", content=[{"type": "input_text", "text": "List the files"}]),
        item(type="reasoning", summary=[], encrypted_content="…"),
        item(type="function_call", name="shell", arguments='{"command": ["ls"]}', call_id="c1"),
        item(type="custom_tool_call", name="apply_patch", input="*** patch", call_id="c2"),
        item(type="function_call_output", call_id="c1", output="a b"),
        item(type="custom_tool_call_output", call_id="c2", output="ok"),
        item(type="message", role="assistant", content=[{"type": "output_text", "text": "a and b."}]),
        {"timestamp": "2026-02-03T04:05:09Z", "type": "event_msg", "payload": {"type": "token_count"}},
    ]


def write_lines(path: Path, lines: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


# ---- Open WebUI, LibreChat, Letta


def open_webui_chat() -> dict[str, Any]:
    picture = {"type": "image", "url": "data:image/png;base64," + base64.b64encode(PNG).decode()}
    messages = {
        "1": {
            "id": "1",
            "parentId": None,
            "childrenIds": ["2", "3"],
            "role": "user",
            "content": "Name a fish",
            "timestamp": 1_760_000_000,
            "files": [picture],
        },
        "2": {
            "id": "2",
            "parentId": "1",
            "childrenIds": [],
            "role": "assistant",
            "content": "Cod",
            "model": "llama",
            "timestamp": 1_760_000_001,
        },
        "3": {
            "id": "3",
            "parentId": "1",
            "childrenIds": ["4"],
            "role": "assistant",
            "content": "Hake",
            "model": "qwen",
            "timestamp": 1_760_000_002,
        },
        "4": {"id": "4", "parentId": "3", "childrenIds": [], "role": "user", "content": "", "timestamp": 1_760_000_003},
    }
    chat = {"title": "Fish", "models": ["qwen"], "history": {"messages": messages, "currentId": "3"}, "messages": []}
    return {"id": "w-1", "title": "Fish", "chat": chat, "updated_at": 1_760_000_009, "archived": True}


def librechat_conversation(*, nested: bool) -> dict[str, Any]:
    call = {"id": "lc1", "name": "weather", "args": '{"city": "Lisbon"}', "output": "sunny"}
    parts = [{"type": "tool_call", "tool_call": call}, {"type": "text", "text": {"value": "It is sunny."}}]
    root = "00000000-0000-0000-0000-000000000000"
    messages: list[dict[str, Any]] = [
        {
            "messageId": "1",
            "parentMessageId": root,
            "isCreatedByUser": True,
            "text": "Weather in Lisbon?",
            "createdAt": "2026-03-01T00:00:01Z",
        },
        {
            "messageId": "2",
            "parentMessageId": "1",
            "isCreatedByUser": False,
            "text": "",
            "content": parts,
            "model": "m",
            "createdAt": "2026-03-01T00:00:02Z",
        },
        {
            "messageId": "3",
            "parentMessageId": "1",
            "isCreatedByUser": False,
            "text": "No idea.",
            "model": "m",
            "createdAt": "2026-03-01T00:00:01Z",
        },
        {
            "messageId": "4",
            "parentMessageId": "2",
            "isCreatedByUser": False,
            "text": "boom",
            "error": True,
            "createdAt": "2026-03-01T00:00:03Z",
        },
    ]
    head = {"conversationId": "l-1", "endpoint": "openAI", "title": "Weather", "options": {"model": "m"}}
    if not nested:
        return {**head, "branches": True, "recursive": False, "messages": messages}
    plain = [{key: value for key, value in one.items() if key != "parentMessageId"} for one in messages]
    second = {**plain[1], "children": [plain[3]]}
    return {**head, "branches": True, "recursive": True, "messagesTree": [{**plain[0], "children": [second, plain[2]]}]}


def letta_agent() -> dict[str, Any]:
    def message(id: str, role: str, text: str, **more: Any) -> dict[str, Any]:
        fields = {
            "id": id,
            "role": role,
            "content": [{"type": "text", "text": text}],
            "created_at": "2026-04-01T00:00:00Z",
        }
        return {**fields, **more}

    speak = {
        "id": "s1",
        "type": "function",
        "function": {"name": "send_message", "arguments": '{"message": "Hello Ada."}'},
    }
    look = {
        "id": "s2",
        "type": "function",
        "function": {"name": "archival_memory_search", "arguments": '{"query": "Ada"}'},
    }
    packed = json.dumps({"type": "user_message", "message": "I am Ada.", "time": "now"})
    agent = {
        "id": "agent-1",
        "name": "Helper",
        "llm_config": {"model": "gpt-9"},
        "block_ids": ["b1"],
        "messages": [
            message("1", "system", "You are Letta."),
            message("2", "user", packed),
            message("3", "assistant", "She is new.", tool_calls=[speak]),
            message("4", "tool", '{"status": "OK"}', tool_call_id="s1"),
            message("5", "user", "Who am I?"),
            message("6", "assistant", "I look.", tool_calls=[look]),
            message("7", "tool", "Ada", tool_call_id="s2"),
        ],
    }
    return {"agents": [agent], "blocks": [{"id": "b1", "label": "human", "value": "Name: Ada"}]}


# ---- SQLite files


def openai_agents_file(path: Path) -> Path:
    items: list[Any] = [
        {"role": "user", "content": "What is the weather?"},
        {"type": "function_call", "call_id": "f1", "name": "weather", "arguments": '{"city": "Oslo"}', "id": "fc"},
        {"type": "function_call_output", "call_id": "f1", "output": "rain"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Rain."}]},
    ]
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY, created_at, updated_at)")
        database.execute(
            "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at)"
        )
        rows = [("one", json.dumps(item), "2026-05-01 00:00:00") for item in items]
        rows += [("two", json.dumps(items[0]), "2026-05-02 00:00:00"), ("two", "not json", "2026-05-02 00:00:01")]
        database.executemany("INSERT INTO agent_messages (session_id, message_data, created_at) VALUES (?, ?, ?)", rows)
    database.close()
    return path


def mem0_file(path: Path) -> Path:
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE history (id TEXT PRIMARY KEY, memory_id TEXT, old_memory TEXT, new_memory TEXT, event TEXT, "
            "created_at DATETIME, updated_at DATETIME, is_deleted INTEGER, actor_id TEXT, role TEXT)"
        )
        rows = [
            ("1", "a", None, "Lives in Bonn", "ADD", "2026-06-01T00:00:00+00:00", None),
            (
                "2",
                "a",
                "Lives in Bonn",
                "Lives in Berlin",
                "UPDATE",
                "2026-06-01T00:00:00+00:00",
                "2026-06-02T00:00:00+00:00",
            ),
            ("3", "b", None, "Likes tea", "ADD", "2026-06-03T00:00:00+00:00", None),
            ("4", "b", "Likes tea", None, "DELETE", "2026-06-03T00:00:00+00:00", "2026-06-04T00:00:00+00:00"),
        ]
        database.executemany(
            "INSERT INTO history (id, memory_id, old_memory, new_memory, event, created_at, updated_at) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            rows,
        )
        database.execute(
            "CREATE TABLE messages (id TEXT, session_scope TEXT, role TEXT, content TEXT, name TEXT, created_at)"
        )
        database.execute(
            "INSERT INTO messages VALUES ('1', 'user_id=ada', 'user', 'I moved to Berlin', NULL, '2026-06-02')"
        )
    database.close()
    return path
