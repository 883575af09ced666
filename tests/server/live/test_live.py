"""Live events: every character once, for readers that reload, hang up, are slow or come late."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import httpx
import pytest

import palaver.sync
from palaver.errors import EngineUnavailable, StoreClosed
from palaver.server.live.channel import ChannelHub, Closed
from palaver.server.live.frames import FeedPosition
from palaver.testing.providers import LoopbackProvider, Say
from tests.server.conftest import Running, Sent, events, ok, running, text_of, until

WORDS = [f"word{n} " for n in range(40)]
WHOLE = "".join(WORDS)


@pytest.fixture
def server_url(database_url: str) -> str:
    """On each engine in turn."""
    return database_url


@pytest.fixture
def provider() -> Iterator[LoopbackProvider]:
    with LoopbackProvider() as one:
        yield one


@pytest.fixture
def answering(settings: Any, provider: LoopbackProvider) -> Iterator[Running]:
    """A server whose model is on this machine, and says what a test wants."""
    with running(settings(model="chat", models=provider.models(), generate={"titles": False}, heartbeat=0.2)) as one:
        yield one


def new_talk(client: httpx.Client) -> str:
    return f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"


@contextmanager
def following(client: httpx.Client, path: str, **params: Any) -> Iterator[Iterator[Sent]]:
    with client.stream("GET", f"{path}/events", params=params) as response:
        assert response.status_code == 200, response.read()
        yield events(response)


def ask(client: httpx.Client, talk: str, message: str = "Go on") -> threading.Thread:
    """An answer that is being made while the test looks on."""
    url, headers = client.base_url, client.headers
    body = {"message": message}

    def work() -> None:
        with httpx.Client(base_url=url, headers=headers, timeout=60) as own:
            own.post(f"{talk}/generate", json=body)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_everything_from_the_start_and_then_live(client: httpx.Client, talk: str) -> None:
    ok(client.post(f"{talk}/turns", json={"role": "user", "content": "before"}))
    with following(client, talk) as stream:
        before = until(stream, "append")
        ok(client.post(f"{talk}/turns", json={"role": "user", "content": "while"}))
        (after,) = until(stream, "append")
    assert [one.kind for one in before] == ["create", "append"]
    assert (before[1].data["turn"]["content"], after.data["turn"]["content"]) == ("before", "while")
    assert [before[0].id, before[1].id, after.id] == ["1", "2", "3"]


def test_text_comes_before_it_is_flushed(answering: Running, provider: LoopbackProvider) -> None:
    """The store flushes every quarter of a second; a reader has the words as the model says them."""
    go_on = threading.Event()
    provider.script(Say(WORDS, hold_after=(20, go_on)))
    with answering.client() as client:
        talk = new_talk(client)
        with following(client, talk, after=1) as stream:
            answer = ask(client, talk)
            seen: list[Sent] = []
            while text_of(seen) != "".join(WORDS[:20]):
                seen.append(next(stream))
            go_on.set()
            seen += until(stream, "commit")
        answer.join()
    assert text_of(seen) == WHOLE
    assert seen[-1].data["turn"]["content"] == WHOLE


@pytest.mark.parametrize("how", ["header", "query"])
def test_a_reload_in_the_middle_of_an_answer(answering: Running, provider: LoopbackProvider, how: str) -> None:
    """The answer so far and then the rest, once: the id of the last frame is all that the client kept."""
    go_on = threading.Event()
    provider.script(Say(WORDS, hold_after=(10, go_on)))
    with answering.client() as client:
        talk = new_talk(client)
        seen: list[Sent] = []
        with following(client, talk) as stream:
            answer = ask(client, talk)
            while len(text_of(seen)) < 15:
                seen.append(next(stream))
        kept = seen[-1].id
        assert kept is not None
        resumed: dict[str, Any] = (
            {"headers": {"Last-Event-ID": kept}} if how == "header" else {"params": {"after": kept}}
        )
        with client.stream("GET", f"{talk}/events", **resumed) as response:
            stream = events(response)
            go_on.set()
            seen += until(stream, "commit")
        answer.join()
    assert text_of(seen) == WHOLE
    assert [one.kind for one in seen].count("open") == 1


def test_a_page_that_read_the_turns_first_misses_nothing(answering: Running, provider: LoopbackProvider) -> None:
    """Do as a web page after a reload: read the turns, then follow from the number that came with them."""
    go_on = threading.Event()
    provider.script(Say(WORDS, hold_after=(10, go_on)))
    with answering.client() as client:
        talk = new_talk(client)
        with following(client, talk) as stream:
            answer = ask(client, talk)
            until(stream, "delta")
        encode_events = ok(client.get(f"{talk}/turns"))
        shown = encode_events["items"][-1]
        assert shown["status"] == "pending"
        with following(client, talk, after=encode_events["last_event"]) as stream:
            go_on.set()
            rest = until(stream, "commit")
        answer.join()
    deltas = [one for one in rest if one.kind == "delta"]
    told = shown["content"]
    for one in deltas:  # a reader who knows what it has joins by the place that each piece names
        told = told[: one.data["from"]] + one.data["text"]
    assert told == WHOLE


def test_hanging_up_does_not_end_an_answer(answering: Running, provider: LoopbackProvider) -> None:
    go_on = threading.Event()
    provider.script(Say(WORDS, hold_after=(10, go_on)))
    with answering.client() as client:
        talk = new_talk(client)
        with client.stream("POST", f"{talk}/generate", json={"message": "Go on", "stream": True}) as response:
            until(events(response), "delta")
        with following(client, talk) as stream:
            go_on.set()
            end = until(stream, "commit")[-1]
    assert end.data["turn"]["content"] == WHOLE
    assert end.data["turn"]["finish_reason"] == "stop"


def test_a_stop_keeps_what_came(answering: Running, provider: LoopbackProvider) -> None:
    never = threading.Event()
    provider.script(Say(WORDS, hold_after=(10, never)))
    with answering.client() as client:
        talk = new_talk(client)
        with following(client, talk) as stream:
            answer = ask(client, talk)
            until(stream, "delta")
            ok(client.post(f"{talk}/stop"), 202)
            rest = until(stream, "commit")
        answer.join()
        never.set()
        assert "stop" in [one.kind for one in rest]
        assert rest[-1].data["turn"]["finish_reason"] == "stopped"
        assert WHOLE.startswith(rest[-1].data["turn"]["content"])
        assert ok(client.post(f"{talk}/verify"))["ok"]


def test_two_clients_see_the_same(answering: Running, provider: LoopbackProvider) -> None:
    provider.script(Say(WORDS))
    with answering.client() as client, answering.client() as other:
        talk = new_talk(client)
        with following(client, talk) as one, following(other, talk) as two:
            answer = ask(client, talk)
            first, second = until(one, "commit"), until(two, "commit")
        answer.join()
    assert text_of(first) == text_of(second) == WHOLE
    assert [s.data for s in first if s.kind != "delta"] == [s.data for s in second if s.kind != "delta"]


def test_two_clients_write_to_one_conversation(client: httpx.Client, server: Running, talk: str) -> None:
    def write(name: str) -> None:
        with server.client() as own:
            for n in range(20):
                ok(own.post(f"{talk}/turns", json={"role": "user", "content": f"{name}{n}"}))

    with following(client, talk, after=1) as stream:
        writers = [threading.Thread(target=write, args=(name,)) for name in "ab"]
        for one in writers:
            one.start()
        told = [next(stream) for _ in range(40)]
        for one in writers:
            one.join()
    assert [one.data["turn"]["seq"] for one in told] == list(range(40))
    assert sorted(one.data["turn"]["content"] for one in told) == sorted(f"{w}{n}" for w in "ab" for n in range(20))


def test_the_answer_as_server_sent_events_with_tools(settings: Any, provider: LoopbackProvider) -> None:
    provider.script(Say("Let me look.", calls=[("recall", {"query": "peanuts"})]), Say("You said peanuts."))
    options = {"titles": False, "tools": ["recall"]}
    with (
        running(settings(model="chat", models=provider.models(), generate=options)) as server,
        server.client() as client,
    ):
        talk = new_talk(client)
        ok(client.post(f"{talk}/turns", json={"role": "user", "content": "I am allergic to peanuts."}))
        headers = {"Accept": "text/event-stream"}
        with client.stream(
            "POST", f"{talk}/generate", json={"message": "What did I say?"}, headers=headers
        ) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            sent = list(events(response))
    kinds = [one.kind for one in sent]
    assert kinds[0] == "start"
    assert kinds[-1] == "done"
    assert kinds.index("tool_calls") < kinds.index("tool_result") < len(kinds) - 1
    assert text_of(sent) == "Let me look.You said peanuts."
    assert sent[-1].data["usage"]["prompt"]
    assert sent[-1].data["explanation"]["blocks"]


def test_an_answer_that_fails_says_so_in_the_stream(answering: Running, provider: LoopbackProvider) -> None:
    provider.script(Say(WORDS, cut_after=5))
    with answering.client() as client:
        talk = new_talk(client)
        with client.stream("POST", f"{talk}/generate", json={"message": "?", "stream": True}) as response:
            last = list(events(response))[-1]
    assert (last.kind, last.data["status"]) == ("error", 503)


def test_many_conversations_on_one_stream(client: httpx.Client) -> None:
    talks = [new_talk(client) for _ in range(3)]
    ids = [talk.rpartition("/")[2] for talk in talks]
    params = {"conversation": ids, "after": "1;1;1"}
    with client.stream("GET", "/api/events", params=params) as response:
        stream = events(response)
        for n, talk in enumerate(talks):
            ok(client.post(f"{talk}/turns", json={"role": "user", "content": f"in {n}"}))
        told = [next(stream) for _ in range(3)]
    assert {one.data["conversation"]: one.data["turn"]["content"] for one in told} == {
        id: f"in {n}" for n, id in enumerate(ids)
    }
    assert told[-1].id == "2;2;2"
    ok(client.post(f"{talks[1]}/turns", json={"role": "user", "content": "later"}))
    headers = {"Last-Event-ID": "2;2;2"}
    with client.stream("GET", "/api/events", params={"conversation": ids}, headers=headers) as response:
        assert next(events(response)).data["turn"]["content"] == "later"


@pytest.mark.parametrize("point", ["999", "nonsense", "1e9", "-1"])
def test_a_point_that_is_gone_is_told_as_a_reset(client: httpx.Client, talk: str, point: str) -> None:
    with following(client, talk, after=point) as stream:
        first = next(stream)
        assert (first.kind, first.data["last_event"]) == ("reset", 1)
        ok(client.post(f"{talk}/turns", json={"role": "user", "content": "new"}))
        assert next(stream).data["turn"]["content"] == "new"


def test_a_deleted_conversation_ends_its_streams(client: httpx.Client, talk: str) -> None:
    with following(client, talk) as stream:
        next(stream)
        client.delete(talk)
        rest = list(stream)
    assert rest[-1].kind == "gone"
    assert client.get(f"{talk}/events").status_code == 410


def test_silence_is_broken_by_heartbeats(answering: Running) -> None:
    with answering.client() as client:
        talk = new_talk(client)
        with client.stream("GET", f"{talk}/events", params={"after": 1}) as response:
            assert next(line for line in response.iter_lines() if line.startswith(":")) == ": ping"


def test_a_conversation_that_goes_takes_no_heartbeat_with_it(answering: Running) -> None:
    with answering.client() as client:
        first, second = new_talk(client), new_talk(client)
        ids = [talk.rpartition("/")[2] for talk in (first, second)]
        with client.stream("GET", "/api/events", params={"conversation": ids}) as response:
            stream = response.iter_lines()
            ok(client.delete(first))
            assert "event: gone" in stream
            assert ": ping" in stream


def test_a_database_that_goes_sends_the_readers_away(answering: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is not told would wait for ever, and miss what comes."""

    async def out_of_reach(*_: Any) -> None:
        raise EngineUnavailable("out of reach")

    with answering.client() as client:
        talks = [new_talk(client), new_talk(client)]
        ids = [talk.rpartition("/")[2] for talk in talks]
        with (
            following(client, talks[0], after=1) as one,
            client.stream("GET", "/api/events", params={"conversation": ids, "after": "1;1"}) as response,
        ):
            monkeypatch.setattr("palaver.server.auth.Authenticator.still_allowed", out_of_reach)
            assert [sent.kind for sent in one] == ["closing"]
            assert [sent.kind for sent in events(response)] == ["closing", "closing"]


def test_a_slow_reader_goes_back_to_the_log(client: httpx.Client, server: Running, talk: str) -> None:
    """A reader that falls behind the shared frames is served from the log, without a gap."""
    server.app.state.services.hub.kept_frames = 4
    with following(client, talk, after=1) as stream:
        turns = [{"role": "user", "content": "x" * 20_000} for _ in range(100)]
        for _ in range(5):
            ok(client.post(f"{talk}/turns/batch", json={"turns": turns}), 201)
        told: list[int] = []
        while len(told) < 500:
            one = next(stream)
            told += [one.data["turn"]["seq"]] if one.kind == "append" else []
    assert told == list(range(500))


# ---- from elsewhere ------------------------------------------------------------------------------------------------


def test_what_another_process_writes_is_live_too(server: Running, client: httpx.Client, talk: str) -> None:
    with following(client, talk, after=1) as stream, palaver.sync.open(server.settings.url, worker=False) as store:
        other = store.get(talk.rpartition("/")[2])
        with other.stream("assistant", flush=0.01) as out:
            for word in WORDS:
                out.write(word)
        seen = until(stream, "commit")
    assert text_of(seen) == WHOLE


def test_a_stop_from_another_process_is_obeyed(answering: Running, provider: LoopbackProvider) -> None:
    never = threading.Event()
    provider.script(Say(WORDS, hold_after=(10, never)))
    with answering.client() as client, palaver.sync.open(answering.settings.url, worker=False) as store:
        talk = new_talk(client)
        with following(client, talk) as stream:
            answer = ask(client, talk)
            until(stream, "delta")
            store.get(talk.rpartition("/")[2]).ask_to_stop()
            end = until(stream, "commit")[-1]
        answer.join()
        never.set()
    assert end.data["turn"]["finish_reason"] == "stopped"


def test_a_turn_that_a_client_writes_in_pieces_is_live(client: httpx.Client, talk: str) -> None:
    with following(client, talk, after=1) as stream:
        turn = ok(client.post(f"{talk}/streams", json={}))["id"]
        for n, word in enumerate(WORDS[:5]):
            ok(client.post(f"{talk}/streams/{turn}/chunks", json={"n": n, "text": word}))
        ok(client.post(f"{talk}/streams/{turn}/commit", json={}))
        seen = until(stream, "commit")
    assert text_of(seen) == "".join(WORDS[:5])


def test_what_is_redacted_is_never_live_either(answering: Running, provider: LoopbackProvider) -> None:
    """Memory is ahead of the log, but not ahead of the redactor."""
    provider.script(Say(["Your card is 41", "11 1111 11", "11 1111", ", is it not?"]))
    with answering.client() as client:
        made = ok(client.post("/api/conversations", json={"settings": {"redact": True}}))
        talk = f"/api/conversations/{made['id']}"
        with following(client, talk) as stream:
            answer = ask(client, talk)
            seen = until(stream, "commit")
        answer.join()
    assert text_of(seen) == seen[-1].data["turn"]["content"]
    assert "1111" not in text_of(seen)
    assert "is it not?" in text_of(seen)


def test_two_answers_at_once_resume_each_at_its_place(answering: Running, provider: LoopbackProvider) -> None:
    """An id holds a mark for each turn that is being written."""
    go_on = threading.Event()
    provider.script(Say(WORDS, hold_after=(10, go_on)), Say(WORDS[::-1], hold_after=(10, go_on)))
    with answering.client() as client:
        talk = new_talk(client)
        seen: list[Sent] = []
        with following(client, talk) as stream:
            answers = [ask(client, talk, "one"), ask(client, talk, "two")]
            while len({one.data["turn"] for one in seen if one.kind == "delta"}) < 2 or len(text_of(seen)) < 120:
                seen.append(next(stream))
        with following(client, talk, after=seen[-1].id) as stream:
            go_on.set()
            seen += until(stream, "commit")
            seen += until(stream, "commit")
        for answer in answers:
            answer.join()
    texts: dict[str, str] = {}
    for one in seen:
        if one.kind == "delta":
            assert one.data["from"] == len(texts.get(one.data["turn"], ""))
            texts[one.data["turn"]] = texts.get(one.data["turn"], "") + one.data["text"]
    assert sorted(texts.values()) == sorted([WHOLE, "".join(WORDS[::-1])])


async def test_readers_are_told_when_the_store_is_closed_under_them(database_url: str) -> None:
    async with AsyncExitStack() as readers:
        async with palaver.open(database_url, worker=False) as store:
            talk = await store.conversation("k")
            channel = await readers.enter_async_context(ChannelHub(store).channel(talk.info.tenant, talk.id))
            frames = channel.follow(FeedPosition(), silence=60)
            await anext(frames)
            rest = asyncio.create_task(last_of(frames))
        with pytest.raises(Closed) as closed:
            await asyncio.wait_for(rest, 60)
        assert isinstance(closed.value.__cause__, StoreClosed)


async def last_of(frames: AsyncIterator[Any]) -> Any:
    return [frame async for frame in frames][-1]
