"""`palaver import --from postgres://… --table …`: rows become turns once, in any engine; a report says what did not."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from os import environ
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import palaver
from palaver.cli import app
from tests.support import postgres_server

PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
IMAGE = {
    "dataUrl": "data:image/png;base64," + b64encode(PICTURE).decode(),
    "filename": "a.png",
    "mimeType": "image/png",
}
HAL = f"""
CREATE TABLE hal_conversation_messages (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), project_id text, agent text,
  role text, content text, created_at timestamptz DEFAULT now(), sequence int, images jsonb);
INSERT INTO hal_conversation_messages (project_id, agent, role, content, created_at, sequence, images) VALUES
  ('shop', 'pm', 'assistant', 'second', '2025-01-02', 1, NULL),
  ('shop', 'pm', 'user', 'first', '2025-01-03', 0, NULL),
  ('shop', 'pm', 'user', 'look', '2025-01-04', 2, '{json.dumps([IMAGE, {"url": "x"}])}'),
  ('shop', 'pm', 'wizard', 'abracadabra', '2025-01-05', 3, NULL),
  ('shop', 'standup', 'user', 'morning', '2025-01-06', 0, NULL),
  (NULL, 'pm', 'user', 'lost', '2025-01-06', 0, NULL);
"""


async def run(*args: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, ["import", *args, "--json"])


async def told(*args: str) -> dict[str, Any]:
    done = await run(*args)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("PALAVER_FILES", str(tmp_path / "files"))
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/chat.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


async def test_hals_messages_come_in_order_with_their_images(empty_database: str, target: str) -> None:
    await postgres_server.execute(empty_database, HAL)
    report = await told("--from", empty_database, "--table", "hal_conversation_messages", "--db", target)
    assert (report["rows"], report["imported"], report["already"], report["conversations"]) == (6, 4, 0, 2)
    assert sorted((one["rows"], one["reason"]) for one in report["skipped"]) == [
        (1, "names no conversation"),
        (1, "role: must be one of user, assistant, system, tool"),
    ]
    async with palaver.open(target, files=environ["PALAVER_FILES"], worker=False) as store:
        talk = await store.find("shop/pm")
        turns = await talk.history()
        assert [turn.content for turn in turns] == ["first", "second", "look"]
        assert [turn.created.day for turn in turns] == [3, 2, 4]
        assert (talk.info.agent, turns[1].actor) == ("pm", "pm")
        assert await talk.data_url(turns[2].attachments[0]) == IMAGE["dataUrl"]
        assert turns[2].metadata == {"images": [{"url": "x"}]}
        await talk.verify()


async def test_running_it_again_stores_nothing_twice_and_brings_what_is_new(empty_database: str, target: str) -> None:
    await postgres_server.execute(empty_database, HAL)
    source = ("--from", empty_database, "--table", "hal_conversation_messages", "--db", target)
    await told(*source)
    again = await told(*source)
    assert (again["imported"], again["already"]) == (0, 4)
    async with palaver.open(target, files=environ["PALAVER_FILES"], worker=False) as store:
        talk = await store.find("shop/pm")
        files = (await store.stats()).attachments
        await talk.forget((await talk.history())[2])
    await postgres_server.execute(
        empty_database,
        "INSERT INTO hal_conversation_messages (project_id, agent, role, content, sequence)"
        " VALUES ('shop', 'pm', 'user', 'new', 9)",
        "UPDATE hal_conversation_messages SET content = 'otherwise' WHERE content = 'first'",
    )
    third = await told(*source)
    assert (third["imported"], third["already"]) == (1, 3)
    assert "was forgotten here" in {one["reason"] for one in third["skipped"]}
    async with palaver.open(target, files=environ["PALAVER_FILES"], worker=False) as store:
        talk = await store.find("shop/pm")
        assert [turn.content for turn in await talk.history()] == ["first", "second", "new"]
        assert (await store.stats()).attachments == files - 1  # the image of the forgotten turn did not come back
        await talk.verify()


async def test_sessions_come_with_metadata_and_without_ids(empty_database: str, target: str) -> None:
    session = "6f1c3a52-3c9e-4a56-9f0e-1d2c3b4a5968"
    await postgres_server.execute(
        empty_database,
        "CREATE SCHEMA old",
        "CREATE TABLE old.conversation_messages"
        " (session_id uuid, role text, content text, metadata jsonb, created_at timestamptz)",
        f"INSERT INTO old.conversation_messages SELECT '{session}', CASE n % 2 WHEN 0 THEN 'human' ELSE 'ai' END,"
        " 'same words', jsonb_build_object('n', n), timestamptz '2025-01-01' + n / 2 * interval '1 hour'"
        " FROM generate_series(0, 1300) AS n",
    )
    source = ("--from", empty_database, "--table", "old.conversation_messages", "--db", target)
    assert (await told(*source))["imported"] == 1301
    assert (await told(*source))["already"] == 1301
    async with palaver.open(target, files=environ["PALAVER_FILES"], worker=False) as store:
        talk = await store.find(session)
        turns = await talk.history(2_000)
        assert len(turns) == 1301
        assert sorted(turn.metadata["n"] for turn in turns) == list(range(1301))
        await talk.verify()


async def test_columns_of_any_name_can_be_said(empty_database: str, target: str) -> None:
    await postgres_server.execute(
        empty_database,
        'CREATE TABLE messages ("Chat" int, who text, "what said" text, at timestamp, n int)',
        "INSERT INTO messages VALUES (7, 'bot', 'b', '2025-01-01', 2), (7, 'human', 'a', '2025-01-01', 1)",
        "INSERT INTO messages VALUES (7, 'bot', NULL, NULL, 3)",
    )
    source = ("--from", empty_database, "--table", "messages", "--db", target)
    refused = await run(*source)
    assert refused.exit_code == 1
    assert "say which column it is: Chat, who, what said, at, n" in refused.stderr
    columns = ("--conversation", "Chat", "--role", "who", "--content", "what said", "--created", "at", "--order", "n")
    report = await told(*source, *columns)
    assert report["imported"] == 2
    assert report["skipped"] == [{"reason": "content: is missing", "rows": 1, "first": "7 3"}]
    async with palaver.open(target, files=environ["PALAVER_FILES"], worker=False) as store:
        assert [turn.content for turn in await (await store.find("7")).history()] == ["a", "b"]


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("--table", "nothing"), "'nothing' does not exist"),
        (("--table", "messages", "--role", "wrong"), "there is no column 'wrong'; there are chat_id, role, content"),
        ((), "goes with --table"),
        (("--table", "messages", "--into", "x"), "neither a file nor --into"),
    ],
)
async def test_what_cannot_be_is_said_before_anything_is_made(
    empty_database: str, tmp_path: Path, args: tuple[str, ...], problem: str
) -> None:
    await postgres_server.execute(empty_database, "CREATE TABLE messages (chat_id text, role text, content text)")
    done = await run("--from", empty_database, *args, "--db", str(tmp_path / "new.db"))
    assert done.exit_code == 1
    assert problem in done.stderr
    assert not (tmp_path / "new.db").exists()


async def test_people_get_a_table_of_what_was_left_out(empty_database: str, tmp_path: Path) -> None:
    await postgres_server.execute(empty_database, HAL)
    command = [
        "import",
        "--from",
        empty_database,
        "--table",
        "hal_conversation_messages",
        "--db",
        str(tmp_path / "a.db"),
    ]
    done = await asyncio.to_thread(CliRunner().invoke, app, command)
    assert "6 rows. Brought in 4 turns into 2 conversations; 0 were here already." in done.stdout
    assert "names no conversation" in done.stdout
    assert "abracadabra" not in done.output
