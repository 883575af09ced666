"""palaver tail and audit: the log, with the text that it is about."""

from __future__ import annotations

import json
import signal

import pytest

from tests.cli.conftest import running


@pytest.fixture
def talk(store):
    talk = store.conversation("notes")
    talk.append("user", "Tell me a story.")
    return talk


def stream(talk, *pieces):
    turn = talk.append_open("assistant", actor="bot")
    for n, piece in enumerate(pieces):
        talk.append_chunk(turn, n, piece)
    return talk.append_commit(turn)


def test_once_prints_every_event_with_its_text_and_stops(lines, talk):
    stream(talk, "Once upon", " a time ", "naïve 🦊")
    events = lines("tail", "notes", "--once")
    assert [event["n"] for event in events] == list(range(1, len(events) + 1))
    assert [event["text"] for event in events if event["kind"] == "append"] == ["Tell me a story."]
    assert [event["text"] for event in events if event["kind"] == "chunk"] == ["Once upon", " a time ", "naïve 🦊"]


def test_after_goes_on_where_the_last_reader_ended(lines, talk):
    events = lines("tail", "notes", "--once")
    assert lines("tail", "notes", "--once", "--after", "1") == events[1:]
    assert lines("tail", "notes", "--once", "--after", str(events[-1]["n"])) == []


def test_a_stream_reads_as_one_text(ok, talk):
    stream(talk, "Once upon", " a time.")
    assert "Once upon a time.\n" in ok("tail", "notes", "--once")


def test_a_forgotten_turn_has_events_and_no_text(lines, ok, talk):
    turn = stream(talk, "Once upon", " a time.")
    ok("forget", "notes", turn.id, "--yes")
    events = lines("tail", "notes", "--once")
    assert events[-1]["kind"] == "forget"
    assert {event["text"] for event in events if event["turn"] == turn.id} == {None}


def test_it_follows_live_what_another_process_writes(ok):
    ok("append", "notes", "user", "before")
    with running("tail", "notes", "--json") as tail:
        seen = [json.loads(tail.stdout.readline()) for _ in range(2)]
        ok("append", "notes", "user", "after")
        seen.append(json.loads(tail.stdout.readline()))
        tail.send_signal(signal.SIGINT)
        assert tail.wait(timeout=30) == 130
    assert [event["text"] for event in seen] == [None, "before", "after"]


def test_it_ends_when_the_conversation_is_forgotten(ok):
    ok("append", "notes", "user", "before")
    with running("tail", "notes") as tail:
        assert b"create" in tail.stdout.readline()
        ok("forget", "notes", "--yes")
        rest, _ = tail.communicate(timeout=30)
    assert tail.returncode == 0
    assert b"forget" in rest.splitlines()[-1]


def test_audit_says_who_did_what_and_can_be_narrowed(ok, lines, talk):
    assert [event["kind"] for event in lines("audit", "notes")] == ["create", "append"]
    assert [event["kind"] for event in lines("audit", "notes", "--kind", "append")] == ["append"]
    assert "append" in ok("audit", "notes")


def test_the_log_outlives_the_conversation(ok, lines, talk):
    ok("forget", "notes", "--yes")
    assert lines("audit", talk.id)[-1]["kind"] == "forget"
