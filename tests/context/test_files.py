"""Files of the current message in a context, through the public method, on both engines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import palaver
from palaver import Attachment, Conversation, Scope, Store
from palaver.conversations.internals import services_of
from palaver.errors import AttachmentNotFound
from tests.support.memory import url

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

LEASE = "The lease ends in March. Notice is three months."
PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
CARD = "4111 1111 1111 1111"


async def test_a_message_that_is_not_stored_finds_the_file_of_the_last_one(store: Store) -> None:
    talk = await store.conversation()
    file = await talk.attach(b"The zanzibar clause ends in March.", filename="contract.txt")
    await talk.append("user", "Here it is.", attachments=[file])
    await store.settle()
    context = await talk.build_context(2_000, message="What does the zanzibar clause say?")
    assert "ends in March" in context.text


async def attach(talk: Conversation, text: str, name: str = "lease.txt") -> Attachment:
    return await talk.attach(text.encode(), filename=name)


async def test_a_small_file_is_in_the_prompt_before_the_worker_has_read_it(store: Store) -> None:
    talk = await store.conversation()
    file = await attach(talk, LEASE)
    turn = await talk.append("user", "Summarise this file for me.", attachments=[file])
    context = await talk.build_context(2_000)
    said = context.messages[-1]["content"]
    assert LEASE in said
    assert said.count(f"attachment {file.id}") == 2, "named, and quoted with its id"
    (listed,) = context.explain().files
    assert (listed.name, listed.attachment, listed.state) == ("lease.txt", file.id, "in full")
    assert listed.reason in str(context.explain())
    assert context.explain().to_dict()["files"][0]["state"] == "in full"
    assert palaver.Explanation.from_dict(context.explain().to_dict()).files == context.explain().files
    # It was read once, and is stored: the worker has nothing left to read.
    engine, scope = services_of(talk).attachments.handle.engine, services_of(talk).attachments.handle.scope
    assert await engine.file_text(scope, talk.id, file.id) is not None
    assert await engine.unread_files(scope, talk.id, 10) == []
    await talk.append("assistant", "It is a lease.")
    later = await talk.append("user", "Thank you.")
    context = await talk.build_context(2_000, question=turn)
    assert LEASE in context.text, "a question that is asked again gets its files again"
    context = await talk.build_context(2_000, question=later)
    assert context.explain().files == ()
    assert f"attachment {file.id}" in context.text, "a file of an earlier turn is named"
    assert LEASE not in context.text


async def test_a_large_file_is_shown_in_part_and_found_by_the_question(store: Store) -> None:
    talk = await store.conversation()
    book = "Chapter one. " + "It was a quiet day. " * 5_000 + f"{LEASE} " + "It rained. " * 5_000
    file = await attach(talk, book, "book.txt")
    await talk.append("user", "When does the lease end?", attachments=[file])
    for count in range(2):  # read now, and read by the worker
        context = await talk.build_context(1_500)
        assert context.tokens <= 1_500
        (listed,) = context.explain().files
        assert listed.state == "in part"
        assert "1 passage that fits the question" in listed.reason
        assert "Chapter one." in context.text
        assert context.text.count(LEASE) == 1, f"not recalled in addition ({count})"
        await store.settle()


async def test_a_message_that_is_not_stored_may_name_files(store: Store) -> None:
    talk = await store.conversation()
    file = await attach(talk, LEASE)
    parts = [
        {"type": "text", "text": "What is this?"},
        {"type": "file", "attachment": file.id, "filename": "lease.txt"},
    ]
    context = await talk.build_context(1_000, message=parts)
    assert LEASE in context.text
    assert context.explain().files[0].state == "in full"
    assert LEASE in (await talk.build_context(1_000, message=parts)).text
    other = await store.conversation()
    with pytest.raises(AttachmentNotFound):
        await other.build_context(1_000, message=parts)


async def test_a_file_among_the_parts_of_a_message_is_read_too(store: Store) -> None:
    talk = await store.conversation()
    file = await attach(talk, LEASE)
    await talk.append("user", [{"type": "text", "text": "Read."}, {"type": "file", "attachment": file.id}])
    context = await talk.build_context(400)
    assert LEASE in context.to_openai()[-1]["content"][0]["text"]
    assert context.explain().files[0].state == "in full"


async def test_what_cannot_be_read_is_not_sent_and_named(store: Store, tmp_path: Path) -> None:
    talk = await store.conversation()
    archive = await talk.attach(b"PK\x05\x06" + bytes(18), filename="x.zip")
    picture = await talk.attach(PNG, filename="p.png")
    lost = await attach(talk, LEASE, "lost.txt")
    [path] = (tmp_path / "files").rglob("*.txt")
    path.unlink()
    await talk.append("user", "Look.", attachments=[archive, picture, lost])
    context = await talk.build_context(4_000)
    states = {one.name: (one.state, one.reason) for one in context.explain().files}
    assert states == {
        "x.zip": ("not sent", "no text found"),
        "p.png": ("in full", "sent as an image"),
        "lost.txt": ("not sent", "no text found (its bytes are missing)"),
    }
    for file in (archive, picture, lost):
        assert f"attachment {file.id})]" in context.text, "named with its id"


async def test_a_file_that_takes_too_long_is_still_being_read(store: Store) -> None:
    talk = await store.conversation()
    file = await attach(talk, LEASE)
    await talk.append("user", "Summarise this.", attachments=[file])
    services = services_of(talk)
    hasty = replace(services.contexts, files=replace(services.attachments, read_seconds=0.0))
    context = await hasty.build_checked(1_000, None, {})
    assert [(one.state, one.reason) for one in context.explain().files] == [("not sent", "still being read")]
    assert LEASE not in context.text
    await store.settle()
    assert LEASE in (await talk.build_context(1_000)).text


async def test_the_text_of_a_file_is_redacted_where_the_conversation_asks_for_it(store: Store) -> None:
    talk = await store.conversation(settings={"redact": True})
    file = await attach(talk, f"The card is {CARD}.")
    await talk.append("user", "What does it say?", attachments=[file])
    context = await talk.build_context(1_000)
    assert "The card is" in context.text
    assert CARD not in context.text
    await store.settle()
    assert CARD not in (await talk.build_context(1_000)).text


async def test_the_text_of_files_of_a_forgotten_turn_is_gone(store: Store) -> None:
    talk = await store.conversation()
    first = await talk.append("user", "Keep this.")
    file = await attach(talk, LEASE)
    turn = await talk.append("user", "Summarise this.", attachments=[file])
    assert LEASE in (await talk.build_context(1_000)).text
    await talk.forget(turn)
    context = await talk.build_context(1_000)
    assert context.turn_ids == (first.id,)
    assert "lease" not in context.text
    assert context.explain().files == ()


async def test_a_reader_without_the_right_to_write_gets_the_text_and_stores_nothing(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), user="ada", files=tmp_path / "files", embedder=None, worker=False) as store:
        talk = await store.conversation("a")
        file = await attach(talk, LEASE)
        await talk.append("user", "Summarise this.", attachments=[file])
        reader = await store.scoped(Scope(tenant="default", user="ada", rights=frozenset({"read"}))).get(talk.id)
        assert LEASE in (await reader.build_context(1_000)).text
        handle = services_of(talk).attachments.handle
        assert len(await handle.engine.unread_files(handle.scope, talk.id, 10)) == 1


async def test_files_stay_as_they_are_while_a_tool_loop_goes_on(store: Store) -> None:
    talk = await store.conversation()
    file = await attach(talk, "One sentence after the other. " * 3_000, "book.txt")
    turn = await talk.append("user", "Summarise this.", attachments=[file])
    first = await talk.build_context(2_000, question=turn)
    for n in range(6):
        calls = [{"id": f"c{n}", "name": "look", "arguments": {}}]
        await talk.append("assistant", "", tool_calls=calls, metadata={"answers": turn.id})
        await talk.append("tool", "", tool_results=[{"id": f"c{n}", "content": "A long result. " * 300}])
        again = await talk.build_context(2_000, question=turn)
        assert again.tokens <= 2_000
        assert first.messages[-1] in again.messages
        assert again.explain().files == first.explain().files
