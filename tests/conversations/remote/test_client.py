"""A store on a server, beyond the guarantees: answers, contexts, errors, the synchronous API, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator

import apsw
import pytest

import palaver
import palaver.sync
from palaver.errors import (
    ConversationNotFound,
    EngineUnavailable,
    InvalidInput,
    PermissionDenied,
    ScrubPending,
    StoreClosed,
    TokenRefused,
)
from palaver.generation.events import Answered, MessageStored
from palaver.ports.models import TextDelta
from palaver.server.settings import ServerSettings
from tests.server.conftest import Running, running


@pytest.fixture(scope="module")
def remote_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("client")
    with running(ServerSettings(url=f"sqlite:///{folder}/s.db", embedder="none", rate=0)) as server:
        yield server


async def test_an_answer_is_streamed_and_its_context_explained(remote_server: Running) -> None:
    async with palaver.open(remote_server.url, key=remote_server.key()) as store:
        talk = await store.conversation("k", title="Food")
        await talk.append("user", "I'm allergic to peanuts.")
        await talk.append("assistant", "Noted.")
        events = [event async for event in talk.generate_stream("What am I allergic to?")]
        assert isinstance(events[0], MessageStored)
        assert isinstance(events[-1], Answered)
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == events[-1].turn.text
        context = await talk.build_context(2_000)
        assert context.tokens <= 2_000
        assert context.to_openai()
        assert "peanuts" in context.text
        assert "word for word" in str(context.explain())
        assert (await store.generate("k", "And again?")).role == "assistant"


async def test_a_stream_is_written_and_followed(remote_server: Running) -> None:
    async with palaver.open(remote_server.url, key=remote_server.key()) as store:
        talk = await store.conversation()
        async with talk.stream("assistant", flush=0.01) as out:
            await out.write("You can ")
            await out.write("eat rice.")
            out.finish(model="m")
        assert out.turn is not None
        assert (out.turn.content, out.turn.status, out.turn.model) == ("You can eat rice.", "complete", "m")


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"model": "openai:x"}, "is set on the server, not by its clients"),
        ({"user": "bob"}, "the key decides"),
        ({"worker": False}, "is set on the server, not by its clients"),
    ],
)
async def test_options_of_the_server_are_refused(remote_server: Running, options: dict[str, object], hint: str) -> None:
    with pytest.raises(InvalidInput, match=hint):
        await palaver.open(remote_server.url, **options)  # type: ignore[arg-type]


async def test_errors_are_those_of_the_library(remote_server: Running) -> None:
    with pytest.raises(TokenRefused, match="palaver keys create"):
        await palaver.open(remote_server.url, key="pk_wrong")
    with pytest.raises(EngineUnavailable, match="is it running"):
        await palaver.open("http://127.0.0.1:1")
    with pytest.raises(EngineUnavailable, match=r"server at http://127\.0\.0\.1:1/below cannot"):
        await palaver.open("http://ada:s3cret@127.0.0.1:1/below/")
    for url in ("http://ada:s3/cret@127.0.0.1:1", "http://127.0.0.1:1?key=s3cret", "https://"):
        with pytest.raises(InvalidInput, match="url: must be https://host") as refused:
            await palaver.open(url)
        assert "cret" not in str(refused.value)
    async with palaver.open(remote_server.url, key=remote_server.key(rights="read")) as store:
        assert store.scope.user == "ada"
        assert remote_server.url in repr(store)
        with pytest.raises(PermissionDenied) as denied:
            await store.conversation("new")
        assert denied.value.right == "write"
        with pytest.raises(ConversationNotFound) as missing:
            await store.find("nowhere")
        assert missing.value.conversation == "nowhere"
        with pytest.raises(InvalidInput, match="cannot be used with a store on a server"):
            await store.settle()


async def test_a_deletion_says_that_old_bytes_remain(remote_server: Running) -> None:
    """Another process is reading the file."""
    async with palaver.open(remote_server.url, key=remote_server.key()) as store:
        talk = await store.conversation("secrets")
        secret = await talk.append("user", "My number is 4711.")
        with apsw.Connection(remote_server.settings.url.removeprefix("sqlite:///")) as other:
            other.execute("SELECT count(*) FROM turns").fetchall()
            with pytest.raises(ScrubPending):
                await talk.forget(secret)
        assert not await talk.history()


def test_the_synchronous_api(remote_server: Running) -> None:
    with palaver.sync.open(remote_server.url, key=remote_server.key()) as store:
        talk = store.conversation("sync")
        talk.append("user", "Hello")
        assert [turn.content for turn in talk.history()] == ["Hello"]
        assert [hit.turn.content for hit in talk.recall("hello") if hit.turn] == ["Hello"]


async def test_the_memory_of_a_person(remote_server: Running) -> None:
    async with palaver.open(remote_server.url, key=remote_server.key(user="ada-lovelace")) as store:
        person = store.person("ada-lovelace")
        item = await person.remember("I live in Rome")
        better = await person.correct(item, "I live in Turin")
        assert [one.text for one in await person.facts()] == [better.text]
        assert [one.id for one in await person.fact_history(better)] == [item.id, better.id]
        assert "Turin" in await person.profile()
        await person.drop(better)
        await person.forget()
        assert await person.facts() == []


async def test_the_end_of_the_block_closes_the_connections(remote_server: Running) -> None:
    async with palaver.open(remote_server.url, key=remote_server.key()) as store:
        await store.stats()
    with pytest.raises(StoreClosed):
        await store.stats()


async def test_lists_and_notes_say_over_http_why_they_are_empty(remote_server: Running) -> None:
    async with palaver.open(remote_server.url, key=remote_server.key()) as store:
        talk = await store.conversation()
        found = (await talk.working_memory(), await talk.attachments(), await talk.facts(), await talk.summaries())
        assert [one.empty.reason if one.empty else None for one in found] == ["nothing stored"] * 4
        await talk.remember("goals", "Cook rice")
        assert (await talk.working_memory()).empty is None
