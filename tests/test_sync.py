"""The synchronous API has the same methods and the same results, and leaves nothing running."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

import palaver
import palaver.sync
from palaver.testing import CountingIds, FakeClock

PATIENCE = 60  # seconds after which something that should happen has not


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/chat.db"


@pytest.fixture
def store(url: str) -> Iterator[Any]:
    with palaver.sync.open(url, tenant="acme", user="ada") as opened:
        yield opened


def test_turns_are_stored_and_read(store: Any) -> None:
    talk = store.conversation("support/42", title="Nuts")
    turn = talk.append("user", "I'm allergic to peanuts.")
    more = talk.append_many([{"role": "assistant", "content": "Noted."}, {"role": "user", "content": "Thanks."}])
    assert isinstance(turn, palaver.Turn)
    assert talk.history() == [turn, *more]
    assert talk.history(1, before=more[0]) == [turn]
    assert talk.refresh().turn_count == 3
    assert talk.verify().turns == 3


def test_values_are_the_same_as_in_the_async_face(url: str) -> None:
    with palaver.sync.open(url) as store:
        talk = store.conversation("k")
        turn = talk.append("user", "hello", metadata={"a": 1})
        log, info = talk.audit(), talk.refresh()

    async def read() -> tuple[Any, ...]:
        async with palaver.open(url) as other:
            there = await other.conversation("k")
            return await there.history(), await there.audit(), there.info

    assert asyncio.run(read()) == ([turn], log, info)


def test_attributes_are_handed_over_as_they_are(store: Any) -> None:
    talk = store.conversation("k", title="Nuts")
    assert (talk.key, talk.info.title, store.scope.user) == ("k", "Nuts", "ada")
    assert talk.id == talk.info.id == store.get(talk.id).id
    assert "append" in dir(talk)
    assert "Conversation" in repr(talk)


def test_a_stream_is_entered_with_with(store: Any) -> None:
    talk = store.conversation("k")
    with talk.stream("assistant", actor="bot") as out:
        out.write("You can ")
        out.write("eat rice.")
        out.finish(model="m")
    assert out.text == "You can eat rice."
    assert [(turn.text, turn.model, turn.status) for turn in talk.history()] == [("You can eat rice.", "m", "complete")]


def test_an_exception_aborts_a_stream_and_goes_on(store: Any) -> None:
    talk = store.conversation("k")
    with pytest.raises(KeyError), talk.stream("assistant") as out:  # noqa: PT012
        out.write("half")
        raise KeyError
    assert talk.history() == []
    assert (talk.turn(out.turn).status, talk.turn(out.turn).text) == ("aborted", "half")


def test_a_subscription_is_a_plain_iterator_that_can_be_left(store: Any) -> None:
    talk = store.conversation("k")
    talk.append("user", "one")
    seen = []
    for event in talk.subscribe():
        seen.append(event.kind)
        if len(seen) == 2:
            talk.append("user", "two")  # the loop continues with other work
        if len(seen) == 3:
            break
    assert seen == ["create", "append", "append"]
    assert [event.n for event in islice(talk.subscribe(after=1), 2)] == [2, 3]


def test_a_subscription_ends_with_its_conversation(store: Any) -> None:
    talk = store.conversation("k")
    events = talk.subscribe()
    assert next(events).kind == "create"
    talk.forget()
    assert [event.kind for event in events] == ["forget"]


def test_pages_of_records_are_iterated(store: Any) -> None:
    talk = store.conversation("k")
    talk.append("user", "x")
    assert [record.kind for page in talk.records() for record in page] == ["conversation", "event", "event", "turn"]


def test_errors_are_those_of_the_library(store: Any) -> None:
    talk = store.conversation("k")
    with pytest.raises(palaver.AppendConflict) as caught:
        talk.append("user", "x", expected_seq=5)
    assert (caught.value.expected, caught.value.found) == (5, 0)
    with pytest.raises(palaver.ConversationNotFound):
        store.get("0" * 26)
    with pytest.raises(palaver.InvalidInput):
        talk.forget(None)
    with pytest.raises(AttributeError):
        talk.no_such_verb()


def test_recall_is_a_list(store: Any) -> None:
    talk = store.conversation("k")
    talk.append("user", "I bought figs and dates.")
    hits = talk.recall("figs")
    assert [hit.turn.text for hit in hits] == ["I bought figs and dates."]
    assert (len(hits), hits[0].turn.role) == (1, "user")


def test_a_conversation_can_be_named_by_its_blocking_self(store: Any) -> None:
    talk = store.conversation("k")
    talk.append("user", "Hello.")
    assert store.requests(conversation=talk) == []
    assert store.generate(conversation=talk, message="What did I say?").role == "assistant"


def test_another_scope_is_a_blocking_store_too(store: Any) -> None:
    other = store.scoped(palaver.Scope("acme", "bob"))
    store.conversation("ada's")
    assert other.conversations().items == ()
    assert other.conversation("bob's").append("user", "hi").actor == "bob"


def test_attachments_come_back(store: Any, tmp_path: Path) -> None:
    talk = store.conversation("k")
    file = talk.attach(b"data", filename="a.txt")
    talk.append("user", "see file", attachments=[file])
    assert talk.read_attachment(file) == b"data"
    assert talk.attachment_text(file).text == "data"


def test_fakes_go_in_as_with_the_async_face(url: str) -> None:
    clock = FakeClock()
    with palaver.sync.open(url, clock=clock, ids=CountingIds()) as store:
        talk = store.conversation("k", ttl=60)
        assert talk.info.created == clock.now()
        clock.advance(61)
        assert store.expire() == [talk.id]


def test_many_threads_share_one_store(store: Any) -> None:
    talk = store.conversation("k")
    threads = [threading.Thread(target=talk.append, args=("user", str(n))) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [turn.seq for turn in talk.history()] == list(range(16))


async def test_it_works_inside_a_running_event_loop(url: str) -> None:
    with palaver.sync.open(url) as store:  # as in a notebook
        assert store.conversation("k").append("user", "hi").seq == 0


def test_nothing_is_left_running(url: str) -> None:
    before = set(threading.enumerate())
    with palaver.sync.open(url) as store:
        store.conversation("k").append("user", "hi")
    left = [thread for thread in threading.enumerate() if thread not in before and thread.name.startswith("palaver")]
    assert left == []


def test_a_database_that_cannot_be_opened_leaves_nothing_running(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    (tmp_path / "poem.db").write_text("Shall I compare thee to a summer's day?" * 100)
    with pytest.raises(palaver.NotADatabase), palaver.sync.open(f"sqlite:///{tmp_path}/poem.db"):
        pass
    assert [thread for thread in set(threading.enumerate()) - before if thread.name.startswith("palaver")] == []


def test_an_exception_in_the_block_closes_the_store(url: str) -> None:
    with pytest.raises(KeyError), palaver.sync.open(url) as store:  # noqa: PT012
        talk = store.conversation("k")
        raise KeyError
    with pytest.raises(palaver.StoreClosed):
        talk.append("user", "late")


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_a_subscription_that_outlives_its_store_makes_no_noise(url: str) -> None:
    with palaver.sync.open(url) as store:
        events = store.conversation("k").subscribe()
        assert next(events).kind == "create"
    del events


def test_a_subscription_in_another_thread_ends_when_the_store_is_closed(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    heard: SimpleQueue[Any] = SimpleQueue()

    def follow(talk: Any) -> None:
        try:
            for event in talk.subscribe():
                heard.put(event.kind)
        except palaver.StoreClosed as problem:
            heard.put(problem)

    with palaver.sync.open(url) as store:
        thread = threading.Thread(target=follow, args=[store.conversation("k")], daemon=True)
        thread.start()
        assert heard.get(timeout=PATIENCE) == "create"
    assert isinstance(heard.get(timeout=PATIENCE), palaver.StoreClosed)
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert caplog.records == []  # what the event loop could not tell anybody


def test_a_call_that_waits_when_the_portal_closes_gets_an_answer() -> None:
    portal, heard, begun = palaver.sync.Portal(), SimpleQueue[Any](), threading.Event()

    async def never() -> None:
        begun.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            portal.call(never())
        except palaver.StoreClosed as problem:
            heard.put(problem)

    threading.Thread(target=call, daemon=True).start()
    assert begun.wait(PATIENCE)
    portal.close()
    assert isinstance(heard.get(timeout=PATIENCE), palaver.StoreClosed)
    with pytest.raises(palaver.StoreClosed):
        portal.call(never())


@pytest.mark.parametrize("kind", [palaver.Store, palaver.Conversation, palaver.TurnWriter])
def test_every_public_verb_has_its_blocking_form(kind: type) -> None:
    verbs = [name for name, _ in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")]
    face = palaver.sync.Blocking(None, object.__new__(kind))  # type: ignore[arg-type]
    assert all(callable(getattr(face, name)) for name in verbs)
    assert set(verbs) <= set(dir(face))


FORK = """
import os, sys, palaver, palaver.sync

with palaver.sync.open(sys.argv[1], embedder=None, worker=False) as store:
    talk = store.conversation("x")
    child = os.fork()
    if not child:
        try:
            talk.append("user", "from a fork")
        except palaver.StoreClosed as problem:
            print(type(problem).__name__, flush=True)
    else:
        os.waitpid(child, 0)
        print(len(talk.history()), talk.append("user", "hello").seq)
"""


def test_a_fork_is_refused_and_does_not_wait_for_ever(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK, f"sqlite:///{tmp_path}/a.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.stdout.split("\n"), done.stderr) == (["StoreClosed", "0 0", ""], "")
