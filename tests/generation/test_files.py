"""Answers about files: what the model gets with the question, and the tool that reads on."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest

from palaver import Attachment, Conversation, Store
from palaver.errors import ModelRefused
from palaver.testing.providers import Fail, LoopbackProvider, Say

Opener = Callable[..., AbstractAsyncContextManager[Store]]

LEASE = "The lease ends in March. Notice is three months."
BOOK = "Chapter one. " + "It was a quiet day. " * 4_000 + "The end."


async def attach(talk: Conversation, text: str = LEASE) -> Attachment:
    return await talk.attach(text.encode(), filename="lease.txt")


def tool_names(body: dict) -> list[str]:
    return [one.get("name") or one["function"]["name"] for one in body.get("tools", ())]


async def test_a_question_is_sent_with_its_file_and_the_tool_that_reads_on(
    opened: Opener, provider: LoopbackProvider, name: str
) -> None:
    provider.script(Say("Hello."), Say("A lease."), Say("In March."))
    async with opened(model=name) as store:
        talk = await store.conversation("x")
        await talk.generate("Hello?")
        assert tool_names(provider.bodies[0]) == [], "no file, no tool"
        await talk.generate("Summarise this file for me.", attachments=[await attach(talk)])
        assert LEASE in json.dumps(provider.bodies[1])
        assert tool_names(provider.bodies[1]) == ["read_attachment"]
        [request] = await talk.requests(1)
        assert request.explanation is not None
        assert [one["state"] for one in request.explanation["files"]] == ["in full"]
        await talk.generate("Thank you.")
        assert tool_names(provider.bodies[2]) == ["read_attachment"], "for files of earlier turns"


@pytest.mark.costly
async def test_the_file_stays_in_the_prompt_while_the_model_reads_on(
    opened: Opener, provider: LoopbackProvider, name: str
) -> None:
    async with opened(model=name, generate={"continuity": "off"}) as store:
        talk = await store.conversation("x")
        file = await attach(talk, BOOK)
        read = {"attachment": file.id, "start": 0, "length": 10**9}
        again = {"attachment": file.id, "start": 3_600, "length": 500}
        provider.script(
            Say(calls=[("read_attachment", read)]), Say(calls=[("read_attachment", again)]), Say("A quiet book.")
        )
        await talk.generate("Summarise this.", attachments=[file], token_budget=4_000)
        quoted = [one.partition("</file>")[0].count("It was a quiet day.") for one in map(json.dumps, provider.bodies)]
        assert quoted[0] > 100
        assert quoted == [quoted[0]] * 3, "the same part of the file in each round"
        results = [turn.tool_results[0].content for turn in await talk.history() if turn.role == "tool"]
        assert all(len(result) <= 4_000 for result in results)
        assert results[0].startswith(
            f"lease.txt, characters 0 to 3,600 of {len(BOOK):,} (read on with start=3600):\nChapter"
        )
        assert results[1].endswith(BOOK[3_600:4_100])
        assert [one.id for one in await talk.attachments()] == [file.id], "no result was so long that it was stored"


@pytest.mark.parametrize(
    "options", [{"tools": []}, {"tool_choice": "none"}, {"token_budget": 500}], ids=["tools", "choice", "budget"]
)
async def test_the_tool_is_not_offered_where_the_caller_decides(
    opened: Opener, provider: LoopbackProvider, options: dict
) -> None:
    provider.script(Say("A lease."))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        await talk.generate("Summarise this.", attachments=[await attach(talk)], **options)
        assert tool_names(provider.bodies[0]) == []
        assert LEASE in json.dumps(provider.bodies[0])


async def test_a_setting_switches_the_tool_off(opened: Opener, provider: LoopbackProvider) -> None:
    provider.script(Say("A lease."))
    async with opened(model="chat", generate={"offer_files": False}) as store:
        talk = await store.conversation("x")
        await talk.generate("Summarise this.", attachments=[await attach(talk)])
        assert tool_names(provider.bodies[0]) == []


async def test_pictures_alone_offer_no_tool(opened: Opener, provider: LoopbackProvider) -> None:
    provider.script(Say("A picture."))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        picture = await talk.attach(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", filename="p.png")
        await talk.generate("Look.", attachments=[picture])
        assert tool_names(provider.bodies[0]) == []
        assert f"attachment {picture.id}" in json.dumps(provider.bodies[0])


async def test_a_model_that_takes_no_tools_answers_without_them(
    opened: Opener, provider: LoopbackProvider, name: str
) -> None:
    provider.script(Fail(400), Say("A lease."), Say("In March."))
    async with opened(model=name) as store:
        talk = await store.conversation("x")
        answer = await talk.generate("Summarise this.", attachments=[await attach(talk)])
        assert answer.text == "A lease."
        assert [tool_names(body) for body in provider.bodies] == [["read_attachment"], []]
        assert [turn.role for turn in await talk.history()] == ["user", "assistant"]
        await talk.generate("When?")
        assert tool_names(provider.bodies[2]) == [], "it is remembered"


async def test_a_request_that_is_refused_for_another_reason_fails_as_before(
    opened: Opener, provider: LoopbackProvider
) -> None:
    provider.script(Fail(400), Fail(400), Say("Now."))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        with pytest.raises(ModelRefused):
            await talk.generate("Summarise this.", attachments=[await attach(talk)])
        await talk.generate("Again.")
        assert tool_names(provider.bodies[2]) == ["read_attachment"], "nothing was learnt from it"


async def test_the_tool_reads_files_of_this_conversation_only(opened: Opener, provider: LoopbackProvider) -> None:
    async with opened(model="chat") as store:
        other = await store.conversation("other")
        secret = await attach(other, "The password is swordfish.")
        await other.append("user", "Keep it.", attachments=[secret])
        talk = await store.conversation("x")
        file = await attach(talk)
        provider.script(Say(calls=[("read_attachment", {"attachment": secret.id})]), Say("No."))
        await talk.generate("Read the other file.", attachments=[file])
        [result] = [turn.tool_results[0] for turn in await talk.history() if turn.role == "tool"]
        assert result.is_error
        assert "swordfish" not in json.dumps(provider.bodies)
