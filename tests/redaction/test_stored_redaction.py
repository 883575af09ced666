"""Redaction: derived memory never holds a secret; in a conversation that asks for it, nothing that is stored does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import Conversation, Store
from palaver.core.validation import MAX_CONTENT
from palaver.errors import InvalidInput, StreamSealed, TooLarge
from tests.support.memory import talk_on, traces, url

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

CARD, MAIL = "4111 1111 1111 1111", "ada.lovelace@example.com"
SECRETS = (CARD, MAIL)
REDACT = {"redact": True}


def leaks(text: str) -> list[str]:
    return [secret for secret in (*SECRETS, "4111", "lovelace") if secret in text]


class Copying:
    """A summariser that copies everything, secrets and all."""

    name = "copying"

    async def summarize(self, turns: Any, budget: int) -> str:
        return f"Written to {MAIL}: " + " ".join(turn.text + str(turn.tool_results) for turn in turns)

    async def merge(self, summaries: Any, budget: int) -> str:
        return f"Paid with {CARD}. " + " ".join(one.text for one in summaries)


@pytest.mark.parametrize("writer", [None, Copying()], ids=["offline", "copying"])
async def test_derived_data_holds_no_secret_with_any_summarizer(tmp_path: Path, writer: Any) -> None:
    async with palaver.open(url(tmp_path), embedder=None, worker=False, summarizer=writer) as store:
        talk = await store.conversation(settings={"facts": True})
        await talk.append("user", f"Always send the bill to {MAIL}.")
        await talk.append("user", f"My name is Ada and I like {MAIL}. We decided to pay with card {CARD} on 3 May.")
        await talk.append("assistant", "", tool_calls=[{"id": "c", "name": "pay", "arguments": {"card": CARD}}])
        content = "x" * 85 + f" {CARD} is what the answer has near its cut"
        await talk.append("tool", "", tool_results=[{"id": "c", "content": content}])
        await talk_on(talk, 250)
        await store.settle()
        memory, facts = await talk.working_memory(), await talk.facts(include_invalidated=True)
        assert memory.instructions
        assert facts
        assert leaks(str(memory)) == leaks(str(facts)) == []
        assert [leaks(one.text) for one in await talk.summaries() if leaks(one.text)] == []
        assert "[email]" in str(memory)


async def test_a_conversation_that_asks_for_it_stores_no_secret_at_all(tmp_path: Path, store: Store) -> None:
    talk = await store.conversation(settings=REDACT)
    said = f"Write to {MAIL} or charge {CARD}."
    await talk.append("user", said)
    await talk.append("user", [{"type": "text", "text": said}, {"type": "reasoning", "text": said}])
    calls = [{"id": "c", "name": "pay", "arguments": {"to": [MAIL], "card": CARD}}]
    await talk.append("assistant", said, tool_calls=calls, sources=[{"title": said}])
    await talk.append("tool", "", tool_results=[{"id": "c", "content": {"lines": [said, {"mail": MAIL}]}}])
    await talk.append_many([{"role": "user", "content": said}])
    assert traces(tmp_path, MAIL) == traces(tmp_path, CARD) == []
    turns = await talk.history()
    assert turns[0].text == "Write to [email] or charge [card]."
    assert turns[2].tool_calls[0].arguments == {"to": ["[email]"], "card": "[card]"}
    await talk.verify()


@pytest.mark.parametrize("flush", [0, "end"])
@pytest.mark.parametrize("size", [1, 3, 7, 1_000])
async def test_a_stream_flushes_only_redacted_text_however_it_is_cut(
    tmp_path: Path, store: Store, size: int, flush: Any
) -> None:
    talk = await store.conversation(settings=REDACT)
    text = f"Of course. The card is {CARD}, and the address {MAIL} is on file. Anything else?"
    async with talk.stream("assistant", flush=flush) as out:
        for start in range(0, len(text), size):
            await out.write(text[start : start + size])
            assert leaks(out.text) == []
        calls = [{"id": "c", "name": "mail", "arguments": {"to": MAIL}}]
        out.finish(tool_calls=calls, sources=[{"title": MAIL}])
    assert out.turn is not None
    assert out.turn.text == "Of course. The card is [card], and the address [email] is on file. Anything else?"
    assert traces(tmp_path, MAIL) == traces(tmp_path, CARD) == []
    await talk.verify()


async def test_a_stream_that_is_cut_off_leaves_no_half_of_a_secret(tmp_path: Path, store: Store) -> None:
    talk = await store.conversation(settings=REDACT)

    async def interrupted() -> None:
        async with talk.stream("assistant", flush=0) as out:
            await out.write(f"Your password is hunter2hunter2! and {MAIL}")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await interrupted()
    assert traces(tmp_path, MAIL) == traces(tmp_path, "hunter2") == []


@pytest.mark.costly
async def test_what_was_held_back_counts_too_when_a_stream_grows_too_large(store: Store) -> None:
    talk = await store.conversation(settings=REDACT)
    text = "x" * (MAX_CONTENT - 1)
    out = talk.stream("assistant", flush=60)
    with pytest.raises(TooLarge):  # noqa: PT012
        async with out:
            await out.write(text)
            await out.write("yz")  # no blank: what is kept back at the end is more than there is room for
    assert out.turn is not None
    cut = await talk.turn(out.turn)
    assert (cut.status, cut.text) == ("aborted", text + "y")
    await talk.verify()


async def remote(talk: Conversation, text: str, size: int, *, twice: bool = False) -> palaver.Turn:
    """A writer elsewhere: numbered pieces, each of them perhaps sent again because the answer got lost."""
    turn = await talk.append_open("assistant")
    for n, start in enumerate(range(0, len(text), size)):
        for _ in range(2 if twice else 1):
            assert await talk.append_chunk(turn, n, text[start : start + size]) == n + 1
        assert leaks((await talk.turn(turn)).text) == []
    return turn


@pytest.mark.parametrize("twice", [False, True], ids=["once", "repeated"])
@pytest.mark.parametrize("size", [1, 5, 13, 1_000])
async def test_numbered_pieces_are_redacted_across_their_edges_and_a_repeated_one_changes_nothing(
    tmp_path: Path, store: Store, size: int, twice: bool
) -> None:
    talk = await store.conversation(settings=REDACT)
    turn = await remote(talk, f"The card is {CARD}, the address {MAIL}. Anything else?", size, twice=twice)
    sealed = await talk.append_commit(turn)
    assert sealed.text == "The card is [card], the address [email]. Anything else?"
    assert await talk.append_commit(turn) == sealed, "a commit may be repeated, too"
    assert traces(tmp_path, MAIL) == traces(tmp_path, CARD) == []
    await talk.verify()


async def test_numbered_pieces_keep_their_order(store: Store) -> None:
    talk = await store.conversation(settings=REDACT)
    turn = await talk.append_open("assistant")
    assert await talk.append_chunk(turn, 0, "The card is 4111") == 1
    with pytest.raises(InvalidInput):
        await talk.append_chunk(turn, 2, "too early")
    assert await talk.append_chunk(turn, 1, " 1111 1111 1111.") == 2
    assert (await talk.append_abort(turn)).text == "The card is [card]."
    with pytest.raises(StreamSealed):
        await talk.append_chunk(turn, 2, "too late")


async def test_a_stream_whose_held_back_end_is_lost_says_so(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=None, worker=False) as store:
        talk = await store.conversation("t", settings=REDACT)
        turn = await talk.append_open("assistant")
        await talk.append_chunk(turn, 0, "Some words that are stored. The card is 4111")
    async with palaver.open(url(tmp_path), embedder=None, worker=False) as store:
        talk = await store.conversation("t")
        with pytest.raises(InvalidInput):
            await talk.append_chunk(turn, 1, " 1111 1111 1111.")
        assert leaks((await talk.append_abort(turn)).text) == []


async def test_another_redactor_can_be_brought_along(tmp_path: Path) -> None:
    from palaver.redaction import Finding, Redacted, replace_findings

    class Llamas:
        def redact(self, text: str) -> Redacted:
            at = text.find("llama")
            found = (Finding("animal", at, at + 5),) if at >= 0 else ()
            return Redacted(replace_findings(text, found), found)

    async with palaver.open(url(tmp_path), embedder=None, worker=False, redactor=Llamas()) as store:
        talk = await store.conversation(settings=REDACT)
        assert (await talk.append("user", "My llama.")).text == "My [animal]."
