"""Compaction as OpenAI's and Anthropic's own clients ask for it, from Palaver's summaries."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest

from palaver.server.settings import ServerSettings
from palaver.testing.providers import LoopbackProvider, Say
from tests.server.compat.conftest import claude_of, conversations, gpt_of, on_each_engine, thread, turns_of
from tests.server.conftest import Running, running

LONG = " ".join(f"Ada keeps bees, and hive number {n} gave honey in June." for n in range(150))  # over 1,000 tokens
MANAGED: Any = [{"type": "compaction", "compact_threshold": 1_000}]
COMPACT: Any = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 1_000}}
SUMMARY = Say("Ada keeps bees.")  # a model that summarises is asked before the one that answers
CLEAR: Any = {"type": "clear_tool_uses_20250919", "trigger": {"type": "tool_uses", "value": 2}}


def prompt(provider: LoopbackProvider) -> str:
    return json.dumps(provider.bodies[-1])


def create(claude: anthropic.Anthropic, messages: list[Any], *edits: Any, name: str | None = "a", **more: Any) -> Any:
    given = {"context_management": {"edits": list(edits)}, **more} if edits else more
    return claude.beta.messages.create(
        model="messages",
        max_tokens=99,
        messages=messages,
        extra_headers={"X-Conversation-Id": name} if name else {},
        **given,
    )


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


# ---- Responses


@on_each_engine
def test_a_thread_is_compacted_and_continues_from_the_item(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    provider.script(Say("Noted."), SUMMARY, Say("Hello."), Say("Again."))
    first = gpt.responses.create(model="chat", input=LONG)
    made = gpt.responses.compact(model="chat", previous_response_id=first.id)
    assert made.object == "response.compaction"
    *said, item = made.output
    assert [one.type for one in said] == ["message"]
    assert item.type == "compaction"
    assert "bees" not in item.encrypted_content
    rest: Any = [*[one.model_dump(exclude_none=True) for one in made.output], user("What does Ada keep?")]
    second = gpt.responses.create(model="chat", input=rest)
    assert second.conversation == first.conversation
    assert "bees" in prompt(provider)
    assert [role for role, _ in thread(server, first.conversation.id[5:])] == ["user", "assistant"] * 2
    changed = [*rest[:-1], user("And what else?")]
    gpt.responses.create(model="chat", input=changed)
    assert [text for _, text in thread(server, first.conversation.id[5:])][2:] == ["And what else?", "Again."]


def test_items_that_are_not_stored_can_be_compacted(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    provider.script(SUMMARY, Say("Bees."), SUMMARY)
    items: Any = [user(LONG), {"role": "assistant", "content": "Noted."}, user("Good.")]
    made = gpt.responses.compact(model="chat", input=items)
    assert [one.type for one in made.output] == ["message", "message", "compaction"]
    assert made.usage.input_tokens > made.usage.output_tokens > 0
    sent: Any = [made.output[-1].model_dump(exclude_none=True), user("What does Ada keep?")]
    gpt.responses.create(model="chat", input=sent, store=False)
    assert "Summary of the conversation so far" in prompt(provider)
    assert "bees" in prompt(provider)
    again = gpt.responses.compact(model="chat", input=sent)
    assert again.output[-1].type == "compaction"
    with pytest.raises(openai.BadRequestError, match="is required"):
        gpt.responses.compact(model="chat")
    with pytest.raises(openai.BadRequestError, match="cannot be combined"):
        gpt.responses.compact(model="chat", input="Hi", previous_response_id="resp_1")
    with pytest.raises(openai.NotFoundError):
        gpt.responses.compact(model="chat", previous_response_id="resp_1")


def test_a_threshold_compacts_once_and_the_item_is_part_of_the_response(
    server: Running, gpt: openai.OpenAI, provider: LoopbackProvider
) -> None:
    provider.script(Say("Noted."), SUMMARY, Say("Hello."), Say("Bees."))
    first = gpt.responses.create(model="chat", input="My name is Ada.", context_management=MANAGED)
    assert [one.type for one in first.output] == ["message"]
    with gpt.responses.stream(
        model="chat", input=LONG, previous_response_id=first.id, context_management=MANAGED
    ) as stream:
        kinds = [event.type for event in stream]
        second = stream.get_final_response()
    assert [one.type for one in second.output] == ["compaction", "message"]
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 2
    read = gpt.responses.retrieve(second.id).output
    assert [one.id for one in read] == [one.id for one in second.output]
    assert read[0] == second.output[0]
    third = gpt.responses.create(model="chat", input="Yes?", previous_response_id=second.id, context_management=MANAGED)
    assert [one.type for one in third.output] == ["message"]
    sent: Any = [user("dropped"), *[one.model_dump(exclude_none=True) for one in second.output], user("And now?")]
    gpt.responses.create(model="chat", input=sent)
    texts = [text for _, text in thread(server, first.conversation.id[5:])]
    assert texts[-2] == "And now?"
    assert "dropped" not in texts
    assert "Yes?" not in texts


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ([{"type": "compactoin"}], "context_management.type"),
        ([{"type": "compaction", "compact_threshold": 10}], "1,000 or more"),
        ([{"type": "compaction", "treshold": 2_000}], "is unknown .did you mean"),
    ],
)
def test_unknown_management_is_refused(gpt: openai.OpenAI, given: Any, error: str) -> None:
    with pytest.raises(openai.BadRequestError, match=error):
        gpt.responses.create(model="chat", input="Hello", context_management=given)
    with pytest.raises(openai.BadRequestError, match="needs a conversation"):
        gpt.responses.create(model="chat", input="Hello", context_management=MANAGED, store=False)


def test_an_item_of_another_tenant_or_user_is_not_known(
    settings: Callable[..., ServerSettings], provider: LoopbackProvider
) -> None:
    with running(settings(require_auth=True, jwt_secret="s" * 32)) as server:
        rights = "read write generate system"
        ada, eve = server.key("one", "ada", rights=rights), server.key("two", "eve", rights=rights)
        bob = server.key("one", "bob", rights=rights)
        made = gpt_of(server, ada).responses.compact(model="chat", input=LONG)
        sent: Any = [made.output[-1].model_dump(exclude_none=True), user("What does Ada keep?")]
        for other in (eve, bob):
            for stored in (True, False):
                with pytest.raises(openai.BadRequestError, match="not known here"):
                    gpt_of(server, other).responses.create(model="chat", input=sent, store=stored)
        assert len(provider.bodies) == 1  # the summary


# ---- Messages


@on_each_engine
def test_messages_are_compacted_and_continue_from_the_block(
    server: Running, claude: anthropic.Anthropic, provider: LoopbackProvider
) -> None:
    provider.script(SUMMARY, Say("Noted."), Say("Bees."), Say("Honey."))
    messages: list[Any] = [user(LONG)]
    first = create(claude, messages, COMPACT)
    block, text = first.content
    assert (block.type, text.type, first.stop_reason) == ("compaction", "text", "end_turn")
    assert "bees" in block.content
    assert first.context_management.applied_edits == []
    messages += [{"role": "assistant", "content": [one.model_dump() for one in first.content]}, user("What?")]
    second = create(claude, messages, COMPACT)
    assert [one.type for one in second.content] == ["text"]
    assert [text for _, text in thread(server, "a")][1:] == ["Noted.", "What?", "Bees."]
    create(claude, messages, name="b")
    assert "Summary of the conversation so far" in thread(server, "b")[0][1]
    create(claude, messages, name=None)
    assert "Summary of the conversation so far" in prompt(provider)
    assert conversations(server) == 2


def test_a_compaction_is_streamed_as_a_block(claude: anthropic.Anthropic, provider: LoopbackProvider) -> None:
    provider.script(SUMMARY, Say("Noted."))
    with claude.beta.messages.stream(
        model="messages",
        max_tokens=99,
        messages=[user(LONG)],
        context_management={"edits": [COMPACT]},
        extra_headers={"X-Conversation-Id": "a"},
    ) as stream:
        told = [event.type for event in stream]
        final = stream.get_final_message()
    assert "compaction" in told
    assert [one.type for one in final.content] == ["compaction", "text"]
    assert final.content[0].encrypted_content
    assert final.context_management is not None


@pytest.mark.parametrize("given", [{"context_management": {"edits": [{**COMPACT, "pause_after_compaction": True}]}},
                                   {"compaction": {"type": "summarize"}}])  # fmt: skip
def test_a_pause_returns_the_compaction_alone(
    server: Running, claude: anthropic.Anthropic, provider: LoopbackProvider, given: Any
) -> None:
    provider.script(SUMMARY, Say("Bees."))
    first = create(claude, [user(LONG)], **given)
    assert (first.stop_reason, [one.type for one in first.content]) == ("compaction", ["compaction"])
    assert len(provider.bodies) == 1
    block = {"role": "assistant", "content": [one.model_dump(exclude_none=True) for one in first.content]}
    second = create(claude, [user(LONG), block, user("What does Ada keep?")])
    assert second.content[0].text == "Bees."
    assert [text for _, text in thread(server, "a")][1:] == ["What does Ada keep?", "Bees."]


def tool_rounds(count: int) -> list[Any]:
    found: list[Any] = [user("Look it up.")]
    for n in range(count):
        call = {"type": "tool_use", "id": f"call_{n}", "name": "look", "input": {"page": n}}
        thought = {"type": "thinking", "thinking": f"I think of page {n}.", "signature": "s"}
        found.append({"role": "assistant", "content": [thought, call]})
        result = {"type": "tool_result", "tool_use_id": f"call_{n}", "content": f"page {n}: " + "long text " * 30}
        found.append({"role": "user", "content": [result]})
    return found


LOOK: Any = [{"name": "look", "description": "Look", "input_schema": {"type": "object", "properties": {}}}]


@pytest.mark.parametrize("name", ["a", None])
def test_old_tool_results_and_thoughts_are_cleared_and_reported(
    server: Running, claude: anthropic.Anthropic, provider: LoopbackProvider, name: str | None
) -> None:
    provider.script(Say("Done."), Say("Done."))
    keep = {"keep": {"type": "tool_uses", "value": 1}, "clear_tool_inputs": True}
    thinking = {"type": "clear_thinking_20251015", "keep": {"type": "thinking_turns", "value": 1}}
    made = create(claude, tool_rounds(3), {**CLEAR, **keep}, thinking, name=name, tools=LOOK)
    applied = {one.type: one for one in made.context_management.applied_edits}
    assert applied["clear_tool_uses_20250919"].cleared_tool_uses == 2
    assert applied["clear_tool_uses_20250919"].cleared_input_tokens > 50
    assert applied["clear_thinking_20251015"].cleared_thinking_turns == 2
    sent = prompt(provider)
    assert "page 2: long" in sent
    assert "page 1: long" not in sent
    assert "I think of page 1" not in sent
    assert '"page": 0' not in sent
    if name:
        assert "page 0: long" in str(turns_of(server, "a")[2].tool_results)
    few = create(claude, tool_rounds(1), CLEAR, name=name and "c", tools=LOOK)
    assert few.context_management.applied_edits == []


@pytest.mark.parametrize(
    ("edit", "error"),
    [
        ({"type": "clear_tool_uses_20990101"}, "did you mean|is not known"),
        ({**COMPACT, "trigger": {"type": "tool_uses", "value": 2_000}}, "must be input_tokens"),
        ({**CLEAR, "keep": {"type": "tool_uses", "value": -1}}, "0 or more"),
        ({**CLEAR, "kept": 3}, "is unknown .did you mean 'keep'"),
        ({"type": "clear_thinking_20251015", "keep": "some"}, "must be an object"),
    ],
)
def test_unknown_edits_are_refused(claude: anthropic.Anthropic, edit: Any, error: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match=error):
        create(claude, [user("Hello")], edit)


def test_what_cannot_be_done_is_said(settings: Callable[..., ServerSettings]) -> None:
    with running(settings()) as server, claude_of(server) as claude:
        with pytest.raises(anthropic.BadRequestError, match="needs a conversation"):
            create(claude, [user("Hello")], COMPACT, name=None)
        with pytest.raises(anthropic.BadRequestError, match="cannot be combined"):
            create(claude, [user("Hello")], COMPACT, compaction={"type": "summarize"})
        raw = claude.beta.messages.with_raw_response.create(
            model="messages",
            max_tokens=9,
            messages=[user("Hello")],
            context_management={"edits": [{**COMPACT, "instructions": "In French."}]},
            extra_headers={"X-Conversation-Id": "a"},
        )
        assert raw.headers["x-ignored-fields"] == "context_management.edits.instructions"
