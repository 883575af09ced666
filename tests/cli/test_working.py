"""palaver sweep, worker, reindex; and what stats and doctor say of the work."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from palaver.cli import doctor
from tests.cli.conftest import interrupt, process, raw, running

needs_local = pytest.mark.skipif(not doctor._local_embedder()["installed"], reason="needs the extra `local`")


def query(sql: str) -> list[tuple[object, ...]]:
    db = raw()
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


@pytest.fixture
def talk(store):
    talk = store.conversation("support/42")
    talk.append_many({"role": "user", "content": f"Day {day}: the fence needs paint."} for day in range(60))
    return talk


# ---- sweep ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def old_and_new(store):
    long_ago = datetime.now(UTC) - timedelta(days=2)
    talk = store.conversation("notes")
    talk.append("user", "An old secret.", created=long_ago)
    talk.append("user", "Something new.")


def test_sweep_keeps_turns_of_any_age_by_default(ok, lines, old_and_new):
    assert "Deleted 0 expired conversations and 0 old turns" in ok("sweep")
    assert len(lines("show", "notes")) == 2


def test_sweep_forgets_turns_that_are_older_than_the_retention(ok, lines, old_and_new):
    assert "and 1 old turn;" in ok("sweep", "--retention-minutes", "1440")
    assert [turn["content"] for turn in lines("show", "notes")] == ["Something new."]


def test_sweep_reads_the_retention_from_the_environment(lines, old_and_new, monkeypatch):
    monkeypatch.setenv("PALAVER_RETENTION_MINUTES", "1440")
    assert lines("sweep") == [{"conversations": [], "turns": 1, "streams": 0, "files": 0}]


def test_sweep_reads_the_retention_from_its_old_variable_and_warns(cli, old_and_new, monkeypatch):
    monkeypatch.setenv("RETENTION_MINUTES", "1440")
    result = cli("sweep")
    assert "and 1 old turn;" in result.stdout
    assert "set PALAVER_RETENTION_MINUTES" in result.stderr


def test_the_new_variable_of_the_retention_comes_before_the_old_one(cli, old_and_new, monkeypatch):
    monkeypatch.setenv("RETENTION_MINUTES", "1440")
    monkeypatch.setenv("PALAVER_RETENTION_MINUTES", "10000000")
    result = cli("sweep")
    assert "and 0 old turns;" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(("value", "code"), [("0", 1), ("-5", 1), ("nan", 1), ("soon", 2)])
def test_sweep_refuses_a_retention_that_makes_no_sense(cli, lines, old_and_new, monkeypatch, value, code):
    monkeypatch.setenv("PALAVER_RETENTION_MINUTES", value)
    assert cli("sweep").exit_code == code
    monkeypatch.delenv("PALAVER_RETENTION_MINUTES")
    assert len(lines("show", "notes")) == 2


def test_sweep_deletes_expired_conversations(lines, store):
    short = store.conversation("short", ttl=0.001)
    assert lines("sweep")[0]["conversations"] == [short.id]


# ---- worker --------------------------------------------------------------------------------------------------------


def test_worker_once_does_what_waits_and_says_so(ok, lines, talk):
    assert ok("worker", "--once") == "No jobs are left.\n"
    assert lines("summaries", "support/42")
    (stats,) = lines("stats")
    assert stats["storage"]["outbox"] == []
    assert stats["storage"]["embedding"]["backlog"] == 0


def test_worker_in_json_is_a_line_per_change(lines, talk):
    *_, last = lines("worker", "--once")
    assert last == {"waiting": 0, "dead": 0, "to_embed": 0, "errors": []}


def test_worker_works_until_ctrl_c(talk):
    with running("worker", "--json") as worker:
        for line in worker.stdout:
            state = json.loads(line)
            if not state["waiting"] and not state["to_embed"]:
                break
        err = interrupt(worker)
    assert worker.returncode == 0
    assert b"Traceback" not in err


# ---- stats ---------------------------------------------------------------------------------------------------------


def test_stats_show_the_work_that_waits(ok, lines, talk):
    lines("search", "fence")  # brings the index up to date, which fills the outbox
    (stats,) = lines("stats")
    waiting = {job["kind"]: job["jobs"] for job in stats["storage"]["outbox"] if not job["dead"]}
    assert waiting == {"compact": 1, "embed": 1}
    assert stats["storage"]["embedding"]["backlog"] == 60
    shown = ok("stats")
    assert "compact: 1 waiting; embed: 1 waiting" in shown
    assert "60 passages to embed" in shown


def test_stats_show_the_work_that_was_put_aside_and_why(ok, lines, talk):
    lines("search", "fence")
    query("UPDATE jobs SET dead = 1, attempts = 6, error = 'OutOfLuck' WHERE kind = 'compact'")
    assert "compact: 1 failed after 6 tries: OutOfLuck" in ok("stats")
    shown = ok("worker", "--once")
    assert "1 job failed (compact: OutOfLuck)" in shown


# ---- reindex -------------------------------------------------------------------------------------------------------


def vectors() -> dict[object, object]:
    return dict(query("SELECT model, count(*) FROM embeddings GROUP BY model"))


@pytest.mark.costly
@needs_local
def test_reindex_gives_everything_its_vector_and_doubles_none(ok, lines, talk):
    assert lines("reindex") == [{"embedder": "recall-minilm-l6-int8-v1", "passages": 60, "conversations": 1}]
    assert vectors() == {"recall-minilm-l6-int8-v1": 60}
    assert "Rebuilt the text index of" in ok("reindex")
    assert vectors() == {"recall-minilm-l6-int8-v1": 60}


@pytest.mark.costly
@needs_local
def test_reindex_without_an_embedder_removes_the_vectors(ok, talk):
    ok("reindex")
    assert "the embedder is none" in ok("reindex", "--embedder", "none")
    assert vectors() == {}


@pytest.mark.costly
@needs_local
def test_reindex_changes_the_embedder_there_and_back(ok, talk):
    for embedder in ("local", "none", "local"):
        ok("reindex", "--embedder", embedder)
    assert vectors() == {"recall-minilm-l6-int8-v1": 60}
    # The real program: inside the tests, the embedder that is used by default is none.
    best, *_ = process("recall", "support/42", "painting a barrier", "--json").stdout.splitlines()
    assert json.loads(best)["parts"]["dense"] > 0


def test_an_embedder_that_is_not_known_is_refused_by_name(cli, talk):
    done = cli("reindex", "--embedder", "nonsense")
    assert done.exit_code == 1
    assert "embedder" in done.stderr


# ---- doctor --------------------------------------------------------------------------------------------------------


@pytest.mark.costly
@needs_local
def test_doctor_finds_the_local_embedder(ok, lines):
    assert lines("doctor")[0]["embedder"] == {"name": "recall-minilm-l6-int8-v1", "installed": True, "problem": None}
    assert "installed, recall matches words and meaning" in ok("doctor")


def test_doctor_says_how_to_install_the_local_embedder():
    advice = doctor._embedder_advice({"name": "recall-minilm-l6-int8-v1", "installed": False, "problem": None})
    assert "reinstall palaver" in advice
