"""Rules for every command: the options, the exit codes, and errors without a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import palaver
from palaver.cli import ORDER
from palaver.cli.database import hide_password
from tests.cli.conftest import process

LOOKING = [
    ["ls"], ["show", "notes"], ["search", "word"], ["stats"], ["verify"], ["export"], ["branches", "notes"],
    ["tail", "notes"], ["audit", "notes"], ["forget", "notes", "--yes"], ["reset", "notes", "--yes"],
    ["rename", "notes", "x"], ["explain", "notes"], ["recall", "notes", "word"], ["summaries", "notes"],
    ["compact", "notes"], ["memory", "notes", "--add", "goals", "x"], ["facts", "notes"], ["sweep"],
    ["worker", "--once"], ["reindex", "--embedder", "none"],
]  # fmt: skip


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_looking_never_makes_a_database_and_says_what_would(cli, folder, command):
    result = cli(*command)
    assert result.exit_code == 1
    assert f"there is no database {folder}/chat.db" in result.stderr
    assert "palaver chat" in result.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("name", ORDER)
def test_every_command_has_help_with_an_example_and_the_common_options(ok, name):
    shown = ok(name, "--help")
    assert f"palaver {name}" in shown.split("Example", 1)[1]
    for option in ("--db", "--tenant", "--user", "--json"):
        assert option in shown


@pytest.mark.parametrize("place", [["--db", "other.db", "ls"], ["ls", "--db", "other.db"]])
def test_options_may_stand_before_and_after_the_command(ok, place):
    ok("append", "notes", "user", "Hello", "--db", "other.db")
    assert "Hello" in ok(*place)
    assert not Path("chat.db").exists()


@pytest.mark.parametrize("name", ["plain.db", "with space.db", "50%25.db", "what?.db", "a#b.db", "ünï.db"])
def test_a_database_is_named_by_path(ok, folder, name):
    ok("append", "notes", "user", "Hello", "--db", name)
    assert (folder / name).exists()
    assert "Hello" in ok("show", "notes", "--db", str(folder / name))


def test_a_database_is_named_by_url(ok, folder):
    ok("append", "notes", "user", "Hello", "--db", f"sqlite:///{folder}/url.db")
    assert "Hello" in ok("show", "notes", "--db", "sqlite:///url.db")


def test_a_tenant_and_a_user_see_their_own(ok, cli, lines, monkeypatch):
    ok("append", "notes", "user", "Ada's.", "--user", "ada")
    ok("append", "notes", "user", "Bob's.", "--user", "bob")
    ok("append", "notes", "user", "Elsewhere.", "--tenant", "acme")
    monkeypatch.setenv("PALAVER_USER", "ada")
    assert [turn["content"] for turn in lines("show", "notes")] == ["Ada's."]
    assert [turn["content"] for turn in lines("show", "notes", "--user", "bob")] == ["Bob's."]
    monkeypatch.delenv("PALAVER_USER")
    monkeypatch.setenv("PALAVER_TENANT", "acme")
    assert [turn["content"] for turn in lines("show", "notes")] == ["Elsewhere."]


@pytest.mark.parametrize("option", ["--user", "--tenant", "--db"])
def test_an_option_with_nothing_in_it_is_not_taken_for_everybody(ok, cli, option):
    ok("append", "notes", "user", "Hello", "--user", "ada")
    for words in (["ls", option, ""], [option, "", "ls"]):
        result = cli(*words)
        assert result.exit_code == 2
        assert "must not be empty" in result.stderr


def test_a_key_of_several_owners_must_be_told_apart(ok, cli, lines):
    ok("append", "notes", "user", "Ada's.", "--user", "ada")
    assert [turn["content"] for turn in lines("show", "notes")] == ["Ada's."]
    ok("append", "notes", "user", "Bob's.", "--user", "bob")
    result = cli("show", "notes")
    assert result.exit_code == 1
    for info in lines("ls"):
        assert info["id"] in result.stderr
        assert lines("show", info["id"])


def test_a_participant_writes_into_the_shared_conversation(ok, lines, store):
    store.conversation("team", owner="ada", participants=["bob"])
    ok("append", "team", "user", "Hello from Bob.", "--user", "bob")
    assert [turn["actor"] for turn in lines("show", "team", "--user", "ada")] == ["bob"]


def test_an_error_is_one_line_and_code_1(ok, cli):
    ok("append", "notes", "user", "Hello")
    result = cli("show", "nowhere")
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: no conversation 'nowhere'")


def test_an_error_is_json_when_json_was_asked_for(ok, cli):
    ok("append", "notes", "user", "Hello")
    problem = json.loads(cli("show", "nowhere", "--json").stderr)
    assert problem["error"] == "ConversationNotFound"
    assert problem["message"] == "no conversation 'nowhere'"


def test_a_usage_error_is_code_2_and_json_when_json_was_asked_for():
    plain = process("ls", "--nonsense")
    assert (plain.returncode, plain.stdout) == (2, "")
    asked = process("ls", "--nonsense", "--json")
    assert asked.returncode == 2
    assert "--nonsense" in json.loads(asked.stderr)["message"]
    assert process("show", "x", "--roles", "king", "--json").returncode == 2


@pytest.mark.parametrize("db", ["postgresql://ada:swordfish@example.org/x", "sqlite:///", "nowhere/chat.db", "."])
def test_a_database_that_cannot_be_opened_is_an_error_without_a_traceback(db):
    done = process("append", "notes", "user", "Hello", "--db", db)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    assert "swordfish" not in done.stderr


@pytest.mark.parametrize("command", [("ls",), ("append", "notes", "user", "Hello"), ("worker", "--once"), ("migrate",)])
def test_a_server_is_not_a_database(cli, command):
    refused = cli(*command, "--db", "http://ada:s3cret@127.0.0.1:1")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("error: db: ")
    assert "s3cret" not in refused.stderr


@pytest.mark.parametrize("url", ["mysql://ada:s3cret@db/chats", "http://ada:s3cret@db"])
def test_doctor_reports_a_database_that_it_cannot_check(cli, url):
    """It used to print `problem none`."""
    report = cli("doctor", "--db", url)
    assert report.exit_code == 1
    assert "db: must be a file, or a database on Postgres or Supabase" in " ".join(report.stdout.split())
    assert "s3cret" not in report.output


WITHOUT_ASYNCPG = "import sys; sys.modules['asyncpg'] = None; from palaver.cli import main; main()"


def without_asyncpg(*args):
    """Run a command in an install without the extra `postgres`."""
    return subprocess.run([sys.executable, "-c", WITHOUT_ASYNCPG, *args], capture_output=True, text=True)


def test_migrate_of_a_file_needs_no_postgres_driver(folder):
    done = without_asyncpg("migrate", "--db", "chat.db")
    assert (done.returncode, done.stderr) == (0, "")
    assert "is at schema" in done.stdout


@pytest.mark.parametrize("command", [("migrate", "--sql"), ("migrate", "--db", "postgresql://h/x")])
def test_migrate_for_postgres_names_the_extra(folder, command):
    done = without_asyncpg(*command)
    assert done.returncode == 1
    assert done.stderr.startswith("error: The Postgres engine needs an optional dependency")
    assert 'pip install "palaver[postgres]"' in done.stderr


def test_doctor_names_the_extra_that_a_database_needs(folder):
    done = without_asyncpg("doctor", "--db", "postgresql://h/x", "--json")
    assert done.returncode == 1
    assert 'pip install "palaver[postgres]"' in json.loads(done.stdout)["database"]["problem"]


@pytest.mark.parametrize("password", ["s3cret", "a#s3cret", "a/s3cret", "p@s3cret", "a?s3cret"])
def test_a_password_is_not_printed(password):
    """Not even one that cuts the URL in two, as doctor prints such a URL with its problem."""
    assert "s3cret" not in hide_password(f"postgresql://ada:{password}@db:5432/chats")
    assert "s3cret" not in hide_password(f"postgresql://ada@db/chats?password={password.replace('#', '')}&user=ada")
    assert "s3cret" not in hide_password(f"postgresql://ada@db/chats?sslpassword={password.replace('#', '')}&user=ada")
    for user in ("ada@example.org", "sales/ada"):  # not percent-encoded either
        assert "s3cret" not in hide_password(f"postgresql://{user}:{password}@db:5432/chats")
    assert hide_password("postgresql://ada@db/chats") == "postgresql://ada@db/chats"
    assert hide_password("postgresql://ada@[::1]:5432/chats") == "postgresql://ada@[::1]:5432/chats"
    assert hide_password("sqlite:////data/a:b@c.db") == "sqlite:////data/a:b@c.db"


def test_a_reader_that_has_enough_is_no_error():
    process("import", "-", "--into", "long", input='{"role":"user","content":"word word word"}\n' * 3_000)
    shown = f"{sys.executable} -m palaver.cli show long --limit 3000 --json | head -n 1"
    done = subprocess.run(["sh", "-c", shown], capture_output=True, text=True, timeout=60)
    assert json.loads(done.stdout)["seq"] == 0
    assert done.stderr == ""


def test_completion_can_be_installed(ok):
    assert "--install-completion" in ok("--help")
    assert palaver.__version__ in ok("--version")


def test_the_library_does_not_load_its_command_line():
    code = "import sys, palaver; print([m for m in ('palaver.cli', 'typer', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_help_loads_no_database_and_no_progress_bar():
    code = "import sys, palaver.cli; print([m for m in ('apsw', 'rich.progress', 'rich.table') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_package_itself_runs_the_command_line():
    done = subprocess.run([sys.executable, "-m", "palaver", "--version"], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"palaver {palaver.__version__}\n"


@pytest.mark.parametrize(
    ("command", "cure"),
    [
        (["attachment", "notes", "nowhere"], "palaver attachments"),
        (["keys", "revoke", "nowhere"], "palaver keys list"),
        (["append", "notes", "user", "x", "--expected-seq", "7"], "read it again"),
        (["--db", "postgresql://127.0.0.1:9/chats", "ls"], "is it running, and is the address right?"),
        (["--db", "mysql://host/chats", "ls"], "memory:"),
    ],
    ids=lambda one: one if isinstance(one, str) else " ".join(one),
)
def test_a_refusal_says_what_to_do_next(ok, cli, command, cure):
    ok("append", "notes", "user", "Hello")
    result = cli(*command)
    assert result.exit_code == 1
    assert cure in result.stderr


def test_no_keys_is_said_and_not_an_empty_table(ok):
    ok("append", "notes", "user", "Hello")
    assert "palaver keys create" in ok("keys", "list")


def test_forgetting_a_conversation_says_where_its_log_is(ok):
    ok("append", "notes", "user", "Hello")
    id = ok("forget", "notes", "--yes").split()[-1]
    assert "forget" in ok("audit", id)
