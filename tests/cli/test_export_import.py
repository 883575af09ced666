"""palaver export and import: there and back, with nothing lost."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.interchange.exports.samples import PNG, chatgpt_zip

MESSAGES = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi", "actor": "bot"}]


def jsonl(rows) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.fixture
def filled(ok, store):
    Path("bill.pdf").write_bytes(b"%PDF-1.7\n" + bytes(range(256)))
    ok("append", "support/42", "user", "I'm allergic to peanuts. Ünïcode 🦊", "--attach", "bill.pdf")
    ok("append", "notes", "user", "Something else.")
    talk = store.conversation("support/42")
    answer = talk.append("assistant", "Noted.")
    talk.append("assistant", "Noted, no peanuts.", replaces=answer)
    talk.forget(talk.append("user", "Forget this."))
    talk.remember("instructions", "Never a nut.")


def test_a_round_trip_loses_nothing(ok, lines, filled):
    ok("export", "-o", "all.jsonl")
    imported = lines("import", "all.jsonl", "--db", "new.db")
    assert {one["key"] for one in imported} == {"support/42", "notes"}

    for key in ("support/42", "notes"):
        assert lines("show", key, "--all", "--db", "new.db") == lines("show", key, "--all")
        assert lines("audit", key, "--db", "new.db") == lines("audit", key)
        assert ok("export", key, "--db", "new.db") == ok("export", key)
    assert "Never a nut." in ok("export", "support/42", "--db", "new.db")
    assert all(one["ok"] for one in lines("verify", "--db", "new.db"))


def test_importing_twice_changes_nothing(ok, lines, filled):
    ok("export", "-o", "all.jsonl")
    ok("import", "all.jsonl", "--db", "new.db")
    assert [one["imported"] for one in lines("import", "all.jsonl", "--db", "new.db")] == [False, False]


@pytest.mark.parametrize("change", [("append", "support/42", "user", "Only here."), ("forget", "support/42", "--yes")])
def test_one_that_went_another_way_here_is_named_and_the_others_are_imported(ok, cli, lines, filled, change):
    ok("export", "-o", "all.jsonl")
    ok("import", "-", "--db", "new.db", input=ok("export", "support/42"))
    ok(*change, "--db", "new.db")
    before = ok("audit", "support/42", "--db", "new.db") if change[0] == "append" else None
    result = cli("import", "all.jsonl", "--db", "new.db", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stderr)["error"] in ("AlreadyImported", "ConversationGone")
    assert [json.loads(line)["key"] for line in result.stdout.splitlines()] == ["notes"]
    assert [turn["content"] for turn in lines("show", "notes", "--db", "new.db")] == ["Something else."]
    assert before is None or ok("audit", "support/42", "--db", "new.db") == before


def test_an_export_can_be_piped_in(ok, lines, filled):
    text = ok("export", "notes")
    ok("import", "-", "--db", "new.db", input=text)
    assert [turn["content"] for turn in lines("show", "notes", "--db", "new.db")] == ["Something else."]


def test_a_changed_export_is_refused(ok, cli, filled):
    text = ok("export", "notes").replace("Something else.", "Something new.")
    result = cli("import", "-", "--db", "new.db", "--json", input=text)
    assert result.exit_code == 1
    assert json.loads(result.stderr)["error"] == "VerificationFailed"


def test_an_export_that_was_cut_short_is_refused(ok, cli, filled):
    text = "".join(ok("export", "notes").splitlines(keepends=True)[:-1])
    result = cli("import", "-", "--db", "new.db", input=text)
    assert result.exit_code == 1
    assert "cut short" in result.stderr


def test_export_writes_what_was_asked_for_and_nothing_else(ok, filled):
    rows = [json.loads(line) for line in ok("export", "notes").splitlines()]
    assert [row["row"]["key"] for row in rows if row["kind"] == "conversation"] == ["notes"]
    assert [row["row"]["content"] for row in rows if row["kind"] == "turn"] == ["Something else."]


def test_an_export_that_fails_leaves_the_old_file_alone(cli, filled):
    Path("all.jsonl").write_text("the backup of yesterday")
    assert cli("export", "nowhere", "-o", "all.jsonl").exit_code == 1
    Path("chat.db-files").rename("moved")  # now a file of a turn is missing, half-way through
    assert cli("export", "support/42", "-o", "all.jsonl").exit_code == 1
    assert Path("all.jsonl").read_text() == "the backup of yesterday"
    assert not Path("all.jsonl.part").exists()


def test_an_export_to_a_folder_that_is_not_there_is_an_error(cli, filled):
    result = cli("export", "-o", "nowhere/all.jsonl")
    assert result.exit_code == 1
    assert "No such file" in result.stderr


def test_plain_messages_go_into_a_conversation(ok, lines):
    Path("messages.jsonl").write_text("\ufeff" + jsonl(MESSAGES), encoding="utf-8")
    assert "2 turns" in ok("import", "messages.jsonl", "--into", "support/42")
    assert [(turn["role"], turn["content"]) for turn in lines("show", "support/42")] == [
        ("user", "Hello"),
        ("assistant", "Hi"),
    ]


def test_messages_may_name_files_that_are_there(ok, lines, store):
    file = store.conversation("support/42").attach(b"The gate opens at nine.", filename="note.txt")
    message = {"role": "user", "content": [{"type": "file", "attachment": file.id}]}
    ok("import", "-", "--into", "support/42", input=jsonl([message]))
    [turn] = lines("show", "support/42")
    assert [one["id"] for one in turn["attachments"]] == [file.id]


def test_more_messages_than_one_batch_arrive_in_order(ok, lines):
    texts = [f"message {number}" for number in range(2_300)]
    ok("import", "-", "--into", "long", input=jsonl({"role": "user", "content": text} for text in texts))
    assert [turn["content"] for turn in lines("show", "long", "--limit", "5000")] == texts


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"role": "king", "content": "x"}, "role"),
        ({"role": "user", "content": 5}, "content"),
        ({"role": "user", "content": "x", "colour": "red"}, "colour"),
        ({"role": "tool", "content": "x"}, "tool_results"),
        ({"role": "user", "content": [{"type": "image", "attachment": "nowhere"}]}, "nowhere"),
    ],
)
def test_one_bad_message_stops_all_of_them_and_is_named(cli, bad, said):
    rows = [{"role": "user", "content": "fine"}] * 1_500 + [bad]
    result = cli("import", "-", "--into", "notes", input=jsonl(rows))
    assert result.exit_code == 1
    assert "message 1501" in result.stderr
    assert said in result.stderr
    assert cli("show", "notes").exit_code == 1


def test_the_wrong_kind_of_file_is_told_what_it_needs(ok, cli, filled):
    plain = cli("import", "-", input=jsonl(MESSAGES))
    assert (plain.exit_code, "--into" in plain.stderr) == (1, True)
    exported = cli("import", "-", "--into", "notes", input=ok("export", "notes"))
    assert (exported.exit_code, "without --into" in exported.stderr) == (1, True)
    for arguments in ([], ["--into", "notes"]):
        web = cli("import", "-", *arguments, input=jsonl([{"conversation": {"id": "a"}, "turns": [{"role": "user"}]}]))
        assert (web.exit_code, "use palaver export" in web.stderr) == (1, True)


def test_a_field_of_another_system_is_named_with_ours(cli):
    row = {"role": "user", "content": "Hello", "created_at": "2025-01-01T00:00:00Z"}
    refused = cli("import", "-", "--into", "notes", input=jsonl([row]))
    assert refused.exit_code == 1
    assert (
        "message 1: 'created_at' is not a field of a turn (did you mean 'created'?; see docs/come-from"
        in refused.stderr
    )


def test_a_file_that_cannot_be_read_makes_no_database(cli):
    assert cli("import", "nowhere.jsonl").exit_code == 1
    assert not Path("chat.db").exists()


def test_bytes_that_are_not_text_are_refused_by_line(cli):
    result = cli("import", "-", "--into", "notes", input=b'{"role":"user","content":"ok"}\n\xff\n')
    assert result.exit_code == 1
    assert "line 2" in result.stderr


# ---- exports of other products, and pages to read


def test_an_export_of_another_product_is_recognised_and_imported_once(ok, lines):
    chatgpt_zip(Path("export.zip"))
    text = ok("import", "export.zip")
    assert "2 conversations, 24 messages. Imported 18 turns and 2 files" in text
    assert "hidden system message" in text
    (again,) = lines("import", "export.zip")
    assert (again["imported"], again["already"]) == (0, 18)
    assert {one["key"] for one in lines("ls")} == {"chatgpt/c-0", "chatgpt/c-1"}


def test_an_import_of_nothing_is_not_a_success(cli):
    Path("conversations.json").write_text('[{"conversation_id": "c", "mapping": {}}]')
    result = cli("import", "conversations.json")
    assert result.exit_code == 1
    assert "Nothing was imported" in result.output


def test_a_folder_of_nothing_known_names_the_formats(cli):
    Path("folder").mkdir()
    result = cli("import", "folder")
    assert result.exit_code == 1
    assert "claude-code" in result.output


def test_a_conversation_as_a_page_is_complete_in_one_file_and_harmless(ok, store):
    talk = store.conversation("odd")
    talk.append("user", "<script>alert(1)</script> [x](javascript:alert(1)) ![p](http://example.com/p.png)")
    picture = talk.attach(PNG, filename='a"><img src=x onerror=alert(1)>.png')
    talk.append("user", "| a | b |\n|---|---|\n| 1 | 2 |", attachments=[picture])
    ok("export", "odd", "--format", "html", "-o", "odd.html")
    page = Path("odd.html").read_text()
    assert "<script" not in page
    assert 'href="javascript' not in page
    assert 'src="http' not in page
    assert "onerror=alert(1)>" not in page
    assert "<td>1</td>" in page
    assert 'src="data:image/png;base64,' in page


def test_a_conversation_as_markdown_and_as_messages(ok, store):
    talk = store.conversation("k", title="A title")
    for number in range(3):
        talk.append("user", f"question {number}")
        talk.append("assistant", "", tool_calls=[{"id": "c", "name": "look", "arguments": {"q": "```"}}])
        talk.append("tool", "", tool_results=[{"id": "c", "content": "found"}])
    text = ok("export", "k", "--format", "markdown")
    assert text.startswith("# A title\n")
    assert '````\nlook({"q": "```"})\n````' in text
    messages = json.loads(ok("export", "k", "--format", "openai"))["messages"]
    assert [one["role"] for one in messages] == ["user", "assistant", "tool"] * 3
    assert messages[1]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"q": "```"}'}


@pytest.mark.parametrize(("args", "hint"), [(("--format", "pdf"), "must be jsonl"), (("--format", "html"), "name it")])
def test_what_a_readable_export_needs(ok, cli, filled, args, hint):
    result = cli("export", *args)
    assert result.exit_code == 1
    assert hint in result.output


@pytest.mark.parametrize("options", [(), ("--owner", "ada")])
def test_an_sqlite_file_of_an_unknown_program_is_refused_by_name(cli, options):
    with closing(sqlite3.connect("other.sqlite")) as database:
        database.execute("CREATE TABLE message_store (id INTEGER PRIMARY KEY, session_id TEXT, message TEXT)")
    result = cli("import", "other.sqlite", *options)
    assert result.exit_code != 0
    assert "FILE: has none of these formats: chatgpt" in result.stderr


def test_an_owner_needs_an_export_of_another_product(cli):
    Path("messages.jsonl").write_text(jsonl(MESSAGES))
    assert "FILE is not recognised as one" in cli("import", "messages.jsonl", "--owner", "ada").stderr
    into = cli("import", "messages.jsonl", "--owner", "ada", "--into", "notes")
    assert "--owner: cannot be combined with --into" in into.stderr


def test_a_format_does_not_apply_to_standard_input(cli, ok) -> None:
    """It is refused, because it would be ignored there."""
    ok("append", "k", "user", "hello")
    told = cli("import", "-", "--format", "chatgpt", "--db", "copy.db", input=ok("export"))
    assert told.exit_code == 1
    assert "--format: " in told.stderr
    assert not Path("copy.db").exists()
