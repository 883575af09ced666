"""`palaver import --from postgres://… --table …`: rows become turns once, in any engine; a report says what did not."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64encode
from os import environ
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from typer.testing import CliRunner, Result

import palaver
from palaver.cli import app
from palaver.engines.postgres import compat
from tests.engines.postgres.compat.conftest import application
from tests.support import postgres_server

PICTURE = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
IMAGE = {
    "dataUrl": "data:image/png;base64," + b64encode(PICTURE).decode(),
    "filename": "a.png",
    "mimeType": "image/png",
}
OPENAI_CALL = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": '{"what": "tea"}'}}
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


async def test_a_file_name_loses_its_path_and_a_refused_file_is_named_as_the_reason(
    empty_database: str, target: str
) -> None:
    picture = b64encode(PICTURE + bytes(100_000)).decode()
    named = {"dataUrl": f"data:image/png;base64,{picture}", "filename": r"shots\monday/a.png"}
    broken = {"dataUrl": f"data:image/png;base64,{picture[:-1]}"}
    rows = (f"({n}, 'shop', 'pm', 'user', 'look', '{json.dumps([image])}')" for n, image in enumerate((named, broken)))
    await postgres_server.execute(
        empty_database,
        "CREATE TABLE old (id int, project_id text, agent text, role text, content text, images jsonb)",
        f"INSERT INTO old VALUES {', '.join(rows)}",
    )
    report = await told("--from", empty_database, "--table", "old", "--db", target)
    assert [one["reason"] for one in report["skipped"]] == [
        "images: not accepted as files, and too large for the metadata"
    ]
    async with palaver.open(target, files=environ["PALAVER_FILES"], worker=False) as store:
        (turn,) = await (await store.find("shop/pm")).history()
        assert [file.filename for file in turn.attachments] == ["a.png"]


async def test_an_image_gets_the_type_of_its_bytes(empty_database: str, target: str) -> None:
    """A large image whose row names another type would not fit into the metadata, and its message would be left out."""
    picture = b64encode(PICTURE + bytes(100_000)).decode()
    mislabelled = {"dataUrl": f"data:image/jpeg;base64,{picture}", "filename": "photo.jpg", "mimeType": "image/jpeg"}
    await postgres_server.execute(
        empty_database,
        "CREATE TABLE old (id int, project_id text, agent text, role text, content text, images jsonb)",
        f"INSERT INTO old VALUES (1, 'shop', 'pm', 'user', 'look', '{json.dumps([mislabelled])}')",
    )
    report = await told("--from", empty_database, "--table", "old", "--db", target)
    assert (report["imported"], report["skipped"], report["in_metadata"]) == (1, [], {})
    async with palaver.open(target, files=environ["PALAVER_FILES"], worker=False) as store:
        talk = await store.find("shop/pm")
        (file,) = (await talk.history())[0].attachments
        assert (file.filename, file.media_type) == ("photo.png", "image/png")
        assert await talk.data_url(file) == f"data:image/png;base64,{picture}"


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
    assert "is needed: name one of the columns Chat, who, what said, at, n" in refused.stderr
    columns = ("--conversation", "Chat", "--role", "who", "--content", "what said", "--created", "at", "--order", "n")
    report = await told(*source, *columns)
    assert report["imported"] == 2
    assert report["skipped"] == [{"reason": "content: is missing", "rows": 1, "first": "7 3"}]
    async with palaver.open(target, files=environ["PALAVER_FILES"], worker=False) as store:
        assert [turn.content for turn in await (await store.find("7")).history()] == ["a", "b"]


async def test_langchains_table_of_messages(empty_database: str, target: str) -> None:
    session = UUID(int=5)
    call = {"name": "look", "args": {"q": "tea"}, "id": "c1", "type": "tool_call"}
    messages: list[dict[str, Any]] = [
        {"type": "human", "data": {"content": "Which tea?", "type": "human"}},
        {"type": "ai", "data": {"content": "", "tool_calls": [call], "response_metadata": {"model_name": "gpt-9"}}},
        {"type": "tool", "data": {"content": "Sencha", "tool_call_id": "c1"}},
        {"type": "ai", "data": {"content": [{"type": "text", "text": "Sencha."}, {"type": "image", "url": "x"}]}},
    ]
    rows = ", ".join(f"('{session}', '{json.dumps(one)}')" for one in messages)
    await postgres_server.execute(
        empty_database,
        "CREATE TABLE chat (id serial PRIMARY KEY, session_id uuid, message jsonb, created_at date DEFAULT now())",
        f"INSERT INTO chat (session_id, message) VALUES {rows}",
    )
    source = ("--from", empty_database, "--table", "chat", "--db", target)
    report = await told(*source)
    assert (report["rows"], report["imported"], report["skipped"]) == (4, 4, [])
    assert (await told(*source))["already"] == 4
    async with palaver.open(target, files=environ["PALAVER_FILES"], worker=False) as store:
        turns = await (await store.find(str(session))).history()
        assert [turn.role for turn in turns] == ["user", "assistant", "tool", "assistant"]
        assert (turns[1].tool_calls[0].arguments, turns[1].model) == ({"q": "tea"}, "gpt-9")
        assert turns[2].tool_results[0].content == "Sencha"
        assert turns[3].content == "Sencha."
        assert turns[3].metadata["content"][1] == {"type": "image", "url": "x"}


HOSTED = f"""
CREATE TABLE conversations (id uuid PRIMARY KEY, user_id text, org_id text, workspace_id text, agent_id text,
  model text, title text, preview text, message_count int, metadata jsonb, created_at timestamptz DEFAULT now());
INSERT INTO conversations VALUES
  ('{UUID(int=1)}', 'ada', 'acme', 'sales', 'helper', 'gpt-5', 'Tea', 'Which tea?', 4, '{{"plan": "pro"}}'),
  ('{UUID(int=2)}', 'bob', 'acme', NULL, NULL, NULL, NULL, NULL, 1, NULL);
CREATE TABLE messages (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), conversation_id uuid, role text, content text,
  sources jsonb, token_count int, metadata jsonb, attachments jsonb, model text, rating int, n serial);
INSERT INTO messages (conversation_id, role, content, sources, token_count, metadata, attachments, model, rating) VALUES
  ('{UUID(int=1)}', 'user', 'Which tea?', NULL, 3, '{{"lang": "en"}}',
    '{json.dumps([{"dataUrl": IMAGE["dataUrl"], "name": "leaf.png"}, {"path": "ada/1/x.pdf", "name": "x.pdf"}])}',
    NULL, NULL),
  ('{UUID(int=1)}', 'assistant', NULL, NULL, 9, '{json.dumps({"tool_calls": [OPENAI_CALL]})}', NULL, 'gpt-5', NULL),
  ('{UUID(int=1)}', 'tool', 'Sencha', NULL, 2, '{{"tool_call_id": "c1"}}', NULL, NULL, NULL),
  ('{UUID(int=1)}', 'assistant', 'Sencha.', '[{{"url": "https://example.org/tea", "title": "Tea"}}]', 2,
    '{{"tokens": {{"prompt": 40, "completion": 2}}}}', '[]', 'gpt-5-mini', 5),
  ('{UUID(int=2)}', 'user', 'Hello', '["plain words"]', 1, NULL, NULL, NULL, 4);
"""


async def test_every_column_of_a_hosted_chat_is_kept_or_named(empty_database: str, target: str) -> None:
    await postgres_server.execute(empty_database, HOSTED)
    source = ("--from", empty_database, "--table", "messages", "--conversations", "conversations", "--db", target)
    report = await told(*source, "--order", "n")
    assert (report["imported"], report["skipped"]) == (5, [])
    assert report["in_metadata"] == {"token_count": 5, "attachments": 1, "sources": 1}
    assert report["dropped"] == {
        "rating": 2,
        "conversations.org_id": 2,
        "conversations.preview": 1,
        "conversations.message_count": 2,
        "conversations.created_at": 2,
    }
    async with palaver.open(target, files=environ["PALAVER_FILES"], worker=False) as store:
        talk = await store.find(str(UUID(int=1)), owner="ada")
        info = talk.info
        assert (info.workspace, info.agent, info.model, info.title) == ("sales", "helper", "gpt-5", "Tea")
        assert info.metadata == {"plan": "pro"}
        asked, called, result, answer = await talk.history()
        assert (asked.actor, asked.content) == ("ada", "Which tea?")
        assert asked.metadata == {
            "lang": "en",
            "token_count": 3,
            "attachments": [{"path": "ada/1/x.pdf", "name": "x.pdf"}],
        }
        assert [file.filename for file in asked.attachments] == ["leaf.png"]
        assert await talk.data_url(asked.attachments[0]) == IMAGE["dataUrl"]
        assert [(one.id, one.name, one.arguments) for one in called.tool_calls] == [("c1", "find", {"what": "tea"})]
        assert (called.model, called.metadata) == ("gpt-5", {"token_count": 9})
        assert [(one.id, one.content) for one in result.tool_results] == [("c1", "Sencha")]
        assert answer.sources == ({"url": "https://example.org/tea", "title": "Tea"},)
        assert (answer.model, answer.tokens.prompt, answer.tokens.completion) == ("gpt-5-mini", 40, 2)
        await talk.verify()
        (hello,) = await (await store.find(str(UUID(int=2)), owner="bob")).history()
        assert hello.metadata == {"token_count": 1, "sources": ["plain words"]}
    again = await told(*source, "--order", "n")
    assert (again["imported"], again["already"]) == (0, 5)


async def test_a_column_can_be_kept_or_given_another_meaning(empty_database: str, target: str) -> None:
    await postgres_server.execute(
        empty_database,
        "CREATE TABLE messages (chat_id int, role text, content text, uid uuid, refs jsonb, rating numeric, at date,"
        " extra jsonb, note text, secret bytea)",
        f"INSERT INTO messages VALUES (7, 'human', 'a', '{UUID(int=5)}', '[{{\"n\": 1}}]', 4.5, '2025-01-02',"
        " '{\"x\": 1}', '12', 'bytes'), (7, 'bot', 'b', NULL, NULL, 4, NULL, NULL, NULL, NULL)",
    )
    source = ("--from", empty_database, "--table", "messages", "--db", target)
    options = ("--column", "owner=uid", "--column", "sources=refs")
    kept = [part for name in ("rating", "at", "extra", "note") for part in ("--keep", name)]
    report = await told(*source, *options, *kept)
    assert report["dropped"] == {"secret": 1}
    assert report["in_metadata"] == {"rating": 2, "at": 1, "extra": 1, "note": 1}
    async with palaver.open(target, files=environ["PALAVER_FILES"], worker=False) as store:
        first, second = await (await store.find("7", owner=str(UUID(int=5)))).history()
        assert first.metadata == {"rating": 4.5, "at": "2025-01-02", "extra": {"x": 1}, "note": "12"}
        assert (first.sources, second.metadata) == (({"n": 1},), {"rating": 4})
    shown = await asyncio.to_thread(CliRunner().invoke, app, ["import", *source, *options])
    assert re.search(r"secret.*1.*not imported", shown.stdout)


async def test_what_a_table_says_of_its_own_rows_comes_back_as_it_was(
    empty_database: str, postgres_database: str, postgres_url: str
) -> None:
    """From a table of the librarian into Palaver, and out of the view of the same name."""
    session = str(UUID(int=9))
    call = {"id": "c1", "name": "look", "arguments": {"q": "nuts"}}
    rows = [
        ("user", "Nuts?", {"lang": "en"}),
        ("assistant", "", {"tool_calls": [call], "model": "m-1", "tokens": {"prompt": 3, "completion": 1}}),
        ("tool", "", {"tool_results": [{"id": "c1", "content": "peanuts"}]}),
        ("assistant", "Peanuts.", {"score": [1, None, {"a": "ü"}]}),
    ]
    await postgres_server.execute(
        empty_database,
        "CREATE TABLE conversation_messages (id uuid DEFAULT gen_random_uuid(), session_id uuid, role text,"
        " content text, metadata jsonb, created_at timestamptz)",
        *(
            f"INSERT INTO conversation_messages (session_id, role, content, metadata, created_at) VALUES ('{session}',"
            f" '{role}', '{said}', '{json.dumps(more)}', '2025-01-01 10:00:0{n}.123456+00')"
            for n, (role, said, more) in enumerate(rows)
        ),
    )
    connection = await asyncpg.connect(postgres_database)
    await compat.apply(connection, ["librarian"])
    before = "SELECT role, content, metadata, created_at FROM conversation_messages ORDER BY created_at"
    old = await asyncpg.connect(empty_database)
    given = [dict(row) for row in await old.fetch(before)]
    await old.close()
    report = await told("--from", empty_database, "--table", "conversation_messages", "--db", postgres_url)
    assert (report["imported"], report["dropped"], report["in_metadata"]) == (4, {}, {})
    async with connection.transaction():
        for name, value in application("default").items():
            await connection.execute("SELECT set_config($1, $2, true)", name, value)
        back = [dict(row) for row in await connection.fetch(before)]
    await connection.close()
    for row in (*given, *back):
        row["metadata"] = {k: v for k, v in json.loads(row["metadata"]).items() if k != "token_count"}
    assert back == given


# Sequences with a duplicate and a gap, and columns in another order than the views have.
OLD_HAL = f"""
CREATE TABLE hal_conversation_messages_before (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), project_id text,
  agent text, role text, content text, created_at timestamptz, sequence int, images jsonb);
INSERT INTO hal_conversation_messages_before (project_id, agent, role, content, created_at, sequence, images)
SELECT 'acme/shop', agent, CASE n % 3 WHEN 0 THEN 'user' WHEN 1 THEN 'assistant' ELSE 'system' END, 'say ' || n,
  timestamptz '2025-01-01 10:00:00.123456+00' + n * interval '1 minute',
  CASE WHEN n < 3 THEN n WHEN n = 3 THEN 2 ELSE n + 2 END,
  CASE n WHEN 4 THEN jsonb '{json.dumps([IMAGE])}' WHEN 5 THEN '[]' END
FROM unnest(ARRAY['pm', 'standup']) AS agent, generate_series(0, 9) AS n;
CREATE TABLE hal_conversation_summaries_before (project_id text, agent text, summary_text text, through_sequence int,
  updated_at timestamptz, PRIMARY KEY (project_id, agent));
INSERT INTO hal_conversation_summaries_before
VALUES ('acme/shop', 'pm', 'They said 0 to 5.', 8, '2025-01-02 00:00:00+00');
CREATE TABLE hal_conversation_working_memory_before (project_id text, agent text, summary text, stakeholders text[],
  goals text[], requirements text[], constraints text[], decisions text[], assumptions text[], open_questions text[],
  glossary jsonb, through_sequence int, last_updated_at timestamptz, PRIMARY KEY (project_id, agent));
INSERT INTO hal_conversation_working_memory_before VALUES ('acme/shop', 'pm', 'A shop.', '{{Ada}}', '{{Sell tea}}',
  '{{Open at nine}}', '{{No coffee}}', '{{Green tea}}', '{{They like tea}}', '{{Which tea?}}',
  '{{"SKU": "a thing to sell"}}', 10, '2025-01-02 00:00:00+00');
"""
PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "tables.md"


def _block(mark: str) -> str:
    """The page's SQL block that contains this."""
    (block,) = (one for one in re.findall(r"^```sql\n(.*?)^```", PAGE.read_text(), re.M | re.S) if mark in one)
    return str(block)


@pytest.mark.parametrize("way", ["sql", "command"])
async def test_hals_tables_come_back_as_they_were(
    postgres_database: str, postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The three tables are renamed, copied as the page says, and read from the views."""
    monkeypatch.setenv("PALAVER_FILES", str(tmp_path / "files"))
    begin, messages, rest = re.split(
        r"^(INSERT INTO hal_conversation_messages .*?;)$", _block("_before m"), flags=re.M | re.S
    )
    connection = await asyncpg.connect(postgres_database)
    await connection.execute(OLD_HAL)
    await compat.apply(connection, ["hal"])
    old = {name: await _rows(connection, f"{name}_before") for name in compat.TABLES["hal"]}
    if way == "command":
        table = "hal_conversation_messages_before"
        report = await told("--from", postgres_database, "--table", table, "--db", postgres_url, "--tenant", "acme")
        assert (report["imported"], report["dropped"], report["in_metadata"]) == (20, {}, {})
        messages = ""
    await connection.execute(begin + messages + rest)
    async with connection.transaction():
        for name, value in application("acme").items():
            await connection.execute("SELECT set_config($1, $2, true)", name, value)
        new = {name: await _rows(connection, name) for name in compat.TABLES["hal"]}
        (query,) = re.findall(r"^SELECT .*?;$", _block("only old"), re.M | re.S)
        differ = {row["content"] for row in await connection.fetch(query)}
    await connection.close()
    assert differ == ({"say 4"} if way == "command" else set()), "the row with an image, whose bytes are in a folder"
    for row in old["hal_conversation_messages"]:
        row["sequence"] = int(row["content"].removeprefix("say "))
        row["images"] = None if row["images"] == "[]" else row["images"]
        if way == "command" and row["images"]:  # its bytes are in the folder for files, which SQL cannot read
            row["images"] = json.dumps([{key: value for key, value in IMAGE.items() if key != "dataUrl"}])
    for row in old["hal_conversation_summaries"]:
        row["through_sequence"] = 6
    for row in old["hal_conversation_working_memory"]:
        row["through_sequence"] = 8
    for name in compat.TABLES["hal"]:
        assert _comparable(new[name]) == _comparable(old[name])


async def test_a_program_can_go_back_to_tables(postgres_database: str, postgres_url: str, tmp_path: Path) -> None:
    """The new tables have everything that the views had; jobs continue; lost images are reported."""
    connection = await asyncpg.connect(postgres_database)
    await connection.execute(OLD_HAL)
    await compat.apply(connection, ["hal"])
    await connection.execute(_block("_before m"))
    async with connection.transaction():
        for name, value in application("acme").items():
            await connection.execute("SELECT set_config($1, $2, true)", name, value)
        views = {name: await _rows(connection, name) for name in compat.TABLES["hal"]}
    await connection.execute(_block("new_messages"))
    tables = {name: await _rows(connection, name) for name in compat.TABLES["hal"]}
    await connection.close()
    assert {name: _comparable(rows) for name, rows in tables.items()} == {
        name: _comparable(rows) for name, rows in views.items()
    }
    async with palaver.open(postgres_url, tenant="acme", files=str(tmp_path)) as store:
        await store.settle()
        outbox = (await store.stats()).storage["outbox"]
        assert [job["error"] for job in outbox if job["error"]] == []
        with pytest.raises(palaver.VerificationFailed, match="its bytes are missing"):
            await (await store.find("acme/shop/pm")).verify()


async def test_the_page_finds_the_images_that_stop_the_copy(postgres_database: str) -> None:
    connection = await asyncpg.connect(postgres_database)
    await connection.execute(OLD_HAL)
    await compat.apply(connection, ["hal"])
    broken = [{"url": "x"}, {"dataUrl": "data:image/png;base64,iVBORw0KGgo"}]
    await connection.execute(
        "UPDATE hal_conversation_messages_before SET images = $1 WHERE agent = 'pm' AND content = 'say 7'",
        json.dumps(broken),
    )
    with pytest.raises(asyncpg.PostgresError, match="hold a data URL that is not base64"):
        await connection.execute(_block("_before m"))
    await connection.execute("ROLLBACK")
    found = await connection.fetch(_block("jsonb_path_query"))
    assert [(row["agent"], row["sequence"]) for row in found] == [("pm", 9)]
    await connection.close()


async def test_importing_from_the_view_instead_of_the_old_table_is_an_error(
    postgres_database: str, postgres_url: str
) -> None:
    connection = await asyncpg.connect(postgres_database)
    await compat.apply(connection, ["hal"])
    await connection.close()
    source = ("--from", postgres_database, "--db", postgres_url, "--tenant", "acme", "--table")
    refused = await run(*source, "hal_conversation_messages")
    assert refused.exit_code == 1
    assert "'hal_conversation_messages' is a view of Palaver's data" in refused.stderr
    assert "hal_conversation_messages_before" in refused.stderr


@pytest.mark.parametrize("table", ["hal_conversation_summaries_before", "hal_conversation_working_memory_before"])
async def test_importing_hals_other_tables_names_the_page_that_copies_them(
    empty_database: str, target: str, table: str
) -> None:
    await postgres_server.execute(empty_database, OLD_HAL)
    refused = await run("--from", empty_database, "--db", target, "--table", table)
    assert refused.exit_code == 1
    assert "has no messages" in refused.stderr
    assert "docs/how-to/tables.md" in refused.stderr


async def _rows(connection: Any, table: str) -> list[dict[str, Any]]:
    return [dict(row) for row in await connection.fetch(f"TABLE {table}")]


def _comparable(rows: list[dict[str, Any]]) -> list[list[tuple[str, Any]]]:
    """Everything but the ids of rows, which are Palaver's own, whatever the order of rows and columns."""
    read = [row | {"images": json.loads(row["images"])} if row.get("images") else row for row in rows]
    return sorted((sorted((name, v) for name, v in row.items() if name != "id") for row in read), key=repr)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("--table", "messages", "--column", "owner"), "must be FIELD=COLUMN"),
        (("--table", "messages", "--column", "mood=role"), "'mood' is not one of role, content"),
        (("--table", "messages", "--column", "owner=uid"), "the table has no column 'uid'"),
        (("--table", "messages", "--keep", "uid"), "the table has no column 'uid'"),
        (("--table", "messages", "--conversations", "nothing"), "'nothing' does not exist"),
        (("--table", "messages", "--conversations", "pg_catalog.pg_description"), "has no column with an id"),
        (("--table", "nothing"), "'nothing' does not exist"),
        (("--table", "messages", "--role", "wrong"), "the table has no column 'wrong'; it has chat_id, role, content"),
        ((), "--from: needs --table"),
        (("--table", "messages", "--into", "x"), "cannot be combined with a file or --into"),
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
    assert "6 rows. Imported 4 turns into 2 conversations. Rows imported earlier: 0." in done.stdout
    assert "names no conversation" in done.stdout
    assert "abracadabra" not in done.output
