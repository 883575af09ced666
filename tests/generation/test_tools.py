"""Tools: announced, run side by side, stored, shortened, bounded; and no failure of one ends the conversation."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
import pytest

from palaver import Answered, ToolCall, ToolDone, ToolOutput, ToolsPlanned, tool
from palaver.context.render import provider_name
from palaver.core.process_identity import is_gone, this_process
from palaver.errors import BudgetTooSmall, InvalidInput
from palaver.generation.tools import Toolbox, shorten_result
from palaver.testing import FakeClock, ScriptedModel, unquote
from palaver.testing.providers import LoopbackProvider, Say
from tests.generation.conftest import Opener
from tests.support.provider_rules import check_anthropic, check_chat, check_responses


def look_up(word: str) -> str:
    """Look a word up.

    Args:
        word: The word.
    """
    return f"{word} is a word"


def messages_with_tools(body: dict[str, Any]) -> list[str]:
    """Ids of calls and results in a body of any of the three formats, in order: call ids, then result ids."""
    found = []
    for message in body.get("messages", body.get("input", [])):
        found += [f"call {one['id']}" for one in message.get("tool_calls") or ()]
        if message.get("role") == "tool":
            found.append(f"result {message['tool_call_id']}")
        if message.get("type") == "function_call":
            found.append(f"call {message['call_id']}")
        if message.get("type") == "function_call_output":
            found.append(f"result {message['call_id']}")
        for block in message["content"] if isinstance(message.get("content"), list) else ():
            if block["type"] == "tool_use":
                found.append(f"call {block['id']}")
            if block["type"] == "tool_result":
                found.append(f"result {block['tool_use_id']}")
    return found


async def test_a_round_is_announced_run_and_stored(opened: Opener, provider: LoopbackProvider, name: str) -> None:
    provider.script(Say("I look.", calls=[("look_up", {"word": "rice"}), ("look_up", {"word": "tea"})]), Say("Done."))
    async with opened(model=name, generate={"continuity": "off"}) as store:
        talk = await store.conversation("x")
        events = [event async for event in talk.generate_stream("Look.", tools=[look_up])]
        (planned,) = [event for event in events if isinstance(event, ToolsPlanned)]
        done = [event for event in events if isinstance(event, ToolDone)]
        assert [call.arguments for call in planned.calls] == [{"word": "rice"}, {"word": "tea"}]
        assert {event.content for event in done} == {"rice is a word", "tea is a word"}
        assert events.index(planned) < min(events.index(event) for event in done)
        _, calls, results, answer = await talk.history()
        assert (calls.text, calls.finish_reason, len(calls.tool_calls)) == ("I look.", "tool_calls", 2)
        assert [result.id for result in results.tool_results] == [call.id for call in calls.tool_calls]
        assert events[-1] == Answered(answer)
        first, second = [call.id for call in calls.tool_calls]
        assert messages_with_tools(provider.bodies[1]) == [
            f"call {first}", f"call {second}", f"result {first}", f"result {second}",
        ]  # fmt: skip
        await talk.generate("And now?")  # the whole round renders again
        assert len(messages_with_tools(provider.bodies[2])) == 4
        await talk.verify()


async def test_independent_calls_run_at_the_same_time(opened: Opener, provider: LoopbackProvider) -> None:
    both = asyncio.Barrier(2)

    async def meet() -> str:
        """Waits for the other call."""
        await both.wait()
        return "met"

    provider.script(Say(calls=[("meet", {}), ("meet", {})]), Say("Done."))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        await talk.generate("Meet.", tools=[meet])
        assert [result.content for result in (await talk.history())[2].tool_results] == ["met", "met"]


async def test_a_tool_that_must_be_alone_is(opened: Opener, provider: LoopbackProvider) -> None:
    inside = 0
    most = 0

    async def count() -> int:
        """Counts who is here."""
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0)
        inside -= 1
        return most

    provider.script(Say(calls=[("count", {})] * 3), Say("Done."))
    async with opened(model="chat") as store:
        await store.generate("x", "Count.", tools=[tool(count, alone=True)])
    assert most == 1


ODD_TOOL = "files.read/größe:1"


async def test_a_tool_has_the_name_that_the_provider_accepts_and_runs_under_its_own(
    opened: Opener, provider: LoopbackProvider, name: str
) -> None:
    """Names such as those of MCP servers: the history, the list of tools and the choice agree on one name."""
    read = tool(look_up, name=ODD_TOOL)
    sent = provider_name(ODD_TOOL)
    provider.script(Say(calls=[(sent, {"word": "rice"})]), Say("Done."))
    async with opened(model=name) as store:
        talk = await store.conversation("x")
        await talk.generate("Look.", tools=[read], tool_choice={"name": ODD_TOOL})
        _, calls, results, _ = await talk.history()
        assert [call.name for call in calls.tool_calls] == [ODD_TOOL]
        assert [result.content for result in results.tool_results] == ["rice is a word"]
    for body in provider.bodies:
        assert sent in json.dumps(body["tools"], ensure_ascii=False)
        assert ODD_TOOL not in json.dumps(body, ensure_ascii=False)
    assert sent in json.dumps(provider.bodies[0]["tool_choice"])


async def test_ids_that_a_model_repeats_are_unique_in_a_prompt(opened: Opener, provider: LoopbackProvider) -> None:
    calls = [ToolCall("functions.look_up:0", "look_up", {"word": word}) for word in ("rice", "tea", "milk")]
    model = ScriptedModel([[calls[0]], [calls[1]], [calls[2]], "Done."], name="m")
    async with opened(models={"m": model, **provider.models()}, model="m") as store:
        talk = await store.conversation("x")
        await talk.generate("Look.", tools=[look_up])
        context = await talk.build_context(4_000)
        check_chat(context.to_openai())
        check_responses(context.to_responses())
        check_anthropic(context.to_anthropic())
        said = [one["content"] for one in context.to_openai() if one["role"] == "tool"]
        assert said == ["rice is a word", "tea is a word", "milk is a word"]


async def test_five_rounds_and_then_an_answer(opened: Opener, provider: LoopbackProvider, name: str) -> None:
    provider.script(*[Say(calls=[("look_up", {"word": str(n)})]) for n in range(5)], Say("Enough."))
    async with opened(model=name) as store:
        talk = await store.conversation("x")
        answer = await talk.generate("Look.", tools=[look_up])
        assert answer.text == "Enough."
        assert len(provider.bodies) == 6
        choices = [str(body["tool_choice"]) for body in provider.bodies]
        assert all("auto" in choice for choice in choices[:5])
        assert "none" in choices[5]
        assert all(body["tools"] for body in provider.bodies)
        assert len(await talk.history()) == 12


async def test_a_model_that_calls_on_and_on_is_not_obeyed(opened: Opener, provider: LoopbackProvider) -> None:
    provider.script(*[Say("Again.", calls=[("look_up", {"word": "x"})])] * 9)
    async with opened(model="chat", generate={"tool_rounds": 2}) as store:
        talk = await store.conversation("x")
        answer = await talk.generate("Look.", tools=[look_up])
        assert (answer.text, answer.tool_calls, answer.finish_reason) == ("Again.", (), "stop")
        assert len(provider.bodies) == 3


async def test_a_long_result_is_cut_visibly_and_kept_whole(opened: Opener, provider: LoopbackProvider) -> None:
    def long() -> str:
        """Long."""
        return "0123456789" * 1_000

    provider.script(Say(calls=[("long", {})]), Say("Done."))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        await talk.generate("Look.", tools=[long])
        results = (await talk.history())[2]
        (result,), (whole,) = results.tool_results, results.attachments
        assert len(result.content) <= 4_000
        assert "10,000 characters in all" in result.content
        assert whole.id in result.content
        assert await talk.read_attachment(whole) == b"0123456789" * 1_000
        assert len(next(m for m in provider.bodies[1]["messages"] if m["role"] == "tool")["content"]) <= 4_000
        provider.script(
            Say(calls=[("read_attachment", {"attachment": whole.id, "start": 5_000, "length": 7})]), Say(".")
        )
        await talk.generate("Read on.", tools=["read_attachment"])
        read = (await talk.history())[-2].tool_results[0].content
        assert read.endswith("0123456")


async def test_the_budget_is_kept_after_each_round(opened: Opener, provider: LoopbackProvider, name: str) -> None:
    def long(n: int) -> str:
        """Long."""
        return f"{n} " + "lorem ipsum dolor " * 200

    provider.script(*[Say(calls=[("long", {"n": n}), ("long", {"n": -n})]) for n in range(5)], Say("Done."))
    async with opened(model=name, generate={"continuity": "off"}) as store:
        talk = await store.conversation("x")
        await talk.append_many([{"role": "user", "content": f"turn {n} " + "word " * 50} for n in range(40)])
        await talk.generate("Look.", tools=[long], token_budget=3_000)
        for request in await talk.requests():
            assert request.explanation is not None
            extra = request.explanation["tools_and_history_tokens"]
            assert request.explanation["tokens"] + extra <= 3_000
        for body in provider.bodies:
            ids = messages_with_tools(body)
            calls = [one.split()[1] for one in ids if one.startswith("call")]
            assert calls == [one.split()[1] for one in ids if one.startswith("result")]


async def test_results_that_are_longer_than_the_budget_are_shortened_and_not_left_out(
    opened: Opener, provider: LoopbackProvider
) -> None:
    def read(page: int) -> str:
        """Read a page."""
        return f"page {page} " * 400

    provider.script(Say("", calls=[("read", {"page": n}) for n in range(3)]), Say("Done."))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        await talk.generate("Look.", tools=[read], token_budget=2_500)
        assert len(messages_with_tools(provider.bodies[1])) == 6
        assert all("left out here" in one["content"] for one in provider.bodies[1]["messages"] if one["role"] == "tool")
        told = (await talk.requests())[-1].explanation
        assert told is not None
        assert told["tokens"] <= told["budget"]
        assert not told["left_out"]


async def test_what_was_recalled_stays_frozen_through_the_rounds(opened: Opener, provider: LoopbackProvider) -> None:
    provider.script(*[Say(calls=[("look_up", {"word": "peanuts"})])] * 3, Say("Done."))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        await talk.append_many([{"role": "user", "content": f"peanuts number {n}"} for n in range(150)])
        await talk.generate("What about peanuts?", tools=[look_up], token_budget=800)
        heads = [
            next(m["content"] for m in body["messages"] if "What about peanuts?" in str(m["content"]))
            for body in provider.bodies
        ]
        assert "<recalled" in heads[0]
        assert len(set(heads)) == 1


async def test_a_conversation_that_redacts_keeps_no_secret_in_the_whole_result(
    opened: Opener, provider: LoopbackProvider
) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"

    def leak() -> str:
        """Leaks."""
        return f"key {secret} " + "x" * 5_000

    provider.script(Say(calls=[("leak", {})]), Say("Done."))
    async with opened(model="chat") as store:
        talk = await store.conversation("x", settings={"redact": True})
        await talk.generate("Look.", tools=[leak])
        results = (await talk.history())[2]
        assert secret.encode() not in await talk.read_attachment(results.attachments[0])
        assert secret not in str(results)
        assert secret not in str(await talk.requests())


# ---- what goes wrong -----------------------------------------------------------------------------------------------


async def run_one(toolbox: Toolbox, call: ToolCall, seconds: float = 5.0) -> Any:
    (ran,) = await toolbox.run([call], seconds, lambda _: None)
    return ran


async def test_every_failure_of_a_tool_is_a_clear_result() -> None:
    def fail(n: int) -> str:
        """Fails."""
        raise RuntimeError("the disk is full")

    async def slow() -> None:
        """Slow."""
        await asyncio.sleep(60)

    def odd() -> object:
        """Returns something that is not JSON."""
        return object()

    async def impatient() -> None:
        """Gives up by itself."""
        raise TimeoutError("no answer from the printer")

    async def cancelled() -> None:
        """Cancels something of its own."""
        inner = asyncio.ensure_future(asyncio.sleep(60))
        inner.cancel()
        await inner

    def leave() -> None:
        """Ends the program, as parsers of command lines do."""
        sys.exit("usage: leave")

    def empty() -> str:
        """Takes the first of nothing."""
        return next(iter(()))

    def unsaid() -> None:
        """Fails with what no database keeps."""
        raise ValueError("a\0b")

    def sourced() -> ToolOutput:
        """Gives invalid sources."""
        return ToolOutput(content="ok", sources=[{"url": object()}])

    more = [impatient, cancelled, leave, empty, unsaid, sourced]
    box = Toolbox.of([fail, tool(slow, timeout=0.01), odd, *more], {})
    for call, told in (
        (ToolCall("1", "fail", {"n": 1}), "RuntimeError: the disk is full"),
        (ToolCall("2", "fail", {"n": "many"}), "not valid"),
        (ToolCall("3", "fail", {}), "not valid"),
        (ToolCall("4", "fail", {"n": 1, "m": 2}), "not valid"),
        (ToolCall("5", "fail", '{"n":'), "not a JSON object"),
        (ToolCall("6", "nothing", {}), "There is no tool 'nothing'. There are: fail, slow, odd"),
        (ToolCall("7", "slow", {}), "longer than 0.01 s"),
        (ToolCall("8", "odd", {}), "failed"),
        (ToolCall("9", "impatient", {}), "TimeoutError: no answer from the printer"),
        (ToolCall("10", "cancelled", {}), "CancelledError"),
        (ToolCall("11", "leave", {}), "SystemExit: usage: leave"),
        (ToolCall("12", "empty", {}), "StopIteration"),
        (ToolCall("13", "unsaid", {}), "ValueError: a\ufffdb"),
        (ToolCall("14", "sourced", {}), "sources: contains a value of type object"),
    ):
        ran = await run_one(box, call)
        assert ran.is_error, call
        assert told in ran.content


async def test_a_result_with_what_no_database_keeps_is_stored_without_it(
    opened: Opener, provider: LoopbackProvider
) -> None:
    def raw() -> str:
        """Gives what a file holds."""
        return "ELF\0\ud800."

    provider.script(Say(calls=[("raw", {})]), Say("I see."))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        assert (await talk.generate("Look.", tools=[raw])).text == "I see."
        assert (await talk.history())[2].tool_results[0].content == "ELF\ufffd\ufffd."


async def test_calls_that_share_an_id_get_a_result_each(opened: Opener) -> None:
    calls = [ToolCall("look_up", "look_up", {"word": word}) for word in ("rice", "tea")]
    model = ScriptedModel([calls, "Done."])
    async with opened(model="scripted", models={"scripted": model}) as store:
        await store.generate("x", "Look.", tools=[look_up])
    results = [message["content"] for message in model.calls[1] if message["role"] == "tool"]
    assert results == ["rice is a word", "tea is a word"]


async def test_more_sources_than_a_turn_holds_do_not_cost_the_answer(
    opened: Opener, provider: LoopbackProvider
) -> None:
    def find() -> ToolOutput:
        """Finds much."""
        return ToolOutput(
            content="ok", sources=[{"url": f"https://example.org/{n}", "text": "x" * 1_000} for n in range(99)]
        )

    provider.script(Say(calls=[("find", {})]), Say("I see."))
    async with opened(model="chat") as store:
        answer = await store.generate("x", "Look.", tools=[find])
        assert answer.text == "I see."
        assert answer.sources[0]["url"] == "https://example.org/0"
        assert len(answer.sources) + answer.metadata["sources_left_out"] == 99


async def test_a_failure_reaches_the_model_and_the_conversation_goes_on(
    opened: Opener, provider: LoopbackProvider, name: str
) -> None:
    provider.script(Say(calls=[("nothing", {}), ("look_up", {"wrong": 1})]), Say("I see."))
    async with opened(model=name) as store:
        talk = await store.conversation("x")
        assert (await talk.generate("Look.", tools=[look_up])).text == "I see."
        assert all(result.is_error for result in (await talk.history())[2].tool_results)
        sent = str(provider.bodies[1])
        assert "There is no tool" in sent
        assert "not valid" in sent


async def test_a_message_during_a_tool_call_does_not_come_between_call_and_result(
    opened: Opener, provider: LoopbackProvider
) -> None:
    async with opened(model="chat") as store:
        talk = await store.conversation("x")

        async def interrupted() -> str:
            """Another user speaks while it runs."""
            await talk.append("user", "I say something", actor="bob")
            return "the result"

        provider.script(Say(calls=[("interrupted", {})]), Say("Done."))
        await talk.generate("Look.", tools=[interrupted])
        sent = provider.bodies[1]["messages"]
        assert [message["role"] for message in sent[-2:]] == ["assistant", "tool"]
        assert "I say something" not in str(sent), "it came after the question"
        assert "I say something" in [turn.text for turn in await talk.history()]
        assert (await talk.history())[-3].metadata["repeats"]
        await talk.verify()


async def test_a_round_that_a_crash_cut_off_is_visible_and_is_not_run_again(
    opened: Opener, provider: LoopbackProvider, name: str
) -> None:
    clock = FakeClock()
    async with opened(model=name, clock=clock) as store:
        talk = await store.conversation("x")
        await talk.append("user", "Look.")
        until = {"tools_until": "2026-01-01T12:00:30+00:00"}
        call = ToolCall("c1", "look_up", {"word": "rice"})
        cut = await talk.append("assistant", "", tool_calls=[call], metadata=until)
        assert (await talk.history())[-1] == cut
        clock.advance(31)
        answer = await talk.generate("Well?", tools=[look_up])
        assert answer.text == "Yes."
        _, calls, results, _, _ = await talk.history()
        assert calls == cut
        assert results.metadata == {"interrupted": True}
        assert results.tool_results[0].is_error
        assert "cut off" in str(provider.bodies[0])
        await talk.verify()


async def test_a_round_that_may_still_be_running_elsewhere_is_left_alone(opened: Opener) -> None:
    clock = FakeClock()
    async with opened(model="chat", clock=clock) as store:
        talk = await store.conversation("x")
        until = {"tools_until": "2026-01-01T12:00:30+00:00"}
        await talk.append("assistant", "", tool_calls=[ToolCall("c1", "look_up", {})], metadata=until)
        await talk.generate("Well?")
        assert [turn.role for turn in await talk.history()] == ["assistant", "user", "assistant"]


def test_only_a_process_that_is_certainly_gone_is_taken_for_gone() -> None:
    machine, _, _ = this_process().partition(":")
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    assert is_gone(f"{machine}:{ended.stdout.strip()}")
    for alive_or_unknown in (
        this_process(),
        f"{machine}:1",
        f"elsewhere:{ended.stdout.strip()}",
        "",
        ":",
        f"{machine}:x",
    ):
        assert not is_gone(alive_or_unknown)


# ---- schemas -------------------------------------------------------------------------------------------------------


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Place(msgspec.Struct):
    city: str
    zip: int | None = None


def test_a_schema_comes_from_hints_and_docstring() -> None:
    def paint(
        where: Place,
        colour: Colour = Colour.RED,
        how: Literal["fast", "slow"] = "fast",
        coats: Annotated[int, msgspec.Meta(ge=1)] = 1,
        tags: list[str] = [],  # noqa: B006
    ) -> str:
        """Paint a wall.

        It dries.

        Args:
            where: The wall.
            coats (int): How many coats.
        """
        return ""

    made = tool(paint)
    assert (made.name, made.description) == ("paint", "Paint a wall.\n\nIt dries.")
    schema = dict(made.parameters)
    assert schema["type"] == "object"
    assert schema["required"] == ["where"]
    assert schema["properties"]["coats"]["minimum"] == 1
    assert schema["properties"]["coats"]["description"] == "How many coats."
    assert schema["properties"]["how"]["enum"] == ["fast", "slow"]
    assert "Place" in schema["$defs"]


async def test_arguments_are_checked_and_given_their_types() -> None:
    def kinds(where: Place, n: int = 2) -> str:
        return f"{type(where).__name__} {where.city} {n}"

    ran = await run_one(Toolbox.of([kinds], {}), ToolCall("1", "kinds", {"where": {"city": "Rome"}, "n": "3"}))
    assert (ran.content, ran.is_error) == ("Place Rome 3", False)


def test_what_is_no_tool_is_refused() -> None:
    def greedy(*args: int) -> None: ...

    for wrong in (greedy, "nonsense", 7):
        with pytest.raises(InvalidInput):
            Toolbox.of([wrong], {})
    for alone in (look_up, "recall"):
        with pytest.raises(InvalidInput, match=r"tools: must be a list, not \w+: write tools=\[…\]"):
            Toolbox.of(alone, {})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="two tools"):
        Toolbox.of([look_up, look_up], {})
    with pytest.raises(InvalidInput, match="not a valid tool name"):
        tool(look_up, name="with spaces")


def test_a_cut_result_is_never_longer_than_it_may_be() -> None:
    for most in (0, 10, 100, 4_000):
        assert len(shorten_result("x" * 9_000, most, ", in attachment abc")) <= max(most, 0)


async def test_tools_that_are_larger_than_the_budget_are_an_error(opened: Opener) -> None:
    async with opened(model="chat") as store:
        with pytest.raises(BudgetTooSmall):
            await store.generate("x", "Well?", tools=[look_up], token_budget=20)


# ---- built in ------------------------------------------------------------------------------------------------------


async def test_sources_of_tools_become_citations_of_the_answer(opened: Opener, provider: LoopbackProvider) -> None:
    def search(q: str) -> ToolOutput:
        """Search."""
        return ToolOutput(content="found", sources=[{"url": "https://example.org/a"}])

    provider.script(Say(calls=[("search", {"q": "a"}), ("search", {"q": "b"})]), Say("As it says."))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        answer = await talk.generate("Search.", tools=[search])
        assert answer.sources == ({"url": "https://example.org/a"},)
        assert (await talk.history())[1].sources == ()


async def test_recall_and_search_find_and_cite(opened: Opener) -> None:
    call = {"query": "peanuts"}
    script = [[ToolCall("1", "recall", call), ToolCall("2", "search_conversations", call)], "Done."]
    async with opened(models={"scripted": ScriptedModel(script)}, model="scripted") as store:
        other = await store.conversation("other")
        elsewhere = await other.append("user", "Peanuts are in the pantry.")
        stranger = await store.scoped(palaver_scope("bob")).conversation("secret")
        await stranger.append("user", "Peanuts of a stranger.")
        talk = await store.conversation("x")
        here = await talk.append("user", "I'm allergic to peanuts.")
        answer = await talk.generate("What about nuts?", tools=["recall", "search_conversations"])
        recalled, found = (await talk.history())[3].tool_results
        assert "allergic to peanuts" in recalled.content
        assert "pantry" in found.content
        assert "stranger" not in found.content
        turns = {source["turn"] for source in answer.sources}
        assert {here.id, elsewhere.id} <= turns


def palaver_scope(user: str) -> Any:
    from palaver import Scope

    return Scope.of("default", user)


async def test_files_are_searched_and_read(opened: Opener) -> None:
    async with opened() as store:
        talk = await store.conversation("x")
        note = await talk.attach(b"The password of the gate is swordfish.", filename="note.txt")
        picture = await talk.attach(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", filename="p.png")
        await talk.append("user", "Here.", attachments=[note, picture])
        from palaver.generation.builtin_tools import make_builtin_tools

        box = Toolbox(make_builtin_tools(talk, store.search))
        found = await run_one(box, ToolCall("1", "search_attachments", {"query": "GATE nothing"}))
        assert note.id in found.content
        assert found.sources == ({"attachment": note.id, "filename": "note.txt"},)
        read = await run_one(box, ToolCall("2", "read_attachment", {"attachment": note.id}))
        assert "swordfish" in read.content
        for wrong in (picture.id, "0" * 26):
            assert (await run_one(box, ToolCall("3", "read_attachment", {"attachment": wrong}))).is_error
        nothing = await run_one(box, ToolCall("4", "search_attachments", {"query": "zebra"}))
        assert nothing.content == "Nothing found."


async def test_a_turn_that_is_quoted_in_part_can_be_read_as_a_whole(opened: Opener) -> None:
    async with opened() as store:
        talk = await store.conversation("x")
        said = await talk.append("user", "".join(f"Sentence {n} of a long report.\n" for n in range(400)))
        from palaver.generation.builtin_tools import make_builtin_tools

        box = Toolbox(make_builtin_tools(talk, store.search))
        read, at = "", 0
        while at < len(said.text):
            piece = await run_one(box, ToolCall("1", "read_turn", {"turn": said.id, "start": at}))
            read += unquote(str(piece.content))
            at += 2_900  # a sentence that is cut at the end is whole in the next piece
        assert all(f"Sentence {n} of" in read for n in range(400))
        assert (await run_one(box, ToolCall("2", "read_turn", {"turn": "0" * 26}))).is_error


def test_a_function_without_a_name_says_how_to_name_it() -> None:
    nameless = lambda: 1  # noqa: E731
    with pytest.raises(InvalidInput, match=r"a tool needs a name: pass a named function or palaver\.tool\(f, name=…\)"):
        tool(nameless)
    assert tool(nameless, name="count").name == "count"
    with pytest.raises(InvalidInput, match="not partial: wrap it in a named function"):
        tool(partial(len, "abc"))
