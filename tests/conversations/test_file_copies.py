"""An edited message keeps its files, through the library."""

from __future__ import annotations

import pytest

from palaver import Conversation, Store, Turn

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


async def with_files(talk: Conversation) -> Turn:
    files = [
        await talk.attach(b"The lease ends in March.", filename="lease.txt"),
        await talk.attach(PNG, filename="p.png"),
    ]
    return await talk.append("user", "What is this?", attachments=files)


def names(turn: Turn) -> list[str]:
    return [one.filename for one in turn.attachments]


async def test_an_edit_keeps_the_files_as_copies(store: Store) -> None:
    talk = await store.conversation()
    first = await with_files(talk)
    second = first
    for as_id in (False, True):
        replaced = second
        second = await talk.append("user", "What is it?", replaces=replaced.id if as_id else replaced)
        assert names(second) == ["lease.txt", "p.png"]
        assert not {one.id for one in replaced.attachments} & {one.id for one in second.attachments}
        assert await talk.read_attachment(second.attachments[0]) == b"The lease ends in March."
    assert "The lease ends in March." in (await talk.build_context(4_000)).text
    await talk.forget(first)
    assert await talk.read_attachment(second.attachments[1]) == PNG, "the copy stays"
    await talk.verify()


async def test_files_that_are_given_are_the_files(store: Store) -> None:
    talk = await store.conversation()
    first = await with_files(talk)
    other = await talk.attach(b"Another.", filename="other.txt")
    second = await talk.append("user", "And now?", replaces=first, attachments=[first.attachments[1], other])
    assert names(second) == ["p.png", "other.txt"]
    assert names(await talk.append("user", "And now?", replaces=second, attachments=[])) == []


async def test_a_content_of_parts_names_its_own_files(store: Store) -> None:
    talk = await store.conversation()
    beside = await talk.attach(b"The lease ends in March.", filename="lease.txt")
    shown = await talk.attach(PNG, filename="p.png")
    parts = ["Look.", {"type": "image", "attachment": shown.id}]
    first = await talk.append("user", parts, attachments=[beside])
    again = await talk.append("user", ["Look here.", {"type": "image", "attachment": shown.id}], replaces=first)
    assert sorted(names(again)) == ["lease.txt", "p.png"]
    assert again.content[1].attachment in [one.id for one in again.attachments]  # type: ignore[union-attr]
    both = await talk.append("user", "Both.", replaces=again)
    assert sorted(names(both)) == ["lease.txt", "p.png"], "text names no files, so all are kept"


async def test_a_part_that_is_left_out_of_the_content_is_gone(store: Store) -> None:
    talk = await store.conversation()
    beside = await talk.attach(b"The lease ends in March.", filename="lease.txt")
    shown = await talk.attach(PNG, filename="p.png")
    first = await talk.append("user", ["Look.", {"type": "image", "attachment": shown.id}], attachments=[beside])
    assert names(await talk.append("user", ["Without the picture."], replaces=first)) == ["lease.txt"]


async def test_a_retry_stores_nothing_twice(store: Store) -> None:
    talk = await store.conversation()
    first = await with_files(talk)
    edits = [await talk.append("user", "What is it?", replaces=first, idempotency_key="k") for _ in range(2)]
    assert edits[0] == edits[1]
    assert len(await talk.history()) == 1


async def test_an_answer_that_is_replaced_leaves_its_files(store: Store) -> None:
    talk = await store.conversation()
    await talk.append("user", "Draw.")
    answer = await talk.append("assistant", "Here.", attachments=[await talk.attach(PNG, filename="p.png")])
    assert names(await talk.append("assistant", "In words.", replaces=answer)) == []


async def test_generate_keeps_the_files_of_the_question_that_it_replaces(store: Store) -> None:
    talk = await store.conversation()
    file = await talk.attach(b"The lease ends in March.", filename="lease.txt")
    await talk.generate("What is this?", attachments=[file])
    question = (await talk.history())[0]
    await talk.generate("What is it?", replaces=question)
    question = (await talk.history())[0]
    assert (question.text, names(question)) == ("What is it?", ["lease.txt"])
    await talk.generate("What is it?", replaces=question, attachments=[])
    assert names((await talk.history())[0]) == []
